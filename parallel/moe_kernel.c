// The kernels' path of tuttiMoe. SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "moe.h"

static ncclResult_t open_kernels(tuttiMoe_t moe)
{
    (void)moe;
    return tuttiFail(ncclInvalidUsage, "tuttiMoeCreate: path: kernels are not built in");
}

const struct moe_path moe_kernel_path = {.open = open_kernels};

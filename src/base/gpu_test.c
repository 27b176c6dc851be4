// Names of GPUs: the same GPU has the same facts in every process, whatever its number there.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"

#include "expect.h"
#include "ranks.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void whole_machine(void)
{
    const struct tt_gpu *gpu = tt_gpu(3);
    EXPECT_STR(gpu->name, "GPU 3 (physical 3)");
    EXPECT_EQ(gpu->physical, 3);
    EXPECT_STR(gpu->pci, "0000:61:00.0");
    EXPECT_EQ(strlen(gpu->uuid), 40);
    EXPECT_STR(tt_gpu(0)->uuid, "GPU-cf84fa25-488c-4c2b-9bc4-10f0c5de2762");
    EXPECT(tt_gpu(3) == gpu);
    EXPECT(strcmp(tt_gpu(2)->uuid, gpu->uuid) != 0);
    EXPECT_EQ(tt_gpu_find(gpu->uuid_bytes), 3);
}

// What a rank says of others' GPUs, and of real ones.
static void by_facts(void)
{
    static const unsigned char uuid[16] = {0x89, 0x32, 0xf9, 0x37, 0xd7};
    EXPECT_STR(tt_gpu_name(0, 3, uuid).text, "GPU 0 (physical 3)");
    EXPECT_STR(tt_gpu_name(1, -1, uuid).text, "GPU 1 (GPU-8932f937)");
}

static void no_devices(void)
{
    static const int numbers[] = {-1, 8, 63, 64, 1 << 30};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "GPU %d", numbers[i]);
        EXPECT_STR(tt_gpu(numbers[i])->name, expected);
        EXPECT_EQ(tt_gpu(numbers[i])->physical, -1);
        EXPECT_STR(tt_gpu(numbers[i])->uuid, "");
    }
    static const unsigned char zeros[16];
    EXPECT_EQ(tt_gpu_find(zeros), -1);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess); // the question leaves no trace
}

// Every rank sees one GPU, and calls it 0.
static void one_each(int rank, int size)
{
    static const char *const pci[] = {"0000:1B:00.0", "0000:43:00.0", "0000:52:00.0",
                                      "0000:61:00.0"};
    char number[8], name[64];
    int count = 0;
    (void)size;
    snprintf(number, sizeof number, "%d", rank);
    setenv(rank % 2 == 0 ? "CUDA_VISIBLE_DEVICES" : "VGPU_DEVICES", number, 1);
    EXPECT_CUDA(cudaGetDeviceCount(&count));
    EXPECT_EQ(count, 1);
    snprintf(name, sizeof name, "GPU 0 (physical %d)", rank);
    EXPECT_STR(tt_gpu(0)->name, name);
    EXPECT_STR(tt_gpu(0)->pci, pci[rank]);
}

static void isolated(void)
{
    run_ranks(4, one_each, 30);
}

int main(void)
{
    RUN(whole_machine);
    RUN(by_facts);
    RUN(no_devices);
    RUN(isolated);
    return expect_result();
}

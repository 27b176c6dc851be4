// What tutticc makes of a kernel and a variable, by hand: the module of driver_module_test.
// SPDX-License-Identifier: Apache-2.0
#include "cuda_runtime_api.h"
#include "vgpu/device_runtime.h"

#include <stdatomic.h>

__attribute__((visibility("default"))) void module_kernel(atomic_int *count);
static int module_variable = 42; // as tutticc makes them

void module_kernel(atomic_int *count)
{
    atomic_fetch_add(count, 1);
}

static void invoke(void **arguments)
{
    module_kernel(*(atomic_int **)arguments[0]);
}

static const uint32_t POINTER_BYTES[] = {sizeof(void *)};

__attribute__((constructor)) static void register_all(void)
{
    static struct vgpu_kernel kernel = {.name = "module_kernel",
                                        .invoke = invoke,
                                        .parameter_count = 1,
                                        .parameter_bytes = POINTER_BYTES,
                                        .parameter_align = POINTER_BYTES,
                                        .file = __FILE__,
                                        .line = __LINE__};
    static const struct vgpu_symbol symbol = {.host_image = &module_variable,
                                              .name = "module_variable",
                                              .bytes = sizeof(module_variable),
                                              .align = _Alignof(int)};
    kernel.function = (const void *)(uintptr_t)module_kernel;
    vgpu_register_kernel(&kernel);
    vgpu_register_symbol(&symbol);
}

// Asks for all hardware queues that there are before CUDA is used: it reads the variable when it
// makes a process's context. See connections.h.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/connections.h"

#include "base/log.h"
#include "base/params.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { MOST = 32 };
static const char most_text[] = "32";

static bool too_late; // the context was there before the variable; written while libraries load

// Whether the process has a context on some GPU. Without the driver's library it cannot.
static bool has_context(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == NULL) {
        return false;
    }
    CUresult (*count_devices)(int *) = NULL;
    CUresult (*state_of)(CUdevice, unsigned int *, int *) = NULL;
    *(void **)&count_devices = dlsym(driver, "cuDeviceGetCount");
    *(void **)&state_of = dlsym(driver, "cuDevicePrimaryCtxGetState");
    int count = 0, active = 0;
    if (count_devices != NULL && state_of != NULL && count_devices(&count) == CUDA_SUCCESS) {
        for (int device = 0; device < count && active == 0; device++) {
            unsigned int flags = 0;
            if (state_of(device, &flags, &active) != CUDA_SUCCESS) {
                active = 0;
            }
        }
    }
    (void)dlclose(driver);
    return active != 0;
}

__attribute__((constructor)) static void ask(void)
{
    too_late = tt_param_propose(TT_PARAM_CONNECTIONS, most_text) && has_context();
}

void tt_connections_check(int ranks)
{
    static atomic_bool told;
    bool is_small = tt_param_int(TT_PARAM_CONNECTIONS) < MOST;
    if (ranks < 2 || (!is_small && !too_late) || atomic_exchange(&told, true)) {
        return;
    }
    tt_say("%d ranks of this process share a GPU, but %s: streams that share a hardware queue wait "
           "for each other, and such ranks can wait for ever; set CUDA_DEVICE_MAX_CONNECTIONS=%d "
           "before the program starts",
           ranks,
           is_small ? "CUDA_DEVICE_MAX_CONNECTIONS is less than 32"
                    : "CUDA was used before this library was loaded and has 8 queues",
           MOST);
}

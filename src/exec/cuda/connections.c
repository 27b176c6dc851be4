// Asks for all hardware queues that there are before CUDA is used: it reads the variable when it
// makes a process's context. See connections.h.
//
// Not under MPS: its processes share the queues, and some of 8 that ask for 32 each get none
// ("device is busy or unavailable").
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/connections.h"

#include "base/log.h"
#include "base/params.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { MOST = 32, QUEUES_OF_A_RANK = 4 }; // its own stream, and some of the program's
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

static bool has_mps(void)
{
    char path[512];
    const char *folder = tt_param_peek(TT_PARAM_MPS_PIPE);
    (void)snprintf(path, sizeof path, "%s/control",
                   folder == NULL ? "/tmp/nvidia-mps" : folder); // where CUDA looks
    return access(path, F_OK) == 0;
}

__attribute__((constructor)) static void ask(void)
{
    too_late = !has_mps() && tt_param_propose(TT_PARAM_CONNECTIONS, most_text) && has_context();
}

void tt_connections_check(int ranks)
{
    static atomic_bool told;
    long queues = tt_param_int(TT_PARAM_CONNECTIONS);
    bool is_small = queues < MOST && queues < QUEUES_OF_A_RANK * ranks;
    if (ranks < 2 || (!is_small && !too_late) || atomic_exchange(&told, true)) {
        return;
    }
    tt_say("%d ranks of this process share a GPU, but %s: streams that share a hardware queue wait "
           "for each other, and such ranks can wait for ever; set CUDA_DEVICE_MAX_CONNECTIONS=%d "
           "before the program starts%s",
           ranks,
           is_small ? "CUDA has only the queues of CUDA_DEVICE_MAX_CONNECTIONS"
                    : "CUDA was used before this library was loaded and has 8 queues",
           MOST, is_small ? " (less where many processes use MPS)" : "");
}

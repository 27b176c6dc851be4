// See thread.h. SPDX-License-Identifier: Apache-2.0
#include "base/thread.h"

#include <signal.h>
#include <stddef.h>
#include <vgpu/check.h>

#pragma weak vgpuCheckServiceThread // exists on virtual GPUs

void tt_thread_serves(void)
{
    if (vgpuCheckServiceThread != NULL) {
        vgpuCheckServiceThread();
    }
}

int tt_thread_start(pthread_t *thread_out, void *(*run)(void *argument), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int result = pthread_create(thread_out, NULL, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

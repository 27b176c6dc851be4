// Threads of the library: made with all signals blocked, so that a program's handlers run on the
// program's threads.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_THREAD_H
#define TT_BASE_THREAD_H

#include <pthread.h>

// pthread_create with default attributes; its result.
int tt_thread_start(pthread_t *thread_out, void *(*run)(void *argument), void *argument);

// The calling thread never changes what kernels wait for: virtual GPUs in checking mode leave it
// out when they look for waits that nothing can end.
void tt_thread_serves(void);

#endif

// Memory of a thread, on the heap. SPDX-License-Identifier: Apache-2.0
#include "thread_memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; // frees a thread's slots at its end
static bool have_key;     // constant after `once`
static __thread void **mine;

static void end_thread(void *value)
{
    void **slots = value;
    for (int i = 0; i < VGPU_THREAD_SLOTS; i++) {
        free(slots[i]);
    }
    free((void *)slots);
    mine = NULL; // other destructors may still come and begin anew
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, end_thread) == 0; // without it a thread's slots leak
}

void *vgpu_thread_memory(enum vgpu_thread_slot slot, size_t bytes)
{
    if (!mine) {
        pthread_once(&once, make_key);
        mine = (void **)calloc(VGPU_THREAD_SLOTS, sizeof(void *));
        if (!mine) {
            return NULL;
        }
        if (have_key) {
            (void)pthread_setspecific(key, (void *)mine); // if that fails, they leak
        }
    }
    if (!mine[slot]) {
        mine[slot] = calloc(1, bytes);
    }
    return mine[slot];
}

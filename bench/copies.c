// See copies.h. The threads meet before they start, and end with the copy: an idle thread would
// take time from what is measured next.
// SPDX-License-Identifier: Apache-2.0
#include "copies.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { MOST = 16 };

struct copier {
    char *to;
    const char *from;
    size_t bytes;
    int count;
    _Atomic int *ready;
    double start, end;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void copy_wide(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        _mm512_stream_si512((void *)(to + i), _mm512_load_si512((const void *)(from + i)));
    }
    _mm_sfence();
}

__attribute__((target("avx"))) static void copy_narrow(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __m256i low = _mm256_load_si256((const __m256i *)(from + i));
        __m256i high = _mm256_load_si256((const __m256i *)(from + i + 32));
        _mm256_stream_si256((__m256i *)(to + i), low);
        _mm256_stream_si256((__m256i *)(to + i + 32), high);
    }
    _mm_sfence();
}
#endif

static void copy(char *to, const char *from, size_t bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        copy_wide(to, from, bytes);
        return;
    }
    if (__builtin_cpu_supports("avx")) {
        copy_narrow(to, from, bytes);
        return;
    }
#endif
    memcpy(to, from, bytes);
}

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *run(void *argument)
{
    struct copier *self = argument;
    atomic_fetch_add(self->ready, 1);
    while (atomic_load(self->ready) < self->count) {
        sched_yield();
    }
    self->start = now();
    copy(self->to, self->from, self->bytes);
    self->end = now();
    return NULL;
}

double bench_copies(int count, char *const *to, char *const *from, size_t bytes)
{
    struct copier copiers[MOST];
    pthread_t threads[MOST];
    _Atomic int ready = 0;
    count = count < MOST ? count : MOST;
    for (int i = 0; i < count; i++) {
        copiers[i] = (struct copier){to[i], from[i], bytes, count, &ready, 0, 0};
        if (pthread_create(&threads[i], NULL, run, &copiers[i]) != 0) {
            perror("bench: pthread_create");
            exit(1);
        }
    }
    double start = 0, end = 0;
    for (int i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
        start = i == 0 || copiers[i].start < start ? copiers[i].start : start;
        end = copiers[i].end > end ? copiers[i].end : end;
    }
    return end - start;
}

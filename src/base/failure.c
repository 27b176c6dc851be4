// The one way to fail, and the last error. See log.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ERROR_BYTES = 1024 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards last_error
static char last_error[ERROR_BYTES];
static _Thread_local char last_error_copy[ERROR_BYTES];
static _Thread_local char thread_error[ERROR_BYTES];
static _Thread_local struct {
    const char *call; // NULL: none runs
    int rank, depth, relaxed;
    CUstreamCaptureMode mode; // the thread's own, meanwhile
} running;

// A child of fork has the mutex as the forking thread saw it: it must not be another's then.
static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void watch_forks(void)
{
    (void)pthread_atfork(lock, unlock, unlock);
}

static void store_error(const char *text)
{
    pthread_once(&once, watch_forks);
    lock();
    (void)snprintf(last_error, sizeof last_error, "%s", text);
    unlock();
}

// By the driver's function: the runtime's makes a context in a thread that has none yet. Before the
// process's first call of CUDA it may fail; the thread's mode is that of every thread then.
void tt_relax_begin(void)
{
    if (running.relaxed++ == 0) {
        running.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        if (cuThreadExchangeStreamCaptureMode(&running.mode) != CUDA_SUCCESS) {
            running.mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
        }
    }
}

void tt_relax_end(void)
{
    if (--running.relaxed == 0) {
        (void)cuThreadExchangeStreamCaptureMode(&running.mode);
    }
}

void tt_call_begin(const char *call, int rank)
{
    if (running.depth++ == 0) {
        running.call = call;
        running.rank = rank;
        tt_relax_begin();
    }
}

void tt_call_end(void)
{
    if (--running.depth == 0) {
        running.call = NULL;
        tt_relax_end();
    }
}

const char *tt_call_name(void)
{
    return running.call;
}

const char *tt_call_rename(const char *call)
{
    const char *before = running.call;
    running.call = call;
    return before;
}

// Puts "ncclX: rank 3: " in front of a text that does not say so itself; returns what is left of
// it.
static const char *begin_text(const char *said, char *text, size_t bytes)
{
    text[0] = 0;
    if (running.call == NULL) {
        return said;
    }
    size_t length = strlen(running.call);
    bool begins = strncmp(said, running.call, length) == 0 && strncmp(said + length, ": ", 2) == 0;
    bool needs_rank = running.rank >= 0 && strstr(said, "rank ") == NULL;
    if (begins && !needs_rank) {
        return said;
    }
    if (begins || strstr(said, running.call) == NULL) {
        (void)snprintf(text, bytes, "%s: ", running.call);
    }
    if (needs_rank) {
        size_t used = strlen(text);
        (void)snprintf(text + used, bytes - used, "rank %d: ", running.rank);
    }
    return begins ? said + length + 2 : said;
}

// Native kernels fail here too: the thread sanitizer takes the fibers of one worker for threads and
// the worker's thread-local text for shared.
__attribute__((no_sanitize("thread"))) ncclResult_t
tt_fail_at(const struct tt_origin *origin, ncclResult_t result, const char *format, ...)
{
    char said[ERROR_BYTES], text[ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    const char *rest = begin_text(said, text, sizeof text);
    size_t used = strlen(text), length = strnlen(rest, sizeof text - used - 1);
    memcpy(text + used, rest, length);
    text[used + length] = 0;
    memcpy(thread_error, text, sizeof thread_error);
    store_error(text);
    tt_log_warn(origin, text);
    return result;
}

ncclResult_t tt_bug(const char *format, ...)
{
    char text[ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ncclResult_t result = tt_fail(ncclInternalError, "internal error: %s", text);
#ifdef TUTTI_CHECKED
    fprintf(stderr, "tutti: internal error: %s\n", text);
    abort();
#endif
    return result;
}

const char *tt_cuda_detail(void)
{
    // A CUDA runtime may keep the text of the calling thread's last failure; NVIDIA's does not.
    static _Atomic(void *) known;
    static char none;
    void *found = atomic_load(&known);
    if (found == NULL) {
        found = dlsym(RTLD_DEFAULT, "vgpuLastErrorText");
        atomic_store(&known, found == NULL ? &none : found);
    }
    if (found == NULL || found == &none) {
        return "";
    }
    const char *(*last_text)(void);
    memcpy(&last_text, &found, sizeof last_text);
    return last_text();
}

ncclResult_t tt_cuda(int cuda_error, const char *call)
{
    if (cuda_error == cudaSuccess) {
        return ncclSuccess;
    }
    // The runtime's reason is that of the failure which it met last; another one's is none of this.
    bool is_last = cudaPeekAtLastError() == (cudaError_t)cuda_error;
    char detail[512];
    (void)snprintf(detail, sizeof detail, "%s", is_last ? tt_cuda_detail() : "");
    if (is_last) {
        cudaGetLastError(); // else it is the program's
    }
    return tt_fail(ncclUnhandledCudaError, "%.*s: %s (%d)%s%s", (int)strcspn(call, "("), call,
                   cudaGetErrorString((cudaError_t)cuda_error), cuda_error,
                   detail[0] != 0 ? ": " : "", detail);
}

const char *tt_thread_error(void)
{
    return thread_error;
}

void tt_restore_error(const char *text)
{
    (void)snprintf(thread_error, sizeof thread_error, "%s", text);
    store_error(text);
}

const char *tt_last_error(void)
{
    if (thread_error[0] != 0) {
        return thread_error;
    }
    lock();
    memcpy(last_error_copy, last_error, sizeof last_error_copy);
    unlock();
    return last_error_copy;
}

// ---- Results ------------------------------------------------------------------------------------

const char *tt_result_text(ncclResult_t result)
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "a CUDA call failed (ncclGetLastError names it)",
        [ncclSystemError] = "a system call or a library call failed (ncclGetLastError names it)",
        [ncclInternalError] =
            "internal error, or the communicator was aborted (see ncclGetLastError)",
        [ncclInvalidArgument] = "invalid argument (ncclGetLastError names it)",
        [ncclInvalidUsage] = "invalid usage (ncclGetLastError explains it)",
        [ncclRemoteError] = "another rank failed or ended (ncclGetLastError names it)",
        [ncclInProgress] = "the operation is still in progress",
        [ncclTimeout] = "a time limit was reached (ncclGetLastError names what was waited for)",
    };
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result]
                                                             : "unknown result code";
}

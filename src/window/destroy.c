// The end of a communicator's windows. After an abort, kernels that still run may be reading them:
// they end soon, because waits watch the abort flag, but when is not known. A thread of its own
// then waits for the device and frees the windows; the caller gives it a moment and leaves.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"
#include "window/window_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { REAPER_PATIENCE_S = 1 };

static void free_windows(struct tt_windows *windows)
{
    int previous = -1;
    bool restore = cudaGetDevice(&previous) == cudaSuccess && previous != windows->device;
    if (restore) {
        (void)cudaSetDevice(windows->device);
    }
    while (windows->count > 0) {
        tt_registered_destroy(windows->range[0].registered);
    }
    while (windows->device_comms != NULL) {
        struct tt_device_comm *device_comm = windows->device_comms;
        windows->device_comms = device_comm->next;
        tt_device_comm_free(device_comm);
    }
    tt_scratch_free(windows);
    while (windows->chunks != NULL) {
        struct tt_table_chunk *chunk = windows->chunks;
        windows->chunks = chunk->next;
        (void)cudaFree(chunk->device);
        free(chunk);
    }
    (void)cudaStreamDestroy(windows->stream);
    for (int v = 0; v < windows->view_count; v++) {
        free(windows->view_teams[v]);
    }
    free(windows->range);
    free(windows);
    if (restore) {
        (void)cudaSetDevice(previous);
    }
}

// What the caller and the thread share; freed by the last of the two.
struct reaper {
    pthread_mutex_t lock; // guards the fields below
    pthread_cond_t changed;
    struct tt_windows *windows;
    bool done;
    int users;
};

static void leave_reaper(struct reaper *reaper)
{
    (void)pthread_mutex_lock(&reaper->lock);
    bool last = --reaper->users == 0;
    (void)pthread_mutex_unlock(&reaper->lock);
    if (last) {
        (void)pthread_mutex_destroy(&reaper->lock);
        (void)pthread_cond_destroy(&reaper->changed);
        free(reaper);
    }
}

static void *reap(void *argument)
{
    struct reaper *reaper = argument;
    (void)cudaSetDevice(reaper->windows->device);
    (void)cudaDeviceSynchronize();
    free_windows(reaper->windows);
    (void)pthread_mutex_lock(&reaper->lock);
    reaper->done = true;
    (void)pthread_cond_signal(&reaper->changed);
    (void)pthread_mutex_unlock(&reaper->lock);
    leave_reaper(reaper);
    return NULL;
}

// False where no thread could be made.
static bool free_when_idle(struct tt_windows *windows)
{
    struct reaper *reaper = calloc(1, sizeof *reaper);
    if (reaper == NULL) {
        return false;
    }
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&reaper->lock, NULL);
    (void)pthread_cond_init(&reaper->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    reaper->windows = windows;
    reaper->users = 2;
    pthread_t thread;
    if (pthread_create(&thread, NULL, reap, reaper) != 0) {
        reaper->users = 1;
        leave_reaper(reaper);
        return false;
    }
    (void)pthread_detach(thread);
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += REAPER_PATIENCE_S;
    (void)pthread_mutex_lock(&reaper->lock);
    int error = 0;
    while (!reaper->done && error == 0) {
        error = pthread_cond_timedwait(&reaper->changed, &reaper->lock, &until);
    }
    (void)pthread_mutex_unlock(&reaper->lock);
    leave_reaper(reaper);
    return true;
}

void tt_windows_destroy(struct ncclComm *comm)
{
    struct tt_windows *windows = comm->windows;
    if (windows == NULL) {
        return;
    }
    comm->windows = NULL;
    // From here on nobody finds them any more.
    for (int i = 0; i < windows->count; i++) {
        tt_handles_remove(windows->range[i].registered);
    }
    bool aborted = comm->abort_flag != NULL && atomic_load(comm->abort_flag) != 0;
    if (aborted && free_when_idle(windows)) {
        return;
    }
    if (aborted) {
        tt_log(TT_LOG_WARN, TT_LOG_DESTROY,
               "rank %d: no thread to free the windows of an aborted communicator; they stay",
               comm->rank);
        return;
    }
    free_windows(windows);
}

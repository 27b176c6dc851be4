// Watches the communicators of the process while nobody calls: one thread sleeps on the connections
// to their roots, and wakes several times a second to ask whether their devices, or operations of
// other ranks, have failed.
//
// It also tells the process's state where a signal asks for it (record/).
//
// What it finds ends the communicator: the asynchronous error, waits of other threads, kernels (by
// the abort flag), and one line on stderr, because a program that waits for a kernel asks nothing.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/thread.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "exec/executor.h"
#include "record/record.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { TICK_MS = 200, EVENTS = 16 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the three below
static int watched = -1;                                  // the epoll descriptor
static int first_device;                                  // where the thread begins
static _Atomic pid_t owner;                               // the process whose thread runs
// The thread has it while it looks; a process that ends keeps it, so that no look meets the end.
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;

// ---- What is wrong ------------------------------------------------------------------------------

bool tt_comm_fail(struct ncclComm *comm, ncclResult_t result, const char *text)
{
    int untold = 0, none = ncclSuccess;
    int dead = tt_bootstrap_dead_rank(comm->bootstrap);
    if (atomic_load(&comm->async_error) == ncclSuccess &&
        atomic_compare_exchange_strong(&comm->told, &untold, 1)) {
        (void)snprintf(comm->failure_text, sizeof comm->failure_text, "%s", text);
        atomic_store_explicit(&comm->told, 2, memory_order_release);
    }
    atomic_compare_exchange_strong(&comm->async_error, &none, (int)result);
    bool first = tt_local_fail(comm, result, text); // before the flag: waits then give this reason
    uint32_t running = 0, flag = dead >= 0 ? NCCL_ABORT_FLAG_DEATH + (uint32_t)dead : 1;
    atomic_compare_exchange_strong(comm->abort_flag, &running, flag);
    return first;
}

// Kernels must know who will not come to a barrier any more.
static void tell_kernels_of_leavers(struct ncclComm *comm)
{
    const _Atomic unsigned char *left = tt_bootstrap_left(comm->bootstrap);
    int first = comm->rank - comm->lsa_rank;
    for (int member = 0; member < comm->lsa_size && member < NCCL_LEFT_RANKS; member++) {
        if (atomic_load_explicit(&left[first + member], memory_order_acquire) != 0) {
            atomic_fetch_or(comm->abort_flag + 1 + member / 32, 1u << member % 32);
        }
    }
}

static void look_at_peers(struct ncclComm *comm)
{
    ncclResult_t result = tt_bootstrap_look(comm->bootstrap);
    tell_kernels_of_leavers(comm);
    if (result == ncclSuccess) {
        return;
    }
    char text[512];
    (void)snprintf(text, sizeof text, "%s", tt_bootstrap_failure(comm->bootstrap));
    if (tt_comm_fail(comm, result, text)) {
        tt_say("%s; what waits for it on %s ends with an error, other work goes on. See what that "
               "rank said; end the communicator with ncclCommAbort",
               text, comm->name);
    }
}

// The error that sticks to a device; cudaSuccess: none. The calling thread's own stream of it is
// asked, which nobody captures; an error of the thread itself that waits for cudaGetLastError
// stays.
static cudaError_t sticky_error(int device)
{
    int before = -1;
    bool keeps_error = cudaPeekAtLastError() != cudaSuccess;
    if (cudaGetDevice(&before) != cudaSuccess) {
        return cudaSuccess;
    }
    cudaError_t error = before != device ? cudaSetDevice(device) : cudaSuccess;
    if (error == cudaSuccess) {
        error = cudaStreamQuery(cudaStreamPerThread);
    }
    if (before != device) {
        (void)cudaSetDevice(before);
    }
    if (error != cudaSuccess && !keeps_error) {
        (void)cudaGetLastError();
    }
    return error == cudaErrorNotReady ? cudaSuccess : error;
}

static void look_at_device(struct ncclComm *comm)
{
    // What the device had dropped it for may not stick any more.
    cudaError_t error = (cudaError_t)atomic_load(&comm->device_error);
    if (error == cudaSuccess) {
        error = sticky_error(comm->cuda_device);
    }
    if (error == cudaSuccess) {
        return;
    }
    char what[256], text[320];
    if (error == cudaErrorContextIsDestroyed) {
        (void)snprintf(what, sizeof what,
                       "its device %d was reset (cudaDeviceReset) while it had work of it",
                       comm->cuda_device);
    } else {
        (void)snprintf(what, sizeof what, "its device %d has failed: %s (%d)", comm->cuda_device,
                       cudaGetErrorString(error), (int)error);
    }
    if (!tt_bootstrap_try_reporting(comm->bootstrap, what)) {
        return; // a call is on the connection: the next look tells
    }
    (void)snprintf(text, sizeof text, "rank %d: %s", comm->rank, what);
    (void)tt_fail(ncclUnhandledCudaError, "%s", text);
    if (tt_comm_fail(comm, ncclUnhandledCudaError, text)) {
        tt_say("%s; %s %s with ncclCommAbort", text,
               comm->nranks > 1 ? "the other ranks are told; end" : "end", comm->name);
    }
}

// Has all its parts, and has not failed while it was made.
static bool is_made(const struct ncclComm *comm)
{
    int state = atomic_load(&comm->state);
    return state == TT_COMM_READY || state == TT_COMM_FINALIZED;
}

void tt_watch_look(struct ncclComm *comm)
{
    if (!is_made(comm)) {
        return;
    }
    // An operation that failed on another rank, which this one has ended, or not begun. First: what
    // a rank says of itself may only be what it did after that.
    if (atomic_load(&comm->async_error) == ncclSuccess && comm->host != NULL) {
        (void)tt_executor->is_over(comm->host);
    }
    if (atomic_load(&comm->async_error) == ncclSuccess) {
        look_at_peers(comm);
    }
    if (atomic_load(&comm->async_error) == ncclSuccess) {
        look_at_device(comm);
    }
    if (atomic_load(&comm->async_error) != ncclSuccess && comm->host != NULL) {
        (void)tt_executor->is_over(comm->host); // what waits in a stream goes on
    }
}

// ---- The thread ---------------------------------------------------------------------------------

// The thread stays on the device that it looks at: a return to the first one would make a context
// there.
static void stand_on(const struct ncclComm *comm)
{
    (void)cudaSetDevice(comm->cuda_device);
}

static void look_at_all(void)
{
    struct ncclComm *comm;
    for (size_t i = 0; (comm = tt_handle_enter_nth(i)) != NULL; i++) {
        if (comm->nranks > 1) {
            stand_on(comm);
            tt_watch_look(comm);
        }
        tt_comm_leave(comm);
    }
}

// An event may be of a communicator that is gone by now.
static void look_at_woken(struct ncclComm *comm)
{
    if (!tt_handle_enter(comm, NULL)) {
        return;
    }
    if (is_made(comm)) {
        stand_on(comm);
        tt_bootstrap_woken(comm->bootstrap);
        tt_watch_look(comm);
    }
    tt_comm_leave(comm);
}

static void *watch(void *argument)
{
    const int *descriptor = argument;
    tt_thread_serves();
    // Before any other call of CUDA, which would make a context on the first device.
    (void)cudaSetDevice(first_device);
    for (;;) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(*descriptor, events, EVENTS, TICK_MS);
        pthread_mutex_lock(&looking);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL) {
                tt_record_signalled();
            } else {
                look_at_woken(events[i].data.ptr);
            }
        }
        if (count == 0) {
            look_at_all();
        }
        pthread_mutex_unlock(&looking);
    }
    return NULL;
}

__attribute__((destructor)) static void stop_looking(void)
{
    if (owner == getpid()) {
        pthread_mutex_lock(&looking);
    }
}

// With the mutex held.
static ncclResult_t start(int device)
{
    pthread_t thread;
    int descriptor = epoll_create1(EPOLL_CLOEXEC);
    if (descriptor < 0) {
        return tt_fail(ncclSystemError, "no descriptor to watch communicators with: %m");
    }
    watched = descriptor;
    first_device = device;
    int error = tt_thread_start(&thread, watch, &watched);
    if (error != 0) {
        close(descriptor);
        watched = -1;
        errno = error;
        return tt_fail(ncclSystemError, "no thread to watch communicators with: %m");
    }
    pthread_detach(thread);
    owner = getpid();
    int signalled = tt_record_signal();
    if (signalled >= 0) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        (void)epoll_ctl(descriptor, EPOLL_CTL_ADD, signalled, &event);
    }
    return ncclSuccess;
}

ncclResult_t tt_watch_add(struct ncclComm *comm)
{
    if (comm->nranks == 1) {
        return ncclSuccess;
    }
    pthread_mutex_lock(&mutex);
    ncclResult_t result = owner == getpid() ? ncclSuccess : start(comm->cuda_device);
    int descriptor = watched;
    pthread_mutex_unlock(&mutex);
    return result == ncclSuccess ? tt_bootstrap_watch(comm->bootstrap, descriptor, comm) : result;
}

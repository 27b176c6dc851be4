// Watches the communicators of the process while nobody calls: one thread sleeps on the connections
// to their roots, and wakes several times a second to ask whether their devices, or operations of
// other ranks, have failed.
//
// It also tells the process's state where a signal asks for it (record/).
//
// What it finds ends the communicator: the asynchronous error, waits of other threads, kernels (by
// the abort flag), and one line on stderr, because a program that waits for a kernel asks nothing.
// SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/params.h"
#include "base/thread.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/meet.h"
#include "exec/executor.h"
#include "record/record.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 200, EVENTS = 16, SLICE_MS = 50, PATIENCE_S = 10 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards what stands below
static int watched = -1;                                  // the epoll descriptor
static int first_device;                                  // where the thread begins
static _Atomic pid_t owner;                               // the process whose thread runs

// What the thread is asked to do with a mutex, by who waits for it; `mutex` guards it.
struct request {
    struct request *next;
    pthread_mutex_t *held;
    bool lets_go, is_done;
    int error;
};
static struct request *requests;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;
static int request_bell = -1; // an eventfd that wakes the thread; its address is its key

// The thread has it while it looks; a process that ends keeps it, so that no look meets the end.
static pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool is_over; // the process ends: the thread answers nobody any more

// ---- What is wrong ------------------------------------------------------------------------------

const char *tt_comm_failure_text(const struct ncclComm *comm)
{
    return comm->failure_text != NULL ? comm->failure_text : "no memory for the reason";
}

// Another thread has found the failure first: its text stands before this one says that there is
// one. That takes a moment; in a child of fork it may never come.
static void await_text(const struct ncclComm *comm)
{
    static const uint64_t most_ns = 1000000000;
    struct tt_wait wait = tt_wait_begin(NULL);
    while (atomic_load_explicit(&comm->told, memory_order_acquire) == 1 &&
           tt_now_ns() - wait.start_ns < most_ns) {
        (void)tt_wait_round(&wait);
    }
}

bool tt_comm_fail(struct ncclComm *comm, ncclResult_t result, const char *text)
{
    int untold = 0, none = ncclSuccess;
    int dead = tt_meet_dead_rank(comm);
    if (atomic_load(&comm->async_error) == ncclSuccess &&
        atomic_compare_exchange_strong(&comm->told, &untold, 1)) {
        comm->failure_text = strdup(text);
        atomic_store_explicit(&comm->told, 2, memory_order_release);
    }
    await_text(comm);
    atomic_compare_exchange_strong(&comm->async_error, &none, (int)result);
    bool first = tt_local_fail(comm, result, text); // before the flag: waits then give this reason
    uint32_t running = 0, flag = dead >= 0 ? NCCL_ABORT_FLAG_DEATH + (uint32_t)dead : 1;
    atomic_compare_exchange_strong(comm->abort_flag, &running, flag);
    return first;
}

// Kernels must know who will not come to a barrier any more.
static void tell_kernels_of_leavers(struct ncclComm *comm)
{
    const _Atomic unsigned char *left = tt_meet_left(comm);
    int first = comm->rank - comm->lsa_rank;
    for (int member = 0; left != NULL && member < comm->lsa_size && member < NCCL_LEFT_RANKS;
         member++) {
        if (atomic_load_explicit(&left[first + member], memory_order_acquire) != 0) {
            atomic_fetch_or(comm->abort_flag + 1 + member / 32, 1u << member % 32);
        }
    }
}

static void look_at_peers(struct ncclComm *comm)
{
    ncclResult_t result = tt_meet_look(comm);
    tell_kernels_of_leavers(comm);
    if (result == ncclSuccess) {
        return;
    }
    char text[512];
    tt_meet_failure(comm, text, sizeof text);
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
                       "its %s was reset (cudaDeviceReset) while it had work of it",
                       tt_gpu(comm->cuda_device)->name);
    } else {
        (void)snprintf(what, sizeof what, "its %s has failed: %s (%d)",
                       tt_gpu(comm->cuda_device)->name, cudaGetErrorString(error), (int)error);
    }
    if (!tt_meet_try_reporting(comm, what)) {
        return; // a call is on the connection: the next look tells
    }
    (void)snprintf(text, sizeof text, "rank %d: %s", comm->rank, what);
    (void)tt_fail(ncclUnhandledCudaError, "%s", text);
    if (tt_comm_fail(comm, ncclUnhandledCudaError, text)) {
        tt_say("%s; %s %s with ncclCommAbort", text,
               comm->nranks > 1 ? "the other ranks are told; end" : "end", comm->name);
    }
}

void tt_watch_look(struct ncclComm *comm)
{
    if (!tt_comm_is_made(comm)) {
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
    for (size_t i = 0; (comm = tt_handle_look_at_nth(i)) != NULL; i++) {
        if (tt_comm_is_made(comm) && comm->nranks > 1) {
            stand_on(comm);
            tt_watch_look(comm);
        }
        tt_handle_looked(comm);
    }
}

// An event may be of a communicator that is gone by now.
static void look_at_woken(struct ncclComm *comm)
{
    if (!tt_handle_look(comm)) {
        return;
    }
    if (tt_comm_is_made(comm)) {
        stand_on(comm);
        if (comm->bootstrap != NULL) {
            tt_bootstrap_woken(comm->bootstrap);
        }
        tt_watch_look(comm);
    }
    tt_handle_looked(comm);
}

static void answer_requests(void)
{
    uint64_t rings;
    ssize_t n = read(request_bell, &rings, sizeof rings);
    (void)n;
    pthread_mutex_lock(&mutex);
    for (; requests != NULL; requests = requests->next) {
        struct request *r = requests;
        r->error = r->lets_go ? pthread_mutex_unlock(r->held) : pthread_mutex_trylock(r->held);
        r->is_done = true;
    }
    pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&mutex);
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
            } else if (events[i].data.ptr == &request_bell) {
                answer_requests();
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
        atomic_store(&is_over, true);
    }
}

static void close_both(int a, int b)
{
    if (a >= 0) {
        close(a);
    }
    if (b >= 0) {
        close(b);
    }
}

// With the mutex held.
static ncclResult_t start(int device)
{
    pthread_t thread;
    int descriptor = epoll_create1(EPOLL_CLOEXEC), bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event rings = {.events = EPOLLIN, .data.ptr = &request_bell};
    if (descriptor < 0 || bell < 0 || epoll_ctl(descriptor, EPOLL_CTL_ADD, bell, &rings) != 0) {
        close_both(descriptor, bell);
        return tt_fail(ncclSystemError, "no descriptor to watch communicators with: %m");
    }
    watched = descriptor;
    request_bell = bell;
    requests = NULL; // in a child by fork() they were its parent's
    first_device = device;
    int error = tt_thread_start(&thread, watch, &watched);
    if (error != 0) {
        close_both(descriptor, bell);
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

// Where many processes share few processors the thread may take long to come to its turn. Looks at
// the abort flag (NULL: there is none) meanwhile. With the mutex held. False: it has not answered.
static bool ask(struct request *request, uint64_t limit_ns, const _Atomic uint32_t *abort_flag)
{
    uint64_t ring = 1, begin_ns = tt_now_ns();
    request->next = requests;
    requests = request;
    ssize_t n = write(request_bell, &ring, sizeof ring);
    (void)n;
    while (!request->is_done && !atomic_load(&is_over) && tt_now_ns() - begin_ns < limit_ns &&
           (abort_flag == NULL || atomic_load(abort_flag) == 0)) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SLICE_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        tt_wait_told();
        (void)pthread_cond_timedwait(&answered, &mutex, &until);
    }
    struct request **at = &requests;
    while (!request->is_done && *at != request) {
        at = &(*at)->next;
    }
    if (!request->is_done) {
        *at = request->next;
    }
    return request->is_done;
}

ncclResult_t tt_watch_hold(pthread_mutex_t *held, const _Atomic uint32_t *abort_flag)
{
    struct request request = {.held = held};
    uint64_t limit_s = (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    pthread_mutex_lock(&mutex);
    bool is_done = owner == getpid() && ask(&request, limit_s * UINT64_C(1000000000), abort_flag);
    pthread_mutex_unlock(&mutex);
    return is_done && request.error == 0
               ? ncclSuccess
               : tt_fail(ncclSystemError, "the thread that watches communicators does not answer");
}

bool tt_watch_let_go(pthread_mutex_t *held)
{
    struct request request = {.held = held, .lets_go = true};
    pthread_mutex_lock(&mutex);
    bool is_done = owner == getpid() && ask(&request, PATIENCE_S * UINT64_C(1000000000), NULL);
    pthread_mutex_unlock(&mutex);
    return is_done;
}

// Watches the connection of a communicator that has one; what happens on boards is looked for.
ncclResult_t tt_watch_add(struct ncclComm *comm)
{
    if (comm->bootstrap == NULL || comm->nranks == 1) {
        return ncclSuccess;
    }
    pthread_mutex_lock(&mutex);
    ncclResult_t result = owner == getpid() ? ncclSuccess : start(comm->cuda_device);
    int descriptor = watched;
    pthread_mutex_unlock(&mutex);
    return result == ncclSuccess ? tt_bootstrap_watch(comm->bootstrap, descriptor, comm) : result;
}

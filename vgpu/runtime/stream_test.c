// Streams and events: order, the legacy stream, waits, host functions, times, wrong handles.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"
#include "stopwatch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

// A kernel that is stopped at a gate until the test opens it, then notes its place in an order.
struct step {
    atomic_int *gate;  // NULL: none
    atomic_int *clock; // counts steps
    int place;         // of this one, from 1
};

KERNEL(takes_step, struct step, 0)
{
    while (data->gate && atomic_load(data->gate) == 0) {
        vgpu_yield();
    }
    data->place = atomic_fetch_add(data->clock, 1) + 1;
}

static cudaStream_t make_stream(unsigned flags)
{
    cudaStream_t stream = NULL;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, flags));
    return stream;
}

// ---- Order --------------------------------------------------------------------------------------

static void a_stream_is_in_order(void)
{
    enum { STEPS = 200 };
    atomic_int gate = 0;
    atomic_int clock = 0;
    static struct step step[STEPS];
    cudaStream_t stream = make_stream(cudaStreamDefault);
    for (int i = 0; i < STEPS; i++) {
        step[i] = (struct step){i == 0 ? &gate : NULL, &clock, 0};
        EXPECT_CUDA(LAUNCH(takes_step, 1, 1, stream, &step[i]));
    }
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    EXPECT_EQ(step[1].place, 0);
    atomic_store(&gate, 1);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaStreamQuery(stream));
    int wrong = 0;
    for (int i = 0; i < STEPS; i++) {
        wrong += step[i].place != i + 1;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
}

static void streams_run_at_the_same_time(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    struct step held = {&gate, &clock, 0};
    struct step opener = {NULL, &gate, 0}; // its step opens the gate
    cudaStream_t a = make_stream(cudaStreamDefault);
    cudaStream_t b = make_stream(cudaStreamDefault);
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, a, &held));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, b, &opener));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    EXPECT_EQ(held.place, 1);
    EXPECT_CUDA(cudaStreamDestroy(a));
    EXPECT_CUDA(cudaStreamDestroy(b));
}

// The legacy stream comes after and before blocking streams; non-blocking ones ignore it.
static void the_legacy_stream_orders_blocking_streams(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    struct step first = {&gate, &clock, 0};
    struct step legacy = {NULL, &clock, 0};
    struct step after = {NULL, &clock, 0};
    struct step own = {NULL, &clock, 0};
    struct step free_step = {NULL, &clock, 0};
    cudaStream_t a = make_stream(cudaStreamDefault);
    cudaStream_t b = make_stream(cudaStreamDefault);
    cudaStream_t apart = make_stream(cudaStreamNonBlocking);
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, a, &first));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, 0, &legacy));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, b, &after));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, cudaStreamPerThread, &own));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, apart, &free_step));
    EXPECT_CUDA(cudaStreamSynchronize(apart));
    EXPECT_EQ(free_step.place, 1);
    EXPECT_EQ(legacy.place, 0);
    EXPECT_EQ(cudaStreamQuery(b), cudaErrorNotReady);
    EXPECT_EQ(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
    EXPECT_CUDA(cudaStreamQuery(apart));
    atomic_store(&gate, 1);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(first.place, 2);
    EXPECT_EQ(legacy.place, 3);
    EXPECT(after.place >= 4 && own.place >= 4);
    EXPECT_CUDA(cudaStreamDestroy(a));
    EXPECT_CUDA(cudaStreamDestroy(b));
    EXPECT_CUDA(cudaStreamDestroy(apart));
    (void)cudaGetLastError();
}

// Synchronising the legacy stream waits for blocking streams too.
static void the_legacy_stream_waits_for_blocking_streams(void)
{
    atomic_int clock = 0;
    struct step step[3] = {{NULL, &clock, 0}, {NULL, &clock, 0}, {NULL, &clock, 0}};
    cudaStream_t a = make_stream(cudaStreamDefault);
    for (int i = 0; i < 3; i++) {
        EXPECT_CUDA(LAUNCH(takes_step, 1, 1, a, &step[i]));
    }
    EXPECT_CUDA(cudaStreamSynchronize(0));
    EXPECT_EQ(step[2].place, 3);
    EXPECT_CUDA(cudaStreamDestroy(a));
}

static void a_destroyed_stream_finishes(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    struct step step[2] = {{&gate, &clock, 0}, {NULL, &clock, 0}};
    cudaStream_t stream = make_stream(cudaStreamDefault);
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, stream, &step[0]));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, stream, &step[1]));
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    atomic_store(&gate, 1);
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(step[1].place, 2);
}

// ---- Events -------------------------------------------------------------------------------------

static void events_order_streams_and_devices(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    struct step first = {&gate, &clock, 0};
    struct step second = {NULL, &clock, 0};
    cudaEvent_t event = NULL;
    cudaStream_t a = make_stream(cudaStreamNonBlocking);
    EXPECT_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    EXPECT_CUDA(cudaEventQuery(event)); // never recorded: complete
    EXPECT_CUDA(cudaStreamWaitEvent(a, event, 0));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, a, &first));
    EXPECT_CUDA(cudaEventRecord(event, a));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_CUDA(cudaSetDevice(1));
    cudaStream_t b = make_stream(cudaStreamNonBlocking);
    EXPECT_EQ(cudaEventRecord(event, b), cudaErrorInvalidResourceHandle);
    EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, b, &second));
    EXPECT_CUDA(cudaEventRecord(event, a)); // who waits for the first record still does
    EXPECT_EQ(second.place, 0);
    atomic_store(&gate, 1);
    EXPECT_CUDA(cudaEventSynchronize(event));
    EXPECT_EQ(first.place, 1);
    EXPECT_CUDA(cudaStreamSynchronize(b));
    EXPECT_EQ(second.place, 2);
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_EQ(cudaEventDestroy(event), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
    EXPECT_CUDA(cudaStreamDestroy(b));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamDestroy(a));
    (void)cudaGetLastError();
}

KERNEL(takes_ten_milliseconds, struct step, 0)
{
    (void)data;
    unsigned long long begin = vgpu_global_timer();
    while (vgpu_global_timer() - begin < 10000000) {
    }
}

static void events_measure_time(void)
{
    cudaEvent_t begin = NULL;
    cudaEvent_t end = NULL;
    cudaEvent_t untimed = NULL;
    float ms = -1;
    EXPECT_CUDA(cudaEventCreate(&begin));
    EXPECT_CUDA(cudaEventCreate(&end));
    EXPECT_CUDA(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorInvalidResourceHandle);
    struct stopwatch watch = stopwatch_start();
    EXPECT_CUDA(cudaEventRecord(begin, 0));
    EXPECT_CUDA(LAUNCH(takes_ten_milliseconds, 1, 1, 0, NULL));
    EXPECT_CUDA(cudaEventRecord(end, 0));
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, end), cudaErrorNotReady);
    EXPECT_CUDA(cudaEventSynchronize(end));
    EXPECT_CUDA(cudaEventElapsedTime(&ms, begin, end));
    EXPECT(ms >= 10 && ms < stopwatch_s(&watch) * 1e3 + 1);
    EXPECT_CUDA(cudaEventElapsedTime(&ms, end, begin));
    EXPECT(ms <= -10);
    EXPECT_CUDA(cudaEventRecord(untimed, 0));
    EXPECT_EQ(cudaEventElapsedTime(&ms, begin, untimed), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventCreateWithFlags(&untimed, 64), cudaErrorInvalidValue);
    EXPECT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventInterprocess), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaEventDestroy(begin));
    EXPECT_CUDA(cudaEventDestroy(end));
    EXPECT_CUDA(cudaEventDestroy(untimed));
    (void)cudaGetLastError();
}

// ---- Host functions -----------------------------------------------------------------------------

struct called {
    atomic_int *clock;
    int place;
    cudaError_t nested;
    cudaStream_t stream;
};

static void note_call(void *argument)
{
    struct called *called = argument;
    called->place = atomic_fetch_add(called->clock, 1) + 1;
    called->nested = cudaStreamSynchronize(0);
    cudaGraph_t graph = NULL;
    void *memory = NULL;
    int word = 0;
    const cudaError_t refused[] = {
        cudaMalloc(&memory, 4),
        cudaMallocHost(&memory, 4),
        cudaFree(NULL),
        cudaFreeHost(NULL),
        cudaHostUnregister(&word),
        cudaMemcpy(&word, &word, 4, cudaMemcpyDefault),
        cudaMemset(&word, 0, 4),
        cudaEventQuery(NULL),
        cudaEventDestroy(NULL),
        cudaStreamDestroy(NULL),
        cudaGraphCreate(&graph, 0),
        cudaGraphDestroy(NULL),
        cudaGraphExecDestroy(NULL),
        cudaDeviceReset(),
        cudaLaunchHostFunc(0, note_call, NULL),
        cudaSetDevice(1),
    };
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        EXPECT_EQ(refused[i], cudaErrorNotPermitted);
    }
}

static void note_callback(cudaStream_t stream, cudaError_t status, void *argument)
{
    note_call(argument);
    ((struct called *)argument)->stream = status == cudaSuccess ? stream : NULL;
}

static void host_functions_run_in_order(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    struct step step[2] = {{&gate, &clock, 0}, {NULL, &clock, 0}};
    struct called called[2] = {{&clock, 0, cudaSuccess, NULL}, {&clock, 0, cudaSuccess, NULL}};
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, stream, &step[0]));
    EXPECT_CUDA(cudaLaunchHostFunc(stream, note_call, &called[0]));
    EXPECT_CUDA(cudaStreamAddCallback(stream, note_callback, &called[1], 0));
    EXPECT_CUDA(LAUNCH(takes_step, 1, 1, stream, &step[1]));
    atomic_store(&gate, 1);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_EQ(called[0].place, 2);
    EXPECT_EQ(called[1].place, 3);
    EXPECT_EQ(step[1].place, 4);
    EXPECT_EQ(called[0].nested, cudaErrorNotPermitted);
    EXPECT(called[1].stream == stream);
    EXPECT_EQ(cudaLaunchHostFunc(stream, NULL, NULL), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamAddCallback(stream, note_callback, NULL, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
}

static void open_gate(void *argument)
{
    usleep(20000);
    atomic_store((atomic_int *)argument, 1);
}

// A host function that takes its time does not keep kernels from running, nor they it.
static void kernels_wait_for_host_functions(void)
{
    atomic_int gate = 0;
    atomic_int clock = 0;
    static struct step step[8];
    cudaStream_t stream = make_stream(cudaStreamNonBlocking);
    for (int i = 0; i < 8; i++) {
        EXPECT_CUDA(cudaSetDevice(i));
        step[i] = (struct step){&gate, &clock, 0};
        EXPECT_CUDA(LAUNCH(takes_step, 1, 1, 0, &step[i]));
    }
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaLaunchHostFunc(stream, open_gate, &gate));
    EXPECT_CUDA(cudaDeviceSynchronize());
    for (int i = 0; i < 8; i++) {
        EXPECT_CUDA(cudaSetDevice(i));
        EXPECT_CUDA(cudaDeviceSynchronize());
    }
    EXPECT_EQ(clock, 8);
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamDestroy(stream));
}

// ---- Many threads, queries, wrong handles -------------------------------------------------------

static void *use_own_stream(void *argument)
{
    atomic_int *failures = argument;
    atomic_int clock = 0;
    static struct step step[8][50];
    static atomic_int next;
    int mine = atomic_fetch_add(&next, 1);
    bool fine = cudaSetDevice(mine) == cudaSuccess;
    for (int i = 0; i < 50; i++) {
        step[mine][i] = (struct step){NULL, &clock, 0};
        fine &= LAUNCH(takes_step, 1, 1, cudaStreamPerThread, &step[mine][i]) == cudaSuccess;
        fine &= i % 7 || cudaStreamSynchronize(cudaStreamPerThread) == cudaSuccess;
    }
    fine &= cudaDeviceSynchronize() == cudaSuccess;
    for (int i = 0; i < 50; i++) {
        fine &= step[mine][i].place == i + 1;
    }
    atomic_fetch_add(failures, !fine);
    return NULL;
}

static void threads_have_their_own_streams(void)
{
    pthread_t thread[8];
    atomic_int failures = 0;
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(pthread_create(&thread[i], NULL, use_own_stream, &failures), 0);
    }
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(pthread_join(thread[i], NULL), 0);
    }
    EXPECT_EQ(failures, 0);
}

static void streams_say_what_they_are(void)
{
    cudaStream_t stream = NULL;
    unsigned flags = 9;
    int number = 9;
    unsigned long long id = 0;
    unsigned long long other = 0;
    EXPECT_CUDA(cudaSetDevice(2));
    EXPECT_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, -99));
    EXPECT_CUDA(cudaStreamGetFlags(stream, &flags));
    EXPECT_EQ(flags, cudaStreamNonBlocking);
    EXPECT_CUDA(cudaStreamGetPriority(stream, &number));
    EXPECT_EQ(number, -5);
    EXPECT_CUDA(cudaStreamGetDevice(stream, &number));
    EXPECT_EQ(number, 2);
    EXPECT_CUDA(cudaStreamGetId(stream, &id));
    EXPECT_CUDA(cudaStreamGetId(cudaStreamPerThread, &other));
    EXPECT(id != other);
    EXPECT_CUDA(cudaStreamGetFlags(0, &flags));
    EXPECT_EQ(flags, cudaStreamDefault);
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
    EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
    EXPECT_EQ(status, cudaStreamCaptureStatusNone);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaSetDevice(0));
    (void)cudaGetLastError();
}

static void wrong_handles_are_errors(void)
{
    int number = 0;
    cudaStream_t wrong = (cudaStream_t)(void *)&number;
    cudaStream_t stream = NULL;
    EXPECT_EQ(cudaStreamSynchronize(wrong), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamQuery(wrong), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamDestroy(0), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamDestroy(cudaStreamLegacy), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaEventRecord(NULL, 0), cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaStreamCreate(NULL), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 32), cudaErrorInvalidValue);
    EXPECT_EQ(LAUNCH(takes_step, 1, 1, wrong, NULL), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
}

int main(void)
{
    RUN(a_stream_is_in_order);
    RUN(streams_run_at_the_same_time);
    RUN(the_legacy_stream_orders_blocking_streams);
    RUN(the_legacy_stream_waits_for_blocking_streams);
    RUN(a_destroyed_stream_finishes);
    RUN(events_order_streams_and_devices);
    RUN(events_measure_time);
    RUN(host_functions_run_in_order);
    RUN(kernels_wait_for_host_functions);
    RUN(threads_have_their_own_streams);
    RUN(streams_say_what_they_are);
    RUN(wrong_handles_are_errors);
    return expect_result();
}

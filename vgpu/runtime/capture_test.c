// Capture of streams: what is recorded, forks and joins, what is forbidden and with which error.
//
// The numbers of errors, and which of them spoil the capture, are what an H200 with CUDA 13.0 gave.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"
#include "vgpu/native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const enum cudaStreamCaptureMode GLOBAL = cudaStreamCaptureModeGlobal;
static const enum cudaStreamCaptureMode RELAXED = cudaStreamCaptureModeRelaxed;

KERNEL(adds_one, atomic_int, 0)
{
    atomic_fetch_add(data, 1);
}

static cudaStream_t s, t;
static cudaEvent_t event, other;
static int *device_memory;
static atomic_int launched;

static void begin(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    EXPECT_CUDA(cudaStreamBeginCapture(stream, mode));
    EXPECT_CUDA(LAUNCH(adds_one, 1, 1, stream, &launched));
}

// Ends the capture with an error, and leaves no last error behind.
static void ends_with(cudaStream_t stream, cudaError_t error)
{
    cudaGraph_t graph = (cudaGraph_t)&launched;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), error);
    EXPECT((graph != NULL) == (error == cudaSuccess));
    if (error == cudaSuccess) {
        EXPECT_CUDA(cudaGraphDestroy(graph));
    }
    (void)cudaGetLastError();
}

static int status_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_CUDA(cudaStreamIsCapturing(stream, &status));
    return status;
}

static size_t node_count(cudaGraph_t graph)
{
    size_t count = 0;
    EXPECT_CUDA(cudaGraphGetNodes(graph, NULL, &count));
    return count;
}

static int type_of(cudaGraph_t graph, size_t index)
{
    cudaGraphNode_t nodes[16];
    size_t count = 16;
    enum cudaGraphNodeType type = cudaGraphNodeTypeCount;
    EXPECT_CUDA(cudaGraphGetNodes(graph, nodes, &count));
    if (EXPECT(index < count)) {
        EXPECT_CUDA(cudaGraphNodeGetType(nodes[index], &type));
    }
    return type;
}

static void launch_and_destroy(cudaGraph_t graph, int times)
{
    cudaGraphExec_t executable = NULL;
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    for (int i = 0; i < times; i++) {
        EXPECT_CUDA(cudaGraphLaunch(executable, s));
    }
    EXPECT_CUDA(cudaGraphExecDestroy(executable)); // launches go on
    EXPECT_CUDA(cudaStreamSynchronize(s));
}

// ---- What is recorded ---------------------------------------------------------------------------

static void counts(void *argument)
{
    ++*(int *)argument;
}

static void native_adds(void *argument, unsigned block, unsigned block_count)
{
    atomic_fetch_add(*(atomic_int **)argument, (int)(block + block_count));
}

static void every_kind_of_work(void)
{
    int *pinned = NULL;
    int pageable[4] = {1, 2, 3, 4};
    int called = 0;
    atomic_int native = 0;
    atomic_int *native_place = &native;
    cudaGraph_t graph = NULL;
    EXPECT_CUDA(cudaMallocHost((void **)&pinned, 4096));
    memset(pinned, 0, 4096);
    launched = 0;
    begin(s, GLOBAL);
    EXPECT_CUDA(cudaMemcpyAsync(device_memory, pageable, 16, cudaMemcpyHostToDevice, s));
    EXPECT_CUDA(cudaMemcpyAsync(pinned, device_memory, 16, cudaMemcpyDeviceToHost, s));
    EXPECT_CUDA(cudaMemsetAsync(device_memory, 0, 16, s));
    EXPECT_CUDA(
        cudaMemcpy2DAsync(pinned + 16, 64, device_memory, 8, 8, 2, cudaMemcpyDeviceToHost, s));
    EXPECT_CUDA(cudaLaunchHostFunc(s, counts, &called));
    EXPECT_CUDA(vgpuLaunchNative("adds", native_adds, &native_place, sizeof(native_place), 2, s));
    EXPECT_CUDA(cudaMemcpyAsync(device_memory, pageable, 0, cudaMemcpyHostToDevice, s)); // nothing
    EXPECT_CUDA(cudaStreamEndCapture(s, &graph));
    static const int types[] = {cudaGraphNodeTypeKernel, cudaGraphNodeTypeMemcpy,
                                cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeMemset,
                                cudaGraphNodeTypeMemcpy, cudaGraphNodeTypeHost,
                                cudaGraphNodeTypeKernel};
    EXPECT_EQ(node_count(graph), 7);
    for (size_t i = 0; i < 7; i++) {
        EXPECT_EQ(type_of(graph, i), types[i]);
    }
    EXPECT_EQ(launched + called + native, 0); // nothing has run
    pageable[2] = 30;                         // read when the graph runs
    pinned[16] = pinned[17] = pinned[32] = 7;
    launch_and_destroy(graph, 3);
    EXPECT_EQ(launched, 3);
    EXPECT_EQ(called, 3);
    EXPECT_EQ(native, 3 * (0 + 2 + 1 + 2));
    EXPECT_EQ(pinned[0], 1);
    EXPECT_EQ(pinned[2], 30);
    EXPECT_EQ(pinned[16] + pinned[17] + pinned[32], 0); // copied behind the fill
    EXPECT_CUDA(cudaFreeHost(pinned));
}

// A diamond over two streams: each node sees what it must.
static void forks_and_joins(void)
{
    cudaGraph_t graph = NULL;
    int *pinned = NULL;
    EXPECT_CUDA(cudaMallocHost((void **)&pinned, 64));
    EXPECT_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    EXPECT_CUDA(cudaMemsetAsync(device_memory, 1, 16, s));
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaStreamWaitEvent(t, event, 0));
    EXPECT_EQ(status_of(t), cudaStreamCaptureStatusActive);
    EXPECT_CUDA(cudaMemcpyAsync(pinned, device_memory, 4, cudaMemcpyDeviceToHost, t));
    EXPECT_CUDA(cudaMemcpyAsync(pinned + 1, device_memory + 1, 4, cudaMemcpyDeviceToHost, s));
    EXPECT_CUDA(cudaEventRecord(other, t));
    EXPECT_CUDA(cudaStreamWaitEvent(s, other, 0));
    EXPECT_CUDA(cudaMemsetAsync(device_memory, 2, 16, s));

    enum cudaStreamCaptureStatus status;
    unsigned long long ids[2] = {0, 0};
    const cudaGraphNode_t *dependencies = NULL;
    size_t count = 0;
    EXPECT_CUDA(cudaStreamGetCaptureInfo(s, &status, &ids[0], &graph, &dependencies, NULL, &count));
    EXPECT_CUDA(cudaStreamGetCaptureInfo(t, &status, &ids[1], NULL, NULL, NULL, NULL));
    EXPECT(ids[0] != 0 && ids[0] == ids[1]);
    EXPECT_EQ(count, 1);
    size_t behind = 0;
    EXPECT_CUDA(cudaGraphNodeGetDependencies(dependencies[0], NULL, NULL, &behind));
    EXPECT_EQ(behind, 2);
    EXPECT_EQ(node_count(graph), 4);
    EXPECT_CUDA(cudaStreamEndCapture(s, &graph));
    EXPECT_EQ(status_of(s) + status_of(t), 0);
    size_t edges = 0;
    EXPECT_CUDA(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    EXPECT_EQ(edges, 4);
    memset(pinned, 0, 64);
    launch_and_destroy(graph, 2);
    EXPECT_EQ(pinned[0], 0x01010101);
    EXPECT_EQ(pinned[1], 0x01010101);
    EXPECT_EQ(*device_memory, 0x02020202);
    EXPECT_CUDA(cudaFreeHost(pinned));

    // The events' meaning ends with the capture.
    EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidValue);
    EXPECT_EQ(cudaStreamWaitEvent(t, event, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaEventSynchronize(event));
    (void)cudaGetLastError();
}

static void streams_of_several_devices(void)
{
    cudaStream_t there;
    cudaEvent_t there_done;
    cudaGraph_t graph = NULL;
    launched = 0;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaStreamCreate(&there));
    EXPECT_CUDA(cudaEventCreate(&there_done));
    EXPECT_CUDA(cudaSetDevice(0));
    begin(s, RELAXED);
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaStreamWaitEvent(there, event, 0));
    EXPECT_CUDA(LAUNCH(adds_one, 3, 1, there, &launched));
    EXPECT_CUDA(cudaEventRecord(there_done, there));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaStreamWaitEvent(s, there_done, 0));
    EXPECT_CUDA(cudaStreamEndCapture(s, &graph));
    launch_and_destroy(graph, 2);
    EXPECT_EQ(launched, 8);
    EXPECT_CUDA(cudaEventDestroy(there_done));
    EXPECT_CUDA(cudaStreamDestroy(there));
}

static void graphs_in_graphs(void)
{
    cudaGraph_t inner = NULL;
    cudaGraph_t outer = NULL;
    cudaGraphExec_t executable = NULL;
    launched = 0;
    begin(s, GLOBAL);
    EXPECT_CUDA(cudaStreamEndCapture(s, &inner));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, inner, 0));
    begin(s, GLOBAL);
    EXPECT_CUDA(cudaGraphLaunch(executable, s));
    EXPECT_CUDA(cudaGraphLaunch(executable, s));
    EXPECT_CUDA(cudaStreamEndCapture(s, &outer));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(inner));
    EXPECT_EQ(type_of(outer, 1), cudaGraphNodeTypeGraph);
    launch_and_destroy(outer, 2);
    EXPECT_EQ(launched, 6);
}

static void into_a_given_graph(void)
{
    cudaGraph_t graph = NULL;
    cudaGraph_t same = NULL;
    cudaGraphNode_t first = NULL;
    cudaGraphNode_t nodes[2];
    size_t count = 2;
    launched = 0;
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&first, graph, NULL, 0));
    EXPECT_CUDA(
        cudaStreamBeginCaptureToGraph(s, graph, &first, NULL, 1, cudaStreamCaptureModeGlobal));
    EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    EXPECT_CUDA(LAUNCH(adds_one, 1, 1, s, &launched));
    // A node of the program's own, which later ones come behind.
    EXPECT_CUDA(cudaGraphAddEmptyNode(&first, graph, NULL, 0));
    EXPECT_CUDA(
        cudaStreamUpdateCaptureDependencies(s, &first, NULL, 1, cudaStreamAddCaptureDependencies));
    EXPECT_CUDA(LAUNCH(adds_one, 1, 1, s, &launched));
    EXPECT_CUDA(cudaStreamEndCapture(s, &same));
    EXPECT(same == graph);
    EXPECT_EQ(node_count(graph), 4);
    EXPECT_CUDA(cudaGraphNodeGetDependentNodes(first, nodes, NULL, &count));
    EXPECT_EQ(count, 1);
    launch_and_destroy(graph, 1);
    EXPECT_EQ(launched, 2);
    EXPECT_EQ(cudaStreamUpdateCaptureDependencies(s, NULL, NULL, 0, 0), cudaErrorIllegalState);
    (void)cudaGetLastError();
}

static void events_outside(void)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    EXPECT_CUDA(cudaEventRecord(event, t));
    EXPECT_CUDA(cudaEventRecord(other, t));
    EXPECT_CUDA(cudaEventSynchronize(other));
    begin(s, RELAXED);
    EXPECT_CUDA(cudaEventRecordWithFlags(event, s, cudaEventRecordExternal));
    EXPECT_CUDA(cudaStreamWaitEvent(s, other, cudaEventWaitExternal));
    EXPECT_CUDA(cudaEventQuery(event)); // not captured: a node records it
    EXPECT_CUDA(cudaStreamEndCapture(s, &graph));
    EXPECT_EQ(type_of(graph, 1), cudaGraphNodeTypeEventRecord);
    EXPECT_EQ(type_of(graph, 2), cudaGraphNodeTypeWaitEvent);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaGraphLaunch(executable, s));
    EXPECT_CUDA(cudaEventSynchronize(event));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_EQ(cudaEventRecordWithFlags(event, s, cudaEventRecordExternal), cudaErrorIllegalState);
    EXPECT_EQ(cudaStreamWaitEvent(s, event, cudaEventWaitExternal), cudaErrorIllegalState);
    (void)cudaGetLastError();
}

// ---- What is refused ----------------------------------------------------------------------------

static void beginning_and_ending(void)
{
    cudaGraph_t graph;
    EXPECT_EQ(cudaStreamBeginCapture(0, RELAXED), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(cudaStreamBeginCapture(s, (enum cudaStreamCaptureMode)7), cudaErrorInvalidValue);
    ends_with(s, cudaErrorIllegalState);
    EXPECT_CUDA(cudaStreamBeginCapture(cudaStreamPerThread, RELAXED));
    ends_with(cudaStreamPerThread, cudaSuccess);
    EXPECT_CUDA(cudaStreamBeginCapture(s, RELAXED));
    EXPECT_EQ(cudaStreamBeginCapture(s, RELAXED), cudaErrorIllegalState);
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusActive);
    EXPECT_CUDA(cudaStreamEndCapture(s, &graph));
    EXPECT_EQ(node_count(graph), 0);
    launch_and_destroy(graph, 2); // an empty one
}

static void unjoined_work(void)
{
    begin(s, RELAXED);
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaStreamWaitEvent(t, event, 0));
    ends_with(t, cudaErrorStreamCaptureUnmatched);
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusInvalidated);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);

    begin(s, RELAXED);
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaStreamWaitEvent(t, event, 0));
    EXPECT_CUDA(LAUNCH(adds_one, 1, 1, t, &launched));
    ends_with(s, cudaErrorStreamCaptureUnjoined);

    begin(s, RELAXED); // joined, but given no work
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_CUDA(cudaStreamWaitEvent(t, event, 0));
    ends_with(s, cudaSuccess);
    EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);
}

static void isolation_and_merging(void)
{
    cudaEvent_t never;
    EXPECT_CUDA(cudaEventCreate(&never));
    EXPECT_CUDA(cudaEventRecord(other, t));
    begin(s, RELAXED);
    EXPECT_EQ(cudaStreamWaitEvent(s, other, 0), cudaErrorStreamCaptureIsolation);
    EXPECT_EQ(LAUNCH(adds_one, 1, 1, s, &launched), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaEventRecord(event, s), cudaErrorStreamCaptureInvalidated);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
    begin(s, RELAXED);
    EXPECT_CUDA(cudaStreamWaitEvent(s, never, 0));
    ends_with(s, cudaSuccess);
    EXPECT_CUDA(cudaEventDestroy(never));

    begin(s, RELAXED);
    begin(t, RELAXED);
    EXPECT_CUDA(cudaEventRecord(event, t));
    EXPECT_EQ(cudaStreamWaitEvent(s, event, 0), cudaErrorStreamCaptureMerge);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
    ends_with(t, cudaErrorStreamCaptureInvalidated);

    begin(s, RELAXED);
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
}

// The legacy stream waits for blocking streams, which it cannot while they are captured.
static void the_legacy_stream(void)
{
    cudaStream_t blocking;
    enum cudaStreamCaptureStatus status;
    EXPECT_CUDA(cudaStreamCreate(&blocking));
    begin(s, RELAXED); // does not block
    EXPECT_CUDA(cudaMemsetAsync(device_memory, 0, 4, 0));
    EXPECT_CUDA(cudaEventRecord(event, s));
    EXPECT_EQ(cudaStreamWaitEvent(0, event, 0), cudaErrorStreamCaptureImplicit);
    ends_with(s, cudaErrorStreamCaptureInvalidated);
    begin(blocking, RELAXED);
    EXPECT_EQ(cudaStreamIsCapturing(0, &status), cudaErrorStreamCaptureImplicit);
    EXPECT_EQ(status_of(blocking), cudaStreamCaptureStatusActive); // asking spoils nothing
    EXPECT_EQ(cudaMemsetAsync(device_memory, 0, 4, 0), cudaErrorStreamCaptureImplicit);
    ends_with(blocking, cudaErrorStreamCaptureInvalidated);
    begin(blocking, RELAXED);
    EXPECT_EQ(cudaStreamSynchronize(0), cudaErrorStreamCaptureImplicit);
    ends_with(blocking, cudaErrorStreamCaptureInvalidated);
    begin(blocking, RELAXED);
    EXPECT_EQ(cudaEventRecord(other, 0), cudaErrorStreamCaptureImplicit);
    ends_with(blocking, cudaErrorStreamCaptureInvalidated);
    EXPECT_CUDA(cudaStreamDestroy(blocking));
}

// ---- Calls that are not safe --------------------------------------------------------------------

static cudaError_t synchronizes_self(void)
{
    return cudaStreamSynchronize(s);
}

static cudaError_t synchronizes_other(void)
{
    return cudaStreamSynchronize(t);
}

static cudaError_t queries_other(void)
{
    return cudaStreamQuery(t);
}

static cudaError_t queries_event(void)
{
    return cudaEventQuery(other);
}

static cudaError_t synchronizes_device(void)
{
    return cudaDeviceSynchronize();
}

static cudaError_t allocates(void)
{
    void *pointer = NULL;
    cudaError_t error = cudaMalloc(&pointer, 64);
    return error == cudaSuccess ? cudaFree(pointer) : error;
}

static cudaError_t allocates_pinned(void)
{
    void *pointer = NULL;
    cudaError_t error = cudaMallocHost(&pointer, 64);
    return error == cudaSuccess ? cudaFreeHost(pointer) : error;
}

static cudaError_t copies(void)
{
    int value = 3;
    return cudaMemcpy(device_memory, &value, 4, cudaMemcpyHostToDevice);
}

static cudaError_t makes_a_stream(void)
{
    cudaStream_t stream;
    cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    return error == cudaSuccess ? cudaStreamDestroy(stream) : error;
}

static const struct {
    cudaError_t (*call)(void);
    bool always, unsafe; // refused in any mode; in modes that are not relaxed
} calls[] = {
    {synchronizes_self, true, true},   {synchronizes_other, false, true},
    {queries_other, false, true},      {queries_event, false, true},
    {synchronizes_device, true, true}, {allocates, false, true},
    {allocates_pinned, false, true},   {copies, false, false},
    {makes_a_stream, false, false},
};

struct
try {
    cudaError_t (*call)(void);
    enum cudaStreamCaptureMode mode; // of the thread
    cudaError_t error;
};

static void *make_call(void *argument)
{
    struct try *one = argument;
    enum cudaStreamCaptureMode mode = one->mode;
    EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    one->error = one->call();
    EXPECT_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
    return NULL;
}

// Makes the call during a capture, in this thread or another; says whether it was refused.
static bool is_refused(cudaError_t (*call)(void), enum cudaStreamCaptureMode capture_mode,
                       enum cudaStreamCaptureMode thread_mode, bool elsewhere)
{
    struct try one = {call, thread_mode, cudaSuccess};
    begin(s, capture_mode);
    if (elsewhere) {
        pthread_t thread;
        EXPECT_EQ(pthread_create(&thread, NULL, make_call, &one), 0);
        EXPECT_EQ(pthread_join(thread, NULL), 0);
    } else {
        make_call(&one);
    }
    bool refused = one.error == cudaErrorStreamCaptureUnsupported;
    EXPECT(refused || one.error == cudaSuccess);
    ends_with(s, refused ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    return refused;
}

static void unsafe_calls(void)
{
    const enum cudaStreamCaptureMode local = cudaStreamCaptureModeThreadLocal;
    EXPECT_CUDA(cudaEventRecord(other, t));
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        cudaError_t (*call)(void) = calls[i].call;
        EXPECT_EQ(is_refused(call, GLOBAL, GLOBAL, false), calls[i].unsafe);
        EXPECT_EQ(is_refused(call, local, GLOBAL, false), calls[i].unsafe);
        EXPECT_EQ(is_refused(call, RELAXED, GLOBAL, false), calls[i].always);
        EXPECT_EQ(is_refused(call, GLOBAL, GLOBAL, true), calls[i].unsafe);
        EXPECT_EQ(is_refused(call, local, GLOBAL, true), calls[i].always);
        EXPECT_EQ(is_refused(call, GLOBAL, local, true), calls[i].always);
        EXPECT_EQ(is_refused(call, GLOBAL, RELAXED, false), calls[i].always);
    }
}

// Threads capture at the same time, each its own stream.
static void *capture_many(void *argument)
{
    cudaStream_t stream;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 20; i++) {
        cudaGraph_t graph = NULL;
        cudaGraphExec_t executable = NULL;
        EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        EXPECT_CUDA(LAUNCH(adds_one, 1, 1, stream, argument));
        EXPECT_CUDA(LAUNCH(adds_one, 1, 1, stream, argument));
        EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
        EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
        EXPECT_CUDA(cudaGraphLaunch(executable, stream));
        EXPECT_CUDA(cudaGraphExecDestroy(executable));
        EXPECT_CUDA(cudaGraphDestroy(graph));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
    }
    EXPECT_CUDA(cudaStreamDestroy(stream));
    return NULL;
}

static void threads_capture(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    atomic_int count = 0;
    for (int i = 0; i < THREADS; i++) {
        EXPECT_EQ(pthread_create(&thread[i], NULL, capture_many, &count), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        EXPECT_EQ(pthread_join(thread[i], NULL), 0);
    }
    EXPECT_EQ(count, THREADS * 20 * 2);
}

static void *end_here(void *argument)
{
    (void)argument;
    ends_with(s, cudaErrorStreamCaptureWrongThread);
    return NULL;
}

static void other_threads(void)
{
    pthread_t thread;
    begin(s, cudaStreamCaptureModeThreadLocal);
    EXPECT_EQ(pthread_create(&thread, NULL, end_here, NULL), 0);
    EXPECT_EQ(pthread_join(thread, NULL), 0);
    EXPECT_EQ(status_of(s), cudaStreamCaptureStatusNone);
    ends_with(s, cudaErrorIllegalState);
}

static void destroyed_meanwhile(void)
{
    cudaStream_t origin;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&origin, cudaStreamNonBlocking));
    begin(origin, GLOBAL);
    EXPECT_CUDA(cudaEventRecord(event, origin));
    EXPECT_CUDA(cudaStreamWaitEvent(t, event, 0));
    EXPECT_CUDA(cudaStreamDestroy(origin));
    EXPECT_EQ(status_of(t), cudaStreamCaptureStatusNone);
    EXPECT_CUDA(cudaDeviceSynchronize()); // nothing is being captured any more
    cudaEvent_t temporary;
    EXPECT_CUDA(cudaEventCreate(&temporary));
    begin(s, GLOBAL);
    EXPECT_CUDA(cudaEventRecord(temporary, s));
    EXPECT_CUDA(cudaEventDestroy(temporary));
    ends_with(s, cudaSuccess);
}

int main(void)
{
    EXPECT_CUDA(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
    EXPECT_CUDA(cudaEventCreate(&event));
    EXPECT_CUDA(cudaEventCreate(&other));
    EXPECT_CUDA(cudaMalloc((void **)&device_memory, 4096));
    RUN(every_kind_of_work);
    RUN(forks_and_joins);
    RUN(streams_of_several_devices);
    RUN(graphs_in_graphs);
    RUN(into_a_given_graph);
    RUN(events_outside);
    RUN(beginning_and_ending);
    RUN(unjoined_work);
    RUN(isolation_and_merging);
    RUN(the_legacy_stream);
    RUN(unsafe_calls);
    RUN(threads_capture);
    RUN(other_threads);
    RUN(destroyed_meanwhile);
    EXPECT_CUDA(cudaStreamDestroy(s));
    EXPECT_CUDA(cudaStreamDestroy(t));
    EXPECT_CUDA(cudaEventDestroy(event));
    EXPECT_CUDA(cudaEventDestroy(other));
    EXPECT_CUDA(cudaFree(device_memory));
    return expect_result();
}

// Graphs: nodes, edges, copies, executable graphs and how they are changed, user objects, pictures.
//
// The numbers of errors are what an H200 with CUDA 13.0 gave. SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"
#include "stopwatch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

KERNEL(adds_one, atomic_int, 0)
{
    atomic_fetch_add(data, 1);
}

KERNEL(adds_ten, atomic_int, 0)
{
    atomic_fetch_add(data, 10);
}

static cudaStream_t stream;
static int *device_memory;
static atomic_int total;

// A kernel node that works on `place`.
static struct cudaKernelNodeParams kernel(const struct vgpu_kernel *function, void **place)
{
    struct cudaKernelNodeParams parameters = {.func = (void *)(uintptr_t)function,
                                              .gridDim = {1, 1, 1},
                                              .blockDim = {1, 1, 1},
                                              .kernelParams = place};
    return parameters;
}

static cudaGraphNode_t add_kernel(cudaGraph_t graph, const struct vgpu_kernel *function,
                                  atomic_int *data)
{
    void *arguments[] = {&data};
    struct cudaKernelNodeParams parameters = kernel(function, arguments);
    cudaGraphNode_t node = NULL;
    EXPECT_CUDA(cudaGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
    return node;
}

static int run(cudaGraphExec_t executable)
{
    total = 0;
    EXPECT_CUDA(cudaGraphLaunch(executable, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    return total;
}

// ---- Structure ----------------------------------------------------------------------------------

static void edges_are_checked(void)
{
    cudaGraph_t graph, elsewhere;
    cudaGraphNode_t a, b, c, node, foreign;
    cudaGraphExec_t executable;
    cudaGraphEdgeData edge = {.from_port = 1};
    EXPECT_EQ(cudaGraphCreate(&graph, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphCreate(&elsewhere, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&a, graph, NULL, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&b, graph, &a, 1));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&c, graph, &b, 1));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&foreign, elsewhere, NULL, 0));
    EXPECT_EQ(cudaGraphAddDependencies(graph, &a, &b, NULL, 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphAddDependencies(graph, &a, &a, NULL, 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphAddDependencies(graph, &a, &foreign, NULL, 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphAddDependencies(graph, &a, &c, &edge, 1), cudaErrorNotSupported);
    cudaGraphNode_t twice[] = {a, a};
    EXPECT_EQ(cudaGraphAddEmptyNode(&node, graph, twice, 2), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphAddEmptyNode(&node, graph, &foreign, 1), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphAddDependencies(graph, &c, &a, NULL, 1)); // a circle shows later
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaErrorInvalidValue);
    cudaGraphInstantiateParams parameters = {0};
    EXPECT_EQ(cudaGraphInstantiateWithParams(&executable, graph, &parameters),
              cudaErrorInvalidValue);
    EXPECT_EQ(parameters.result_out, cudaGraphInstantiateInvalidStructure);
    EXPECT_CUDA(cudaGraphRemoveDependencies(graph, &c, &a, NULL, 1));
    EXPECT_EQ(cudaGraphRemoveDependencies(graph, &c, &a, NULL, 1), cudaErrorInvalidValue);

    cudaGraphNode_t nodes[5];
    size_t count = 5;
    EXPECT_CUDA(cudaGraphGetNodes(graph, nodes, &count));
    EXPECT_EQ(count, 3);
    EXPECT(nodes[0] == a && nodes[2] == c && !nodes[3] && !nodes[4]);
    count = 1;
    EXPECT_CUDA(cudaGraphGetRootNodes(graph, nodes, &count));
    EXPECT(count == 1 && nodes[0] == a);
    cudaGraphNode_t from[4], to[4];
    count = 4;
    EXPECT_CUDA(cudaGraphGetEdges(graph, from, to, NULL, &count));
    EXPECT(count == 2 && from[1] == b && to[1] == c);
    EXPECT_CUDA(cudaGraphDestroyNode(b));
    EXPECT_EQ(cudaGraphDestroyNode(b), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count));
    EXPECT_EQ(count, 0);
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaGraphDestroy(elsewhere));
    EXPECT_EQ(cudaGraphDestroy(graph), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphDestroy(NULL), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphDestroy((cudaGraph_t)(void *)stream), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void appends(void *argument)
{
    char *text = *(char **)argument;
    text[strlen(text)] = ((char *)argument)[sizeof(char *)];
}

// Host functions leave a trace: every order that the edges allow is right, no other.
static void order_is_kept(void)
{
    char text[8] = "";
    struct letter {
        char *text;
        char letter;
    } letters[4];
    cudaGraph_t graph;
    cudaGraphNode_t node[4];
    cudaGraphExec_t executable;
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < 4; i++) {
        letters[i] = (struct letter){text, (char)('a' + i)};
        struct cudaHostNodeParams host = {appends, &letters[i]};
        EXPECT_CUDA(cudaGraphAddHostNode(&node[i], graph, NULL, 0, &host));
    }
    // d before a and b, both before c.
    cudaGraphNode_t from[] = {node[3], node[3], node[0], node[1]};
    cudaGraphNode_t to[] = {node[0], node[1], node[2], node[2]};
    EXPECT_CUDA(cudaGraphAddDependencies(graph, from, to, NULL, 4));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 20; i++) {
        memset(text, 0, sizeof(text));
        EXPECT_CUDA(cudaGraphLaunch(executable, stream));
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        EXPECT(strcmp(text, "dabc") == 0 || strcmp(text, "dbac") == 0);
    }
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
}

// ---- Nodes --------------------------------------------------------------------------------------

static void kernel_nodes(void)
{
    cudaGraph_t graph;
    cudaGraphNode_t node, wrong;
    atomic_int *place = &total;
    void *arguments[] = {&place};
    struct cudaKernelNodeParams got, parameters = kernel(&adds_one, arguments);
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddKernelNode(&node, graph, NULL, 0, &parameters));
    parameters.blockDim.x = 2048;
    EXPECT_EQ(cudaGraphAddKernelNode(&wrong, graph, NULL, 0, &parameters), cudaErrorInvalidValue);
    parameters = kernel(&adds_one, arguments);
    parameters.func = &total;
    EXPECT_EQ(cudaGraphAddKernelNode(&wrong, graph, NULL, 0, &parameters),
              cudaErrorInvalidResourceHandle);
    EXPECT_EQ(cudaGraphAddKernelNode(&wrong, graph, NULL, 0, NULL), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphKernelNodeGetParams(node, &got));
    EXPECT(got.func == (void *)(uintptr_t)&adds_one);
    EXPECT(*(atomic_int **)got.kernelParams[0] == &total);
    got.gridDim.x = 5;
    EXPECT_CUDA(cudaGraphKernelNodeSetParams(node, &got)); // with its own arguments
    EXPECT_EQ(cudaGraphHostNodeSetParams(node, NULL), cudaErrorInvalidValue);
    cudaLaunchAttributeValue value = {.cooperative = 1};
    EXPECT_CUDA(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributeCooperative, &value));
    value.cooperative = 0;
    EXPECT_CUDA(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributeCooperative, &value));
    EXPECT_EQ(value.cooperative, 1);
    cudaGraphExec_t executable;
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_EQ(run(executable), 5);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
}

static void copies_and_fills(void)
{
    cudaGraph_t graph;
    cudaGraphNode_t fill, copy, wrong;
    cudaGraphExec_t executable;
    int host[16];
    struct cudaMemsetParams parameters = {.dst = device_memory,
                                          .pitch = 16,
                                          .value = 0x12345,
                                          .elementSize = 2,
                                          .width = 4,
                                          .height = 3};
    struct cudaMemsetParams got;
    EXPECT_CUDA(cudaMemset(device_memory, 0, 256));
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddMemsetNode(&fill, graph, NULL, 0, &parameters));
    EXPECT_CUDA(cudaGraphMemsetNodeGetParams(fill, &got));
    EXPECT(got.dst == device_memory && got.width == 4 && got.height == 3 && got.value == 0x2345);
    parameters.elementSize = 3;
    EXPECT_EQ(cudaGraphAddMemsetNode(&wrong, graph, NULL, 0, &parameters), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphAddMemcpyNode1D(&copy, graph, &fill, 1, host, device_memory, 48,
                                         cudaMemcpyDeviceToHost));
    EXPECT_EQ(
        cudaGraphAddMemcpyNode1D(&wrong, graph, NULL, 0, host, device_memory, 0, cudaMemcpyDefault),
        cudaErrorInvalidValue);
    EXPECT_EQ(
        cudaGraphAddMemcpyNode1D(&wrong, graph, NULL, 0, NULL, device_memory, 4, cudaMemcpyDefault),
        cudaErrorInvalidValue);
    struct cudaMemcpy3DParms copied;
    EXPECT_CUDA(cudaGraphMemcpyNodeGetParams(copy, &copied));
    EXPECT(copied.dstPtr.ptr == host && copied.extent.width == 48 && copied.extent.depth == 1);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    (void)run(executable);
    EXPECT_EQ(host[0], 0x23452345);
    EXPECT_EQ(host[2], 0);
    EXPECT_EQ(host[9], 0x23452345);

    parameters = got;
    parameters.value = 1;
    EXPECT_CUDA(cudaGraphExecMemsetNodeSetParams(executable, fill, &parameters));
    EXPECT_CUDA(cudaGraphExecMemcpyNodeSetParams1D(executable, copy, host + 12, device_memory, 4,
                                                   cudaMemcpyDeviceToHost));
    (void)run(executable);
    EXPECT_EQ(host[12], 0x10001);
    EXPECT_EQ(host[0], 0x23452345); // not copied any more
    EXPECT_CUDA(cudaGraphNodeSetEnabled(executable, fill, 0));
    unsigned enabled = 1;
    EXPECT_CUDA(cudaGraphNodeGetEnabled(executable, fill, &enabled));
    EXPECT_EQ(enabled, 0);
    EXPECT_CUDA(cudaMemset(device_memory, 9, 4));
    (void)run(executable);
    EXPECT_EQ(host[12], 0x09090909);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    (void)cudaGetLastError();
}

static void event_nodes(void)
{
    cudaGraph_t graph;
    cudaGraphNode_t record, wait;
    cudaGraphExec_t executable;
    cudaEvent_t first, second, got;
    EXPECT_CUDA(cudaEventCreate(&first));
    EXPECT_CUDA(cudaEventCreate(&second));
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphAddEventWaitNode(&wait, graph, NULL, 0, first));
    EXPECT_CUDA(cudaGraphAddEventRecordNode(&record, graph, &wait, 1, first));
    EXPECT_CUDA(cudaGraphEventRecordNodeSetEvent(record, second));
    EXPECT_CUDA(cudaGraphEventRecordNodeGetEvent(record, &got));
    EXPECT(got == second);
    EXPECT_EQ(cudaGraphEventWaitNodeGetEvent(record, &got), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaEventRecord(first, stream));
    (void)run(executable);
    EXPECT_CUDA(cudaEventQuery(second));
    float milliseconds = -1;
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds, first, second));
    EXPECT(milliseconds >= 0);
    EXPECT_CUDA(cudaGraphExecEventRecordNodeSetEvent(executable, record, first));
    EXPECT_CUDA(cudaEventDestroy(second));
    (void)run(executable);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaEventDestroy(first));
    (void)cudaGetLastError();
}

static void child_graphs(void)
{
    cudaGraph_t inner, outer, inside;
    cudaGraphNode_t child, node;
    cudaGraphExec_t executable;
    EXPECT_CUDA(cudaGraphCreate(&inner, 0));
    EXPECT_CUDA(cudaGraphCreate(&outer, 0));
    (void)add_kernel(inner, &adds_one, &total);
    (void)add_kernel(inner, &adds_ten, &total);
    EXPECT_CUDA(cudaGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    EXPECT_CUDA(cudaGraphDestroy(inner)); // the node has a copy
    EXPECT_CUDA(cudaGraphChildGraphNodeGetGraph(child, &inside));
    EXPECT_EQ(cudaGraphDestroy(inside), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphAddChildGraphNode(&node, outer, &child, 1, inside));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, outer, 0));
    EXPECT_EQ(run(executable), 22);

    size_t count = 1;
    EXPECT_CUDA(cudaGraphGetNodes(inside, &node, &count)); // of a graph in the graph
    atomic_int *place = &total;
    void *arguments[] = {&place};
    struct cudaKernelNodeParams parameters = kernel(&adds_ten, arguments);
    EXPECT_CUDA(cudaGraphExecKernelNodeSetParams(executable, node, &parameters));
    EXPECT_EQ(run(executable), 31);
    EXPECT_CUDA(cudaGraphCreate(&inner, 0));
    (void)add_kernel(inner, &adds_ten, &total);
    EXPECT_EQ(cudaGraphExecChildGraphNodeSetParams(executable, child, inner),
              cudaErrorGraphExecUpdateFailure);
    (void)add_kernel(inner, &adds_ten, &total);
    EXPECT_CUDA(cudaGraphExecChildGraphNodeSetParams(executable, child, inner));
    EXPECT_EQ(run(executable), 31);
    EXPECT_CUDA(cudaGraphDestroy(inner));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(outer));
    (void)cudaGetLastError();
}

// ---- Executable graphs --------------------------------------------------------------------------

static void updates(void)
{
    cudaGraph_t graph, clone;
    cudaGraphNode_t node, found, more;
    cudaGraphExec_t executable;
    cudaGraphExecUpdateResultInfo info;
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    node = add_kernel(graph, &adds_one, &total);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 64), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, cudaGraphInstantiateFlagDeviceLaunch),
              cudaErrorNotSupported);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphClone(&clone, graph));
    EXPECT_CUDA(cudaGraphNodeFindInClone(&found, node, clone));
    EXPECT(found != node);
    EXPECT_EQ(cudaGraphNodeFindInClone(&more, found, clone), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphExecUpdate(executable, clone, &info));
    EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
    EXPECT_CUDA(cudaGraphAddEmptyNode(&more, clone, NULL, 0));
    EXPECT_EQ(cudaGraphExecUpdate(executable, clone, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
    EXPECT(info.errorNode == NULL);
    EXPECT_CUDA(cudaGraphDestroyNode(more));
    EXPECT_CUDA(cudaGraphDestroyNode(found));
    (void)add_kernel(clone, &adds_ten, &total); // another function is no other graph
    EXPECT_EQ(run(executable), 1);
    EXPECT_CUDA(cudaGraphExecUpdate(executable, clone, &info));
    EXPECT_EQ(run(executable), 10);
    EXPECT_CUDA(cudaGraphDestroy(clone));
    EXPECT_CUDA(cudaGraphCreate(&clone, 0));
    EXPECT_CUDA(cudaGraphAddEmptyNode(&more, clone, NULL, 0));
    EXPECT_EQ(cudaGraphExecUpdate(executable, clone, &info), cudaErrorGraphExecUpdateFailure);
    EXPECT_EQ(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
    EXPECT(info.errorNode == more);
    EXPECT_CUDA(cudaGraphDestroy(clone));

    atomic_int *place = &total;
    void *arguments[] = {&place};
    struct cudaKernelNodeParams parameters = kernel(&adds_one, arguments);
    EXPECT_CUDA(cudaGraphExecKernelNodeSetParams(executable, node, &parameters));
    EXPECT_EQ(run(executable), 1);
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_EQ(cudaGraphExecKernelNodeSetParams(executable, node, &parameters),
              cudaErrorInvalidValue);
    EXPECT_EQ(run(executable), 1);
    EXPECT_CUDA(cudaGraphUpload(executable, stream));
    unsigned long long flags = 7;
    EXPECT_CUDA(cudaGraphExecGetFlags(executable, &flags));
    EXPECT_EQ(flags, 0);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_EQ(cudaGraphExecDestroy(executable), cudaErrorInvalidValue);
    EXPECT_EQ(cudaGraphLaunch(NULL, stream), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

KERNEL(doubles_and_adds, atomic_int, 0)
{
    int before = atomic_load(data);
    atomic_store(data, 2 * before + 1);
}

// Launches of one executable graph, on any stream, follow each other; so do what is on the stream
// before and behind.
static void launches_are_in_order(void)
{
    enum { LAUNCHES = 12 };
    cudaStream_t streams[2];
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[0], cudaStreamNonBlocking));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&streams[1], cudaStreamNonBlocking));
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    (void)add_kernel(graph, &doubles_and_adds, &total);
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    total = 0;
    for (int i = 0; i < LAUNCHES; i++) {
        EXPECT_CUDA(cudaGraphLaunch(executable, streams[i % 2]));
    }
    EXPECT_CUDA(LAUNCH(doubles_and_adds, 1, 1, streams[(LAUNCHES - 1) % 2], &total));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(total, (1 << (LAUNCHES + 1)) - 1);
    EXPECT_CUDA(cudaStreamDestroy(streams[0]));
    EXPECT_CUDA(cudaStreamDestroy(streams[1]));
}

// A wide and deep graph: 40 layers of 25 kernels, each behind all of the layer before.
static void many_nodes(void)
{
    enum { LAYERS = 40, WIDTH = 25 };
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaGraphNode_t layer[2][WIDTH];
    atomic_int *place = &total;
    void *arguments[] = {&place};
    struct cudaKernelNodeParams parameters = kernel(&adds_one, arguments);
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < WIDTH; k++) {
            EXPECT_CUDA(cudaGraphAddKernelNode(&layer[i % 2][k], graph, layer[(i + 1) % 2],
                                               i ? WIDTH : 0, &parameters));
        }
    }
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_EQ(run(executable), LAYERS * WIDTH);
    EXPECT_EQ(run(executable), LAYERS * WIDTH);
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaGraphDestroy(graph));
}

// ---- User objects and pictures ------------------------------------------------------------------

static void counts_up(void *argument)
{
    atomic_fetch_add((atomic_int *)argument, 1);
}

static void user_objects(void)
{
    cudaUserObject_t object;
    cudaGraph_t graph, clone;
    cudaGraphExec_t executable;
    atomic_int freed = 0;
    EXPECT_EQ(cudaUserObjectCreate(&object, &freed, counts_up, 1, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(
        cudaUserObjectCreate(&object, &freed, counts_up, 1, cudaUserObjectNoDestructorSync));
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    (void)add_kernel(graph, &adds_one, &total);
    EXPECT_CUDA(cudaUserObjectRetain(object, 2));
    EXPECT_CUDA(cudaUserObjectRelease(object, 2));
    EXPECT_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    EXPECT_EQ(cudaGraphReleaseUserObject(graph, object, 2), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphClone(&clone, graph));
    EXPECT_CUDA(cudaGraphInstantiate(&executable, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaGraphDestroy(clone));
    EXPECT_EQ(freed, 0);
    EXPECT_CUDA(cudaGraphLaunch(executable, stream));
    EXPECT_CUDA(cudaGraphExecDestroy(executable));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    struct stopwatch watch = stopwatch_start();
    while (freed == 0 && stopwatch_is_within(&watch, 2)) {
        (void)usleep(1000); // the last operation is released just behind its completion
    }
    EXPECT_EQ(freed, 1);
    EXPECT_EQ(cudaUserObjectRelease(object, 1), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void pictures(void)
{
    char path[] = "/tmp/graph-XXXXXX";
    char text[4096] = "";
    cudaGraph_t graph, outer;
    cudaGraphNode_t node, child;
    int file = mkstemp(path);
    if (!EXPECT(file >= 0)) {
        return;
    }
    EXPECT_CUDA(cudaGraphCreate(&graph, 0));
    EXPECT_CUDA(cudaGraphCreate(&outer, 0));
    node = add_kernel(graph, &adds_one, &total);
    EXPECT_CUDA(cudaGraphAddEmptyNode(&node, graph, &node, 1));
    EXPECT_CUDA(cudaGraphAddChildGraphNode(&child, outer, NULL, 0, graph));
    EXPECT_CUDA(cudaGraphDebugDotPrint(outer, path, cudaGraphDebugDotFlagsVerbose));
    EXPECT(read(file, text, sizeof(text) - 1) > 0);
    EXPECT_CONTAINS(text, "digraph");
    EXPECT_CONTAINS(text, "child graph");
    EXPECT_CONTAINS(text, "adds_one <<<(1,1,1), (1,1,1), 0>>>");
    EXPECT_CONTAINS(text, " -> ");
    EXPECT_EQ(cudaGraphDebugDotPrint(outer, "/no/such/folder", 0), cudaErrorOperatingSystem);
    EXPECT_EQ(cudaGraphDebugDotPrint(outer, NULL, 0), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaGraphDestroy(outer));
    (void)close(file);
    (void)unlink(path);
    (void)cudaGetLastError();
}

int main(void)
{
    EXPECT_CUDA(cudaStreamCreate(&stream));
    EXPECT_CUDA(cudaMalloc((void **)&device_memory, 4096));
    RUN(edges_are_checked);
    RUN(order_is_kept);
    RUN(kernel_nodes);
    RUN(copies_and_fills);
    RUN(event_nodes);
    RUN(child_graphs);
    RUN(updates);
    RUN(launches_are_in_order);
    RUN(many_nodes);
    RUN(user_objects);
    RUN(pictures);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaFree(device_memory));
    return expect_result();
}

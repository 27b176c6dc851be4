// Memory operations of streams: what they wait for, their order, their checks; in graphs too.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "expect.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

static CUstream stream, other;
static uint64_t *pinned;

static CUdeviceptr at(int index)
{
    return (CUdeviceptr)(uintptr_t)&pinned[index];
}

static void store(int index, uint64_t value)
{
    __atomic_store_n(&pinned[index], value, __ATOMIC_RELEASE);
}

static uint64_t load(int index)
{
    return __atomic_load_n(&pinned[index], __ATOMIC_ACQUIRE);
}

// A wait that holds for `right` alone, not for `wrong`.
static void waits_for(unsigned flags, uint64_t wanted, uint64_t wrong, uint64_t right, bool wide)
{
    store(0, wrong);
    store(1, 0);
    EXPECT_EQ(wide ? cuStreamWaitValue64(stream, at(0), wanted, flags)
                   : cuStreamWaitValue32(stream, at(0), (uint32_t)wanted, flags),
              CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWriteValue32(stream, at(1), 9, 0), CUDA_SUCCESS);
    (void)usleep(2000);
    EXPECT_EQ(load(1), 0);
    EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    store(0, right);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(load(1), 9);
}

static void every_condition(void)
{
    waits_for(CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 11, false);
    waits_for(CU_STREAM_WAIT_VALUE_GEQ, 5, 0xfffffff0u, 5, false); // cyclic: that is less
    waits_for(CU_STREAM_WAIT_VALUE_EQ, 7, 8, 7, false);
    waits_for(CU_STREAM_WAIT_VALUE_AND, 6, 8, 12, false);
    waits_for(CU_STREAM_WAIT_VALUE_NOR, 0xf0f0f0f0u, 0x0f0f0f0fu, 0x0f0f0f0eu, false);
    waits_for(CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, 1ull << 40, 0, 1ull << 40,
              true);
    waits_for(CU_STREAM_WAIT_VALUE_GEQ, 1ull << 63, 5, 1ull << 63, true);
}

static void streams_hand_over(void)
{
    enum { ROUNDS = 50 };
    store(0, 0);
    store(1, 0);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        EXPECT_EQ(cuStreamWriteValue32(stream, at(0), i, 0), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitValue32(stream, at(1), i, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWaitValue32(other, at(0), i, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
        EXPECT_EQ(cuStreamWriteValue32(other, at(1), i, 0), CUDA_SUCCESS);
    }
    EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(load(0) + load(1), 2 * ROUNDS);
}

static void batches(void)
{
    CUstreamBatchMemOpParams operations[4];
    memset(operations, 0, sizeof(operations));
    operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    operations[0].waitValue.address = at(0);
    operations[0].waitValue.value64 = 3;
    operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    operations[1].writeValue.address = at(1);
    operations[1].writeValue.value64 = 1ull << 50;
    operations[2].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    operations[3].flushRemoteWrites.operation = CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
    store(0, 3);
    store(1, 0);
    EXPECT_EQ(cuStreamBatchMemOp(stream, 4, operations, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(load(1), 1ull << 50);
    EXPECT_EQ(cuStreamBatchMemOp(stream, 0, NULL, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamBatchMemOp(stream, 4, operations, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamBatchMemOp(stream, 257, operations, 0), CUDA_ERROR_INVALID_VALUE);
    store(1, 0);
    operations[3].operation = (CUstreamBatchMemOpType)77; // nothing of it is done
    EXPECT_EQ(cuStreamBatchMemOp(stream, 4, operations, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(load(1), 0);
}

static void what_is_refused(void)
{
    int local = 0;
    EXPECT_EQ(cuStreamWriteValue32(stream, at(0) + 1, 5, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue64(stream, at(0) + 4, 5, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWaitValue32(stream, at(0), 5, 7), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue32(stream, at(0), 5, 9), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue32(stream, 0, 5, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue32(stream, (CUdeviceptr)(uintptr_t)&local, 5, 0),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(cuStreamWriteValue32((CUstream)(void *)pinned, at(0), 5, 0),
              CUDA_ERROR_INVALID_HANDLE);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess); // the driver's errors are not the runtime's
}

static void in_graphs(void)
{
    CUgraph graph;
    CUgraphExec executable;
    enum cudaGraphNodeType type;
    CUgraphNode node;
    size_t count = 1;
    store(0, 1);
    store(1, 0);
    EXPECT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWaitValue32(stream, at(0), 1, CU_STREAM_WAIT_VALUE_EQ), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamWriteValue32(stream, at(1), 4, 0), CUDA_SUCCESS);
    CUstreamCaptureStatus status;
    cuuint64_t id = 0;
    EXPECT_EQ(cuStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, &count), CUDA_SUCCESS);
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0 && count == 1);
    EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(load(1), 0);
    EXPECT_EQ(cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
    EXPECT_CUDA(cudaGraphNodeGetType(node, &type));
    EXPECT_EQ(type, 12); // the driver's CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
    EXPECT_EQ(cuGraphInstantiate(&executable, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
    EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(load(1), 4);
    EXPECT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
}

int main(void)
{
    if (!EXPECT_CUDA(cudaStreamCreate(&stream)) || !EXPECT_CUDA(cudaStreamCreate(&other)) ||
        !EXPECT_CUDA(cudaMallocHost((void **)&pinned, 4096))) {
        return expect_result();
    }
    RUN(every_condition);
    RUN(streams_hand_over);
    RUN(batches);
    RUN(what_is_refused);
    RUN(in_graphs);
    EXPECT_CUDA(cudaStreamDestroy(stream));
    EXPECT_CUDA(cudaStreamDestroy(other));
    EXPECT_CUDA(cudaFreeHost(pinned));
    return expect_result();
}

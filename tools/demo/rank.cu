// One rank: communicator, window, device communicator; then the two kernels and the native
// operation on the same input, each checked element by element.
// SPDX-License-Identifier: Apache-2.0
#include "../../kernels/launch.cuh"
#include "demo.h"

#include <tutti.h>
#include <vgpu/stats.h>

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <vector>

static const size_t elements = (size_t)DEMO_TOKENS * DEMO_HIDDEN;
static const size_t bytes = elements * sizeof(float);
static const int barriers = 16;
static const float eps = 1e-6f;

// What a rank owns while it runs.
struct resources {
    ncclComm_t comm;
    cudaStream_t stream;
    char *memory; // input, then output
    ncclWindow_t window;
    ncclDevComm device_comm;
    bool has_device_comm, has_multimem;
};

static bool fail(struct demo_rank *rank, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool fail(struct demo_rank *rank, const char *format, ...)
{
    if (rank->text[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(rank->text, sizeof rank->text, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool nccl_good(struct demo_rank *rank, ncclResult_t result, const char *call)
{
    return result == ncclSuccess ||
           fail(rank, "%s: %s: %s", call, ncclGetErrorString(result), ncclGetLastError(nullptr));
}

static bool cuda_good(struct demo_rank *rank, cudaError_t error, const char *call)
{
    return error == cudaSuccess || fail(rank, "%s: %s", call, cudaGetErrorString(error));
}

#define NCCL(call) nccl_good(rank, call, #call)
#define CUDA(call) cuda_good(rank, call, #call)

static double now()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void meet(const struct demo_rank *rank)
{
    if (rank->barrier != nullptr) {
        pthread_barrier_wait(rank->barrier);
    }
}

static bool open_resources(struct demo_rank *rank, resources *r)
{
    if (!CUDA(cudaSetDevice(rank->rank)) || !CUDA(cudaStreamCreate(&r->stream)) ||
        !NCCL(ncclCommInitRank(&r->comm, rank->nranks, rank->id, rank->rank)) ||
        !NCCL(ncclMemAlloc((void **)&r->memory, 2 * bytes)) ||
        !NCCL(ncclCommWindowRegister(r->comm, r->memory, 2 * bytes, &r->window,
                                     NCCL_WIN_COLL_SYMMETRIC))) {
        return false;
    }
    ncclCommProperties properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    if (!NCCL(ncclCommQueryProperties(r->comm, &properties))) {
        return false;
    }
    if (!properties.deviceApiSupport || r->window == nullptr) {
        return fail(rank, "this virtual machine's GPUs cannot map each other's memory");
    }
    r->has_multimem = properties.multimemSupport;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = barriers;
    needs.lsaMultimem = r->has_multimem;
    r->has_device_comm = NCCL(ncclDevCommCreate(r->comm, &needs, &r->device_comm));
    return r->has_device_comm;
}

// In NCCL's order: device communicator, window, memory, communicator, stream. A communicator whose
// rank has failed is aborted, so that its peers end too.
static void close_resources(struct demo_rank *rank, resources *r)
{
    if (rank->text[0] != '\0' && r->comm != nullptr) {
        ncclCommAbort(r->comm);
        return;
    }
    if (r->has_device_comm) {
        NCCL(ncclDevCommDestroy(r->comm, &r->device_comm));
    }
    if (r->window != nullptr) {
        NCCL(ncclCommWindowDeregister(r->comm, r->window));
    }
    if (r->memory != nullptr) {
        NCCL(ncclMemFree(r->memory));
    }
    if (r->comm != nullptr) {
        NCCL(ncclCommFinalize(r->comm));
        NCCL(ncclCommDestroy(r->comm));
    }
    if (r->stream != nullptr) {
        CUDA(cudaStreamDestroy(r->stream));
    }
}

static bool run_once(struct demo_rank *rank, resources *r, enum demo_way way)
{
    if (way == DEMO_NATIVE) {
        tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
        options.eps = eps;
        if (!NCCL(tuttiAllReduceRMSNorm(r->memory, r->memory + bytes, DEMO_TOKENS, DEMO_HIDDEN,
                                        &options, ncclFloat, r->comm, r->stream))) {
            return false;
        }
    } else {
        tutti::rmsnorm_arguments args = {};
        args.input = args.output = r->window;
        args.output_offset = bytes;
        args.tokens = DEMO_TOKENS;
        args.hidden = DEMO_HIDDEN;
        args.eps = eps;
        // One thread a block: the compiler then vectorises over the logical threads.
        if (!CUDA(tutti::launch_rmsnorm<float>(way == DEMO_MULTIMEM, args, r->device_comm, barriers,
                                               barriers, 1, r->stream))) {
            return false;
        }
    }
    ncclResult_t error = ncclSuccess;
    return CUDA(cudaStreamSynchronize(r->stream)) && NCCL(ncclCommGetAsyncError(r->comm, &error)) &&
           nccl_good(rank, error, "ncclCommGetAsyncError");
}

// Every element against the reference; NaN counts as wrong.
static void check(struct demo_rank *rank, struct demo_outcome *outcome, const float *got)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < elements; i++) {
        double wanted = rank->wanted[i], absolute = fabs((double)got[i] - wanted);
        double relative = absolute / fmax(fabs(wanted), 1e-30);
        outcome->wrong += !(absolute < 1e-5 || relative < 1e-4);
        outcome->absolute_error = fmax(outcome->absolute_error, absolute);
        outcome->relative_error = fmax(outcome->relative_error, relative);
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    outcome->hash = hash;
}

static void read_traffic(struct demo_traffic *traffic, enum demo_way way)
{
    struct vgpu_device_stats stats[DEMO_MAX_RANKS];
    int devices = vgpuStatsRead(stats, DEMO_MAX_RANKS);
    for (int d = 0; d < devices && d < DEMO_MAX_RANKS; d++) {
        traffic->in[way][d] = stats[d].bytes_in;
        traffic->out[way][d] = stats[d].bytes_out;
        for (int to = 0; to < devices && to < DEMO_MAX_RANKS; to++) {
            traffic->link[way][d][to] = vgpuStatsLink(d, to);
        }
    }
}

static bool run_way(struct demo_rank *rank, resources *r, enum demo_way way,
                    std::vector<float> *host)
{
    struct demo_outcome *outcome = &rank->outcome[way];
    if (!CUDA(cudaMemset(r->memory + bytes, 0xff, bytes)) || !CUDA(cudaDeviceSynchronize())) {
        return false;
    }
    meet(rank);
    if (rank->traffic != nullptr) {
        vgpuStatsStart();
    }
    meet(rank);
    for (int i = 0; i < (rank->counting ? 1 : 3); i++) {
        double start = now();
        if (!run_once(rank, r, way)) {
            return false;
        }
        double seconds = now() - start;
        outcome->seconds = i == 0 ? seconds : fmin(seconds, outcome->seconds);
    }
    meet(rank);
    if (rank->traffic != nullptr) {
        read_traffic(rank->traffic, way);
        vgpuStatsStop();
    }
    outcome->ran = true;
    if (rank->wanted != nullptr) {
        if (!CUDA(cudaMemcpy(host->data(), r->memory + bytes, bytes, cudaMemcpyDeviceToHost))) {
            return false;
        }
        check(rank, outcome, host->data());
    }
    return true;
}

void demo_run_rank(struct demo_rank *rank)
{
    resources r = {};
    std::vector<float> host(rank->wanted == nullptr ? 0 : elements);
    bool good = open_resources(rank, &r);
    if (good && rank->wanted != nullptr) {
        demo_make_input(host.data(), rank->rank);
        good = CUDA(cudaMemcpy(r.memory, host.data(), bytes, cudaMemcpyHostToDevice));
    }
    for (int way = 0; way < DEMO_WAYS && good; way++) {
        if (way != DEMO_MULTIMEM || r.has_multimem) {
            good = run_way(rank, &r, (enum demo_way)way, &host);
        }
    }
    if (!good && rank->barrier != nullptr) {
        // The other ranks of this process may wait at a barrier that this one will not reach.
        printf("FAILED: rank %d: %s\n", rank->rank, rank->text);
        exit(1);
    }
    close_resources(rank, &r);
}

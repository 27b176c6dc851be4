// Who did what when: a small run with 8 ranks, recorded block by block.
// SPDX-License-Identifier: Apache-2.0
#include "../../kernels/launch.cuh"
#include "demo.h"

#include <tutti.h>
#include <vgpu/trace.h>

#include <unistd.h>

#include <vector>

static const int ranks = DEMO_MAX_RANKS, blocks = 2, recordings = 15;
static const size_t tokens = 96, hidden = 4096, bytes = tokens * hidden * sizeof(float);

// All ranks, driven by this thread.
struct team {
    ncclComm_t comm[ranks];
    cudaStream_t stream[ranks];
    char *memory[ranks];
    ncclWindow_t window[ranks];
    ncclDevComm device_comm[ranks];
    bool multimem;
    bool good;
};

static void must(team *t, bool good, const char *call)
{
    if (!good && t->good) {
        printf("FAILED: timeline: %s: %s\n", call, ncclGetLastError(nullptr));
        t->good = false;
    }
}
#define NCCL(call) must(t, (call) == ncclSuccess, #call)
#define CUDA(call) must(t, (call) == cudaSuccess, #call)

static void open_team(team *t)
{
    int devices[ranks];
    for (int r = 0; r < ranks; r++) {
        devices[r] = r;
    }
    t->good = true;
    NCCL(ncclCommInitAll(t->comm, ranks, devices));
    for (int r = 0; r < ranks && t->good; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamCreate(&t->stream[r]));
        NCCL(ncclMemAlloc((void **)&t->memory[r], bytes));
    }
    if (!t->good) {
        return;
    }
    NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        NCCL(ncclCommWindowRegister(t->comm[r], t->memory[r], bytes, &t->window[r],
                                    NCCL_WIN_COLL_SYMMETRIC));
    }
    NCCL(ncclGroupEnd());
    ncclCommProperties properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    NCCL(ncclCommQueryProperties(t->comm[0], &properties));
    t->multimem = properties.multimemSupport;
    NCCL(ncclGroupStart());
    for (int r = 0; r < ranks; r++) {
        ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
        needs.lsaBarrierCount = blocks;
        needs.lsaMultimem = t->multimem;
        NCCL(ncclDevCommCreate(t->comm[r], &needs, &t->device_comm[r]));
    }
    NCCL(ncclGroupEnd());
}

static void close_team(team *t)
{
    for (int r = 0; r < ranks && t->good; r++) {
        CUDA(cudaSetDevice(r));
        NCCL(ncclDevCommDestroy(t->comm[r], &t->device_comm[r]));
        NCCL(ncclCommWindowDeregister(t->comm[r], t->window[r]));
        NCCL(ncclMemFree(t->memory[r]));
        CUDA(cudaStreamDestroy(t->stream[r]));
    }
    for (int r = 0; r < ranks && t->good; r++) {
        NCCL(ncclCommDestroy(t->comm[r]));
    }
}

static void run(team *t, enum demo_way way)
{
    for (int r = 0; r < ranks && t->good; r++) {
        CUDA(cudaSetDevice(r));
        if (way == DEMO_NATIVE) {
            NCCL(tuttiAllReduceRMSNorm(t->memory[r], t->memory[r], tokens, hidden, nullptr,
                                       ncclFloat, t->comm[r], t->stream[r]));
            continue;
        }
        tutti::rmsnorm_arguments args = {};
        args.input = args.output = t->window[r];
        args.tokens = tokens;
        args.hidden = hidden;
        args.eps = 1e-6f;
        CUDA(tutti::launch_rmsnorm<float>(way == DEMO_MULTIMEM, args, t->device_comm[r], blocks,
                                          blocks, 1, t->stream[r]));
    }
    for (int r = 0; r < ranks && t->good; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaStreamSynchronize(t->stream[r]));
    }
}

// Runs one way several times and keeps the recording in which the work took least: the machine has
// other things to do as well.
static std::vector<vgpu_trace_event> record(team *t, enum demo_way way)
{
    std::vector<vgpu_trace_event> best;
    uint64_t least = UINT64_MAX;
    run(t, way); // once to warm up
    for (int i = 0; i < recordings && t->good; i++) {
        vgpuTraceStart((size_t)1 << 16);
        run(t, way);
        const struct vgpu_trace_event *events;
        size_t count = vgpuTraceStop(&events);
        uint64_t ns = demo_work_ns(events, count);
        if (ns > 0 && ns < least) {
            least = ns;
            best.assign(events, events + count);
        }
    }
    if (t->good && best.empty()) {
        printf("FAILED: timeline: nothing was recorded\n");
        t->good = false;
    }
    return best;
}

bool demo_write_timelines(FILE *page)
{
    team opened = {}, *t = &opened;
    open_team(t);
    fprintf(page,
            "<p>%zu rows of %zu floats, 8 ranks, %d blocks each; the least disturbed of %d runs. "
            "Virtual GPUs share the machine's %ld cores, so no more blocks than that work at the "
            "same time: a core whose block must wait runs another. Below each picture one row is "
            "enlarged.</p>\n",
            tokens, hidden, blocks, recordings, sysconf(_SC_NPROCESSORS_ONLN));
    demo_draw_legend(page);
    for (int way = 0; way < DEMO_WAYS && t->good; way++) {
        if (way == DEMO_MULTIMEM && !t->multimem) {
            continue;
        }
        std::vector<vgpu_trace_event> events = record(t, (enum demo_way)way);
        demo_draw(page, demo_way_name((enum demo_way)way), events.data(), events.size(), blocks);
    }
    close_team(t);
    return t->good;
}

// Who did what when: a small run with 8 ranks, recorded block by block, drawn as one SVG per way.
// SPDX-License-Identifier: Apache-2.0
#include "../../kernels/launch.cuh"
#include "demo.h"

#include <tutti.h>
#include <vgpu/trace.h>

#include <string.h>
#include <string>
#include <vector>

static const int ranks = DEMO_MAX_RANKS, blocks = 2;
static const size_t tokens = 96, hidden = 4096, bytes = tokens * hidden * sizeof(float);

struct phase {
    const char *name, *colour, *what;
};
static const phase phases[] = {
    {"wait for inputs", "#d9d9d9", "waits until every rank's input is there"},
    {"reduce", "#4e79a7", "sums one row over all ranks' memory"},
    {"normalise", "#f28e2b", "adds the squares up, takes the root"},
    {"gather", "#59a14f", "stores the row into every rank's memory"},
    {"wait for peers", "#bab0ac", "waits until every rank has stored"},
};

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

static const phase *find_phase(const char *name)
{
    for (const phase &p : phases) {
        if (name != nullptr && strcmp(p.name, name) == 0) {
            return &p;
        }
    }
    return nullptr;
}

static void draw(FILE *page, enum demo_way way, const struct vgpu_trace_event *events, size_t count)
{
    const double width = 960, left = 110, lane = 13;
    uint64_t begin = UINT64_MAX, end = 0;
    for (size_t i = 0; i < count; i++) {
        begin = events[i].begin_ns < begin ? events[i].begin_ns : begin;
        end = events[i].end_ns > end ? events[i].end_ns : end;
    }
    double scale = (width - left) / (double)(end > begin ? end - begin : 1);
    fprintf(page,
            "<h3>%s</h3>\n<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"phases by rank and "
            "block\">\n",
            demo_way_name(way), width, ranks * blocks * lane + 24);
    for (int r = 0; r < ranks; r++) {
        double y = r * blocks * lane;
        fprintf(page, "<rect x=\"0\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"/>", y, width,
                blocks * lane, r % 2 == 0 ? "#fafafa" : "#fff");
        for (int b = 0; b < blocks; b++) {
            fprintf(page, "<text x=\"4\" y=\"%g\">rank %d, block %d</text>\n",
                    y + (b + 1) * lane - 3, r, b);
        }
    }
    for (size_t i = 0; i < count; i++) {
        const struct vgpu_trace_event *e = &events[i];
        const phase *p = find_phase(e->phase);
        if (p == nullptr || e->device >= ranks || e->block >= (unsigned)blocks) {
            continue;
        }
        double x = left + (double)(e->begin_ns - begin) * scale,
               w = (double)(e->end_ns - e->begin_ns) * scale;
        fprintf(page,
                "<rect x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\" fill=\"%s\"><title>%s, "
                "%.1f us, on worker "
                "%d</title></rect>\n",
                x, (double)(e->device * blocks + (int)e->block) * lane + 1, w < 0.2 ? 0.2 : w,
                lane - 2, p->colour, p->name, (double)(e->end_ns - e->begin_ns) / 1e3, e->worker);
    }
    double y = ranks * blocks * lane + 16;
    fprintf(page,
            "<text x=\"%g\" y=\"%g\">0</text><text x=\"%g\" y=\"%g\" text-anchor=\"end\">%.0f "
            "us</text>\n</svg>\n",
            left, y, width, y, (double)(end - begin) / 1e3);
}

bool demo_write_timelines(FILE *page)
{
    team opened = {}, *t = &opened;
    open_team(t);
    fprintf(page,
            "<p>%zu rows of %zu floats, 8 ranks, %d blocks each. Virtual GPUs share the machine's "
            "cores: a core "
            "that waits for one block runs another.</p>\n<p class=\"legend\">",
            tokens, hidden, blocks);
    for (const phase &p : phases) {
        fprintf(page, "<span><i style=\"background:%s\"></i>%s: %s</span> ", p.colour, p.name,
                p.what);
    }
    fprintf(page, "</p>\n");
    for (int way = 0; way < DEMO_WAYS && t->good; way++) {
        if (way == DEMO_MULTIMEM && !t->multimem) {
            continue;
        }
        run(t, (enum demo_way)way); // once to warm up
        vgpuTraceStart((size_t)1 << 16);
        run(t, (enum demo_way)way);
        const struct vgpu_trace_event *events;
        size_t count = vgpuTraceStop(&events);
        if (t->good && count == 0) {
            printf("FAILED: timeline: nothing was recorded\n");
            t->good = false;
        }
        draw(page, (enum demo_way)way, events, count);
    }
    close_team(t);
    return t->good;
}

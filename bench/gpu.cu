// The fused all-reduce + RMSNorm on real GPUs. One device, ranks share it: against device copies of
// the same bytes and against its plain form. Two devices: against NCCL's three calls and the rate
// of stores. Ratios, each in one run with all sides alternating, as medians; everything is checked
// against the processor before it is timed.
// SPDX-License-Identifier: Apache-2.0
#include "../kernels/launch_all_reduce.cuh"
#include "../src/exec/cuda/kernels.h"
#include "gpu_check.cuh"
#include "gpu_limit.cuh"
#include "gpu_nccl.h"
#include "gpu_plain.cuh"

#include <string.h>
#include <tutti.h>

struct gpu_options {
    int rounds;
    bool kernels;     // alone, without the library
    bool all_reduces; // alone
    const char *nccl;
};

static bool all_met = true;

static void verdict(bool met, const char *text)
{
    printf("  %s %s\n", met ? "met   " : "MISSED", text);
    all_met = all_met && met;
}

// ---- What is measured

static ncclDataType_t type_of(const gpu_case *problem)
{
    return problem->is_bf16 ? ncclBfloat16 : ncclFloat32;
}

static void run_copies(gpu_team *t, int set)
{
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaMemcpyAsync(t->output(r, set), t->input(r, set), t->problem.bytes(),
                             cudaMemcpyDeviceToDevice, t->stream[0]));
    }
}

// What a launch for any of the ranks has in common with the others.
static tt_norm_launch launch_of(gpu_team *t, int set)
{
    tt_norm_launch launch = {};
    launch.input = {t->base + (t->input(0, set) - t->memory[0]), t->stride};
    launch.output = {t->base + (t->output(0, set) - t->memory[0]), t->stride};
    launch.tokens = t->problem.tokens;
    launch.hidden = t->problem.hidden;
    launch.eps = bench_eps;
    launch.data_type = type_of(&t->problem);
    launch.nranks = t->problem.ranks;
    return launch;
}

// One launch for all ranks, as the library makes it, without the library around it.
static void run_kernel(gpu_team *t, int set)
{
    tt_norm_launch launch = launch_of(t, set);
    launch.rank_count = t->problem.ranks;
    for (int r = 0; r < t->problem.ranks; r++) {
        launch.rank[r].rank = r;
    }
    if (t->blocks == 0) {
        CUDA(tt_norm_wished_blocks(&launch, t->problem.ranks, &t->blocks));
    }
    launch.blocks = t->blocks;
    CUDA(tt_norm_start(&launch, t->stream[0]));
}

// The calls of all ranks, on a stream for each or all on one.
static void run_library_on(gpu_team *t, int set, bool one_stream)
{
    tuttiRMSNormOptions options = TUTTI_RMSNORM_OPTIONS_INITIALIZER;
    options.eps = bench_eps;
    NCCL(ncclGroupStart());
    for (int r = 0; r < t->problem.ranks; r++) {
        CUDA(cudaSetDevice(t->device[r]));
        NCCL(tuttiAllReduceRMSNorm(t->input(r, set), t->output(r, set), t->problem.tokens,
                                   t->problem.hidden, &options, type_of(&t->problem), t->comm[r],
                                   t->stream[one_stream ? 0 : r]));
    }
    NCCL(ncclGroupEnd());
}

static void run_library(gpu_team *t, int set)
{
    run_library_on(t, set, false);
}

static void run_one_stream(gpu_team *t, int set)
{
    run_library_on(t, set, true);
}

// ---- One device

// Ratios of rates and times that must be reached; 0: none.
struct one_device_bar {
    gpu_case problem;
    double least_of_copies, most_of_plain;
};

static const one_device_bar one_device_bars[] = {
    {{4096, 1024, false, 2}, 1.0, 0.40}, {{4096, 1024, false, 4}, 1.0, 0.55},
    {{4096, 1024, false, 8}, 1.0, 0.55}, {{32768, 1024, false, 2}, 0.95, 0},
    {{32768, 1024, false, 4}, 0.95, 0},  {{32768, 1024, false, 8}, 0.95, 0},
    {{4096, 8192, true, 2}, 0.95, 0},    {{4096, 8192, true, 4}, 0.95, 0},
    {{4096, 8192, true, 8}, 0.95, 0},    {{16384, 8192, true, 1}, 0.95, 0},
};

static void print_ways(const gpu_case *problem, const std::vector<gpu_way> *ways)
{
    const gpu_way *limit = find_limit(ways);
    printf("%5zu x %4zu %-5s  %d rank%s us:", problem->tokens, problem->hidden, problem->type(),
           problem->ranks, problem->ranks == 1 ? ", " : "s,");
    for (const gpu_way &way : *ways) {
        if (!way.is_limit) {
            printf("  %s %.2f", way.name, way.median());
        }
    }
    if (limit != nullptr) {
        printf("  limit %.2f (%s)", limit->median(), limit->name);
    }
    printf("\n         host's calls, us:");
    for (const gpu_way &way : *ways) {
        if (!way.is_limit) {
            printf("  %s %.1f", way.name, gpu_way::median_of(way.host));
        }
    }
    printf("\n");
}

// limit: microseconds that a copy by a kernel takes. A bar beyond it is said to be so.
static void judge_one_device(const one_device_bar *bar, const gpu_way *way, double copies,
                             double plain, double limit)
{
    char text[160];
    double rate = copies / way->median();
    snprintf(text, sizeof text, "%s: %.3f of the rate of %d device cop%s (bar %.2f)", way->name,
             rate, bar->problem.ranks, bar->problem.ranks == 1 ? "y" : "ies", bar->least_of_copies);
    verdict(rate >= bar->least_of_copies, text);
    if (plain > 0) {
        double times = way->median() / plain;
        snprintf(text, sizeof text, "%s: %.3f times as long as the plain form (bar %.2f%s)",
                 way->name, times, bar->most_of_plain,
                 limit > bar->most_of_plain * plain ? ", beyond the limit" : "");
        verdict(times <= bar->most_of_plain, text);
    }
}

static void bench_one_device(const one_device_bar *bar, const gpu_options *options)
{
    gpu_team t;
    bool with_plain = bar->most_of_plain > 0 && !options->kernels;
    int barriers = with_plain ? (int)bar->problem.tokens / bar->problem.ranks : 0;
    open_team(&t, &bar->problem, 1, options->kernels ? -1 : barriers);
    std::vector<gpu_way> ways = {{"copies", run_copies, false, {}, {}},
                                 {"kernel", run_kernel, true, {}, {}}};
    if (t.has_library) {
        ways.push_back({"library", run_library, true, {}, {}});
        ways.push_back({"one stream", run_one_stream, true, {}, {}});
    }
    if (with_plain) {
        ways.push_back({"plain", run_plain, true, {}, {}});
    }
    for (const gpu_way &way : ways) {
        if (way.is_rmsnorm) {
            check_way(&t, &way);
        }
    }
    double plain = 0;
    size_t others = ways.size();
    add_limits(&t, &ways);
    time_ways(&t, &ways, options->rounds);
    print_ways(&bar->problem, &ways);
    for (const gpu_way &way : ways) {
        plain = way.run == run_plain ? way.median() : plain;
    }
    for (size_t i = 1; i < others; i++) {
        if (ways[i].run != run_plain) {
            judge_one_device(bar, &ways[i], ways[0].median(), plain, find_limit(&ways)->median());
        }
    }
    fflush(stdout);
    close_team(&t);
}

// ---- All-reduce kernels: no bars

enum { ALL_REDUCE_BARRIERS = 1024 };

// A launch for each rank, on its stream; the blocks that fit beside those of the other ranks.
static void run_all_reduce(gpu_team *t, int set, bool one_shot)
{
    const unsigned threads = 512;
    tutti::all_reduce_way way = {one_shot, false};
    tutti::all_reduce_grid grid = {0, threads};
    size_t count = t->problem.tokens * t->problem.hidden;
    CUDA(tutti::all_reduce_blocks<float>(way, threads, count, t->sharers, ALL_REDUCE_BARRIERS,
                                         &grid.blocks));
    for (int r = 0; r < t->problem.ranks; r++) {
        tutti::all_reduce_arguments args = {
            {t->window[r], (size_t)(t->input(r, set) - t->memory[r])},
            {t->window[r], (size_t)(t->output(r, set) - t->memory[r])},
            count,
            cuda::memory_order_acq_rel};
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(tutti::launch_all_reduce<float>(way, args, t->device_comm[r], ALL_REDUCE_BARRIERS,
                                             grid, t->stream[r]));
    }
}

static void run_one_shot(gpu_team *t, int set)
{
    run_all_reduce(t, set, true);
}

static void run_two_shot(gpu_team *t, int set)
{
    run_all_reduce(t, set, false);
}

// `other`: what they are measured against.
static void bench_all_reduce(const gpu_case *problem, int devices, const gpu_way *other,
                             const gpu_options *options)
{
    gpu_team t;
    open_team(&t, problem, devices, ALL_REDUCE_BARRIERS);
    std::vector<gpu_way> ways = {{"two-shot", run_two_shot, false, {}, {}}};
    if (problem->tokens <= 256) { // each rank reads everything
        ways.push_back({"one-shot", run_one_shot, false, {}, {}});
    }
    if (other != nullptr) {
        ways.push_back(*other);
    }
    time_ways(&t, &ways, options->rounds);
    print_ways(problem, &ways);
    fflush(stdout);
    close_team(&t);
}

static const size_t all_reduce_tokens[] = {4, 256, 4096, 32768};

static void bench_all_reduces(const gpu_options *options)
{
    const gpu_way copies = {"copies", run_copies, false, {}, {}};
    printf("all-reduce kernels, a launch for each rank, against device copies\n");
    for (size_t tokens : all_reduce_tokens) {
        for (int ranks : {2, 4, 8}) {
            gpu_case problem = {tokens, 1024, false, ranks};
            bench_all_reduce(&problem, 1, &copies, options);
        }
    }
}

// ---- Two devices

static bench_nccl real_nccl;
static ncclComm_t nccl_comm[2];
static char *nccl_scratch[2];

static void nccl_must(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "bench: NCCL's %s: error %d\n", call, (int)result);
        exit(1);
    }
}

enum { PAIR_BARRIERS = 528 }; // as many as the library has for itself

// The launches that the library makes, without the library around them.
static void run_pair_kernel(gpu_team *t, int set)
{
    for (int r = 0; r < 2; r++) {
        tt_norm_launch launch = launch_of(t, set);
        launch.barriers = launch.alone = true;
        launch.rank_count = 1;
        launch.rank[0].rank = r;
        launch.rank[0].device_comm = &t->device_comm[r];
        CUDA(cudaSetDevice(t->device[r]));
        if (t->blocks == 0) {
            CUDA(tt_norm_wished_blocks(&launch, 1, &t->blocks));
            t->blocks = std::min<unsigned>(t->blocks, PAIR_BARRIERS);
        }
        launch.blocks = t->blocks;
        CUDA(tt_norm_start(&launch, t->stream[r]));
    }
}

// The unfused way: reduce-scatter, RMSNorm of this rank's rows, all-gather.
static void run_nccl(gpu_team *t, int set)
{
    size_t part = t->problem.bytes() / 2;
    size_t count = part / (t->problem.is_bf16 ? 2 : 4);
    ncclDataType_t type = type_of(&t->problem);
    nccl_must(real_nccl.group_start(), "ncclGroupStart");
    for (int r = 0; r < 2; r++) {
        nccl_must(real_nccl.reduce_scatter(t->input(r, set), nccl_scratch[r], count, type, ncclSum,
                                           nccl_comm[r], t->stream[r]),
                  "ncclReduceScatter");
    }
    nccl_must(real_nccl.group_end(), "ncclGroupEnd");
    for (int r = 0; r < 2; r++) {
        tt_norm_launch launch = {};
        launch.input = launch.output = {nccl_scratch[r], 0};
        launch.tokens = t->problem.tokens / 2;
        launch.hidden = t->problem.hidden;
        launch.eps = bench_eps;
        launch.data_type = type;
        launch.nranks = launch.rank_count = 1;
        CUDA(cudaSetDevice(t->device[r]));
        CUDA(tt_norm_wished_blocks(&launch, 1, &launch.blocks));
        CUDA(tt_norm_start(&launch, t->stream[r]));
    }
    nccl_must(real_nccl.group_start(), "ncclGroupStart");
    for (int r = 0; r < 2; r++) {
        nccl_must(real_nccl.all_gather(nccl_scratch[r], t->output(r, set), count, type,
                                       nccl_comm[r], t->stream[r]),
                  "ncclAllGather");
    }
    nccl_must(real_nccl.group_end(), "ncclGroupEnd");
}

static void run_nccl_all_reduce(gpu_team *t, int set)
{
    size_t count = t->problem.tokens * t->problem.hidden;
    nccl_must(real_nccl.group_start(), "ncclGroupStart");
    for (int r = 0; r < 2; r++) {
        nccl_must(real_nccl.all_reduce(t->input(r, set), t->output(r, set), count,
                                       type_of(&t->problem), ncclSum, nccl_comm[r], t->stream[r]),
                  "ncclAllReduce");
    }
    nccl_must(real_nccl.group_end(), "ncclGroupEnd");
}

__global__ static void store_to_peer(float4 *to, size_t count)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
    }
}

// Both devices store a rank's bytes into the other's memory.
static void run_stores(gpu_team *t, int set)
{
    for (int r = 0; r < 2; r++) {
        void *there = nullptr; // the other's output, as this rank reaches it
        size_t offset = (size_t)(t->output(r, set) - t->memory[r]);
        NCCL(ncclGetLsaDevicePointer(t->window[r], offset, 1 - r, &there));
        CUDA(cudaSetDevice(t->device[r]));
        store_to_peer<<<132, 1024, 0, t->stream[r]>>>((float4 *)there, t->problem.bytes() / 16);
        CUDA(cudaGetLastError());
    }
}

struct two_device_bar {
    gpu_case problem;
    double most_of_nccl;
};

static const two_device_bar two_device_bars[] = {
    {{128, 1024, false, 2}, 0.25},
    {{128, 8192, false, 2}, 0.36},
    {{4096, 1024, false, 2}, 0.52},
    {{4096, 8192, false, 2}, 0.64},
};

// GB/s of large stores to the peer, both ways at once.
static double measure_stores(const gpu_options *options)
{
    gpu_case problem = {32768, 2048, false, 2};
    gpu_team t;
    open_team(&t, &problem, 2, 0);
    std::vector<gpu_way> ways = {{"stores", run_stores, false, {}, {}}};
    time_ways(&t, &ways, options->rounds);
    double rate = (double)problem.bytes() / ways[0].median() * 1e-3;
    close_team(&t);
    return rate;
}

// nccl: microseconds of its three calls; 0: not measured.
static void judge_two_devices(const two_device_bar *bar, const gpu_way *way, double nccl,
                              double store_rate)
{
    char text[160];
    if (nccl > 0) {
        double times = way->median() / nccl;
        snprintf(text, sizeof text, "%s: %.3f times as long as NCCL's three calls (bar %.2f)",
                 way->name, times, bar->most_of_nccl);
        verdict(times <= bar->most_of_nccl, text);
    }
    // Half of a rank's bytes come to each device to be added, half of the output goes to the other.
    double rate = (double)bar->problem.bytes() / way->median() * 1e-3 / store_rate;
    if (bar->problem.bytes() >= (64u << 20)) {
        snprintf(text, sizeof text, "%s: %.3f of the rate of stores (bar 0.93)", way->name, rate);
        verdict(rate >= 0.93, text);
    } else {
        printf("         %s: %.3f of the rate of stores\n", way->name, rate);
    }
}

static void bench_two_devices(const two_device_bar *bar, double store_rate,
                              const gpu_options *options)
{
    gpu_team t;
    open_team(&t, &bar->problem, 2, PAIR_BARRIERS);
    std::vector<gpu_way> ways = {{"library", run_library, true, {}, {}},
                                 {"kernel", run_pair_kernel, true, {}, {}}};
    if (options->nccl != nullptr) {
        ways.push_back({"NCCL", run_nccl, true, {}, {}});
    }
    for (const gpu_way &way : ways) {
        check_way(&t, &way);
    }
    time_ways(&t, &ways, options->rounds);
    print_ways(&bar->problem, &ways);
    for (int i = 0; i < 2; i++) {
        judge_two_devices(bar, &ways[i], options->nccl != nullptr ? ways[2].median() : 0,
                          store_rate);
    }
    fflush(stdout);
    close_team(&t);
}

static void bench_pair(const gpu_options *options)
{
    int devices[2] = {0, 1};
    double store_rate = measure_stores(options);
    printf("two devices; stores to the peer, both ways at once: %.1f GB/s a direction\n",
           store_rate);
    if (options->nccl != nullptr) {
        if (!bench_nccl_open(options->nccl, &real_nccl)) {
            exit(1);
        }
        nccl_must(real_nccl.init_all(nccl_comm, 2, devices), "ncclCommInitAll");
        printf("NCCL %d from %s\n", real_nccl.version, options->nccl);
        for (int r = 0; r < 2; r++) {
            CUDA(cudaSetDevice(r));
            CUDA(cudaMalloc((void **)&nccl_scratch[r], (size_t)128 << 20));
        }
    }
    for (const two_device_bar &bar : two_device_bars) {
        bench_two_devices(&bar, store_rate, options);
    }
    const gpu_way nccl = {"NCCL", run_nccl_all_reduce, false, {}, {}};
    printf("all-reduce kernels on two devices\n");
    for (size_t tokens : all_reduce_tokens) {
        gpu_case problem = {tokens, 1024, false, 2};
        bench_all_reduce(&problem, 2, options->nccl != nullptr ? &nccl : nullptr, options);
    }
    for (int r = 0; options->nccl != nullptr && r < 2; r++) {
        CUDA(cudaSetDevice(r));
        CUDA(cudaFree(nccl_scratch[r]));
        nccl_must(real_nccl.destroy(nccl_comm[r]), "ncclCommDestroy");
    }
}

// ---- Command line

static void usage(FILE *to)
{
    fputs("usage: gpu [--rounds N] [--kernels] [--pair] [--nccl FILE]\n"
          "  --rounds N   how often everything is measured (default 15); medians are printed\n"
          "  --kernels    one device: the kernels alone, without communicators and windows\n"
          "  --all-reduce only the all-reduce kernels\n"
          "  --pair       only what needs two devices\n"
          "  --nccl FILE  NCCL's own libnccl.so.2, to compare with on two devices\n"
          "Exit status 1 where a bar is missed or a result is wrong.\n",
          to);
}

static bool read_options(int argc, char **argv, gpu_options *options, bool *pair)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--kernels") == 0) {
            options->kernels = true;
        } else if (strcmp(argv[i], "--all-reduce") == 0) {
            options->all_reduces = true;
        } else if (strcmp(argv[i], "--pair") == 0) {
            *pair = true;
        } else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc && atoi(argv[i + 1]) > 0) {
            options->rounds = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--nccl") == 0 && i + 1 < argc) {
            options->nccl = argv[++i];
        } else {
            fprintf(stderr, "gpu: %s: what is that, or what does it need?\n", argv[i]);
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    gpu_options options = {15, false, false, nullptr};
    bool pair = false;
    int devices = 0;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); // a hardware queue for each rank's stream
    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    if (!read_options(argc, argv, &options, &pair)) {
        usage(stderr);
        return 2;
    }
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("skipped: no GPU here\n");
        return 77;
    }
    cudaDeviceProp facts;
    CUDA(cudaGetDeviceProperties(&facts, 0));
    printf("%s, %d of them; medians of %d\n", facts.name, devices, options.rounds);
    if (options.all_reduces) {
        bench_all_reduces(&options);
        return 0;
    }
    if (!pair) {
        for (const one_device_bar &bar : one_device_bars) {
            bench_one_device(&bar, &options);
        }
        if (!options.kernels) {
            bench_all_reduces(&options);
        }
    }
    if (devices > 1 && !options.kernels) {
        bench_pair(&options);
    } else if (!options.kernels) {
        printf("two devices: not measured, there is one\n");
    }
    return all_met ? 0 : 1;
}

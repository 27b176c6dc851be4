// One side of one line, in the order of nccl-tests 2.19 (BenchTime of src/common.cu): inputs, one
// call, all meet, the timed iterations, then as many again with events around each where samples
// are wanted, then the verified ones.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

// ---- Calls and waits ----------------------------------------------------------------------------

// Each iteration takes another piece of the buffers, where they are larger than it: caches do not
// help more than in a program, and nothing learns an address by heart.
static size_t shift_of(const struct perf_run *run, const struct perf_case *what, int iteration)
{
    size_t bytes = what->shape->bytes;
    size_t pieces = bytes > 0 ? run->buffer_bytes / bytes : 1;
    return pieces > 0 ? bytes * ((size_t)iteration % pieces) : 0;
}

static bool call_one(struct perf_run *run, const struct perf_case *what,
                     const struct perf_rank *rank, size_t shift)
{
    struct perf_call call = {.shape = what->shape,
                             .rank = rank,
                             .type = what->type,
                             .op = (ncclRedOp_t)what->op,
                             .send = perf_send_place(run, what, rank, shift),
                             .receive = perf_receive_place(run, what, rank, shift)};
    const char *name = what->shape->operation->function;
    if (what->op != PERF_MULSUM) {
        return perf_nccl(run, perf_call(&call), name);
    }
    const struct perf_input input = {.type = what->type,
                                     .op = what->op,
                                     .nranks = run->nranks,
                                     .data = run->data,
                                     .seed = run->seed};
    uint64_t factor = 0;
    perf_factor(&input, rank->rank, &factor);
    if (!perf_nccl(run,
                   ncclRedOpCreatePreMulSum(&call.op, &factor, (ncclDataType_t)what->type,
                                            ncclScalarHostImmediate, rank->comm),
                   "ncclRedOpCreatePreMulSum")) {
        return false;
    }
    bool good = perf_nccl(run, perf_call(&call), name);
    return perf_nccl(run, ncclRedOpDestroy(call.op, rank->comm), "ncclRedOpDestroy") && good;
}

// Until the streams of this worker's ranks are done; sees errors of communicators and the limit.
static bool wait_for_streams(struct perf_run *run)
{
    const double limit = run->options->timeout_s, begun = perf_now();
    for (int g = 0; g < run->options->gpus;) {
        if (run->options->null_stream) { // each device has its own
            (void)cudaSetDevice(run->ranks[g].device);
        }
        cudaError_t error = cudaStreamQuery(run->ranks[g].stream);
        if (error == cudaSuccess) {
            g++;
            continue;
        }
        if (error != cudaErrorNotReady) {
            return perf_cuda(run, error, "cudaStreamQuery");
        }
        for (int i = 0; i < run->options->gpus; i++) {
            ncclResult_t result = ncclSuccess;
            ncclResult_t asked = ncclCommGetAsyncError(run->ranks[i].comm, &result);
            result = asked != ncclSuccess ? asked : result;
            if (result != ncclSuccess && result != ncclInProgress) {
                return perf_nccl(run, result, "the running operation");
            }
        }
        if (atomic_load(&run->team->status) != PERF_OK) {
            return false;
        }
        if (limit > 0 && perf_now() - begun > limit) {
            return perf_stop(run, PERF_TIMEOUT,
                             "rank %d: an operation has not ended in %d s (-T, --timeout)",
                             run->ranks[g].rank, run->options->timeout_s);
        }
        sched_yield();
    }
    return true;
}

// One call on each of this worker's ranks.
static bool start(struct perf_run *run, const struct perf_case *what, int iteration)
{
    const int gpus = run->options->gpus;
    const size_t shift = shift_of(run, what, iteration);
    if (gpus > 1 && !perf_nccl(run, ncclGroupStart(), "ncclGroupStart")) {
        return false;
    }
    bool good = true;
    for (int g = 0; g < gpus && good; g++) {
        good = call_one(run, what, &run->ranks[g], shift);
    }
    if (gpus > 1) {
        good = perf_nccl(run, ncclGroupEnd(), "ncclGroupEnd") && good;
    }
    const int blocking = run->options->blocking;
    if (good && (blocking == 1 || blocking == 2)) {
        // Inside a group nothing runs yet, and there is nothing to wait for.
        good = run->options->aggregated > 1 || wait_for_streams(run);
    }
    return good && (blocking != 1 || perf_barrier(run->team));
}

static bool start_aggregated(struct perf_run *run, const struct perf_case *what, int iteration)
{
    const int m = run->options->aggregated;
    if (m == 1) {
        return start(run, what, iteration);
    }
    bool good = perf_nccl(run, ncclGroupStart(), "ncclGroupStart");
    for (int i = 0; i < m && good; i++) {
        good = start(run, what, iteration * m + i);
    }
    return perf_nccl(run, ncclGroupEnd(), "ncclGroupEnd") && good;
}

bool perf_repeat(struct perf_run *run, const struct perf_case *what, int times)
{
    for (int i = 0; i < times; i++) {
        if (!start(run, what, i)) {
            return false;
        }
    }
    return wait_for_streams(run);
}

// ---- Graphs -------------------------------------------------------------------------------------

// A graph on each rank of this worker, of `times` iterations; 0: of one call.
static bool capture(struct perf_run *run, const struct perf_case *what, int times,
                    cudaGraphExec_t *graphs)
{
    const int gpus = run->options->gpus;
    bool good = true;
    for (int g = 0; g < gpus; g++) {
        good = good && perf_cuda(run,
                                 cudaStreamBeginCapture(run->ranks[g].stream,
                                                        cudaStreamCaptureModeThreadLocal),
                                 "cudaStreamBeginCapture");
    }
    if (times == 0 && good) {
        good = start(run, what, 0);
    }
    for (int i = 0; i < times && good; i++) {
        good = start_aggregated(run, what, i);
    }
    for (int g = 0; g < gpus; g++) {
        cudaGraph_t graph = NULL;
        // Ends also what has failed.
        cudaError_t ended = cudaStreamEndCapture(run->ranks[g].stream, &graph);
        good = good && perf_cuda(run, ended, "cudaStreamEndCapture") &&
               perf_cuda(run, cudaGraphInstantiateWithFlags(&graphs[g], graph, 0),
                         "cudaGraphInstantiate");
        if (graph != NULL) {
            (void)cudaGraphDestroy(graph);
        }
    }
    return good;
}

static bool launch(struct perf_run *run, cudaGraphExec_t *graphs, int times)
{
    for (int i = 0; i < times; i++) {
        for (int g = 0; g < run->options->gpus; g++) {
            if (!perf_cuda(run, cudaGraphLaunch(graphs[g], run->ranks[g].stream),
                           "cudaGraphLaunch")) {
                return false;
            }
        }
    }
    return true;
}

static void free_graphs(struct perf_run *run, cudaGraphExec_t *graphs)
{
    for (int g = 0; g < run->options->gpus; g++) {
        if (graphs[g] != NULL) {
            (void)cudaGraphExecDestroy(graphs[g]);
        }
    }
    free(graphs);
}

// ---- Times --------------------------------------------------------------------------------------

static bool time_iterations(struct perf_run *run, const struct perf_case *what, double *cpu_out,
                            double *seconds_out)
{
    const int n = run->options->iterations;
    const bool meets = run->options->blocking == 3;
    double begun = perf_now(), without_meetings = 0;
    for (int i = 0; i < n; i++) {
        double at = perf_now();
        if (!start_aggregated(run, what, i)) {
            return false;
        }
        if (meets) {
            if (!wait_for_streams(run)) {
                return false;
            }
            without_meetings += perf_now() - at;
            if (!perf_barrier(run->team)) {
                return false;
            }
        }
    }
    *cpu_out = perf_now() - begun;
    if (!wait_for_streams(run)) {
        return false;
    }
    *seconds_out = meets ? without_meetings : perf_now() - begun;
    return true;
}

static bool time_graph(struct perf_run *run, const struct perf_case *what, double *cpu_out,
                       double *seconds_out)
{
    const int launches = run->options->graph;
    cudaGraphExec_t *graphs = calloc((size_t)run->options->gpus, sizeof *graphs);
    if (graphs == NULL) {
        return perf_stop(run, PERF_INTERNAL, "no memory");
    }
    bool good = capture(run, what, run->options->iterations, graphs) && perf_barrier(run->team);
    double begun = perf_now();
    good = good && launch(run, graphs, launches);
    *cpu_out = (perf_now() - begun) / launches;
    good = good && wait_for_streams(run);
    *seconds_out = (perf_now() - begun) / launches;
    free_graphs(run, graphs);
    return good;
}

// The event before (0) or after (1) iteration i of those between two looks at the clock.
static cudaEvent_t event_of(const struct perf_run *run, int g, int i, int which)
{
    return run->events[((size_t)g * PERF_EVENTS + (size_t)i) * 2 + (size_t)which];
}

static bool record(struct perf_run *run, int i, int which)
{
    for (int g = 0; g < run->options->gpus; g++) {
        if (!perf_cuda(run, cudaSetDevice(run->ranks[g].device), "cudaSetDevice") ||
            !perf_cuda(run, cudaEventRecord(event_of(run, g, i, which), run->ranks[g].stream),
                       "cudaEventRecord")) {
            return false;
        }
    }
    return true;
}

static bool read_samples(struct perf_run *run, int first, int n)
{
    for (int g = 0; g < run->options->gpus; g++) {
        double *samples =
            run->team->sample + (size_t)run->ranks[g].rank * (size_t)run->options->iterations;
        for (int i = 0; i < n; i++) {
            float ms = 0;
            if (!perf_cuda(
                    run, cudaEventElapsedTime(&ms, event_of(run, g, i, 0), event_of(run, g, i, 1)),
                    "cudaEventElapsedTime")) {
                return false;
            }
            samples[first + i] = ms * 1e-3 / run->options->aggregated;
        }
    }
    return true;
}

// Iterations first .. first + n with events around each, read into the samples.
static bool sample_some(struct perf_run *run, const struct perf_case *what, int first, int n)
{
    for (int i = 0; i < n; i++) {
        if (!record(run, i, 0) || !start_aggregated(run, what, first + i) || !record(run, i, 1)) {
            return false;
        }
        if (run->options->blocking == 3 && !(wait_for_streams(run) && perf_barrier(run->team))) {
            return false;
        }
    }
    return wait_for_streams(run) && read_samples(run, first, n);
}

static bool judge_samples(struct perf_run *run, struct perf_side *side)
{
    const size_t n = (size_t)run->options->iterations, skipped = (size_t)run->options->skipped;
    const size_t kept = n - skipped, ranks = (size_t)run->nranks;
    double *values = malloc((ranks + 1) * kept * sizeof *values);
    if (values == NULL) {
        return perf_stop(run, PERF_INTERNAL, "no memory for %zu samples", ranks * kept);
    }
    double *slowest = values + ranks * kept;
    for (size_t i = 0; i < kept; i++) {
        slowest[i] = 0;
        for (size_t r = 0; r < ranks; r++) {
            double value = run->team->sample[r * n + skipped + i];
            values[r * kept + i] = value;
            slowest[i] = value > slowest[i] ? value : slowest[i];
        }
    }
    side->all = perf_statistics_of(values, ranks * kept);
    side->slowest = perf_statistics_of(slowest, kept);
    side->has_statistics = true;
    free(values);
    return true;
}

static bool sample(struct perf_run *run, const struct perf_case *what, struct perf_side *side)
{
    const int n = run->options->iterations;
    for (int first = 0; first < n; first += PERF_EVENTS) {
        if (!sample_some(run, what, first, n - first < PERF_EVENTS ? n - first : PERF_EVENTS)) {
            return false;
        }
    }
    if (!perf_barrier(run->team) || (run->report != NULL && !judge_samples(run, side))) {
        return false;
    }
    return perf_barrier(run->team);
}

// ---- The whole ----------------------------------------------------------------------------------

static bool check_once(struct perf_run *run, const struct perf_case *what, double *wrong)
{
    run->seed++;
    // Nobody may write to a rank that is not ready: put does not ask.
    if (!perf_prepare(run, what) || !perf_barrier(run->team)) {
        return false;
    }
    bool good;
    if (run->options->graph > 0) {
        cudaGraphExec_t *graphs = calloc((size_t)run->options->gpus, sizeof *graphs);
        if (graphs == NULL) {
            return perf_stop(run, PERF_INTERNAL, "no memory");
        }
        good = capture(run, what, 0, graphs) && launch(run, graphs, 1) && wait_for_streams(run);
        free_graphs(run, graphs);
    } else {
        good = start(run, what, 0) && wait_for_streams(run);
    }
    // A rank looks at its result when all have theirs, or the next inputs would come too early.
    return good && perf_verify(run, what, wrong) && perf_sum(run->team, run->worker, wrong);
}

bool perf_measure(struct perf_run *run, const struct perf_case *what, struct perf_side *side)
{
    const struct perf_options *o = run->options;
    double calls = (double)o->iterations * o->aggregated, cpu = 0, seconds = 0;
    if (o->checks > 0 && !perf_prepare(run, what)) {
        return false;
    }
    bool good = perf_barrier(run->team) && start(run, what, 0) && wait_for_streams(run) &&
                perf_barrier(run->team) &&
                (o->graph > 0 ? time_graph(run, what, &cpu, &seconds)
                              : time_iterations(run, what, &cpu, &seconds));
    seconds /= calls;
    if (!good || !perf_combine(run->team, run->worker, &seconds, o->average)) {
        return false;
    }
    side->ran = true;
    side->seconds = seconds;
    side->cpu_seconds = cpu / calls;
    perf_bandwidth(what->shape, seconds, &side->algorithm, &side->bus);
    if (run->events != NULL && !sample(run, what, side)) {
        return false;
    }
    for (int c = 0; c < o->checks && side->wrong == 0; c++) {
        if (!check_once(run, what, &side->wrong)) {
            return false;
        }
    }
    side->checked = o->checks > 0;
    return true;
}

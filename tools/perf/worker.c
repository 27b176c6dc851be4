// A worker: communicators, streams and buffers of its ranks, then line after line, together with
// all other workers.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Failures -----------------------------------------------------------------------------------

bool perf_stop(struct perf_run *run, int status, const char *format, ...)
{
    if (perf_fail(run->team, status)) {
        perf_progress_clear(run->report);
        va_list arguments;
        va_start(arguments, format);
        (void)fputs("tutti-perf: ", stderr);
        (void)vfprintf(stderr, format, arguments);
        (void)fputc('\n', stderr);
        va_end(arguments);
    }
    return false;
}

bool perf_cuda(struct perf_run *run, cudaError_t error, const char *what)
{
    return error == cudaSuccess ||
           perf_stop(run, PERF_CUDA, "%s: %s", what, cudaGetErrorString(error));
}

bool perf_nccl(struct perf_run *run, ncclResult_t result, const char *what)
{
    return result == ncclSuccess || result == ncclInProgress ||
           perf_stop(run, PERF_NCCL, "%s: %s: %s", what, ncclGetErrorString(result),
                     ncclGetLastError(NULL));
}

// ---- Ranks --------------------------------------------------------------------------------------

// The device of a rank; -1: there is none.
static int device_of(struct perf_run *run, int rank)
{
    int devices = 0;
    if (!perf_cuda(run, cudaGetDeviceCount(&devices), "cudaGetDeviceCount")) {
        return -1;
    }
    const char *text = getenv("NCCL_TESTS_DEVICE");
    long first = text != NULL ? strtol(text, NULL, 10) : 0;
    long device = first < -PERF_MAX_RANKS || first > PERF_MAX_RANKS ? -1 : first + rank;
    if (device < 0 || (device >= devices && (devices == 0 || !perf_library_is_tutti()))) {
        (void)perf_stop(run, PERF_NOT_THERE,
                        "rank %d needs GPU %ld, but there are %d; take fewer ranks "
                        "(--processes, -t, -g) or another NCCL_TESTS_DEVICE",
                        rank, device, devices);
        return -1;
    }
    return (int)(device % devices);
}

static bool describe(struct perf_run *run, int rank, int device)
{
    struct perf_rank_info *info = &run->team->info[rank];
    struct cudaDeviceProp properties;
    if (!perf_cuda(run, cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties")) {
        return false;
    }
    info->pid = (int)getpid();
    info->device = device;
    info->capability = properties.major * 10 + properties.minor;
    info->domain = (unsigned)properties.pciDomainID;
    info->bus = (unsigned)properties.pciBusID;
    info->slot = (unsigned)properties.pciDeviceID;
    (void)snprintf(info->name, sizeof info->name, "%.63s", properties.name);
    if (gethostname(info->host, sizeof info->host - 1) != 0) {
        (void)snprintf(info->host, sizeof info->host, "localhost");
    }
    return true;
}

bool perf_make_comms(struct perf_run *run, int first, int n, ncclComm_t *comms)
{
    if (!perf_nccl(run, ncclGroupStart(), "ncclGroupStart")) {
        return false;
    }
    bool good = true;
    for (int i = 0; i < n && good; i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        if (run->options->cta_policy >= 0) {
            config.CTAPolicy = run->options->cta_policy;
        }
        int device = device_of(run, first + i);
        good = device >= 0 && describe(run, first + i, device) &&
               perf_cuda(run, cudaSetDevice(device), "cudaSetDevice") &&
               perf_nccl(run,
                         ncclCommInitRankConfig(&comms[i], run->nranks, run->team->id, first + i,
                                                &config),
                         "ncclCommInitRankConfig");
    }
    return perf_nccl(run, ncclGroupEnd(), "ncclGroupEnd") && good;
}

static size_t free_memory(void)
{
    size_t left = 0, all;
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? left : 0;
}

// Bytes of the largest buffer of any line.
static size_t largest_buffer(const struct perf_run *run)
{
    const struct perf_options *o = run->options;
    size_t largest = o->max_bytes;
    for (int type = 0; type < ncclNumTypes; type++) {
        struct perf_shape shape;
        if ((o->type == PERF_ALL || o->type == type) &&
            perf_shape_make(&shape, o, type, 0, o->max_bytes)) {
            largest = shape.bytes > largest ? shape.bytes : largest;
            perf_shape_free(&shape);
        }
    }
    return largest;
}

static bool allocate(struct perf_run *run, struct perf_rank *rank)
{
    const size_t bytes = run->buffer_bytes + PERF_PAD;
    if (!perf_cuda(run, cudaSetDevice(rank->device), "cudaSetDevice")) {
        return false;
    }
    if (!run->options->null_stream &&
        !perf_cuda(run, cudaStreamCreateWithFlags(&rank->stream, cudaStreamNonBlocking),
                   "cudaStreamCreateWithFlags")) {
        return false;
    }
    if (ncclMemAlloc((void **)&rank->send, bytes) != ncclSuccess ||
        ncclMemAlloc((void **)&rank->receive, bytes) != ncclSuccess) {
        return perf_stop(
            run, PERF_NCCL,
            "rank %d: two buffers of %zu bytes on GPU %d, which has %zu free: %s; take "
            "a smaller -e, --maxbytes",
            rank->rank, bytes, rank->device, free_memory(), ncclGetLastError(NULL));
    }
    // The pages are there before anything is timed.
    return perf_cuda(run, cudaMemset(rank->send, 0, bytes), "cudaMemset") &&
           perf_cuda(run, cudaMemset(rank->receive, 0, bytes), "cudaMemset") &&
           perf_cuda(run, cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

static bool register_buffers(struct perf_run *run)
{
    const int kind = run->options->registration;
    const size_t bytes = run->buffer_bytes + PERF_PAD;
    if (kind == 0) {
        return true;
    }
    bool good = perf_nccl(run, ncclGroupStart(), "ncclGroupStart");
    for (int g = 0; g < run->options->gpus && good; g++) {
        struct perf_rank *r = &run->ranks[g];
        if (kind == 2) {
            good = perf_nccl(run,
                             ncclCommWindowRegister(r->comm, r->send, bytes, &r->send_window,
                                                    NCCL_WIN_COLL_SYMMETRIC),
                             "ncclCommWindowRegister") &&
                   perf_nccl(run,
                             ncclCommWindowRegister(r->comm, r->receive, bytes, &r->receive_window,
                                                    NCCL_WIN_COLL_SYMMETRIC),
                             "ncclCommWindowRegister");
        } else {
            good = perf_nccl(run, ncclCommRegister(r->comm, r->send, bytes, &r->send_handle),
                             "ncclCommRegister") &&
                   perf_nccl(run, ncclCommRegister(r->comm, r->receive, bytes, &r->receive_handle),
                             "ncclCommRegister");
        }
    }
    good = perf_nccl(run, ncclGroupEnd(), "ncclGroupEnd") && good;
    if (good && run->options->operation->kind == PERF_PUT && run->ranks[0].receive_window == NULL) {
        return perf_stop(run, PERF_BAD_USE, "put: these GPUs have no symmetric windows");
    }
    return good;
}

static bool make_events(struct perf_run *run)
{
    const struct perf_options *o = run->options;
    bool wanted = o->per_iteration || o->percentiles ||
                  ((o->json != NULL || o->plot != NULL) && o->graph == 0);
    if (!wanted) {
        return true;
    }
    run->events = calloc((size_t)o->gpus * 2 * PERF_EVENTS, sizeof *run->events);
    if (run->events == NULL) {
        return perf_stop(run, PERF_INTERNAL, "no memory for events");
    }
    for (int i = 0; i < o->gpus * 2 * PERF_EVENTS; i++) {
        if (!perf_cuda(run, cudaSetDevice(run->ranks[i / (2 * PERF_EVENTS)].device),
                       "cudaSetDevice") ||
            !perf_cuda(run, cudaEventCreate(&run->events[i]), "cudaEventCreate")) {
            return false;
        }
    }
    return true;
}

// Says how much device memory a step took, at most, on a device of a worker.
static bool account(struct perf_run *run, int what, size_t before)
{
    if (!run->options->memory) {
        return true;
    }
    size_t after = free_memory();
    double used = before > after ? (double)(before - after) : 0;
    if (!perf_combine(run->team, run->worker, &used, PERF_MAX)) {
        return false;
    }
    if (run->report != NULL) {
        run->team->memory[what] = used;
    }
    return true;
}

static bool open_ranks(struct perf_run *run, ncclComm_t *comms)
{
    const struct perf_options *o = run->options;
    const int first = run->worker * o->gpus;
    run->ranks = calloc((size_t)o->gpus, sizeof *run->ranks);
    run->scratch = aligned_alloc(64, ((size_t)run->nranks + 1) * PERF_BLOCK * sizeof(uint64_t));
    run->stage = aligned_alloc(64, PERF_STAGE);
    ncclComm_t *made = comms != NULL ? comms : calloc((size_t)o->gpus, sizeof *made);
    if (run->ranks == NULL || run->scratch == NULL || run->stage == NULL || made == NULL) {
        return perf_stop(run, PERF_INTERNAL, "no memory for %d ranks", run->nranks);
    }
    size_t left = free_memory();
    bool good = comms != NULL || perf_make_comms(run, first, o->gpus, made);
    for (int g = 0; g < o->gpus; g++) {
        run->ranks[g] = (struct perf_rank){
            .rank = first + g, .device = run->team->info[first + g].device, .comm = made[g]};
    }
    if (made != comms) {
        free(made);
    }
    run->buffer_bytes = largest_buffer(run);
    good = good && account(run, 0, left);
    left = free_memory();
    for (int g = 0; g < o->gpus && good; g++) {
        good = allocate(run, &run->ranks[g]);
    }
    return good && register_buffers(run) && make_events(run) && account(run, 1, left);
}

static void close_rank(struct perf_run *run, struct perf_rank *r, bool failed)
{
    (void)cudaSetDevice(r->device);
    if (failed) {
        if (r->comm != NULL) {
            (void)ncclCommAbort(r->comm);
        }
        return; // the process ends now
    }
    bool good = true;
    if (r->send_window != NULL) {
        good = perf_nccl(run, ncclCommWindowDeregister(r->comm, r->send_window),
                         "ncclCommWindowDeregister");
    }
    if (r->receive_window != NULL && good) {
        good = perf_nccl(run, ncclCommWindowDeregister(r->comm, r->receive_window),
                         "ncclCommWindowDeregister");
    }
    if (r->send_handle != NULL && good) {
        good = perf_nccl(run, ncclCommDeregister(r->comm, r->send_handle), "ncclCommDeregister");
    }
    if (r->receive_handle != NULL && good) {
        good = perf_nccl(run, ncclCommDeregister(r->comm, r->receive_handle), "ncclCommDeregister");
    }
    (void)perf_nccl(run, ncclCommDestroy(r->comm), "ncclCommDestroy");
    (void)ncclMemFree(r->send);
    (void)ncclMemFree(r->receive);
    if (r->stream != NULL) {
        (void)cudaStreamDestroy(r->stream);
    }
}

static void close_ranks(struct perf_run *run, bool failed)
{
    for (int i = 0; run->events != NULL && i < run->options->gpus * 2 * PERF_EVENTS; i++) {
        if (!failed && run->events[i] != NULL) {
            (void)cudaEventDestroy(run->events[i]);
        }
    }
    for (int g = 0; run->ranks != NULL && g < run->options->gpus; g++) {
        close_rank(run, &run->ranks[g], failed);
    }
    free(run->events);
    free(run->ranks);
    free(run->scratch);
    free(run->stage);
}

// ---- The table ----------------------------------------------------------------------------------

static bool one_line(struct perf_run *run, int type, int op, int root, size_t bytes)
{
    const struct perf_operation *operation = run->options->operation;
    struct perf_shape shape;
    if (!perf_shape_make(&shape, run->options, type, root < 0 ? 0 : root, bytes)) {
        return perf_stop(run, PERF_INTERNAL, "no memory for counts");
    }
    struct perf_line line = {
        .bytes = shape.bytes, .count = shape.count, .type = type, .op = op, .root = root};
    bool good = true;
    for (int side = 0; side < 2 && good; side++) {
        const struct perf_case what = {
            .shape = &shape, .type = type, .op = op < 0 ? ncclSum : op, .in_place = side == 1};
        if (side == 0 || operation->has_in_place) {
            good = perf_measure(run, &what, &line.side[side]);
        }
        perf_progress(run->report, (double)bytes + 65536);
    }
    perf_shape_free(&shape);
    if (good && run->report != NULL && !perf_report_line(run->report, &line)) {
        return perf_stop(run, PERF_INTERNAL, "no memory for lines");
    }
    return good;
}

// Sizes from the smallest, doubled: whatever the run sets up at a first use is there afterwards.
static bool warm_up(struct perf_run *run, int type, int op, int root)
{
    const struct perf_options *o = run->options;
    size_t bytes = o->min_bytes > 0 ? o->min_bytes : 1;
    for (bool more = o->warmup > 0; more;) {
        struct perf_shape shape;
        if (!perf_shape_make(&shape, o, type, root < 0 ? 0 : root, bytes)) {
            return perf_stop(run, PERF_INTERNAL, "no memory for counts");
        }
        const struct perf_case what = {.shape = &shape, .type = type, .op = op < 0 ? ncclSum : op};
        bool good = perf_repeat(run, &what, o->warmup);
        perf_shape_free(&shape);
        if (!good) {
            return false;
        }
        more = bytes <= o->max_bytes / 2;
        bytes *= 2;
    }
    return true;
}

// Whether the run was interrupted, in which all workers agree. False: failed.
static bool look_for_interrupt(struct perf_run *run)
{
    double interrupted = atomic_load(&run->team->interrupted);
    bool good = perf_combine(run->team, run->worker, &interrupted, PERF_RANK_0);
    run->is_interrupted = interrupted != 0;
    return good;
}

static bool all_sizes(struct perf_run *run, int type, int op, int root)
{
    const struct perf_options *o = run->options;
    if (!perf_barrier(run->team) || !warm_up(run, type, op, root)) {
        return false;
    }
    for (int cycle = 0; o->cycles == 0 || cycle < o->cycles; cycle++) {
        size_t bytes = o->min_bytes;
        do {
            if (!one_line(run, type, op, root, bytes) ||
                (o->cycles == 0 && !look_for_interrupt(run))) {
                return false;
            }
            if (run->is_interrupted) {
                return true;
            }
            bytes = perf_next_size(o, bytes);
        } while (bytes != 0);
    }
    return true;
}

// 8-bit floats need compute capability 9.0; "all" leaves them out where a GPU has less.
static bool can_type(const struct perf_run *run, int type)
{
    for (int r = 0; r < run->nranks; r++) {
        if (type >= ncclFloat8e4m3 && run->team->info[r].capability < 90) {
            return false;
        }
    }
    return true;
}

static bool all_lines(struct perf_run *run)
{
    const struct perf_options *o = run->options;
    const int none = -1;
    for (int type = 0; type < ncclNumTypes; type++) {
        if (o->type != type && !(o->type == PERF_ALL && can_type(run, type))) {
            continue;
        }
        for (int op = 0; op < PERF_OPERATORS; op++) {
            bool wanted = o->operation->reduces ? o->op == PERF_ALL || o->op == op : op == 0;
            for (int root = 0; wanted && root < run->nranks; root++) {
                if (o->operation->rooted ? o->root != PERF_ALL && o->root != root : root > 0) {
                    continue;
                }
                if (!all_sizes(run, type, o->operation->reduces ? op : none,
                               o->operation->rooted ? root : none)) {
                    return false;
                }
                if (run->is_interrupted) {
                    return true;
                }
            }
        }
    }
    return true;
}

void perf_work(struct perf_run *run, ncclComm_t *comms)
{
    const struct perf_options *o = run->options;
    run->seed = 1;
    run->data = o->data_given || perf_library_is_tutti() ? o->data : PERF_DATA_EXACT;
    bool good = open_ranks(run, comms) && perf_barrier(run->team);
    if (good && run->report != NULL) {
        run->report->data = run->data;
        perf_report_begin(run->report, run->team);
    }
    size_t left = free_memory();
    good = good && all_lines(run) && account(run, 2, left) && perf_barrier(run->team);
    close_ranks(run, !good);
    if (good && perf_barrier(run->team) && run->report != NULL) {
        perf_fail(run->team, perf_report_end(run->report, run->team));
    }
}

// tutti-perf: the parts of the program and what they hand to each other.
//
// A run is processes x threads x GPUs per thread ranks. Each thread (a "worker") drives its ranks
// by the public API; workers of all processes meet in a piece of shared memory, the team. Worker 0
// writes everything that is written.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_PERF_H
#define TOOLS_PERF_H

#include <nccl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Exit statuses ------------------------------------------------------------------------------

// Those of nccl-tests 2.19 (src/common.h there), so that scripts see what they know.
enum perf_status {
    PERF_OK = 0,
    PERF_INTERNAL = 1, // of the program or the system
    PERF_CUDA = 2,
    PERF_NCCL = 3,
    PERF_TIMEOUT = 4,
    PERF_NOT_THERE = 5,    // more GPUs than there are, a function that the library lacks
    PERF_BAD_USE = 6,      // options that this operation or library cannot fulfil
    PERF_WRONG = 7,        // wrong values, or less bandwidth than NCCL_TESTS_MIN_BW
    PERF_BAD_OPTION = 255, // an option that cannot be read
};

// ---- Options: options.c -------------------------------------------------------------------------

enum perf_average { PERF_RANK_0, PERF_MEAN, PERF_MIN, PERF_MAX };
// Inputs: CONTRACT, sums depend on the order, so that the result proves it; EXACT, the same in any
// order.
enum perf_data { PERF_DATA_CONTRACT, PERF_DATA_EXACT };
enum perf_uneven { PERF_UNEVEN_RAMP, PERF_UNEVEN_SPLIT, PERF_UNEVEN_HOLES };
enum { PERF_ALL = -1, PERF_MULSUM = ncclNumOps, PERF_OPERATORS = ncclNumOps + 1 };
enum { PERF_MAX_RANKS = 1024 };

struct perf_options {
    const struct perf_operation *operation;
    int processes, threads, gpus; // ranks: the product
    size_t min_bytes, max_bytes, step_bytes;
    int factor; // sizes grow by it; 1: by step_bytes
    int iterations, aggregated, warmup, cycles;
    int checks; // verified iterations; 0: none
    int op;     // a ncclRedOp_t, PERF_MULSUM or PERF_ALL
    int type;   // a ncclDataType_t or PERF_ALL
    int root;   // or PERF_ALL
    int blocking;
    int graph; // launches; 0: none
    int registration;
    int cta_policy; // -1: the library's
    int timeout_s;
    int unalign; // elements
    int skipped; // leading samples that statistics leave out
    int align;   // per-rank counts are multiples of so many bytes
    enum perf_average average;
    enum perf_data data;
    bool data_given;
    enum perf_uneven uneven;
    bool parallel_init, null_stream, cpu_time, timestamps, memory, per_iteration, percentiles;
    const char *json, *plot; // files; NULL: none
    int child, child_fd;     // what the launcher tells a process that it started; child -1: nobody
};

// Reads the command line. PERF_OK; PERF_BAD_OPTION and a message on stderr that names the option,
// its value and what is right; -1 where help was asked for, which is then on stdout.
int perf_options_read(struct perf_options *options, int argc, char **argv);
// "32M" -> 33554432; false where text is no size.
bool perf_size_read(const char *text, size_t *bytes_out);
int perf_ranks(const struct perf_options *options);
// The size after `bytes`; 0: none is left.
size_t perf_next_size(const struct perf_options *options, size_t bytes);
void perf_help(FILE *to, const struct perf_operation *operation); // NULL: of the program

// ---- Operations: operations.c, uneven.c ---------------------------------------------------------

enum perf_kind {
    PERF_ALL_REDUCE,
    PERF_REDUCE,
    PERF_BROADCAST,
    PERF_REDUCE_SCATTER,
    PERF_ALL_GATHER,
    PERF_ALL_TO_ALL,
    PERF_GATHER,
    PERF_SCATTER,
    PERF_SEND_RECV,
    PERF_PUT,
    PERF_REDUCE_SCATTER_V,
    PERF_ALL_GATHER_V,
    PERF_ALL_TO_ALL_V,
    PERF_GATHER_V,
    PERF_SCATTER_V,
    PERF_KINDS,
};

struct perf_operation {
    enum perf_kind kind;
    const char *name;
    const char *function; // "ncclAllReduce"
    bool reduces, rooted;
    bool has_in_place;          // NCCL defines it
    bool per_rank;              // a size is split over the ranks
    const char *text;           // one line for --help
    const char *bandwidth_text; // algorithm and bus bandwidth, for --help
};

extern const struct perf_operation perf_operations[PERF_KINDS];
const struct perf_operation *perf_operation_find(const char *name); // NULL: none

size_t perf_type_bytes(int type);
const char *perf_type_name(int type); // as nccl-tests call it: "half"
const char *perf_op_name(int op);     // "sum" ... "mulsum"
int perf_type_find(const char *name); // -2: none
int perf_op_find(const char *name);

// What an operation moves at one size, on every rank. Counts are elements.
struct perf_shape {
    const struct perf_operation *operation;
    int nranks, root;
    size_t element; // bytes
    size_t count;   // what the table shows, and even forms pass
    size_t bytes;   // of the larger buffer of any rank: what the table shows
    // Uneven forms. parts: [nranks], or [nranks * nranks] of all_to_all_v, from s to d at
    // [s * nranks + d]; first: where each part starts in the buffer with all of them
    // (all_to_all_v: in s's send buffer), received: where it starts in d's receive buffer.
    size_t *parts, *first, *received;
};

// bytes: the size that was asked for. False: no memory.
bool perf_shape_make(struct perf_shape *shape, const struct perf_options *options, int type,
                     int root, size_t bytes);
void perf_shape_free(struct perf_shape *shape);
size_t perf_send_count(const struct perf_shape *shape, int rank);
size_t perf_receive_count(const struct perf_shape *shape, int rank);
// Where the send and receive parts start in the one buffer of the in-place form, in elements.
size_t perf_send_start(const struct perf_shape *shape, int rank);
size_t perf_receive_start(const struct perf_shape *shape, int rank);
// GB/s (10^9), as nccl-tests define them.
void perf_bandwidth(const struct perf_shape *shape, double seconds, double *algorithm_out,
                    double *bus_out);

// Shares `total` elements among n ranks by the pattern; shift turns it. parts: [n].
void perf_share(enum perf_uneven pattern, size_t total, int n, int shift, size_t *parts);

// A run of elements of a receive buffer and what must be there afterwards.
enum perf_source { PERF_FROM_RANK, PERF_FROM_ALL };
struct perf_segment {
    size_t start, count;     // in the receive buffer, from perf_receive_start on
    enum perf_source source; // the input of `rank`, or the reduction of all, from element `first`
    int rank;
    size_t first;
};
// Fills [nranks] segments at most; the number of them. 0: this rank receives nothing.
int perf_expect(const struct perf_shape *shape, int rank, struct perf_segment *segments);

// ---- Data: data.c, check.c ----------------------------------------------------------------------

// All that inputs depend on.
struct perf_input {
    int type, op, nranks; // op matters to reductions; else ncclSum
    enum perf_data data;
    uint64_t seed;
};

// Elements first .. first + count of rank's input.
void perf_fill(const struct perf_input *input, int rank, size_t first, size_t count, void *to);
// What has never been written.
enum { PERF_UNTOUCHED = 0xa5 };
// rank's factor of PERF_MULSUM, as an element of the type; element: 8 bytes.
void perf_factor(const struct perf_input *input, int rank, void *element);
// The reduction of all ranks' elements first .. first + count, in rank order, rounded once. At most
// PERF_BLOCK elements. scratch: [nranks * PERF_BLOCK]; to: aligned to the element.
enum { PERF_BLOCK = 2048 };
void perf_reduce(const struct perf_input *input, size_t first, size_t count, uint64_t *scratch,
                 void *to);
// How many elements differ in a bit; input->data EXACT and an average of floats: by more than two
// units of the last place.
size_t perf_differences(const struct perf_input *input, const void *got, const void *wanted,
                        size_t count);

// ---- Statistics: statistics.c -------------------------------------------------------------------

struct perf_statistics {
    double min, p50, p90, p99, max, mean, variation; // variation: deviation / mean, in %
};
// values are sorted in place; all 0 where n is 0. Percentiles by nearest rank.
struct perf_statistics perf_statistics_of(double *values, size_t n);

// ---- Team: team.c -------------------------------------------------------------------------------

struct perf_rank_info {
    int pid, device, capability; // 90: 9.0
    unsigned domain, bus, slot;
    char host[64], name[64];
};

struct perf_team {
    int workers, ranks, iterations;
    _Atomic uint32_t arrived, round;
    // The first failure's status, and who had it; 0: none. Everybody ends then.
    _Atomic int status;
    _Atomic int interrupted; // 1: the line that is measured is the last
    _Atomic int id_made;
    ncclUniqueId id;
    struct perf_rank_info info[PERF_MAX_RANKS];
    double value[PERF_MAX_RANKS]; // [workers]
    double memory[3];             // bytes: communicators, buffers, operations; largest of workers
    double sample[];              // [ranks * iterations] in seconds, rank by rank
};

// Shared memory for the run; *fd_out names it for children. NULL and a message: none.
struct perf_team *perf_team_make(const struct perf_options *options, int *fd_out);
struct perf_team *perf_team_open(int fd); // in a child
// With -N 0: an interrupt is told to the team, the next one ends the program.
void perf_team_heed_interrupts(struct perf_team *team);
// Waits for all workers. False: somebody failed; then all calls return false.
bool perf_barrier(struct perf_team *team);
// Ends the run: the first status stays. True for the first, who tells the user.
bool perf_fail(struct perf_team *team, int status);
// The average (or sum) of all workers' values, the same on all. False as perf_barrier.
bool perf_combine(struct perf_team *team, int worker, double *value, enum perf_average average);
bool perf_sum(struct perf_team *team, int worker, double *value);

// Starts the processes, waits for them, ends the others when one fails; the exit status.
int perf_launch(const struct perf_options *options, char **argv);

// ---- Worker: worker.c, measure.c, verify.c, calls.c ---------------------------------------------

// One rank.
struct perf_rank {
    int rank, device;
    ncclComm_t comm;
    cudaStream_t stream;
    char *send, *receive; // device memory: perf_run.buffer_bytes each, and PERF_PAD
    void *send_handle, *receive_handle;
    ncclWindow_t send_window, receive_window;
};

enum {
    PERF_STAGE = 1 << 20,
    PERF_EVENTS = 512, // iterations between two looks at the clock
    PERF_GUARD = 64,   // bytes behind a buffer that nobody may write
    PERF_PAD = PERF_GUARD + 8 * 4096,
};

// One side (out of place, in place) of one line.
struct perf_side {
    bool ran, checked;
    double seconds, algorithm, bus;
    double cpu_seconds; // until the calls had returned
    double wrong;       // elements, of all ranks
    bool has_statistics;
    struct perf_statistics all;     // of each iteration on each rank
    struct perf_statistics slowest; // of each iteration on its slowest rank
};

struct perf_line {
    size_t bytes, count;
    int type, op, root; // op, root: -1 where there is none
    struct perf_side side[2];
};

// One worker's view of the run.
struct perf_run {
    const struct perf_options *options;
    struct perf_team *team;
    int worker; // of all
    int nranks;
    struct perf_rank *ranks; // [options->gpus]
    size_t buffer_bytes;
    uint64_t *scratch;   // [(nranks + 1) * PERF_BLOCK], for checks
    char *stage;         // PERF_STAGE bytes, between host and device
    cudaEvent_t *events; // [gpus * 2 * PERF_EVENTS], where samples are taken
    enum perf_data data;
    uint64_t seed;
    struct perf_report *report; // worker 0; else NULL
    bool is_interrupted;        // the same on all workers
};

// What is measured.
struct perf_case {
    const struct perf_shape *shape;
    int type, op; // op: ncclSum where nothing is reduced
    bool in_place;
};

// All of one worker: ranks, buffers, the table. comms: [gpus] made already, or NULL.
void perf_work(struct perf_run *run, ncclComm_t *comms);
// Makes the communicators of ranks first .. first + n in one group.
bool perf_make_comms(struct perf_run *run, int first, int n, ncclComm_t *comms);

// Fills a side; collective. False: failed.
bool perf_measure(struct perf_run *run, const struct perf_case *what, struct perf_side *side);
// Runs the operation `times` times, then waits for it.
bool perf_repeat(struct perf_run *run, const struct perf_case *what, int times);

// Writes inputs, and PERF_UNTOUCHED wherever there are none.
bool perf_prepare(struct perf_run *run, const struct perf_case *what);
// Wrong elements of this worker's ranks: results, what must not be written, inputs.
bool perf_verify(struct perf_run *run, const struct perf_case *what, double *wrong_out);
// Where rank's operation reads and writes, `shift` bytes into its buffers.
char *perf_send_place(const struct perf_run *run, const struct perf_case *what,
                      const struct perf_rank *rank, size_t shift);
char *perf_receive_place(const struct perf_run *run, const struct perf_case *what,
                         const struct perf_rank *rank, size_t shift);

// What one call needs.
struct perf_call {
    const struct perf_shape *shape;
    const struct perf_rank *rank;
    int type;
    ncclRedOp_t op;
    char *send, *receive;
};
// Hands the operation to the library: on one rank, in its stream.
ncclResult_t perf_call(const struct perf_call *call);
// Whether the loaded library has what the operation needs; else `missing_out` names it.
bool perf_library_has(const struct perf_operation *operation, const char **missing_out);
// Whether it is tutti, whose results keep the contract on bits and whose ranks may share a device.
bool perf_library_is_tutti(void);

// True for success; else the run has failed, and the user knows why.
bool perf_cuda(struct perf_run *run, cudaError_t error, const char *what);
bool perf_nccl(struct perf_run *run, ncclResult_t result, const char *what);
bool perf_stop(struct perf_run *run, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// ---- Output: report.c, json.c, plot.c, file.c, progress.c
// -------------------------------------------

struct perf_report {
    const struct perf_options *options;
    enum perf_data data; // what the inputs were
    int library;         // version
    char started[32];
    char **argv;
    struct perf_line *lines;
    size_t count, room;
    double bus_sum;
    size_t bus_count;
    size_t wrong_sides;
    double done, all; // steps of the progress bar
    double begun;     // seconds
    bool bar_shown;
};

void perf_report_begin(struct perf_report *report, const struct perf_team *team);
bool perf_report_line(struct perf_report *report, const struct perf_line *line); // false: no memory
// The footer and the files; the exit status.
int perf_report_end(struct perf_report *report, const struct perf_team *team);
// "12.34" in `width` characters, as many digits as fit.
void perf_format(double value, int width, char *text);
void perf_time_text(char *text, size_t bytes); // now, to the second

// A file that is being written.
struct perf_file {
    const char *path;
    char partial[4096];
    bool is_device;
    FILE *to;
    int error;
};
FILE *perf_file_open(struct perf_file *file, const char *path); // NULL: close says why
// Whether the file (NULL: none) could be written now; false and the message of perf_file_close.
bool perf_file_check(const char *path, const char *option);
// False and a message that names the option: it could not be written.
bool perf_file_close(struct perf_file *file, const char *option);

bool perf_json_write(const struct perf_report *report, const struct perf_team *team,
                     const char *path);
bool perf_plot_write(const struct perf_report *report, const char *path);
void perf_json_string(FILE *to, const char *text);

// Another step of the run is done.
void perf_progress(struct perf_report *report, double steps);
void perf_progress_clear(struct perf_report *report);
double perf_now(void);

#ifdef __cplusplus
}
#endif
#endif

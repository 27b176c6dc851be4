// The demonstration's parts: what a run is, what comes out of it, who does what.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_DEMO_H
#define TOOLS_DEMO_H

#include <nccl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <vgpu/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DEMO_MAX_RANKS = 8, DEMO_TOKENS = 4096, DEMO_HIDDEN = 1024, DEMO_SEED = 42 };

enum demo_way { DEMO_LSA, DEMO_MULTIMEM, DEMO_NATIVE, DEMO_WAYS };
enum demo_mode { DEMO_THREADS, DEMO_PROCESSES, DEMO_MODES };

// What one rank found out about one way.
struct demo_outcome {
    bool ran;              // false: this machine has no multicast, or a failure (then text says so)
    double seconds;        // from launch to the end of the stream, the best of three
    double absolute_error; // largest over all elements
    double relative_error;
    uint64_t wrong; // elements outside both limits
    uint64_t hash;  // of all output bits
};

// Bytes that this process saw move, by way and device.
struct demo_traffic {
    uint64_t in[DEMO_WAYS][DEMO_MAX_RANKS];
    uint64_t out[DEMO_WAYS][DEMO_MAX_RANKS];
    uint64_t link[DEMO_WAYS][DEMO_MAX_RANKS][DEMO_MAX_RANKS]; // [from][to]
};

// What one rank is asked to do; it fills `outcome` and, as leader of its process, `traffic`.
struct demo_rank {
    int rank, nranks;
    ncclUniqueId id;
    const double *wanted;         // [tokens x hidden], read only; NULL: count only, do not check
    pthread_barrier_t *barrier;   // all ranks of the process; NULL: alone in it
    struct demo_traffic *traffic; // NULL unless counting and leader
    bool counting;
    struct demo_outcome outcome[DEMO_WAYS];
    char text[256]; // "" or what failed
};

// Runs all ways as one rank: rank.cu.
void demo_run_rank(struct demo_rank *rank);
// Runs a small problem with 8 ranks in each way and draws who did what when: timeline.cu.
bool demo_write_timelines(FILE *page);
// picture.c. Nanoseconds from the first work to the last in a recording; 0: none was recorded.
uint64_t demo_work_ns(const struct vgpu_trace_event *events, size_t count);
// What the colours mean: once, before the drawings.
void demo_draw_legend(FILE *page);
// One SVG of a recording with 8 ranks of `blocks` blocks. Sorts the events.
void demo_draw(FILE *page, const char *title, struct vgpu_trace_event *events, size_t count,
               int blocks);

// The right results in double precision, and inputs: reference.cpp.
void demo_make_input(float *to, int rank);
// Adds the inputs of ranks from .. to-1 to sums (tokens x hidden).
void demo_add_inputs(double *sums, int from, int to);
// wanted = the rows of sums, normalised.
void demo_normalise(double *wanted, const double *sums, double eps);

// All results of one rank count and mode.
struct demo_run {
    enum demo_mode mode;
    int nranks;
    struct demo_rank rank[DEMO_MAX_RANKS];
    struct demo_traffic traffic;
    bool started; // false: could not even be run
};

// runner.c. Fill run->rank; counting: no check, but run->traffic.
void demo_run_threads(struct demo_run *run, const double *wanted, bool counting);
// wanted_fd: a file with `wanted`, or -1 when counting.
void demo_run_processes(struct demo_run *run, int wanted_fd, bool counting);
// What a process started by demo_run_processes does instead of main.
int demo_child_main(int rank, int nranks, bool counting);
// Runs the counting twin of this program and reads its traffic. False: it failed.
bool demo_count(struct demo_run *run);

// Bytes that must cross each port: page.c and main.c.
uint64_t demo_least_bytes(enum demo_way way, int nranks);
// page.c: the HTML page; false and a message where it cannot be written.
bool demo_write_page(const char *path, const struct demo_run *runs, int count);
const char *demo_way_name(enum demo_way way);
const char *demo_mode_name(enum demo_mode mode);
// Whether the run's way is right on every rank, with equal bits on all.
bool demo_is_right(const struct demo_run *run, enum demo_way way);

#ifdef __cplusplus
}
#endif
#endif

// Inputs are written before an operation and results looked at afterwards, through the host and in
// blocks, with cudaMemcpy alone: the same for virtual and real GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <string.h>

char *perf_send_place(const struct perf_run *run, const struct perf_case *what,
                      const struct perf_rank *rank, size_t shift)
{
    const struct perf_shape *s = what->shape;
    char *buffer = what->in_place ? rank->receive : rank->send;
    size_t start = what->in_place ? perf_send_start(s, rank->rank) : 0;
    return buffer + shift + (start + (size_t)run->options->unalign) * s->element;
}

char *perf_receive_place(const struct perf_run *run, const struct perf_case *what,
                         const struct perf_rank *rank, size_t shift)
{
    const struct perf_shape *s = what->shape;
    size_t start = what->in_place ? perf_receive_start(s, rank->rank) : 0;
    return rank->receive + shift + (start + (size_t)run->options->unalign) * s->element;
}

static struct perf_input input_of(const struct perf_run *run, const struct perf_case *what)
{
    return (struct perf_input){.type = what->type,
                               .op = what->op,
                               .nranks = run->nranks,
                               .data = run->data,
                               .seed = run->seed};
}

static bool write_input(struct perf_run *run, const struct perf_case *what,
                        const struct perf_rank *rank)
{
    const struct perf_input input = input_of(run, what);
    const size_t count = perf_send_count(what->shape, rank->rank), element = what->shape->element;
    const size_t block = PERF_STAGE / element;
    char *to = perf_send_place(run, what, rank, 0);
    for (size_t i = 0; i < count; i += block) {
        size_t n = count - i < block ? count - i : block;
        perf_fill(&input, rank->rank, i, n, run->stage);
        if (!perf_cuda(
                run, cudaMemcpy(to + i * element, run->stage, n * element, cudaMemcpyHostToDevice),
                "cudaMemcpy")) {
            return false;
        }
    }
    return true;
}

bool perf_prepare(struct perf_run *run, const struct perf_case *what)
{
    for (int g = 0; g < run->options->gpus; g++) {
        const struct perf_rank *rank = &run->ranks[g];
        size_t bytes = what->shape->bytes + PERF_GUARD;
        char *receive = rank->receive + (size_t)run->options->unalign * what->shape->element;
        if (!perf_cuda(run, cudaSetDevice(rank->device), "cudaSetDevice") ||
            !perf_cuda(run, cudaMemset(receive, PERF_UNTOUCHED, bytes), "cudaMemset") ||
            !write_input(run, what, rank) ||
            !perf_cuda(run, cudaDeviceSynchronize(), "cudaDeviceSynchronize")) {
            return false;
        }
    }
    return true;
}

// What must be somewhere: elements of a rank's input, of the reduction, or nothing.
enum wanted { INPUT, REDUCTION, UNTOUCHED };
struct area {
    const char *place; // on the device
    size_t count;      // elements
    enum wanted wanted;
    int rank;
    size_t first;
};

static void make_wanted(const struct perf_input *input, const struct area *area, size_t at,
                        size_t count, struct perf_run *run)
{
    uint64_t *to = run->scratch + (size_t)run->nranks * PERF_BLOCK;
    switch (area->wanted) {
    case INPUT:
        perf_fill(input, area->rank, area->first + at, count, to);
        break;
    case REDUCTION:
        perf_reduce(input, area->first + at, count, run->scratch, to);
        break;
    default:
        memset(to, PERF_UNTOUCHED, count * perf_type_bytes(input->type));
    }
}

static bool look(struct perf_run *run, const struct perf_input *input, const struct area *area,
                 double *wrong)
{
    const size_t element = perf_type_bytes(input->type), most = PERF_STAGE / element;
    for (size_t i = 0; i < area->count; i += most) {
        size_t staged = area->count - i < most ? area->count - i : most;
        if (!perf_cuda(run,
                       cudaMemcpy(run->stage, area->place + i * element, staged * element,
                                  cudaMemcpyDeviceToHost),
                       "cudaMemcpy")) {
            return false;
        }
        for (size_t j = 0; j < staged; j += PERF_BLOCK) {
            size_t n = staged - j < PERF_BLOCK ? staged - j : PERF_BLOCK;
            make_wanted(input, area, i + j, n, run);
            *wrong += (double)perf_differences(input, run->stage + j * element,
                                               run->scratch + (size_t)run->nranks * PERF_BLOCK, n);
        }
    }
    return true;
}

// Around the result, out of place: nothing is written behind it, nor anything on a rank that gets
// nothing; the input stays.
static bool look_around(struct perf_run *run, const struct perf_case *what,
                        const struct perf_rank *rank, bool receives, double *wrong)
{
    const struct perf_input input = input_of(run, what);
    const struct perf_shape *s = what->shape;
    const size_t received = receives ? perf_receive_count(s, rank->rank) : 0;
    const struct area behind = {.place =
                                    perf_receive_place(run, what, rank, 0) + received * s->element,
                                .count = s->bytes / s->element - received + PERF_GUARD / s->element,
                                .wanted = UNTOUCHED};
    const struct area sent = {.place = perf_send_place(run, what, rank, 0),
                              .count = perf_send_count(s, rank->rank),
                              .wanted = INPUT,
                              .rank = rank->rank};
    return look(run, &input, &behind, wrong) && look(run, &input, &sent, wrong);
}

bool perf_verify(struct perf_run *run, const struct perf_case *what, double *wrong_out)
{
    const struct perf_input input = input_of(run, what);
    struct perf_segment segments[PERF_MAX_RANKS];
    double wrong = 0;
    for (int g = 0; g < run->options->gpus; g++) {
        const struct perf_rank *rank = &run->ranks[g];
        const char *base = perf_receive_place(run, what, rank, 0);
        int n = perf_expect(what->shape, rank->rank, segments);
        if (!perf_cuda(run, cudaSetDevice(rank->device), "cudaSetDevice")) {
            return false;
        }
        for (int i = 0; i < n; i++) {
            const struct area area = {.place = base + segments[i].start * what->shape->element,
                                      .count = segments[i].count,
                                      .wanted =
                                          segments[i].source == PERF_FROM_ALL ? REDUCTION : INPUT,
                                      .rank = segments[i].rank,
                                      .first = segments[i].first};
            if (!look(run, &input, &area, &wrong)) {
                return false;
            }
        }
        if (!what->in_place && !look_around(run, what, rank, n > 0, &wrong)) {
            return false;
        }
    }
    *wrong_out = wrong;
    return true;
}

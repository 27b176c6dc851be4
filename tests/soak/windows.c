// Pieces of work that need windows: puts with signals, device communicators, the fused operation.
// See work.h. SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <math.h>
#include <nccl_device.h>
#include <stdlib.h>
#include <tutti.h>

// A window on all ranks, perhaps in a group.
static bool open_window(struct member *m, size_t bytes, struct draws *d)
{
    if (draw(d, 3) > 0) {
        return member_open_window(m, bytes);
    }
    return EXPECT_OK(ncclMemAlloc((void **)&m->memory, bytes)) && EXPECT_OK(ncclGroupStart()) &&
           EXPECT_OK(ncclCommWindowRegister(m->comm, m->memory, bytes, &m->window,
                                            NCCL_WIN_COLL_SYMMETRIC)) &&
           EXPECT_OK(ncclGroupEnd()) && EXPECT(m->window != NULL);
}

// Memory of windows that stay to their communicators' ends.
enum { MOST_LEFT = 16 };
static _Thread_local void *left[MOST_LEFT];
static _Thread_local int left_count;

void free_left_windows(void)
{
    while (left_count > 0) {
        EXPECT_OK(ncclMemFree(left[--left_count]));
    }
}

static void close_window(struct member *m, struct draws *d)
{
    if (draw(d, 4) == 0 && left_count < MOST_LEFT) {
        left[left_count++] = m->memory;
    } else {
        EXPECT_OK(ncclCommWindowDeregister(m->comm, m->window));
        EXPECT_OK(ncclMemFree(m->memory));
    }
}

static void await_signal(struct member *m, int peer)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 1, .peer = peer};
    EXPECT_OK(ncclWaitSignal(1, &wait, m->comm, m->stream));
}

// Into the next rank's window, as often as drawn; read, and said so, before the next one.
void puts_around(struct member *m, struct draws *d)
{
    int next = (m->rank + 1) % m->size, before = (m->rank + m->size - 1) % m->size;
    unsigned most = 1 + draw_size(d, 1u << 16), seed = draw(d, 1u << 30), rounds = 1 + draw(d, 3);
    uint32_t *host = malloc(most * sizeof *host), wrong = 0;
    if (open_window(m, 2 * most * sizeof *host, d)) {
        uint32_t *in = (uint32_t *)m->memory, *out = in + most;
        for (unsigned round = 0; round < rounds; round++) {
            unsigned count = draw(d, most + 1);
            for (unsigned i = 0; i < count; i++) {
                host[i] = word_of(seed + round, m->rank, next, i);
            }
            EXPECT_CUDA(
                cudaMemcpyAsync(out, host, count * sizeof *host, cudaMemcpyDefault, m->stream));
            EXPECT_OK(ncclPutSignal(out, count, ncclUint32, next, m->window, 0, 0, 0, 0, m->comm,
                                    m->stream));
            await_signal(m, before);
            EXPECT_CUDA(
                cudaMemcpyAsync(host, in, count * sizeof *host, cudaMemcpyDefault, m->stream));
            EXPECT_OK(ncclSignal(before, 0, 0, 0, m->comm, m->stream));
            await_signal(m, next);
            EXPECT_CUDA(cudaStreamSynchronize(m->stream));
            for (unsigned i = 0; i < count; i++) {
                wrong += host[i] != word_of(seed + round, before, m->rank, i);
            }
        }
        EXPECT_EQ(wrong, 0);
        close_window(m, d);
    }
    free(host);
}

// Made, looked at, and ended, beside a window.
void device_communicator(struct member *m, struct draws *d)
{
    ncclDevResourceHandle_t handle = 0;
    ncclDevResourceRequirements_t buffer = {.bufferSize = 1 + draw_size(d, 1u << 20),
                                            .bufferAlign = (size_t)256 << draw(d, 5),
                                            .outBufferHandle = &handle};
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_OK(ncclCommQueryProperties(m->comm, &properties));
    ncclMultimemHandle_t multimem = {NULL};
    ncclTeamRequirements_t team = {.team = ncclTeamLsa(m->comm),
                                   .multimem = properties.multimemSupport,
                                   .outMultimemHandle = &multimem};
    ncclDevCommRequirements_t needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    ncclDevComm_t comm;
    needs.lsaBarrierCount = (int)draw(d, 20);
    needs.resourceRequirementsList = &buffer;
    needs.teamRequirementsList = draw(d, 2) != 0 ? &team : NULL;
    bool first = draw(d, 2) != 0;
    if (open_window(m, 4096 * (1 + (size_t)draw_size(d, 500)), d) &&
        EXPECT_OK(ncclDevCommCreate(m->comm, &needs, &comm))) {
        EXPECT_EQ(comm.rank, m->rank);
        EXPECT_EQ(comm.nRanks, m->size);
        EXPECT_EQ(comm.lsaBarrier.nBarriers, needs.lsaBarrierCount);
        EXPECT(ncclGetResourceBufferOffset(handle) + buffer.bufferSize <=
               comm.resourceWindow_inlined.size);
        if (first) {
            EXPECT_OK(ncclDevCommDestroy(m->comm, &comm));
        }
        close_window(m, d);
        if (!first) {
            EXPECT_OK(ncclDevCommDestroy(m->comm, &comm));
        }
    }
}

static float input_of(unsigned seed, int rank, size_t i)
{
    return (float)(word_of(seed, rank, 0, i) % 2000) / 1000.0f - 0.7f;
}

static double worst_error(const float *got, size_t hidden, const struct member *m, unsigned seed)
{
    double worst = 0, squares = 0;
    double *x = malloc(hidden * sizeof *x);
    for (size_t i = 0; i < hidden; i++) {
        x[i] = 0;
        for (int r = 0; r < m->size; r++) {
            x[i] += (double)input_of(seed, r, i);
        }
        squares += x[i] * x[i];
    }
    double root = sqrt(squares / (double)hidden + 1e-6);
    for (size_t i = 0; i < hidden; i++) {
        worst = fmax(worst, fabs((double)got[i] - x[i] / root));
    }
    free(x);
    return worst;
}

// Every row is the same, so that the first and the last tell.
void normalise(struct member *m, struct draws *d)
{
    size_t hidden = 1 + draw_size(d, 3000), tokens = 1 + draw_size(d, 40);
    size_t elements = hidden * tokens, bytes = elements * sizeof(float);
    unsigned seed = draw(d, 1u << 30);
    bool in_place = draw(d, 2) != 0;
    float *host = malloc(bytes);
    for (size_t i = 0; i < elements; i++) {
        host[i] = input_of(seed, m->rank, i % hidden);
    }
    if (open_window(m, 2 * bytes, d)) {
        float *in = (float *)m->memory, *out = in_place ? in : in + elements;
        EXPECT_CUDA(cudaMemcpyAsync(in, host, bytes, cudaMemcpyDefault, m->stream));
        EXPECT_OK(
            tuttiAllReduceRMSNorm(in, out, tokens, hidden, NULL, ncclFloat, m->comm, m->stream));
        EXPECT_CUDA(cudaMemcpyAsync(host, out, bytes, cudaMemcpyDefault, m->stream));
        EXPECT_CUDA(cudaStreamSynchronize(m->stream));
        EXPECT_NEAR(worst_error(host, hidden, m, seed), 0, 1e-4);
        EXPECT_NEAR(worst_error(host + elements - hidden, hidden, m, seed), 0, 1e-4);
        close_window(m, d);
    }
    free(host);
}

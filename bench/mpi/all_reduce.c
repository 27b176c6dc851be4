// All-reduce of floats, tutti and MPI in turns, in the processes of one MPI job on one host.
//
// First MPI alone, before tutti is there; then rounds of: MPI, tutti with each call waited for
// (what an MPI call is), tutti with the calls queued in the stream and waited for once (what
// nccl-tests time). A round is so many calls that it takes some milliseconds; its time is that of
// the slowest rank, and medians over rounds count. Both results are compared with the sum, element
// by element. One line for each size goes to stdout:
//   ranks bytes mpi_alone mpi tutti tutti_queued     (microseconds a call)
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "../usage.h"

#include <mpi.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZES = 5, ROUNDS = 41, MIN_ROUNDS = 15, CALLS_MAX = 20000 };
static const size_t sizes[SIZES] = {8, 1 << 10, 64 << 10, 1 << 20, 32 << 20};
static const double round_seconds = 4e-3;

enum side { MPI_ALONE, MPI, TUTTI, TUTTI_QUEUED, SIDES };

struct bench {
    int rank, ranks;
    ncclComm_t comm;
    cudaStream_t stream;
    float *mpi_in, *mpi_out;     // memory of malloc
    float *tutti_in, *tutti_out; // device memory
    size_t count;
    int calls; // of a round
};

static void fail(const struct bench *b, const char *what, const char *why)
{
    (void)fprintf(stderr, "bench: rank %d: %s: %s\n", b->rank, what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void nccl(const struct bench *b, ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) {
        fail(b, what, ncclGetLastError(NULL));
    }
}

static void cuda(const struct bench *b, cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fail(b, what, cudaGetErrorString(error));
    }
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// ---- One call, one round ------------------------------------------------------------------------

static void call(const struct bench *b, enum side side)
{
    if (side == MPI_ALONE || side == MPI) {
        MPI_Allreduce(b->mpi_in, b->mpi_out, (int)b->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
    }
    nccl(b,
         ncclAllReduce(b->tutti_in, b->tutti_out, b->count, ncclFloat, ncclSum, b->comm, b->stream),
         "ncclAllReduce");
    if (side == TUTTI) {
        cuda(b, cudaStreamSynchronize(b->stream), "cudaStreamSynchronize");
    }
}

static double measure_round(const struct bench *b, enum side side)
{
    // Whatever still spins from the side before has time to fall asleep.
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = now();
    for (int i = 0; i < b->calls; i++) {
        call(b, side);
    }
    if (side == TUTTI_QUEUED) {
        cuda(b, cudaStreamSynchronize(b->stream), "cudaStreamSynchronize");
    }
    double mine = (now() - begun) / b->calls, slowest;
    MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

// ---- Data ---------------------------------------------------------------------------------------

static float input(size_t i, int rank)
{
    return (float)((i * 13 + (size_t)rank * 7) % 1009);
}

static void fill(const struct bench *b)
{
    for (size_t i = 0; i < b->count; i++) {
        b->mpi_in[i] = input(i, b->rank);
    }
    memset(b->mpi_out, 0xff, b->count * sizeof(float));
    if (b->comm != NULL) {
        size_t bytes = b->count * sizeof(float);
        cuda(b, cudaMemcpy(b->tutti_in, b->mpi_in, bytes, cudaMemcpyDefault), "cudaMemcpy");
        cuda(b, cudaMemset(b->tutti_out, 0xff, bytes), "cudaMemset");
        cuda(b, cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
}

// Sums of whole numbers this small are exact in any order.
static void verify(const struct bench *b, const char *side)
{
    char text[128];
    float *got = b->mpi_out;
    if (strcmp(side, "tutti") == 0) {
        cuda(b, cudaMemcpy(got, b->tutti_out, b->count * sizeof(float), cudaMemcpyDefault),
             "cudaMemcpy");
    }
    for (size_t i = 0; i < b->count; i++) {
        float sum = 0;
        for (int r = 0; r < b->ranks; r++) {
            sum += input(i, r);
        }
        if (got[i] != sum) {
            (void)snprintf(text, sizeof text, "element %zu of %zu is %g, must be %g", i, b->count,
                           (double)got[i], (double)sum);
            fail(b, side, text);
        }
    }
}

// ---- The whole ----------------------------------------------------------------------------------

// Calls that fill a round, from MPI's time; the same on all ranks and for both sides.
static void choose_calls(struct bench *b)
{
    b->calls = 3;
    double a_call = measure_round(b, MPI_ALONE);
    a_call = measure_round(b, MPI_ALONE); // the first was to warm up
    double calls = round_seconds / a_call;
    b->calls = calls < 2 ? 2 : calls > CALLS_MAX ? CALLS_MAX : (int)calls;
    MPI_Bcast(&b->calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

static int rounds_of(size_t bytes)
{
    return bytes > 1 << 20 ? MIN_ROUNDS : ROUNDS;
}

static void measure_alone(struct bench *b, double *medians, int *calls)
{
    double times[ROUNDS];
    for (int s = 0; s < SIZES; s++) {
        b->count = sizes[s] / sizeof(float);
        fill(b);
        choose_calls(b);
        calls[s] = b->calls;
        for (int r = 0; r < rounds_of(sizes[s]); r++) {
            times[r] = measure_round(b, MPI_ALONE);
        }
        verify(b, "MPI");
        medians[s] = median(times, rounds_of(sizes[s]));
    }
}

static void measure_both(struct bench *b, int size, double alone)
{
    static double times[SIDES][ROUNDS];
    const int rounds = rounds_of(sizes[size]);
    b->count = sizes[size] / sizeof(float);
    fill(b);
    for (int r = -2; r < rounds; r++) { // two to warm up
        for (int side = MPI; side < SIDES; side++) {
            double time = measure_round(b, (enum side)side);
            if (r >= 0) {
                times[side][r] = time;
            }
        }
    }
    verify(b, "MPI");
    verify(b, "tutti");
    if (b->rank == 0) {
        printf("%d %zu %.3f %.3f %.3f %.3f\n", b->ranks, sizes[size], alone * 1e6,
               median(times[MPI], rounds) * 1e6, median(times[TUTTI], rounds) * 1e6,
               median(times[TUTTI_QUEUED], rounds) * 1e6);
        (void)fflush(stdout);
    }
}

static void open_tutti(struct bench *b)
{
    ncclUniqueId id;
    int devices = 0;
    cuda(b, cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    cuda(b, cudaSetDevice(b->rank % devices), "cudaSetDevice");
    if (b->rank == 0) {
        nccl(b, ncclGetUniqueId(&id), "ncclGetUniqueId");
    }
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    nccl(b, ncclCommInitRank(&b->comm, b->ranks, id, b->rank), "ncclCommInitRank");
    cuda(b, cudaStreamCreate(&b->stream), "cudaStreamCreate");
    nccl(b, ncclMemAlloc((void **)&b->tutti_in, sizes[SIZES - 1]), "ncclMemAlloc");
    nccl(b, ncclMemAlloc((void **)&b->tutti_out, sizes[SIZES - 1]), "ncclMemAlloc");
}

int main(int argc, char **argv)
{
    struct bench b = {0};
    double alone[SIZES];
    int calls[SIZES];
    if (argc > 1) {
        return bench_usage(argv[1], "mpirun -np RANKS mpi_all_reduce   no options");
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    b.mpi_in = aligned_alloc(4096, sizes[SIZES - 1]);
    b.mpi_out = aligned_alloc(4096, sizes[SIZES - 1]);
    if (b.mpi_in == NULL || b.mpi_out == NULL) {
        fail(&b, "buffers", "no memory");
    }
    measure_alone(&b, alone, calls);
    open_tutti(&b);
    for (int s = 0; s < SIZES; s++) {
        b.calls = calls[s];
        measure_both(&b, s, alone[s]);
    }
    nccl(&b, ncclCommDestroy(b.comm), "ncclCommDestroy");
    nccl(&b, ncclMemFree(b.tutti_in), "ncclMemFree");
    nccl(&b, ncclMemFree(b.tutti_out), "ncclMemFree");
    free(b.mpi_in);
    free(b.mpi_out);
    MPI_Finalize();
    return 0;
}

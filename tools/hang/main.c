// The demonstration behind `./dev demo hang`: what tutti says where other libraries hang in
// silence. Four ranks, threads of this process. First one of them comes late to a collective: a
// dump names it at once, a warning after 10 s. Then one calls another collective than the others:
// an error on all ranks that names both calls. At the end, who came last how often: the library
// says so when the ranks' process ends, which is why that is one of its own.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include <cuda_runtime.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti.h>
#include <unistd.h>

enum { RANKS = 4, LATE = 3, ODD = 1, COUNT = 1000, ERROR_PATIENCE_S = 5 };

static struct {
    ncclUniqueId id;
    double late_s;
    pthread_barrier_t all;
    pthread_mutex_t mutex; // guards `wrong` and printing
    int wrong;             // what did not go as it should
} demo = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    float *memory;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void sleep_s(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

static void say(const char *text)
{
    (void)printf("\n%s\n", text);
    (void)fflush(stdout);
}

static void check(bool right, const char *what, int rank)
{
    if (!right) {
        pthread_mutex_lock(&demo.mutex);
        demo.wrong++;
        (void)printf("FAILED: rank %d: %s (%s)\n", rank, what, ncclGetLastError(NULL));
        pthread_mutex_unlock(&demo.mutex);
    }
}

static void all_reduce(struct rank *r)
{
    check(ncclAllReduce(r->memory, r->memory, COUNT, ncclFloat, ncclSum, r->comm, r->stream) ==
              ncclSuccess,
          "ncclAllReduce", r->rank);
}

static void synchronise(struct rank *r)
{
    check(cudaStreamSynchronize(r->stream) == cudaSuccess, "cudaStreamSynchronize", r->rank);
}

// ---- One rank comes late ------------------------------------------------------------------------

static void come_late(struct rank *r)
{
    for (int i = 0; i < 2; i++) {
        all_reduce(r);
    }
    synchronise(r);
    double start = now_s();
    pthread_barrier_wait(&demo.all);
    if (r->rank == LATE) {
        sleep_s(demo.late_s);
    }
    all_reduce(r);
    if (r->rank == 0) {
        sleep_s(demo.late_s < 1 ? demo.late_s / 2 : 0.5);
        say("Meanwhile, tuttiDumpState on rank 0:");
        check(tuttiDumpState(r->comm, NULL) == ncclSuccess, "tuttiDumpState", r->rank);
        if (demo.late_s > 10) {
            say("After 10 s the library says by itself:");
        }
    }
    synchronise(r);
    check(now_s() - start >= demo.late_s, "nobody waited for the late rank", r->rank);
    pthread_barrier_wait(&demo.all);
}

// ---- One rank calls something else --------------------------------------------------------------

// Waits until the communicator has failed; the seconds that took.
static double await_error(struct rank *r, ncclResult_t *error_out)
{
    double start = now_s(), waited = 0;
    do {
        sleep_s(0.001);
        waited = now_s() - start;
        check(ncclCommGetAsyncError(r->comm, error_out) == ncclSuccess, "ncclCommGetAsyncError",
              r->rank);
    } while (*error_out == ncclSuccess && waited < ERROR_PATIENCE_S);
    return waited;
}

static void call_something_else(struct rank *r)
{
    ncclResult_t error = ncclSuccess;
    if (r->rank == ODD) {
        check(ncclBroadcast(r->memory, r->memory, COUNT, ncclFloat, 0, r->comm, r->stream) ==
                  ncclSuccess,
              "ncclBroadcast", r->rank);
    } else {
        all_reduce(r);
    }
    double waited = await_error(r, &error);
    check(error == ncclInvalidUsage && waited < 1, "no error within a second", r->rank);
    pthread_barrier_wait(&demo.all);
    pthread_mutex_lock(&demo.mutex);
    (void)printf("rank %d: after %.0f ms: %s: %s\n", r->rank, waited * 1e3,
                 ncclGetErrorString(error), ncclGetLastError(r->comm));
    (void)fflush(stdout);
    pthread_mutex_unlock(&demo.mutex);
    pthread_barrier_wait(&demo.all);
    if (r->rank == 0) {
        say("and a dump of that communicator:");
        check(tuttiDumpState(r->comm, NULL) == ncclSuccess, "tuttiDumpState", r->rank);
    }
    pthread_barrier_wait(&demo.all);
}

// ---- Ranks --------------------------------------------------------------------------------------

static bool join(struct rank *r)
{
    int devices = 0;
    bool good = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 &&
                cudaSetDevice(r->rank % devices) == cudaSuccess &&
                ncclCommInitRank(&r->comm, RANKS, demo.id, r->rank) == ncclSuccess &&
                cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess &&
                cudaMalloc((void **)&r->memory, COUNT * sizeof *r->memory) == cudaSuccess &&
                cudaMemset(r->memory, 0, COUNT * sizeof *r->memory) == cudaSuccess;
    check(good, "could not join", r->rank);
    return good;
}

static void *run_rank(void *argument)
{
    struct rank *r = argument;
    if (!join(r)) {
        exit(1); // the others would wait for it
    }
    pthread_barrier_wait(&demo.all);
    if (r->rank == 0) {
        (void)printf("1. Rank %d of %d comes %.1f s late to its third all-reduce.\n", LATE, RANKS,
                     demo.late_s);
        (void)fflush(stdout);
    }
    come_late(r);
    if (r->rank == 0) {
        say("It has come, and all went on.\n\n2. Rank 1 calls Broadcast, the others AllReduce.");
    }
    pthread_barrier_wait(&demo.all);
    call_something_else(r);
    check(ncclCommAbort(r->comm) == ncclSuccess, "ncclCommAbort", r->rank);
    (void)cudaFree(r->memory);
    (void)cudaStreamDestroy(r->stream);
    return NULL;
}

// The process of the ranks; its exit status.
static int run_ranks(void)
{
    setenv("TUTTI_SUMMARY", "1", 0); // before the library reads it
    if (ncclGetUniqueId(&demo.id) != ncclSuccess) {
        (void)fprintf(stderr, "tutti-hang: %s\n", ncclGetLastError(NULL));
        return 1;
    }
    pthread_barrier_init(&demo.all, NULL, RANKS);
    struct rank rank[RANKS];
    pthread_t thread[RANKS];
    memset(rank, 0, sizeof rank);
    for (int r = 0; r < RANKS; r++) {
        rank[r].rank = r;
        if (pthread_create(&thread[r], NULL, run_rank, &rank[r]) != 0) {
            (void)fprintf(stderr, "tutti-hang: no thread for rank %d\n", r);
            return 1;
        }
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(thread[r], NULL);
    }
    say("3. Who was waited for (TUTTI_SUMMARY=1; TUTTI_TRACE=hang.json also draws it, for "
        "Perfetto):");
    return demo.wrong == 0 ? 0 : 1;
}

static int usage(const char *wrong)
{
    FILE *to = wrong == NULL ? stdout : stderr;
    if (wrong != NULL) {
        (void)fprintf(to, "tutti-hang: %s: what is that?\n", wrong);
    }
    (void)fprintf(to, "usage: tutti-hang [--late SECONDS]   how late a rank comes, 0 to 600 "
                      "(default 12)\n");
    return wrong == NULL ? 0 : 2;
}

int main(int argc, char **argv)
{
    demo.late_s = 12;
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            return usage(NULL);
        }
        if (strcmp(argv[i], "--late") == 0 && i + 1 < argc) {
            demo.late_s = strtod(argv[++i], &end);
        }
        if (end == NULL || *end != 0 || !(demo.late_s >= 0 && demo.late_s <= 600)) {
            return usage(argv[i]);
        }
    }
    pid_t child = fork(); // nothing of the library has begun
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        return run_ranks();
    }
    int status = -1;
    bool good = child > 0 && waitpid(child, &status, 0) == child && status == 0;
    (void)printf("\ndemo: %s\n", good ? "OK" : "FAILED");
    return good ? 0 : 1;
}

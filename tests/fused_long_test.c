// tuttiAllReduceRMSNorm behind work of the program that takes longer than ranks may be late without
// a word: what is waited for, and what is said of it. Each case takes more than 10 s.
// SPDX-License-Identifier: Apache-2.0
#include "fused.h"

#include <stdio.h>

enum { RANKS = 2, MANY = 480 };

static void free_all(struct member *all)
{
    for (int r = 0; r < RANKS; r++) {
        EXPECT_CUDA(cudaStreamSynchronize(all[r].stream));
        EXPECT_OK(ncclMemFree(all[r].memory));
        EXPECT_CUDA(cudaStreamDestroy(all[r].stream));
    }
}

static void call_all(const struct member *all)
{
    EXPECT_OK(ncclGroupStart());
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(call(&all[r], all[r].stream));
    }
    EXPECT_OK(ncclGroupEnd());
}

static void CUDART_CB sleep_ms(void *argument)
{
    usleep(1000 * *(const useconds_t *)argument);
}

// stderr goes into a file.
struct listener {
    int kept;
    FILE *file;
};

static struct listener listen_to_stderr(void)
{
    struct listener listener = {dup(STDERR_FILENO), tmpfile()};
    (void)fflush(stderr);
    EXPECT(listener.file != NULL && dup2(fileno(listener.file), STDERR_FILENO) >= 0);
    return listener;
}

static bool has_heard(const struct listener *listener, const char *part)
{
    char text[8192];
    ssize_t length = pread(fileno(listener->file), text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    return strstr(text, part) != NULL;
}

static void stop_listening(struct listener *listener)
{
    (void)dup2(listener->kept, STDERR_FILENO);
    (void)close(listener->kept);
    (void)fclose(listener->file);
}

// ---- Ends ---------------------------------------------------------------------------------------

// All ranks have called; a rank's stream has 12 s of other work before the operation.
static void end_behind_own_work(void)
{
    static const useconds_t long_ms = 12000;
    struct member all[RANKS];
    if (!join_all(all, RANKS)) {
        return;
    }
    for (int r = 0; r < RANKS; r++) {
        fill(&all[r], 0, all[r].stream);
    }
    EXPECT_CUDA(cudaLaunchHostFunc(all[1].stream, sleep_ms, (void *)&long_ms));
    struct stopwatch watch = stopwatch_start();
    call_all(all);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(all[r].comm));
        EXPECT(stopwatch_s(&watch) > 11);
    }
    for (int r = 0; r < RANKS; r++) {
        check(&all[r], 0, all[r].stream);
    }
    free_all(all);
}

// A rank has not called.
static void end_without_a_rank(void)
{
    struct member all[RANKS];
    if (!join_all(all, RANKS)) {
        return;
    }
    EXPECT_OK(call(&all[0], all[0].stream));
    struct stopwatch watch = stopwatch_start();
    EXPECT_EQ(ncclCommDestroy(all[0].comm), ncclRemoteError);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "still wait for other ranks 10 s after");
    EXPECT(stopwatch_s(&watch) > 9);
    EXPECT_OK(ncclCommAbort(all[1].comm));
    free_all(all);
}

// ---- Lateness, as the executor of real GPUs tells it --------------------------------------------

// 12 s of operations, none of which takes long.
static void progress_is_not_late(void)
{
    static const useconds_t short_ms = 25;
    struct member all[RANKS];
    if (!join_all(all, RANKS)) {
        return;
    }
    struct listener listener = listen_to_stderr();
    for (int i = 0; i < MANY; i++) {
        EXPECT_CUDA(cudaLaunchHostFunc(all[0].stream, sleep_ms, (void *)&short_ms));
        call_all(all);
    }
    EXPECT_CUDA(cudaStreamSynchronize(all[1].stream));
    bool was_told = has_heard(&listener, "it has not ended");
    stop_listening(&listener);
    EXPECT(!was_told);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommDestroy(all[r].comm));
    }
    free_all(all);
}

// Two communicators, in one order on the stream of rank 0 and in the other on that of rank 1.
static void orders_that_differ(void)
{
    struct member a[RANKS], b[RANKS];
    bool good = join_all(a, RANKS);
    if (!join_all(b, RANKS) || !good) {
        return;
    }
    struct listener listener = listen_to_stderr();
    EXPECT_OK(call(&a[0], a[0].stream));
    EXPECT_OK(call(&b[1], a[1].stream));
    EXPECT_OK(call(&b[0], a[0].stream));
    EXPECT_OK(call(&a[1], a[1].stream));
    struct stopwatch watch = stopwatch_start();
    bool was_told = false;
    while (!was_told && stopwatch_is_within(&watch, 20)) {
        was_told = has_heard(&listener, "two communicators in different orders");
        usleep(10000);
    }
    stop_listening(&listener);
    EXPECT(was_told);
    for (int r = 0; r < RANKS; r++) {
        EXPECT_OK(ncclCommAbort(a[r].comm));
        EXPECT_OK(ncclCommAbort(b[r].comm));
    }
    free_all(a);
    free_all(b);
}

int main(void)
{
    RUN(end_behind_own_work);
    RUN(end_without_a_rank);
    if (possible_ways() == WAYS) {
        RUN(progress_is_not_late);
        RUN(orders_that_differ);
    }
    return expect_result();
}

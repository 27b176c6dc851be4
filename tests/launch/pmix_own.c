// PMIx is counted: tuttiCommInit begins it with the first communicator and ends it with the last. A
// program that has begun it itself is left alone. Started by tutti-run, with TUTTI_LAUNCH=pmix.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

static int wrong;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        (void)fprintf(stderr, "wrong: %s: %s\n", what, ncclGetLastError(NULL));
        wrong = 1;
    }
}

static bool is_begun(void)
{
    return PMIx_Initialized() != 0;
}

static void counted(void)
{
    ncclComm_t first = NULL, second = NULL;
    expect(!is_begun(), "PMIx before anything");
    expect(tuttiCommInit(&first) == ncclSuccess, "first");
    expect(is_begun(), "PMIx with a communicator");
    expect(tuttiCommInit(&second) == ncclSuccess, "second");
    expect(ncclCommDestroy(first) == ncclSuccess && is_begun(), "one of two destroyed");
    expect(ncclCommDestroy(second) == ncclSuccess && !is_begun(), "PMIx after the last");
    expect(tuttiCommInit(&first) == ncclSuccess && is_begun(), "PMIx anew");
    // Where a rank aborts, those that have not left their init yet fail in it.
    expect(PMIx_Fence(NULL, 0, NULL, 0) == PMIX_SUCCESS, "a fence");
    expect(ncclCommAbort(first) == ncclSuccess && !is_begun(), "PMIx after an abort");
}

static void left_alone(void)
{
    pmix_proc_t self;
    ncclComm_t comm = NULL;
    int rank = -1;
    expect(PMIx_Init(&self, NULL, 0) == PMIX_SUCCESS, "PMIx_Init");
    expect(tuttiCommInit(&comm) == ncclSuccess, "inside the program's own PMIx");
    expect(ncclCommUserRank(comm, &rank) == ncclSuccess && rank == (int)self.rank, "rank");
    expect(PMIx_Finalize(NULL, 0) == PMIX_SUCCESS && !is_begun(), "the program ends its PMIx");
    expect(ncclCommDestroy(comm) == ncclSuccess, "without PMIx");
    expect(PMIx_Init(&self, NULL, 0) == PMIX_SUCCESS, "PMIx_Init again");
    expect(tuttiCommInit(&comm) == ncclSuccess, "again");
    expect(ncclCommDestroy(comm) == ncclSuccess && is_begun(), "the program's PMIx stays");
    expect(PMIx_Finalize(NULL, 0) == PMIX_SUCCESS && !is_begun(), "PMIx_Finalize");
}

int main(void)
{
    counted();
    left_alone();
    if (wrong == 0) {
        printf("right\n");
    }
    return wrong;
}

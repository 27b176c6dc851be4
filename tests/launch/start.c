// A rank that a launcher starts: tuttiCommInit, a sum over all ranks, and what the first argument
// asks for besides:
//   init    no sum: destroys the communicator at once
//   two     a second communicator beside the first, and a third after both
//   leave   ends without destroying anything
//   wait    waits for ever after the sum
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>

enum { COUNT = 1000 };

#ifdef TUTTI_CHECKED
// libpmix keeps a few bytes of its own, some through functions of the C library, which the fast
// unwinder does not pass.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix\n";
}
__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
    return "print_suppressions=0:fast_unwind_on_malloc=0";
}
#endif

static void check(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "%s: %s: %s\n", call, ncclGetErrorString(result), ncclGetLastError(NULL));
        exit(3);
    }
}

static ncclComm_t start(void)
{
    ncclComm_t comm;
    check(tuttiCommInit(&comm), "tuttiCommInit");
    return comm;
}

// Every rank adds its number + 1.
static void sum(ncclComm_t comm, const char *name)
{
    int rank, size, device, numbers[COUNT], *memory;
    check(ncclCommUserRank(comm, &rank), "ncclCommUserRank");
    check(ncclCommCount(comm, &size), "ncclCommCount");
    check(ncclCommCuDevice(comm, &device), "ncclCommCuDevice");
    for (int i = 0; i < COUNT; i++) {
        numbers[i] = rank + 1;
    }
    if (cudaMalloc((void **)&memory, sizeof numbers) != cudaSuccess ||
        cudaMemcpy(memory, numbers, sizeof numbers, cudaMemcpyHostToDevice) != cudaSuccess) {
        fprintf(stderr, "no device memory\n");
        exit(4);
    }
    check(ncclAllReduce(memory, memory, COUNT, ncclInt, ncclSum, comm, NULL), "ncclAllReduce");
    cudaError_t error = cudaMemcpy(numbers, memory, sizeof numbers, cudaMemcpyDeviceToHost);
    for (int i = 0; i < COUNT && error == cudaSuccess; i++) {
        if (numbers[i] != size * (size + 1) / 2) {
            fprintf(stderr, "rank %d: sum %d of %d ranks\n", rank, numbers[i], size);
            exit(5);
        }
    }
    cudaFree(memory);
    printf("%s: rank %d of %d on device %d: right\n", name, rank, size, device);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    ncclComm_t first = start();
    if (strcmp(what, "init") == 0) {
        check(ncclCommDestroy(first), "ncclCommDestroy");
        return 0;
    }
    sum(first, "first");
    if (strcmp(what, "two") == 0) {
        ncclComm_t second = start();
        sum(second, "second");
        sum(first, "first again");
        check(ncclCommDestroy(second), "ncclCommDestroy");
    }
    if (strcmp(what, "leave") == 0) {
        return 0;
    }
    while (strcmp(what, "wait") == 0) {
        sleep(1);
    }
    check(ncclCommDestroy(first), "ncclCommDestroy");
    if (strcmp(what, "two") == 0) {
        ncclComm_t third = start();
        sum(third, "third");
        check(ncclCommDestroy(third), "ncclCommDestroy");
    }
    return 0;
}

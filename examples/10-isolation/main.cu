// SPDX-License-Identifier: Apache-2.0
// Lesson 10: four tasks with a GPU each, which all of them call number 0, and one planted error.
// Which GPU was it?
//
// To be started by a launcher: tutti-run -n 4 --gpus-per-task 1 ./isolation
#include "lesson.h"

#include <cuda_runtime.h>
#include <limits.h>
#include <nccl.h>
#include <string.h>
#include <tutti.h>
#include <unistd.h>

static const int blocks = 4;
static const int threads = 64;

// Each thread writes its number. On the wrong rank `out` is where no memory is.
__global__ void fill(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = i;
}

struct options {
    int wrong;  // the rank with the error; -1: none
    bool widen; // ask for all GPUs before the first CUDA call
};

static const char help[] =
    "usage: tutti-run -n 4 --gpus-per-task 1 ./isolation [--wrong RANK | --wrong none] [--widen]\n"
    "\n"
    "  --wrong RANK   the rank whose kernel writes where no memory is (2)\n"
    "  --widen        every task sets CUDA_VISIBLE_DEVICES and VGPU_DEVICES to eight GPUs first\n";

// "none", or a number and nothing else.
static bool read_wrong(const char *text, int *wrong)
{
    char *end = NULL;
    long number = strtol(text, &end, 10);
    bool is_none = strcmp(text, "none") == 0;
    if (!is_none && (end == text || *end != 0 || number < 0 || number >= INT_MAX)) {
        fprintf(stderr, "--wrong is \"%s\", must be the number of a rank, or none\n", text);
        return false;
    }
    *wrong = is_none ? -1 : (int)number;
    return true;
}

static bool read_options(int argc, char **argv, struct options *options)
{
    *options = (struct options){2, false};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--widen") == 0) {
            options->widen = true;
        } else if (strcmp(argv[i], "--wrong") == 0 && i + 1 < argc) {
            if (!read_wrong(argv[++i], &options->wrong)) {
                return false;
            }
        } else {
            fputs(help, strcmp(argv[i], "--help") == 0 ? stdout : stderr);
            return false;
        }
    }
    return true;
}

// Step 2: who has what. The number says nothing; the PCI address is the same for everybody.
static void say_what_it_sees(int rank, int ranks)
{
    int count = 0, device = -1;
    char pci[32] = "";
    CHECK_CUDA(cudaGetDeviceCount(&count));
    CHECK_CUDA(cudaGetDevice(&device));
    CHECK_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, device));
    printf("rank %d of %d: sees %d GPU%s; mine is number %d, at %s\n", rank, ranks, count,
           count == 1 ? "" : "s", device, pci);
}

// Step 3: the kernel, and the error that CUDA gives for it. A GPU that has failed takes no more
// work, so nothing of it can be given back; the end of the process does that.
static bool run_kernel(int rank, bool is_wrong)
{
    int *out = NULL;
    CHECK_CUDA(cudaMalloc((void **)&out, blocks * threads * sizeof(int)));
    fill<<<blocks, threads>>>(is_wrong ? NULL : out);
    cudaError_t error = cudaGetLastError(); // the launch's own, or the kernel's, if that was quick
    if (error == cudaSuccess) {
        error = cudaDeviceSynchronize();
    }
    if (error != cudaSuccess) {
        printf("rank %d: the kernel failed: %s\n", rank, cudaGetErrorName(error));
        return false;
    }
    CHECK_CUDA(cudaFree(out));
    return true;
}

// Step 4: what the communicator knows of it, on every rank, within 20 s.
static bool learn_of_failure(ncclComm_t comm, int rank, int wrong)
{
    char expected[32];
    snprintf(expected, sizeof expected,
             rank == wrong ? "rank %d: its GPU " : "rank %d failed: its GPU ", wrong);
    ncclResult_t state = ncclSuccess;
    for (double end = lesson_seconds() + 20; state == ncclSuccess && lesson_seconds() < end;) {
        usleep(10000);
        CHECK_NCCL(ncclCommGetAsyncError(comm, &state));
    }
    const char *text = ncclGetLastError(comm);
    printf("learned: %s\n", state == ncclSuccess ? "nothing" : text);
    return state != ncclSuccess && strstr(text, expected) != NULL;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!read_options(argc, argv, &options)) {
        return argc > 1 && strcmp(argv[1], "--help") == 0 ? 0 : 1;
    }
    if (options.widen) {
        setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7", 1);
        setenv("VGPU_DEVICES", "0,1,2,3,4,5,6,7", 1);
    }

    // Step 1: the communicator. The launcher says who is which rank; the GPU is chosen by it, too.
    ncclComm_t comm;
    int rank = -1, ranks = 0;
    CHECK_NCCL(tuttiCommInit(&comm));
    CHECK_NCCL(ncclCommUserRank(comm, &rank));
    CHECK_NCCL(ncclCommCount(comm, &ranks));
    if (options.wrong >= ranks) {
        // Each says so: when the first task fails, the launcher ends the others.
        printf("REFUSED: rank %d is to fail, and there %s %d: start more (tutti-run -n %d "
               "--gpus-per-task 1 ./isolation), or say which (--wrong 0, --wrong none).\n",
               options.wrong, ranks == 1 ? "is" : "are", ranks, options.wrong + 1);
        CHECK_NCCL(ncclCommDestroy(comm));
        return 1;
    }
    say_what_it_sees(rank, ranks);

    bool is_right = run_kernel(rank, rank == options.wrong) == (rank != options.wrong);
    if (options.wrong >= 0) {
        is_right = learn_of_failure(comm, rank, options.wrong) && is_right;
        CHECK_NCCL(ncclCommAbort(comm));
    } else {
        CHECK_NCCL(ncclCommFinalize(comm));
        CHECK_NCCL(ncclCommDestroy(comm));
    }
    printf("rank %d: %s\n", rank, is_right ? "SUCCESS" : "FAILED");
    return is_right ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// Lesson 04: a race, a deadlock and an access outside a window, each planted in one place of
// one kernel, for the tools to find.
//
// Two ranks have a number for each of their threads. Each writes its numbers into the other's
// window, the "inbox", and adds what it got to what it had; so both end with the sums. `--fault`
// says which of the three marked places is wrong; with `none` the kernel is right.
#include "lesson.h"

#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <string.h>

static const int ranks = 2;
static const int threads = 32; // of the one block; numbers of a rank

enum fault { FAULT_NONE, FAULT_RACE, FAULT_DEADLOCK, FAULT_OUTSIDE };

static const char *const fault_names[] = {"none", "race", "deadlock", "outside"};

// The command line's fault; read-only once the ranks run.
static enum fault chosen_fault = FAULT_NONE;

// One block on each rank. numbers: `threads` of them, replaced by the sums over both ranks.
__global__ void exchange(ncclWindow_t inbox, ncclDevComm comm, enum fault fault, int *numbers)
{
    int i = threadIdx.x;
    int number = numbers[i];
    int peer = ranks - 1 - comm.rank;
    ncclCoopCta block;

    // Step 1: meet the peer's block: both kernels run from here on. Both must come to the same
    // barrier. FAULT deadlock: each takes the one that has its own number.
    int index = fault == FAULT_DEADLOCK ? comm.rank : 0;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), index);
    barrier.sync(block, cuda::memory_order_acquire);

    // Step 2: write into the peer's inbox, thread i into slot i. The pointer functions take bytes.
    // FAULT outside: the slot is in bytes already, and then made bytes once more.
    size_t slot = fault == FAULT_OUTSIDE ? i * sizeof(int) : i;
    int *theirs = (int *)ncclGetLsaPointer(inbox, slot * sizeof(int), peer);
    *theirs = number;

    // Step 3: wait until the peer has written, too.
    // FAULT race: nobody waits.
    if (fault != FAULT_RACE) {
        barrier.sync(block, cuda::memory_order_acq_rel);
    }

    // Step 4: read what came.
    const int *mine = (const int *)ncclGetLocalPointer(inbox, i * sizeof(int));
    numbers[i] = number + *mine;
}

// What `rank` starts with.
static int number_of(int rank, int thread)
{
    return 100 * (rank + 1) + thread;
}

// Tells the first wrong sum. False when there is one.
static bool is_right(const struct lesson_rank *self, const int *sums)
{
    for (int i = 0; i < threads; i++) {
        int expected = number_of(0, i) + number_of(1, i);
        if (sums[i] != expected) {
            printf("rank %d: sum %d is %d, not %d\n", self->rank, i, sums[i], expected);
            return false;
        }
    }
    return true;
}

static ncclComm_t make_communicator(const struct lesson_rank *self)
{
    ncclUniqueId id;
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
    }
    lesson_broadcast(self, &id, sizeof id);
    ncclComm_t comm;
    CHECK_NCCL(ncclCommInitRank(&comm, self->ranks, id, self->rank));
    ncclCommProperties_t can = NCCL_COMM_PROPERTIES_INITIALIZER;
    CHECK_NCCL(ncclCommQueryProperties(comm, &can));
    if (!lesson_require(self, can.deviceApiSupport && can.nLsaTeams == 1,
                        "the two GPUs cannot write each other's memory, and this lesson does "
                        "nothing else. Use GPUs joined by NVLink, as virtual ones are "
                        "when VGPU_MACHINE is not set.")) {
        CHECK_NCCL(ncclCommFinalize(comm));
        CHECK_NCCL(ncclCommDestroy(comm));
        return NULL;
    }
    return comm;
}

static bool run_rank(const struct lesson_rank *self)
{
    // The GPU, the communicator, and whether it can do this. Lesson 01 explains.
    CHECK_CUDA(cudaSetDevice(self->device));
    if (!lesson_kernel_fits(self, (const void *)exchange)) {
        return false;
    }
    ncclComm_t comm = make_communicator(self);
    if (!comm) {
        return false;
    }

    // The inbox, empty; the numbers; and two barriers, of which the right kernel uses the first.
    const size_t bytes = threads * sizeof(int);
    int host[threads];
    void *memory = NULL;
    int *numbers = NULL;
    ncclWindow_t inbox;
    cudaStream_t stream;
    for (int i = 0; i < threads; i++) {
        host[i] = number_of(self->rank, i);
    }
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_NCCL(ncclMemAlloc(&memory, bytes));
    CHECK_NCCL(ncclCommWindowRegister(comm, memory, bytes, &inbox, NCCL_WIN_COLL_SYMMETRIC));
    CHECK_CUDA(cudaMalloc((void **)&numbers, bytes));
    CHECK_CUDA(cudaMemset(memory, 0, bytes));
    CHECK_CUDA(cudaMemcpy(numbers, host, bytes, cudaMemcpyHostToDevice));
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = ranks;
    CHECK_NCCL(ncclDevCommCreate(comm, &needs, &device_comm));
    lesson_say(self, "Fault: %s\n", fault_names[chosen_fault]);

    // Launch. A kernel that the tools have stopped is an error of this wait. The GPU then takes no
    // more work, so nothing can be given back; the end of the program does that.
    exchange<<<1, threads, 0, stream>>>(inbox, device_comm, chosen_fault, numbers);
    CHECK_CUDA(cudaGetLastError());
    cudaError_t error = lesson_wait(self, stream);
    if (error != cudaSuccess) {
        printf("rank %d: the kernel failed: %s\n", self->rank, cudaGetErrorName(error));
    }
    if (!lesson_all(self, error == cudaSuccess)) {
        return false;
    }

    // Check, give everything back, report.
    CHECK_CUDA(cudaMemcpy(host, numbers, bytes, cudaMemcpyDeviceToHost));
    bool right = is_right(self, host);
    CHECK_NCCL(ncclDevCommDestroy(comm, &device_comm));
    CHECK_NCCL(ncclCommWindowDeregister(comm, inbox));
    CHECK_NCCL(ncclMemFree(memory));
    CHECK_CUDA(cudaFree(numbers));
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_CUDA(cudaStreamDestroy(stream));
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    int word = 1; // of argv: the first that is common to all lessons
    if (argc >= 3 && strcmp(argv[1], "--fault") == 0) {
        word = 2;
        for (int i = FAULT_NONE; i <= FAULT_OUTSIDE; i++) {
            if (strcmp(argv[2], fault_names[i]) == 0) {
                chosen_fault = (enum fault)i;
                word = 3;
            }
        }
    }
    if (word < argc && strcmp(argv[word], "--processes") != 0) {
        bool asks = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
        if (!asks) {
            printf("%s: what is that?\n", argv[word]);
        }
        printf("usage: debugging [--fault none|race|deadlock|outside] [--processes]\n");
        return asks ? 0 : 1;
    }
    struct lesson_options defaults = {1, 1, threads, 0, LESSON_FLOAT, 1, ranks, 0};
    argv[word - 1] = argv[0];
    return lesson_run(argc - word + 1, argv + word - 1,
                      "Lesson 04: finding a race, a deadlock and an access outside a window",
                      &defaults, run_rank);
}

// SPDX-License-Identifier: Apache-2.0
// Lesson 00: RMSNorm over two ranks, small enough to follow by hand: a matrix of 4 tokens x 8, and
// every number of the three phases printed.
//
// Rank 0 and rank 1 each hold a partial matrix. Rank 0 owns rows 0 and 1, rank 1 rows 2 and 3.
//   1. reduce-scatter  the owner of a row adds up both ranks' parts
//   2. RMSNorm         and divides it by the root of the mean of its squares
//   3. all-gather      and gives it to both ranks
// One block handles one row, one thread one column. The kernel keeps what it had after each phase
// in ordinary memory (`seen`), only to print it.
#include "lesson.h"

#include <cuda_runtime.h>
#include <math.h>
#include <nccl.h>
#include <nccl_device.h>

static const int tokens = 4;
static const int hidden = 8;
static const int ranks = 2;
static const int rows = tokens / ranks; // of one rank

// Row by row, the sums are 2 2 ..., 1 7 ..., 7 17 ..., 0 0 ...; their root mean squares 2, 5, 13,
// 0.
static const float input[ranks][tokens][hidden] = {
    {{1, 1, 1, 1, 1, 1, 1, 1},
     {1, 3, 0, 4, 1, 3, 0, 4},
     {3, 8, 4, 9, 3, 8, 4, 9},
     {1, -1, 2, -2, 3, -3, 4, -4}},
    {{1, 1, 1, 1, 1, 1, 1, 1},
     {0, 4, 1, 3, 0, 4, 1, 3},
     {4, 9, 3, 8, 4, 9, 3, 8},
     {-1, 1, -2, 2, -3, 3, -4, 4}},
};

// What a rank's kernel had after a phase, for its own rows.
struct seen {
    float reduced[rows][hidden];
    float normalised[rows][hidden];
};

__global__ void rmsnorm_by_hand(ncclWindow_t window, ncclDevComm comm, float eps, struct seen *seen)
{
    __shared__ float squares[hidden];
    int row = blockIdx.x; // of this rank's rows
    int column = threadIdx.x;
    int token = comm.rank * rows + row;
    size_t offset = (size_t)(token * hidden + column) * sizeof(float);
    ncclCoopCta block;
    ncclLsaBarrierSession<ncclCoopCta> barrier(block, comm, ncclTeamTagLsa(), blockIdx.x);

    // Both ranks' inputs are there once both have come to this barrier.
    barrier.sync(block, cuda::memory_order_acquire);

    // Phase 1: this element, from each rank.
    float sum = 0;
    for (int rank = 0; rank < ranks; rank++) {
        sum += *(const float *)ncclGetLsaPointer(window, offset, rank);
    }
    seen->reduced[row][column] = sum;

    // Phase 2: all eight squares are needed for one root.
    squares[column] = sum * sum;
    block.sync();
    float total = 0;
    for (int i = 0; i < hidden; i++) {
        total += squares[i];
    }
    float root = sqrtf(total / hidden + eps);
    float value = root > 0 ? sum / root : 0.0f;
    seen->normalised[row][column] = value;

    // Phase 3: this element, to each rank.
    for (int rank = 0; rank < ranks; rank++) {
        *(float *)ncclGetLsaPointer(window, offset, rank) = value;
    }

    // Both ranks' rows have arrived once both have come to this barrier.
    barrier.sync(block, cuda::memory_order_release);
}

// Prints `count` rows, the first of which is row `first_row` of the matrix.
static void print_rows(const float matrix[][hidden], int first_row, int count)
{
    for (int row = 0; row < count; row++) {
        printf("    token %d ", first_row + row);
        for (int column = 0; column < hidden; column++) {
            printf(" %7.3f", (double)matrix[row][column]);
        }
        printf("\n");
    }
}

// Prints one matrix of each rank, rank 0's first.
static void print_in_turn(const struct lesson_rank *self, const char *phase,
                          const float matrix[][hidden], int first_row, int count)
{
    lesson_say(self, "%s\n", phase);
    for (int rank = 0; rank < ranks; rank++) {
        if (lesson_all(self, true) && rank == self->rank) {
            printf("  rank %d\n", rank);
            print_rows(matrix, first_row, count);
        }
    }
    lesson_all(self, true);
}

// Compares with the same three phases in double precision.
static bool is_right(const float result[tokens][hidden], float eps)
{
    for (int token = 0; token < tokens; token++) {
        double squares = 0;
        for (int column = 0; column < hidden; column++) {
            double sum = (double)input[0][token][column] + (double)input[1][token][column];
            squares += sum * sum;
        }
        double root = sqrt(squares / hidden + (double)eps);
        for (int column = 0; column < hidden; column++) {
            double sum = (double)input[0][token][column] + (double)input[1][token][column];
            double expected = root > 0 ? sum / root : 0;
            if (!(fabs((double)result[token][column] - expected) < 1e-5)) {
                return false;
            }
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
                        "the two GPUs cannot read each other's memory, and this lesson does "
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
    // Steps 1 and 2: the GPU; the communicator, and whether it can do this. Lesson 01 explains.
    CHECK_CUDA(cudaSetDevice(self->device));
    if (!lesson_kernel_fits(self, (const void *)rmsnorm_by_hand)) {
        return false;
    }
    ncclComm_t comm = make_communicator(self);
    if (!comm) {
        return false;
    }
    float result[tokens][hidden];
    struct seen seen;

    // Step 3: the window, with this rank's input in it; and memory for what the kernel saw.
    void *memory = NULL;
    struct seen *device_seen = NULL;
    ncclWindow_t window;
    cudaStream_t stream;
    CHECK_CUDA(cudaStreamCreate(&stream));
    CHECK_NCCL(ncclMemAlloc(&memory, sizeof result));
    CHECK_NCCL(
        ncclCommWindowRegister(comm, memory, sizeof result, &window, NCCL_WIN_COLL_SYMMETRIC));
    CHECK_CUDA(cudaMalloc((void **)&device_seen, sizeof seen));
    CHECK_CUDA(cudaMemcpy(memory, input[self->rank], sizeof result, cudaMemcpyHostToDevice));
    print_in_turn(self, "Input", input[self->rank], 0, tokens);

    // Step 4: the device communicator, with one barrier for each block.
    ncclDevComm device_comm;
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = rows;
    CHECK_NCCL(ncclDevCommCreate(comm, &needs, &device_comm));

    // Step 5: launch: a block for each row of this rank, a thread for each column.
    rmsnorm_by_hand<<<rows, hidden, 0, stream>>>(window, device_comm, self->options->eps,
                                                 device_seen);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaStreamSynchronize(stream));

    // Step 6: look at every phase, and check the result.
    CHECK_CUDA(cudaMemcpy(&seen, device_seen, sizeof seen, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(result, memory, sizeof result, cudaMemcpyDeviceToHost));
    int first_row = self->rank * rows;
    print_in_turn(self, "After phase 1, reduce-scatter: sums of both ranks, at the rows' owners",
                  seen.reduced, first_row, rows);
    print_in_turn(self,
                  "After phase 2, RMSNorm: divided by 2, 5, 13 and, as a row of zeros, by nothing",
                  seen.normalised, first_row, rows);
    print_in_turn(self, "After phase 3, all-gather: all rows, on both ranks", result, 0, tokens);
    bool right = is_right(result, self->options->eps);

    // Step 7: give everything back.
    CHECK_NCCL(ncclDevCommDestroy(comm, &device_comm));
    CHECK_NCCL(ncclCommWindowDeregister(comm, window));
    CHECK_NCCL(ncclMemFree(memory));
    CHECK_CUDA(cudaFree(device_seen));
    CHECK_NCCL(ncclCommFinalize(comm));
    CHECK_NCCL(ncclCommDestroy(comm));
    CHECK_CUDA(cudaStreamDestroy(stream));

    // Step 8: report.
    return lesson_report(self, right);
}

int main(int argc, char **argv)
{
    struct lesson_options defaults = {4, 8, 8, 1e-6f, LESSON_FLOAT, 1, 2, LESSON_EPS};
    return lesson_run(argc, argv, "Lesson 00: RMSNorm over two ranks, by hand", &defaults,
                      run_rank);
}

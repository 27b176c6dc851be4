// SPDX-License-Identifier: Apache-2.0
// What every lesson needs and no lesson is about: options, ranks as threads or processes, agreement
// between ranks, messages. Plain C; the lessons' .cu files include it from C++.
#ifndef EXAMPLES_COMMON_LESSON_H
#define EXAMPLES_COMMON_LESSON_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

enum lesson_type { LESSON_FLOAT, LESSON_HALF, LESSON_BF16 };

// What a lesson lets its user choose; the rest is refused and not in its help.
enum lesson_offer {
    LESSON_SHAPE = 1, // --tokens, --hidden, --threads, --iterations, --ranks
    LESSON_TYPE = 2,  // --dtype
    LESSON_EPS = 4,   // --eps
};

// The command line. tokens, hidden, threads, iterations, ranks are at least 1; eps is not negative.
struct lesson_options {
    size_t tokens;         // rows of the matrix, over all ranks
    size_t hidden;         // elements of a row
    int threads;           // threads of a block, at most 1024
    float eps;             // added to the mean of the squares
    enum lesson_type type; // of the elements
    int iterations;        // the operation is done this often; the last result is checked
    int ranks;             // 0: NTHREADS, or else one for each GPU
    unsigned offers;       // what the command line may set, of enum lesson_offer
    bool processes;        // each rank is a process, not a thread: every lesson's command line
};

// One rank, as its thread sees it.
struct lesson_rank {
    int rank;
    int ranks;
    int device; // rank modulo the number of GPUs
    int gpus;   // of this machine
    const struct lesson_options *options;
};

// What a rank does. True when its results were right, false after a refusal or a wrong result.
typedef bool (*lesson_body)(const struct lesson_rank *self);

// Reads the options (defaults, then NTHREADS, then the command line), runs `body` on one thread, or
// with --processes in one process, for each rank, and returns the exit status of the program: 0
// when every rank returned true, else 1. A rank that ends before its body does ends the others.
int lesson_run(int argc, char **argv, const char *title, const struct lesson_options *defaults,
               lesson_body body);

// Collective over the ranks, like everything below that takes `self` and is not marked otherwise.
// Copies rank 0's bytes to all ranks; at most 256 bytes.
void lesson_broadcast(const struct lesson_rank *self, void *data, size_t bytes);

// True on every rank when `mine` is true on all of them.
bool lesson_all(const struct lesson_rank *self, bool mine);

// As lesson_all; when some rank's `holds` is false, the first such rank prints "REFUSED: rank N: "
// and its text, which says what is missing and what to use instead.
bool lesson_require(const struct lesson_rank *self, bool holds, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Whether the kernel was compiled for this rank's GPU; lesson_require's refusal says how to
// rebuild.
bool lesson_kernel_fits(const struct lesson_rank *self, const void *kernel);

// How many blocks each rank may launch of a kernel whose blocks wait for those of other ranks:
// `wanted`, or fewer, so that those of all ranks on a GPU run at once. A block that had to wait for
// room would never come to its barrier. The same on all ranks. Where not one fits, the program ends
// with a refusal. shared_bytes: dynamic shared memory of a block.
size_t lesson_blocks(const struct lesson_rank *self, const void *kernel, size_t shared_bytes,
                     size_t wanted);

// cudaStreamSynchronize; on a real GPU a kernel that does not end within 20 s ends the program, as
// nothing else would. Not collective.
cudaError_t lesson_wait(const struct lesson_rank *self, cudaStream_t stream);

// The same memory for all ranks, at addresses of their own; NULL on all when there is none. One at
// a time. bytes: as shared.
void *lesson_share(const struct lesson_rank *self, size_t bytes);
void lesson_unshare(const struct lesson_rank *self, void *memory, size_t bytes);

// Prints on rank 0 only. Not collective.
void lesson_say(const struct lesson_rank *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Prints the last line of a lesson: SUCCESS by rank 0 when all ranks were right, FAILED by each
// rank that was not. Returns `right`.
bool lesson_report(const struct lesson_rank *self, bool right);

// The tokens of `rank` when `tokens` are split as evenly as possible: the first tokens % ranks
// ranks have one more. Not collective.
size_t lesson_first_token(size_t tokens, int ranks, int rank);

const char *lesson_type_name(enum lesson_type type);

// Seconds on a clock that never jumps.
double lesson_seconds(void);

// Ends the program when a call fails: what a lesson can do; a library would clean up.
#define CHECK_CUDA(call)                                                                           \
    do {                                                                                           \
        cudaError_t check_error = (call);                                                          \
        if (check_error != cudaSuccess) {                                                          \
            lesson_fail(__FILE__, __LINE__, #call, cudaGetErrorString(check_error), NULL);         \
        }                                                                                          \
    } while (0)

#define CHECK_NCCL(call)                                                                           \
    do {                                                                                           \
        ncclResult_t check_result = (call);                                                        \
        if (check_result != ncclSuccess) {                                                         \
            lesson_fail(__FILE__, __LINE__, #call, ncclGetErrorString(check_result),               \
                        ncclGetLastError(NULL));                                                   \
        }                                                                                          \
    } while (0)

// Says on stderr which call failed, where and why, once in a process, and ends the process at once:
// other ranks' threads may be inside CUDA. explanation: more of the same, or NULL.
void lesson_fail(const char *file, int line, const char *call, const char *error,
                 const char *explanation) __attribute__((noreturn));

#ifdef __cplusplus
}
#endif
#endif

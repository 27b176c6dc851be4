// SPDX-License-Identifier: Apache-2.0
// Options and thread ranks of the lessons (see lesson.h).
#define _GNU_SOURCE
#include "lesson.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { MESSAGE_BYTES = 256, RANKS_MAX = 4096, OPTIONS_MAX = 16 };

// What the rank threads share; each field is written between two barriers.
static pthread_barrier_t meeting;
static unsigned char message[MESSAGE_BYTES];
static bool *votes;

struct thread {
    pthread_t id;
    struct lesson_rank self;
    lesson_body body;
    bool right;
};

const char *lesson_type_name(enum lesson_type type)
{
    static const char *const names[] = {"float", "half", "bf16"};
    return names[type];
}

double lesson_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

size_t lesson_first_token(size_t tokens, int ranks, int rank)
{
    size_t share = tokens / (size_t)ranks;
    size_t extra = tokens % (size_t)ranks;
    return (size_t)rank * share + ((size_t)rank < extra ? (size_t)rank : extra);
}

void lesson_broadcast(const struct lesson_rank *self, void *data, size_t bytes)
{
    if (bytes > sizeof message) {
        fprintf(stderr, "lesson_broadcast: %zu bytes, at most %zu\n", bytes, sizeof message);
        exit(1);
    }
    if (self->rank == 0) {
        memcpy(message, data, bytes);
    }
    pthread_barrier_wait(&meeting);
    memcpy(data, message, bytes);
    pthread_barrier_wait(&meeting);
}

// The first rank that voted no, or -1.
static int first_no(const struct lesson_rank *self, bool mine)
{
    votes[self->rank] = mine;
    pthread_barrier_wait(&meeting);
    int found = -1;
    for (int rank = self->ranks - 1; rank >= 0; rank--) {
        found = votes[rank] ? found : rank;
    }
    pthread_barrier_wait(&meeting);
    return found;
}

bool lesson_all(const struct lesson_rank *self, bool mine)
{
    return first_no(self, mine) < 0;
}

bool lesson_require(const struct lesson_rank *self, bool holds, const char *format, ...)
{
    int first = first_no(self, holds);
    if (first == self->rank) {
        va_list arguments;
        va_start(arguments, format);
        printf("REFUSED: rank %d: ", self->rank);
        vprintf(format, arguments);
        printf("\n");
        (void)fflush(stdout);
        va_end(arguments);
    }
    if (first >= 0) {
        // The caller may end the process: not before it has been said why.
        pthread_barrier_wait(&meeting);
    }
    return first < 0;
}

bool lesson_kernel_fits(const struct lesson_rank *self, const void *kernel)
{
    struct cudaDeviceProp gpu;
    struct cudaFuncAttributes compiled;
    cudaError_t error = cudaGetDeviceProperties(&gpu, self->device);
    if (error == cudaSuccess) {
        error = cudaFuncGetAttributes(&compiled, kernel);
    }
    if (error != cudaSuccess && error != cudaErrorNoKernelImageForDevice) {
        fprintf(stderr, "ask what the kernel was compiled for: %s\n", cudaGetErrorString(error));
        exit(1);
    }
    (void)cudaGetLastError();
    bool fits = error == cudaSuccess && compiled.binaryVersion <= 10 * gpu.major + gpu.minor;
    return lesson_require(self, fits,
                          "GPU %d (%s) has compute capability %d.%d, and this program was compiled "
                          "for another. Build it for this one: make clean; make ARCH=sm_%d%d",
                          self->device, gpu.name, gpu.major, gpu.minor, gpu.major, gpu.minor);
}

void *lesson_share(const struct lesson_rank *self, size_t bytes)
{
    void *memory = self->rank == 0 ? malloc(bytes) : NULL;
    lesson_broadcast(self, &memory, sizeof memory);
    return memory;
}

void lesson_unshare(const struct lesson_rank *self, void *memory)
{
    pthread_barrier_wait(&meeting);
    if (self->rank == 0) {
        free(memory);
    }
}

void lesson_say(const struct lesson_rank *self, const char *format, ...)
{
    if (self->rank == 0) {
        va_list arguments;
        va_start(arguments, format);
        vprintf(format, arguments);
        va_end(arguments);
    }
}

bool lesson_report(const struct lesson_rank *self, bool right)
{
    if (!right) {
        printf("FAILED: Incorrect results detected on rank %d\n", self->rank);
    }
    if (lesson_all(self, right)) {
        lesson_say(self, "SUCCESS: Example completed successfully!\n");
    }
    return right;
}

static void print_help(const char *title, const struct lesson_options *defaults)
{
    printf("%s\nusage: %s [options]\n", title, program_invocation_short_name);
    if (defaults->offers & LESSON_SHAPE) {
        printf("  --tokens N       rows of the matrix (default %zu)\n"
               "  --hidden N       elements of a row (default %zu)\n"
               "  --threads N      threads of a block, 1 to 1024 (default %d)\n",
               defaults->tokens, defaults->hidden, defaults->threads);
    }
    if (defaults->offers & LESSON_TYPE) {
        printf("  --dtype TYPE     float, half or bf16 (default %s)\n",
               lesson_type_name(defaults->type));
    }
    if (defaults->offers & LESSON_SHAPE) {
        printf("  --iterations N   do it N times (default %d)\n"
               "  --ranks N        ranks, as threads of this process (default: NTHREADS from the\n"
               "                   environment, or else one for each GPU)\n",
               defaults->iterations);
    }
    if (defaults->offers & LESSON_EPS) {
        printf("  --eps X          added to the mean of the squares (default %g)\n",
               (double)defaults->eps);
    }
    printf("  -h, --help       this text\n");
}

// Reads a whole number between 1 and `most`; ends the program with a message when it is none.
static long long read_number(const char *name, const char *text, long long most)
{
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > most) {
        fprintf(stderr, "%s: \"%s\" is not a whole number from 1 to %lld\n", name, text, most);
        exit(1);
    }
    return value;
}

static float read_eps(const char *text)
{
    char *end = NULL;
    float value = strtof(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < 0) {
        fprintf(stderr, "--eps: \"%s\" is not a number of at least 0\n", text);
        exit(1);
    }
    return value;
}

static enum lesson_type read_type(const char *text)
{
    for (int type = LESSON_FLOAT; type <= LESSON_BF16; type++) {
        if (strcmp(text, lesson_type_name((enum lesson_type)type)) == 0) {
            return (enum lesson_type)type;
        }
    }
    fprintf(stderr, "--dtype: \"%s\" is not float, half or bf16\n", text);
    exit(1);
}

// Those of the options that the lesson offers, for getopt_long.
static void choose_options(unsigned offers, struct option *chosen)
{
    static const struct {
        unsigned offer; // 0: every lesson's
        struct option option;
    } all[] = {{0, {"help", no_argument, NULL, 'h'}},
               {LESSON_SHAPE, {"tokens", required_argument, NULL, 't'}},
               {LESSON_SHAPE, {"hidden", required_argument, NULL, 'w'}},
               {LESSON_SHAPE, {"threads", required_argument, NULL, 'b'}},
               {LESSON_TYPE, {"dtype", required_argument, NULL, 'd'}},
               {LESSON_SHAPE, {"iterations", required_argument, NULL, 'i'}},
               {LESSON_SHAPE, {"ranks", required_argument, NULL, 'r'}},
               {LESSON_EPS, {"eps", required_argument, NULL, 'e'}}};
    _Static_assert(sizeof all / sizeof all[0] < OPTIONS_MAX, "room for the end");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].offer == 0 || (all[i].offer & offers)) {
            *chosen++ = all[i].option;
        }
    }
    *chosen = (struct option){NULL, 0, NULL, 0};
}

static void read_options(int argc, char **argv, const char *title, struct lesson_options *options)
{
    struct option offered[OPTIONS_MAX];
    const struct lesson_options defaults = *options;
    choose_options(options->offers, offered);
    int letter = 0, word = optind; // which of argv is read
    for (; (letter = getopt_long(argc, argv, "+:h", offered, NULL)) != -1; word = optind) {
        switch (letter) {
        case 't':
            options->tokens = (size_t)read_number("--tokens", optarg, 1LL << 40);
            break;
        case 'w':
            options->hidden = (size_t)read_number("--hidden", optarg, 1LL << 32);
            break;
        case 'b':
            options->threads = (int)read_number("--threads", optarg, 1024);
            break;
        case 'i':
            options->iterations = (int)read_number("--iterations", optarg, 1000000);
            break;
        case 'r':
            options->ranks = (int)read_number("--ranks", optarg, RANKS_MAX);
            break;
        case 'd':
            options->type = read_type(optarg);
            break;
        case 'e':
            options->eps = read_eps(optarg);
            break;
        case 'h':
            print_help(title, &defaults);
            exit(0);
        default:
            fprintf(stderr, "%s: %s; see --help\n", argv[word],
                    letter == ':' ? "a value is missing" : "no option of this lesson");
            exit(1);
        }
    }
    // Sizes in bytes, of several such matrices, must be numbers as well.
    size_t elements = 0;
    if (__builtin_mul_overflow(options->tokens, options->hidden, &elements) ||
        elements > SIZE_MAX / 64) {
        fprintf(stderr, "--tokens %zu times --hidden %zu is beyond what can be counted\n",
                options->tokens, options->hidden);
        exit(1);
    }
    if (optind < argc) {
        fprintf(stderr, "unexpected argument \"%s\"; see --help\n", argv[optind]);
        exit(1);
    }
}

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    thread->right = thread->body(&thread->self);
    return NULL;
}

// No GPU, or none that can be used: what to do about it.
static void refuse_machine(cudaError_t error)
{
#ifdef VGPU_CUDA_RUNTIME_H // tutticc's header: the GPUs are virtual already
    const char *advice = "VGPU_MACHINE says which virtual ones there are; unset it for eight.";
#else
    const char *advice = "To run on virtual ones, build this with tutticc.";
#endif
    bool none = error == cudaSuccess || error == cudaErrorNoDevice;
    printf("REFUSED: %s (%s).%s%s\n", none ? "there is no GPU" : "the GPUs cannot be used",
           cudaGetErrorString(error), none ? " " : "", none ? advice : "");
}

int lesson_run(int argc, char **argv, const char *title, const struct lesson_options *defaults,
               lesson_body body)
{
    struct lesson_options options = *defaults;
    read_options(argc, argv, title, &options);
    int gpus = 0;
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error != cudaSuccess || gpus == 0) {
        refuse_machine(error);
        return 1;
    }
    const char *nthreads = getenv("NTHREADS");
    if (options.ranks == 0) {
        options.ranks = nthreads ? (int)read_number("NTHREADS", nthreads, RANKS_MAX) : gpus;
    }
    struct thread *threads = calloc((size_t)options.ranks, sizeof *threads);
    votes = calloc((size_t)options.ranks, sizeof *votes);
    if (!threads || !votes || pthread_barrier_init(&meeting, NULL, (unsigned)options.ranks) != 0) {
        fprintf(stderr, "out of memory for %d ranks\n", options.ranks);
        return 1;
    }
    printf("%s\n", title);
    for (int rank = 0; rank < options.ranks; rank++) {
        threads[rank].self = (struct lesson_rank){rank, options.ranks, rank % gpus, &options};
        threads[rank].body = body;
        int failure = pthread_create(&threads[rank].id, NULL, thread_main, &threads[rank]);
        if (failure) {
            fprintf(stderr, "start a thread for rank %d: %s\n", rank, strerror(failure));
            exit(1);
        }
    }
    bool right = true;
    for (int rank = 0; rank < options.ranks; rank++) {
        pthread_join(threads[rank].id, NULL);
        right = threads[rank].right && right;
    }
    pthread_barrier_destroy(&meeting);
    free(votes);
    free(threads);
    return right ? 0 : 1;
}

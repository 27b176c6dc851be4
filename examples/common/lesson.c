// SPDX-License-Identifier: Apache-2.0
// Options and ranks of the lessons (see lesson.h).
#define _GNU_SOURCE
#include "lesson.h"
#include "lesson_mpi.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MESSAGE_BYTES = 256, RANKS_MAX = 4096, OPTIONS_MAX = 16, THREADS_OF_A_GPU = 16 };

// What the ranks share, threads or processes; each field is written between two barriers.
static struct shared {
    pthread_barrier_t meeting;
    unsigned char message[MESSAGE_BYTES];
    cudaError_t error; // of asking for the GPUs
    int gpus;
    struct {
        size_t told;
        bool ended; // its body has returned
        bool right;
    } rank[RANKS_MAX];
} * shared;
static int shared_file; // lesson_share's memory; without a name

struct thread {
    pthread_t id;
    struct lesson_rank self;
    lesson_body body;
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

void lesson_fail(const char *file, int line, const char *call, const char *error,
                 const char *explanation)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_mutex_lock(&once); // for good
    fprintf(stderr, "%s:%d: %s: %s%s%s\n", file, line, call, error, explanation ? ": " : "",
            explanation ? explanation : "");
    (void)fflush(stdout);
    _exit(1);
}

size_t lesson_first_token(size_t tokens, int ranks, int rank)
{
    size_t share = tokens / (size_t)ranks;
    size_t extra = tokens % (size_t)ranks;
    return (size_t)rank * share + ((size_t)rank < extra ? (size_t)rank : extra);
}

void lesson_broadcast(const struct lesson_rank *self, void *data, size_t bytes)
{
    if (bytes > MESSAGE_BYTES) {
        fprintf(stderr, "lesson_broadcast: %zu bytes, at most %d\n", bytes, MESSAGE_BYTES);
        exit(1);
    }
    if (self->rank == 0) {
        memcpy(shared->message, data, bytes);
    }
    pthread_barrier_wait(&shared->meeting);
    memcpy(data, shared->message, bytes);
    pthread_barrier_wait(&shared->meeting);
}

// The smallest of all ranks' numbers; *rank_out: the first rank that has it.
static size_t least(const struct lesson_rank *self, size_t mine, int *rank_out)
{
    shared->rank[self->rank].told = mine;
    pthread_barrier_wait(&shared->meeting);
    size_t found = mine;
    *rank_out = self->rank;
    for (int rank = self->ranks - 1; rank >= 0; rank--) {
        if (shared->rank[rank].told <= found) {
            found = shared->rank[rank].told;
            *rank_out = rank;
        }
    }
    pthread_barrier_wait(&shared->meeting);
    return found;
}

// The first rank that voted no, or -1.
static int first_no(const struct lesson_rank *self, bool mine)
{
    int first = 0;
    return least(self, mine, &first) == 0 ? first : -1;
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
        pthread_barrier_wait(&shared->meeting);
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

// Ends the program on all ranks when it does not hold.
#define REQUIRE_OR_END(self, holds, ...)                                                           \
    do {                                                                                           \
        if (!lesson_require(self, holds, __VA_ARGS__)) {                                           \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

size_t lesson_blocks(const struct lesson_rank *self, const void *kernel, size_t shared_bytes,
                     size_t wanted)
{
    int threads = self->options->threads;
    int multiprocessors = 0, resident = 0, rank = 0;
    int sharers = (self->ranks + self->gpus - 1) / self->gpus; // of the GPU with the most ranks
    CHECK_CUDA(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, self->device));
    CHECK_CUDA(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes));
    size_t most = (size_t)multiprocessors * (size_t)resident / (size_t)sharers;
    REQUIRE_OR_END(self, most > 0,
                   "%d ranks share GPU %d, which runs %d blocks of %d threads at once: not one for "
                   "each. Use fewer --ranks, or fewer --threads.",
                   sharers, self->device, multiprocessors * resident, threads);
#ifndef VGPU_CUDA_RUNTIME_API_H
    // A GPU takes a process's work from 32 queues, and each thread's streams must have their own.
    REQUIRE_OR_END(self, self->options->processes || sharers <= THREADS_OF_A_GPU,
                   "%d ranks share GPU %d; as threads at most %d may. Use --processes.", sharers,
                   self->device, THREADS_OF_A_GPU);
#endif
    most = least(self, most, &rank);
    return wanted < most ? wanted : most;
}

cudaError_t lesson_wait(const struct lesson_rank *self, cudaStream_t stream)
{
#ifndef VGPU_CUDA_RUNTIME_API_H
    const double limit = 20;
    double start = lesson_seconds();
    while (cudaStreamQuery(stream) == cudaErrorNotReady) {
        if (lesson_seconds() - start > limit) {
            printf(
                "rank %d: the kernel has not ended after %.0f s. A GPU does not tell why; virtual "
                "ones do, with VGPU_CHECK=1.\n",
                self->rank, limit);
            (void)fflush(stdout);
            _exit(1); // what waits for the GPU, as exit's handlers may, would never end
        }
    }
#endif
    (void)self;
    return cudaStreamSynchronize(stream);
}

void *lesson_share(const struct lesson_rank *self, size_t bytes)
{
    bool has_size = self->rank > 0 || ftruncate(shared_file, (off_t)bytes) == 0;
    if (!lesson_all(self, has_size)) {
        return NULL;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared_file, 0);
    if (lesson_all(self, memory != MAP_FAILED)) {
        return memory;
    }
    if (memory != MAP_FAILED) {
        (void)munmap(memory, bytes);
    }
    return NULL;
}

void lesson_unshare(const struct lesson_rank *self, void *memory, size_t bytes)
{
    (void)munmap(memory, bytes);
    lesson_all(self, true); // the next one begins with none of this
    if (self->rank == 0 && ftruncate(shared_file, 0) != 0) {
        fprintf(stderr, "empty the memory that the ranks share: %s\n", strerror(errno));
        exit(1);
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
               "  --ranks N        ranks (default: NTHREADS, or else one for each GPU)\n",
               defaults->iterations);
    }
    printf("  --processes      ranks are processes, not threads\n");
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
               {0, {"processes", no_argument, NULL, 'p'}},
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
        case 'p':
            options->processes = true;
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

// One rank, from beginning to end.
static void run_rank(const struct lesson_rank *self, lesson_body body)
{
    shared->rank[self->rank].right = body(self);
    shared->rank[self->rank].ended = true;
}

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    run_rank(&thread->self, thread->body);
    return NULL;
}

static void run_threads(const struct lesson_options *options, int gpus, lesson_body body)
{
    struct thread *threads = calloc((size_t)options->ranks, sizeof *threads);
    if (!threads) {
        fprintf(stderr, "out of memory for %d ranks\n", options->ranks);
        exit(1);
    }
    for (int rank = 0; rank < options->ranks; rank++) {
        threads[rank].self = (struct lesson_rank){rank, options->ranks, rank % gpus, gpus, options};
        threads[rank].body = body;
        int failure = pthread_create(&threads[rank].id, NULL, thread_main, &threads[rank]);
        if (failure) {
            fprintf(stderr, "start a thread for rank %d: %s\n", rank, strerror(failure));
            exit(1);
        }
    }
    for (int rank = 0; rank < options->ranks; rank++) {
        pthread_join(threads[rank].id, NULL);
    }
    free(threads);
}

// A process of its own for `rank`; it ends with this one. CUDA cannot be used on both sides of a
// fork, so the process that comes here must not have called it.
static pid_t start_process(const struct lesson_options *options, int gpus, lesson_body body,
                           int rank)
{
    pid_t parent = getpid();
    pid_t process = fork();
    if (process == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1); // it has ended meanwhile
        }
        struct lesson_rank self = {rank, options->ranks, rank % gpus, gpus, options};
        run_rank(&self, body);
        exit(shared->rank[rank].right ? 0 : 1);
    }
    if (process < 0) {
        fprintf(stderr, "start a process for rank %d: %s\n", rank, strerror(errno));
    }
    return process;
}

// Waits for one of them to end; the next to wait for is then one less. False where its rank had not
// come to the end of its body, but, for example, to a CHECK_NCCL that failed.
static bool one_ends_well(const struct lesson_options *options, pid_t *process)
{
    int status = 0, rank = 0;
    pid_t ended = wait(&status);
    while (rank < options->ranks && process[rank] != ended) {
        rank++;
    }
    if (rank == options->ranks) {
        return false;
    }
    process[rank] = 0;
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "rank %d: ended by a signal: %s\n", rank, strsignal(WTERMSIG(status)));
    }
    return shared->rank[rank].ended;
}

static void run_processes(const struct lesson_options *options, int gpus, lesson_body body)
{
    pid_t *process = calloc((size_t)options->ranks, sizeof *process);
    bool good = process != NULL;
    (void)fflush(stdout);
    (void)setvbuf(stdout, NULL, _IOLBF, 0); // lines of several processes: in the order of printing
    for (int rank = 0; rank < options->ranks && good; rank++) {
        process[rank] = start_process(options, gpus, body, rank);
        good = process[rank] > 0;
    }
    for (int left = options->ranks; left > 0 && good; left--) {
        good = one_ends_well(options, process);
    }
    // The others would wait for ever for one that has ended early.
    for (int rank = 0; rank < options->ranks && process && !good; rank++) {
        if (process[rank] > 0) {
            (void)kill(process[rank], SIGKILL);
            (void)waitpid(process[rank], NULL, 0);
        }
    }
    free(process);
}

// Where ranks are processes, a process asks that ends before they begin.
static void count_gpus(bool processes)
{
    pid_t asker = processes ? fork() : 0;
    if (asker == 0) {
        shared->error = cudaGetDeviceCount(&shared->gpus);
    }
    if (processes && asker == 0) {
        _exit(0);
    }
    if (asker < 0 || (asker > 0 && waitpid(asker, NULL, 0) != asker)) {
        fprintf(stderr, "start a process: %s\n", strerror(errno));
        exit(1);
    }
}

// No GPU, or none that can be used: what to do about it.
static void refuse_machine(cudaError_t error)
{
#ifdef VGPU_CUDA_RUNTIME_API_H // tutticc's header: the GPUs are virtual already
    const char *advice = "VGPU_MACHINE says which virtual ones there are; unset it for eight.";
#else
    const char *advice = "To run on virtual ones, build this with tutticc.";
#endif
    bool none = error == cudaSuccess || error == cudaErrorNoDevice;
    printf("REFUSED: %s (%s).%s%s\n", none ? "there is no GPU" : "the GPUs cannot be used",
           cudaGetErrorString(error), none ? " " : "", none ? advice : "");
}

// What the ranks share, without the barrier, whose size is not known yet.
static void open_shared(void)
{
    void *memory =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared_file = memfd_create("lesson", MFD_CLOEXEC);
    if (memory == MAP_FAILED || shared_file < 0) {
        fprintf(stderr, "memory for the ranks to share: %s\n", strerror(errno));
        exit(1);
    }
    shared = memory;
}

static bool open_barrier(int ranks)
{
    pthread_barrierattr_t attributes;
    return pthread_barrierattr_init(&attributes) == 0 &&
           pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
           pthread_barrier_init(&shared->meeting, &attributes, (unsigned)ranks) == 0;
}

// The same with one rank, which MPI has started with all others.
static int run_mpi_rank(const char *title, struct lesson_options *options, lesson_body body)
{
    struct lesson_rank self = {.rank = lesson_mpi_begin(&options->ranks, RANKS_MAX)};
    shared = lesson_mpi_share(sizeof *shared, &shared_file);
    cudaError_t error = cudaGetDeviceCount(&self.gpus);
    if (error != cudaSuccess || self.gpus == 0) {
        refuse_machine(error);
        exit(1);
    }
    if (self.rank == 0 && open_barrier(options->ranks)) {
        printf("%s\n", title);
    }
    lesson_mpi_meet();
    self =
        (struct lesson_rank){self.rank, options->ranks, self.rank % self.gpus, self.gpus, options};
    run_rank(&self, body);
    bool right = shared->rank[self.rank].right;
    lesson_mpi_end();
    return right ? 0 : 1;
}

int lesson_run(int argc, char **argv, const char *title, const struct lesson_options *defaults,
               lesson_body body)
{
    struct lesson_options options = *defaults;
    read_options(argc, argv, title, &options);
    if (lesson_mpi_begin != NULL) {
        return run_mpi_rank(title, &options, body);
    }
    open_shared();
    count_gpus(options.processes);
    int gpus = shared->gpus;
    if (shared->error != cudaSuccess || gpus == 0) {
        refuse_machine(shared->error);
        return 1;
    }
    const char *nthreads = getenv("NTHREADS");
    if (options.ranks == 0) {
        options.ranks = nthreads ? (int)read_number("NTHREADS", nthreads, RANKS_MAX) : gpus;
    }
    if (!open_barrier(options.ranks)) {
        fprintf(stderr, "out of memory for %d ranks\n", options.ranks);
        return 1;
    }
    printf("%s\n", title);
    (options.processes ? run_processes : run_threads)(&options, gpus, body);
    bool right = true;
    for (int rank = 0; rank < options.ranks; rank++) {
        right = shared->rank[rank].ended && shared->rank[rank].right && right;
    }
    (void)close(shared_file);
    (void)munmap(shared, sizeof *shared);
    return right ? 0 : 1;
}

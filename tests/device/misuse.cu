// The checking mode, VGPU_CHECK=1: each misuse is planted in a program of its own (this one, run
// again), and what the program prints is compared: who, where, which window, which line.
// SPDX-License-Identifier: Apache-2.0
#include "misuse_kernels.cuh"
#include "ranks_of_devices.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

// ---- Cases --------------------------------------------------------------------------------------

enum : unsigned {
    MULTIMEM = 1,       // ask for lsaMultimem
    DEREGISTERED = 2,   // the window is gone when the kernel starts
    ONLY_RANK_0 = 4,    // rank 1 does not launch
    PROCESSES = 8,      // ranks are processes
    HOST_MAY_HELP = 16, // a thread of the host sleeps, then raises in.word
    SOON = 32,          // VGPU_CHECK_SECONDS=1
    BY_SIGNAL = 64,     // found by a signal, which is the address sanitizer's where there is one
    BY_ASAN = 128,      // found by that alone: the program ends, its report is looked at
    COOPERATIVE = 256,  // a cooperative launch
    ALONE = 512,        // no communicator, one launch
    QUIET = 1024,       // nothing is said
    ONCE_EACH = 2048,   // said once for each rank
};

struct misuse {
    const char *name;
    void (*kernel)(kernel_input);
    unsigned blocks, threads, flags;
    cudaError_t error; // of rank 1, or of rank 0 where only it launches
    // All of these must be printed; "@text" stands for the place of the source line that ends in
    // "// text".
    const char *parts[12];
};

static const misuse MISUSES[] = {
    {"pointer function beyond the end",
     forms_a_pointer_beyond,
     1,
     32,
     0,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1): kernel forms_a_pointer_beyond",
      "block (0,0,0): thread (3,0,0)", "window 1 of rank 0 has 5000 bytes, offset 5004",
      "at @forms beyond"}},
    {"store beyond the end",
     stores_beyond,
     1,
     32,
     BY_SIGNAL,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1): kernel stores_beyond", "thread (2,0,0)", "(a store)",
      "offset 8192, beyond the end of rank 0's copy of window 1 (base 0x", "5000 bytes)",
      "at @stores beyond in store_far", "called from @calls the store in "}},
    {"one byte beyond the end",
     stores_one_byte_beyond,
     1,
     32,
     BY_ASAN,
     cudaSuccess,
     {"AddressSanitizer: use-after-poison", "WRITE of size 1", "@stores beyond\n", "@one byte\n",
      "rank 1, device 1 (physical 1): kernel stores_one_byte_beyond",
      "block (0,0,0): thread (2,0,0): the error above: offset 5000, beyond the end of rank 0's "
      "copy "
      "of window 1"}},
    {"load before the start",
     loads_before,
     1,
     1,
     BY_SIGNAL,
     cudaSuccess,
     {"rank 0, device 0 (physical 0): kernel loads_before", "thread (0,0,0)", "(a load)",
      "16 bytes before the start of rank 1's copy of window 1", "at @before"}},
    {"window used after its end",
     uses_a_gone_window,
     1,
     1,
     DEREGISTERED | BY_SIGNAL,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1)", "window 1 of rank 1 was deregistered", "at @gone window"}},
    {"handle used after its window's end",
     uses_a_gone_window,
     1,
     1,
     DEREGISTERED | BY_ASAN,
     cudaSuccess,
     {"AddressSanitizer: use-after-poison", "@gone window\n",
      "the error above: the handle of window 1 of rank ", ", which has been deregistered"}},
    {"pointer used after its window's end",
     uses_a_gone_pointer,
     1,
     1,
     DEREGISTERED | BY_SIGNAL,
     cudaErrorIllegalAddress,
     {"device 1 (physical 1)",
      "offset 16 in rank 1's copy of window 1, which has been deregistered", "at @gone pointer"}},
    {"plain access to a multimem address",
     stores_plainly,
     1,
     1,
     MULTIMEM | BY_SIGNAL,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1): kernel stores_plainly", "an ordinary access (a store)",
      "only multimem instructions may use it", "offset 64 in the multimem view of window 1",
      "at @plain store"}},
    {"multimem access beyond the end",
     multimem_beyond,
     1,
     1,
     MULTIMEM,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1): kernel multimem_beyond", "multimem access to 4 bytes",
      "offset 5000, beyond the end of the multimem view of window 1", "at @red beyond"}},
    {"multimem pointer without lsaMultimem",
     no_multimem_pointer,
     1,
     1,
     0,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1)",
      "window 1 of rank 1: the multimem handle is empty; ask for lsaMultimem", "at @no multimem"}},
    {"multimem barrier without lsaMultimem",
     no_multimem_barrier,
     1,
     32,
     0,
     cudaErrorInvalidValue,
     {"rank 1, device 1 (physical 1)", "LSA barrier 0 of rank 1: multimem was asked for",
      "lsaMultimem", "at @multimem barrier"}},
    {"one barrier index for two blocks",
     one_index_for_two,
     2,
     32,
     0,
     cudaErrorInvalidValue,
     {"LSA barrier 1 of rank", "is used by block (", "at once: opened by thread (0,0,0) of kernel",
      "at @two blocks"}},
    {"one barrier index for blocks that come in turn",
     one_index_in_turn,
     3,
     32,
     ONCE_EACH,
     cudaSuccess,
     {"rank 1, device 1 (physical 1): kernel one_index_in_turn",
      "warning: LSA barrier 1 of rank 0 is used by block (0,0,0), which opened it at @in turn and "
      "has closed it, and now by block (1,0,0) of the same launch at @in turn: on a GPU",
      "warning: LSA barrier 1 of rank 1 is used by block (0,0,0)"}},
    {"one barrier index for blocks of a cooperative launch",
     one_index_in_turn,
     3,
     32,
     COOPERATIVE | QUIET,
     cudaSuccess,
     {}},
    {"barrier index not below lsaBarrierCount",
     index_too_high,
     1,
     32,
     0,
     cudaErrorInvalidValue,
     {"rank 1, device 1 (physical 1)", "LSA barrier 4 of rank 1: only 4 barriers were asked for",
      "at @high"}},
    {"__syncthreads on two lines",
     two_lines,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"rank 0, device 0 (physical 0): kernel two_lines",
      "divergent barrier: 8 threads of the block wait at", "__syncthreads at @first line",
      "came to __syncthreads at @second line"}},
    {"a group's sync on two lines",
     two_lines_of_a_group,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"divergent barrier: 31 threads", "at @group, second", "at @group, first"}},
    {"a group's sync on two lines, without a communicator",
     two_lines_of_a_group,
     1,
     32,
     ALONE | ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"divergent barrier: 31 threads of the block wait at __syncthreads at @group, second",
      "came to __syncthreads at @group, first"}},
    {"the end of a barrier's session and another line",
     the_end_of_a_session,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"divergent barrier: 1 thread of the block waits at __syncthreads at @not the end (the first",
      "came to __syncthreads at @the end (destructor of ncclLsaBarrierSession): all threads",
      "at @the end (destructor of ncclLsaBarrierSession) in the_end_of_a_session"}},
    {"a kernel that is a template",
     is_a_template<float>,
     1,
     32,
     0,
     cudaErrorIllegalAddress,
     {"rank 1, device 1 (physical 1): kernel is_a_template<float> (",
      "at @of a template in is_a_template<float>\n"}},
    {"a thread_block's sync on two lines",
     two_lines_of_a_thread_block,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"divergent barrier: 5 threads", "at @block, second", "at @block, first"}},
    {"a barrier instruction on two lines",
     two_lines_of_ptx,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"divergent barrier: 6 threads", "at @instruction, second", "at @instruction, first"}},
    {"threads that wait elsewhere",
     waits_elsewhere,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchFailure,
     {"rank 0, device 0 (physical 0): kernel waits_elsewhere",
      "divergent barriers: the block cannot go on",
      "threads 0-3 wait at @in the warp: in the warp for mask 0x0000001f",
      "threads 4-31 wait at @others: at __syncthreads"}},
    {"different barrier indices",
     different_indices,
     1,
     32,
     0,
     cudaErrorLaunchTimeout,
     {"deadlock", "rank 0, device 0 (physical 0): kernel different_indices",
      "thread 0 waits at @different: at LSA barrier 0 of rank 0, round 1",
      "rank 1 never came to it; block (0,0,0) of its kernel different_indices is at LSA "
      "barrier 1, round 1, at @different",
      "thread 0 waits at @different: at LSA barrier 1 of rank 1, round 1",
      "threads 1-31 wait at @different: at __syncthreads"}},
    {"a rank that leaves early",
     rank_1_once_less,
     1,
     4,
     0,
     cudaSuccess,
     {"deadlock", "thread 0 waits at @once less: at LSA barrier 2 of rank 0, round 3",
      "rank 1 came to it for 2 rounds, last at @once less; no kernel runs on device 1 "
      "(physical 1); the last one "
      "there, rank_1_once_less, has ended"}},
    {"a rank that only opens",
     rank_1_only_opens,
     1,
     1,
     0,
     cudaErrorLaunchTimeout,
     {"deadlock", "thread 0 waits at @waits alone: at LSA barrier 3 of rank 0, round 2",
      "rank 1 came to it for 1 round, last at @comes once; block (0,0,0) of its kernel "
      "rank_1_only_opens is at LSA barrier 2, round 0, at @only opens"}},
    {"a rank that opens but never comes",
     rank_1_never_comes,
     1,
     1,
     0,
     cudaErrorLaunchTimeout,
     {"deadlock", "thread 0 waits at @alone: at LSA barrier 2 of rank 0, round 1",
      "rank 1 never came to it (opened it at @opens only)"}},
    {"a rank that does not launch",
     different_indices,
     1,
     32,
     ONLY_RANK_0,
     cudaErrorLaunchTimeout,
     {"deadlock", "rank 1 never came to it; no kernel has been launched on device 1 (physical 1)"}},
    {"a flag that nobody raises",
     flag_of_nobody,
     1,
     1,
     ONLY_RANK_0,
     cudaErrorLaunchTimeout,
     {"deadlock", "thread 0 waits at @flag of nobody: in a loop that reads memory"}},
    {"a flag that a thread of the host raises late",
     counts_while_it_waits,
     1,
     1,
     ONLY_RANK_0 | HOST_MAY_HELP | SOON,
     cudaSuccess,
     {"these blocks have been waiting for ",
      "thread 0 waits at @counts: in a loop that reads memory", "the kernels go on"}},
    {"a rank of another process that comes late",
     different_indices,
     1,
     32,
     ONLY_RANK_0 | PROCESSES | SOON,
     cudaErrorLaunchTimeout,
     {"these blocks have been waiting for ", "LSA barrier 0 of rank 0, round 1",
      "rank 1 has not arrived; it is in another process", "another process may yet end this"}},
};
enum { MISUSE_COUNT = sizeof MISUSES / sizeof MISUSES[0] };

// ---- The planted program ------------------------------------------------------------------------

static const misuse &planted(void)
{
    const char *number = getenv("MISUSE");
    return MISUSES[number != nullptr ? atoi(number) : 0];
}

static void pause_ms(int milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000l};
    nanosleep(&time, nullptr);
}

static void *raise_late(void *word)
{
    pause_ms(2500);
    *static_cast<volatile unsigned *>(word) = 1;
    return nullptr;
}

static pthread_barrier_t both;

// A plain barrier, so that nobody of the host can end what the kernels wait for.
static void wait_for_all(device_rank &me)
{
    if (planted().flags & PROCESSES) {
        meet(me);
    } else {
        pthread_barrier_wait(&both);
    }
}

// Launches the planted kernel; the error that it ends with goes to stdout.
static void run_planted(device_rank &me)
{
    const misuse &what = planted();
    test_window window;
    kernel_input in = {};
    ncclDevCommRequirements needs = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
    needs.lsaBarrierCount = BARRIERS;
    needs.lsaMultimem = (what.flags & MULTIMEM) != 0;
    if (!open_window(me, WINDOW_BYTES, &window) ||
        !EXPECT_OK(ncclDevCommCreate(me.comm, &needs, &in.comm))) {
        return;
    }
    in.window = window.handle;
    void *local = nullptr;
    EXPECT_OK(ncclGetLsaDevicePointer(window.handle, 0, me.rank, &local));
    in.local = static_cast<char *>(local);
    EXPECT_CUDA(cudaMalloc((void **)&in.word, 16));
    EXPECT_CUDA(cudaMemset(in.word, 0, 16));
    if (what.flags & DEREGISTERED) {
        wait_for_all(me);
        EXPECT_OK(ncclCommWindowDeregister(me.comm, window.handle));
        wait_for_all(me);
    }
    pthread_t helper;
    if (what.flags & HOST_MAY_HELP && me.rank == 0) {
        EXPECT_EQ(pthread_create(&helper, nullptr, raise_late, in.word), 0);
    }
    cudaError_t error = cudaSuccess;
    if (me.rank == 0 || !(what.flags & ONLY_RANK_0)) {
        if (what.flags & COOPERATIVE) {
            void *arguments[] = {&in};
            EXPECT_CUDA(cudaLaunchCooperativeKernel((const void *)what.kernel, what.blocks,
                                                    what.threads, arguments, 0, me.stream));
        } else {
            what.kernel<<<what.blocks, what.threads, 0, me.stream>>>(in);
        }
        if (what.flags & PROCESSES) {
            pause_ms(2500); // for the warning
            EXPECT_OK(ncclCommAbort(me.comm));
            EXPECT_CUDA(cudaStreamSynchronize(me.stream));
            error = cudaErrorLaunchTimeout; // was warned of
        } else {
            error = cudaStreamSynchronize(me.stream);
        }
    }
    printf("rank %d: %s\n", me.rank, cudaGetErrorName(error));
    fflush(stdout);
    wait_for_all(me);
    _exit(expect_failures() != 0);
}

// Only a kernel.
static void run_alone(void)
{
    const misuse &what = planted();
    kernel_input in = {};
    EXPECT_CUDA(cudaMalloc((void **)&in.word, 16));
    EXPECT_CUDA(cudaMemset(in.word, 0, 16));
    what.kernel<<<what.blocks, what.threads>>>(in);
    printf("rank 0: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

static void run_two_threads(void)
{
    ncclUniqueId id;
    EXPECT_OK(ncclGetUniqueId(&id));
    pthread_barrier_init(&both, nullptr, 2);
    rank_thread ranks[2] = {{0, 2, id, run_planted, nullptr}, {1, 2, id, run_planted, nullptr}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(pthread_create(&thread[i], nullptr, rank_thread_main, &ranks[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], nullptr);
    }
}

// ---- Judging it ---------------------------------------------------------------------------------

static char source[65536];

// "misuse_kernels.cuh:12" for the line that ends in "// mark".
static void name_line(const char *mark, size_t length, char *out, size_t bytes)
{
    int line = 1;
    for (const char *at = source; *at; at++) {
        line += *at == '\n';
        if (strncmp(at, "// ", 3) == 0 && strncmp(at + 3, mark, length) == 0 &&
            at[3 + length] == '\n') {
            snprintf(out, bytes, "misuse_kernels.cuh:%d", line);
            return;
        }
    }
    snprintf(out, bytes, "no line ends in // %.*s", (int)length, mark);
}

// The part with the places that it names.
static void write_out(const char *part, char *out, size_t bytes)
{
    static const char *const ENDS[] = {"\n", " in ",  ": at ", ": in ", ";",
                                       " (", " and ", ": on ", ")"};
    const char *at = strchr(part, '@');
    if (at == nullptr) {
        snprintf(out, bytes, "%s", part);
        return;
    }
    size_t length = strlen(at + 1);
    for (const char *end : ENDS) {
        const char *found = strstr(at + 1, end);
        if (found != nullptr && (size_t)(found - at - 1) < length) {
            length = (size_t)(found - at - 1);
        }
    }
    char line[96];
    name_line(at + 1, length, line, sizeof line);
    snprintf(out, bytes, "%.*s%s%s", (int)(at - part), part, line, at + 1 + length);
}

struct child {
    pid_t process;
    int output;
};

static child start(int number)
{
    const misuse &what = MISUSES[number];
    char text[16];
    snprintf(text, sizeof text, "%d", number);
    setenv("MISUSE", text, 1);
    setenv("VGPU_CHECK", "1", 1);

    setenv("VGPU_CHECK_SECONDS", what.flags & SOON ? "1" : "10", 1);
    char path[] = "/tmp/tutti-misuse-XXXXXX";
    child started = {0, mkstemp(path)};
    unlink(path);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, started.output, 1);
    posix_spawn_file_actions_adddup2(&actions, started.output, 2);
    char name[] = "misuse";
    char *arguments[] = {name, nullptr};
    EXPECT_EQ(
        posix_spawn(&started.process, "/proc/self/exe", &actions, nullptr, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    unsetenv("MISUSE");
    return started;
}

static int count_reports(const char *text)
{
    int reports = 0;
    for (const char *at = strstr(text, "vgpu: "); at != nullptr; at = strstr(at + 1, "vgpu: ")) {
        reports++;
    }
    return reports;
}

static void judge(int number, const child &started)
{
    static char text[32768];
    const misuse &what = MISUSES[number];
    int status = 0;
    EXPECT_EQ(waitpid(started.process, &status, 0), started.process);
    ssize_t length = pread(started.output, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = 0;
    close(started.output);
    bool good = EXPECT(WIFEXITED(status));
    int reports = count_reports(text);
    if (what.flags & (QUIET | ONCE_EACH)) {
        good &= EXPECT_EQ(reports, what.flags & QUIET ? 0 : 2);
    } else {
        good &= EXPECT(reports >= 1);
    }
    if (!(what.flags & BY_ASAN)) {
        char expected[512];
        snprintf(expected, sizeof expected, "rank %d: %s\n", what.flags & ONLY_RANK_0 ? 0 : 1,
                 cudaGetErrorName(what.error));
        good &= EXPECT_CONTAINS(text, expected);
        good &= EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    for (int i = 0; i < 12 && what.parts[i] != nullptr; i++) {
        char part[512], whole[512];
        write_out(what.parts[i], part, sizeof part);
        while (strchr(part, '@') != nullptr) {
            write_out(part, whole, sizeof whole);
            memcpy(part, whole, sizeof part);
        }
        good &= EXPECT_CONTAINS(text, part);
    }
    if (!good) {
        printf("---- %s:\n%s----\n", what.name, text);
    }
}

// Whether this build finds it.
static bool is_for_this_build(const misuse &what)
{
#ifdef __SANITIZE_ADDRESS__
    return !(what.flags & BY_SIGNAL);
#else
    return !(what.flags & BY_ASAN);
#endif
}

static void each_misuse_is_reported(void)
{
    enum { AT_ONCE = 6 };
    child running[MISUSE_COUNT];
    int number[MISUSE_COUNT];
    int count = 0;
    for (int i = 0; i < MISUSE_COUNT; i++) {
        if (is_for_this_build(MISUSES[i])) {
            number[count++] = i;
        }
    }
    for (int i = 0; i < count + AT_ONCE; i++) {
        if (i >= AT_ONCE) {
            judge(number[i - AT_ONCE], running[i - AT_ONCE]);
        }
        if (i < count) {
            running[i] = start(number[i]);
        }
    }
}

int main(void)
{
    if (getenv("MISUSE") != nullptr) {
        if (planted().flags & ALONE) {
            run_alone();
        } else if (planted().flags & PROCESSES) {
            run_ranks(2, as_rank<run_planted>, 30);
        } else {
            run_two_threads();
        }
        return expect_failures() != 0;
    }
#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer's own thread could end any wait\n");
    return 77;
#endif
    char folder[] = __FILE__;
    *strrchr(folder, '/') = 0;
    EXPECT_EQ(chdir(folder), 0); // reports name files as seen from here
    int file = open("misuse_kernels.cuh", O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, source, sizeof source - 1) : -1;
    if (!EXPECT(length > 0)) {
        return 1;
    }
    close(file);
    RUN(each_misuse_is_reported);
    return expect_result();
}

// Who else could end a wait of kernels: threads of the host, signal handlers, other processes.
//
// A host thread cannot while it says that it waits for the kernels, or sleeps in a futex that only
// this process's threads wake. Kernels that read memory in a loop wait for whoever writes it, so a
// mapping shared with other processes, a fork and any signal handler count too.
// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "pool.h"

#include "vgpu/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uint64_t HOST_WAIT_NS = 250000000; // what a thread says of itself counts for so long

// A host thread that says what it does. In the list from its first word to the process's end.
struct host_thread {
    struct host_thread *next;
    pid_t id;
    atomic_bool serves;
    atomic_ullong waited_ns; // when it last said that it waits
};

static _Atomic(struct host_thread *) host_threads;
static __thread struct host_thread *this_thread;

static struct host_thread *know_this_thread(void)
{
    if (!this_thread && vgpu_checking) {
        struct host_thread *thread = calloc(1, sizeof(*thread));
        if (thread) {
            thread->id = (pid_t)syscall(SYS_gettid);
            thread->next = atomic_load(&host_threads);
            while (!atomic_compare_exchange_weak(&host_threads, &thread->next, thread)) {
            }
            this_thread = thread;
        }
    }
    return this_thread;
}

void vgpuCheckHostWaits(void)
{
    struct host_thread *thread = vgpu_checking ? know_this_thread() : NULL;
    if (thread) {
        atomic_store_explicit(&thread->waited_ns, vgpu_now_ns(), memory_order_relaxed);
    }
}

void vgpuCheckServiceThread(void)
{
    struct host_thread *thread = vgpu_checking ? know_this_thread() : NULL;
    if (thread) {
        atomic_store(&thread->serves, true);
    }
}

static bool has_said_so(pid_t id, uint64_t now)
{
    for (const struct host_thread *t = atomic_load(&host_threads); t; t = t->next) {
        if (t->id == id) {
            uint64_t waited = atomic_load_explicit(&t->waited_ns, memory_order_relaxed);
            return atomic_load(&t->serves) || now - waited < HOST_WAIT_NS || waited > now;
        }
    }
    return false;
}

static bool read_file(const char *path, char *text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, bytes - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

// ---- What wakes and writes from outside ---------------------------------------------------------

// Calls `look` with each line of /proc/self/maps until it returns true; *found_out: whether it did.
// False: they cannot be read.
static bool look_at_mappings(bool (*look)(const char *line, uintptr_t context), uintptr_t context,
                             bool *found_out)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t bytes = 0;
    *found_out = false;
    while (maps && !*found_out && getline(&line, &bytes, maps) > 0) {
        *found_out = look(line, context);
    }
    free(line);
    if (maps) {
        (void)fclose(maps);
    }
    return maps != NULL;
}

// Memory that other processes may have too. Not the runtime's own, whose sharing is announced
// (vgpu_check_outsiders, and forks), nor the caches that the C library maps.
static bool is_shared(const char *line, uintptr_t context)
{
    char access[5] = "";
    (void)context;
    return sscanf(line, "%*x-%*x %4s", access) == 1 && access[3] == 's' &&
           !strstr(line, " /memfd:vgpu-") && !strstr(line, " /usr/");
}

static bool is_private_at(const char *line, uintptr_t address)
{
    uintptr_t first = 0;
    uintptr_t end = 0;
    char access[5] = "";
    // NOLINTNEXTLINE(cert-err34-c): the kernel wrote the numbers
    return sscanf(line, "%lx-%lx %4s", &first, &end, access) == 3 && access[3] == 'p' &&
           address >= first && address < end;
}

// Whether the program has a handler for a signal that others, or a timer, may send. asks_to_end:
// those count by which a terminal or a system asks a program to end.
static bool handles_signals(bool asks_to_end)
{
    static const int met[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    static const int ends[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    for (int number = 1; number <= SIGRTMAX; number++) {
        struct sigaction action;
        bool counts = sigaction(number, NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
                      action.sa_handler != SIG_IGN;
        for (size_t i = 0; counts && i < sizeof(met) / sizeof(met[0]); i++) {
            counts = number != met[i];
        }
        for (size_t i = 0; counts && !asks_to_end && i < sizeof(ends) / sizeof(ends[0]); i++) {
            counts = number != ends[i];
        }
        if (counts) {
            return true;
        }
    }
    return false;
}

static atomic_bool forked; // another process has this one's memory

static void note_fork(void)
{
    atomic_store(&forked, true);
}

__attribute__((constructor)) static void watch_forks(void)
{
    (void)pthread_atfork(NULL, note_fork, NULL);
}

bool vgpu_check_strangers_write(void)
{
    bool shares = false;
    bool known = look_at_mappings(is_shared, 0, &shares);
    return !known || shares || atomic_load(&forked) || handles_signals(true);
}

// Whether a thread sleeps in a futex until another thread of this process wakes it.
static bool sleeps_for_good(const char *id)
{
    char path[64];
    char text[256];
    (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/syscall", id);
    if (!read_file(path, text, sizeof(text))) {
        return false;
    }
    long call = -1;
    unsigned long argument[4] = {0};
    // NOLINTNEXTLINE(cert-err34-c): the kernel wrote the numbers
    int read = sscanf(text, "%ld 0x%lx 0x%lx 0x%lx 0x%lx", &call, &argument[0], &argument[1],
                      &argument[2], &argument[3]);
    if (read != 5 || call != SYS_futex || argument[3] != 0) { // of the four, [3] is a time limit
        return false;
    }
    // What is not said to be private to the process, as in pthread_join, may yet be.
    bool found = (argument[1] & FUTEX_PRIVATE_FLAG) != 0;
    return found || (look_at_mappings(is_private_at, argument[0], &found) && found);
}

bool vgpu_check_host_is_stuck(uint64_t now)
{
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) {
        return false;
    }
    bool stuck = true;
    bool asleep = !handles_signals(false); // a handler may wake who sleeps
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is this thread's alone
    for (struct dirent *task = readdir(tasks); task && stuck; task = readdir(tasks)) {
        char path[64];
        char name[32];
        if (task->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/proc/self/task/%.20s/comm", task->d_name);
        bool known = read_file(path, name, sizeof(name)) && strncmp(name, "vgpu-", 5) == 0;
        bool worker = known && (name[5] < 'a' || strncmp(name + 5, "watch", 5) == 0);
        pid_t id = (pid_t)strtol(task->d_name, NULL, 10);
        stuck = worker || has_said_so(id, now) || (asleep && sleeps_for_good(task->d_name));
    }
    (void)closedir(tasks);
    return stuck;
}

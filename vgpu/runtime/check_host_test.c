// Who could end a wait of kernels: host threads in several sleeps, handlers, shared memory, forks.
// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "expect.h"
#include "pool.h"
#include "stopwatch.h"

#include "vgpu/check.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

bool vgpu_checking = true; // the runtime's

static void pause_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

// The test's own thread waits for kernels, as far as the runtime is told.
static bool is_stuck(void)
{
    vgpuCheckHostWaits();
    return vgpu_check_host_is_stuck(vgpu_now_ns());
}

// Whether that comes true: threads need a while until they sleep.
static bool becomes_stuck(void)
{
    struct stopwatch watch = stopwatch_start();
    while (!is_stuck() && stopwatch_is_within(&watch, 2)) {
        pause_ms(10);
    }
    return is_stuck();
}

static void *wait_for(void *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
    return NULL;
}

static void *wait_for_thread(void *thread)
{
    (void)pthread_join(*(pthread_t *)thread, NULL);
    return NULL;
}

static void *sleep_a_while(void *seconds)
{
    pause_ms(1000L * *(int *)seconds);
    return NULL;
}

static void threads_that_this_process_wakes_are_stuck(void)
{
    sem_t semaphore;
    pthread_t sleeper;
    pthread_t joiner;
    (void)sem_init(&semaphore, 0, 0);
    EXPECT_EQ(pthread_create(&sleeper, NULL, wait_for, &semaphore), 0);
    EXPECT(becomes_stuck());
    EXPECT_EQ(pthread_create(&joiner, NULL, wait_for_thread, &sleeper), 0);
    EXPECT(becomes_stuck());
    (void)sem_post(&semaphore);
    (void)pthread_join(joiner, NULL);
    int seconds = 1;
    EXPECT_EQ(pthread_create(&sleeper, NULL, sleep_a_while, &seconds), 0);
    pause_ms(200);
    EXPECT(!is_stuck());
    (void)pthread_join(sleeper, NULL);
}

static void another_process_may_wake_a_thread(void)
{
    sem_t *semaphore = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_t sleeper;
    EXPECT(semaphore != MAP_FAILED);
    (void)sem_init(semaphore, 1, 0);
    EXPECT_EQ(pthread_create(&sleeper, NULL, wait_for, semaphore), 0);
    pause_ms(200);
    EXPECT(!is_stuck());
    (void)sem_post(semaphore);
    (void)pthread_join(sleeper, NULL);
    (void)munmap(semaphore, 4096);
}

static void do_nothing(int number)
{
    (void)number;
}

static void a_handler_may_wake_a_thread_or_write(void)
{
    sem_t semaphore;
    pthread_t sleeper;
    (void)sem_init(&semaphore, 0, 0);
    EXPECT_EQ(pthread_create(&sleeper, NULL, wait_for, &semaphore), 0);
    EXPECT(becomes_stuck());
    EXPECT(!vgpu_check_strangers_write());
    (void)signal(SIGALRM, do_nothing);
    EXPECT(!is_stuck());
    EXPECT(vgpu_check_strangers_write());
    (void)signal(SIGALRM, SIG_DFL);
    (void)signal(SIGINT, do_nothing); // stops a kernel, perhaps, but helps no barrier
    EXPECT(is_stuck());
    EXPECT(vgpu_check_strangers_write());
    (void)signal(SIGINT, SIG_IGN);
    EXPECT(!vgpu_check_strangers_write());
    (void)sem_post(&semaphore);
    (void)pthread_join(sleeper, NULL);
}

static void shared_memory_may_be_written(void)
{
    EXPECT(!vgpu_check_strangers_write());
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT(vgpu_check_strangers_write());
    (void)munmap(memory, 4096);
    int file = memfd_create("vgpu-device-memory", MFD_CLOEXEC); // known to the runtime
    EXPECT_EQ(ftruncate(file, 4096), 0);
    memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT(!vgpu_check_strangers_write());
    (void)munmap(memory, 4096);
    (void)close(file);
}

static void a_child_may_write_what_was_there(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    (void)waitpid(child, NULL, 0);
    EXPECT(vgpu_check_strangers_write());
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    SKIP("the sanitizer's own thread never sleeps for good");
    return 77;
#endif
    RUN(threads_that_this_process_wakes_are_stuck);
    RUN(another_process_may_wake_a_thread);
    RUN(a_handler_may_wake_a_thread_or_write);
    RUN(shared_memory_may_be_written);
    RUN(a_child_may_write_what_was_there);
    return expect_result();
}

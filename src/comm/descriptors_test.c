// Descriptors between processes: ranks as processes, several ranks per process, rounds, signals, no
// descriptor free, a process that
// dies, and processes in different network namespaces. SPDX-License-Identifier: Apache-2.0
#include "comm/comm.h"
#include "comm/local.h"
#include "comm/meet.h"

#include "expect.h"
#include "member.h"
#include "ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 10 };

static int make_file(int rank, int round)
{
    int content[2] = {rank, round};
    int fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(pwrite(fd, content, sizeof content, 0), (ssize_t)sizeof content);
    return fd;
}

// One pass; ranks whose number divides by `skip` give nothing (0: all give).
static bool pass_once(ncclComm_t comm, int round, int skip)
{
    int received[64];
    bool gives = skip == 0 || comm->rank % skip != 0;
    int fd = gives ? make_file(comm->rank, round) : -1;
    ncclResult_t result = tt_local_pass_descriptors(comm, fd, received);
    if (fd >= 0) {
        close(fd);
    }
    if (!EXPECT_OK(result)) {
        return false;
    }
    for (int r = 0; r < comm->nranks; r++) {
        bool given = skip == 0 || r % skip != 0;
        bool expected = tt_local_rank(comm) == 0 && given &&
                        comm->peers[r].process != comm->peers[comm->rank].process;
        EXPECT_EQ(received[r] >= 0, expected);
        if (received[r] >= 0) {
            int content[2] = {-1, -1};
            EXPECT_EQ(pread(received[r], content, sizeof content, 0), (ssize_t)sizeof content);
            EXPECT_EQ(content[0], r);
            EXPECT_EQ(content[1], round);
            EXPECT_EQ(fcntl(received[r], F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
            close(received[r]);
        }
    }
    return true;
}

static void pass_rounds(ncclComm_t comm, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        if (!pass_once(comm, round, round % 3)) {
            return;
        }
    }
}

static void pass_as_process(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    if (EXPECT_OK(ncclCommInitRank(&comm, size, id, rank))) {
        pass_rounds(comm, ROUNDS);
        EXPECT_OK(ncclCommDestroy(comm));
    }
}

static void processes(void)
{
    for (int n = 1; n <= 6; n++) {
        run_ranks(n, pass_as_process, 60);
    }
}

struct rank_thread {
    ncclUniqueId id;
    int rank, size;
    pthread_t thread;
};

static void *pass_as_thread(void *argument)
{
    struct rank_thread *m = argument;
    ncclComm_t comm = NULL;
    expect_set_rank(m->rank);
    if (EXPECT_OK(ncclCommInitRank(&comm, m->size, m->id, m->rank))) {
        pass_rounds(comm, ROUNDS);
        EXPECT_OK(ncclCommDestroy(comm));
    }
    return NULL;
}

// Ranks of a process are not neighbours: rank r is in process r mod processes.
static void pass_as_threads(int process, int processes_count)
{
    struct rank_thread member[THREADS];
    ncclUniqueId id = share_id(process);
    for (int i = 0; i < THREADS; i++) {
        member[i] = (struct rank_thread){
            .id = id, .rank = process + i * processes_count, .size = THREADS * processes_count};
        pthread_create(&member[i].thread, NULL, pass_as_thread, &member[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(member[i].thread, NULL);
    }
}

static void threads_in_processes(void)
{
    run_ranks(2, pass_as_threads, 60);
    run_ranks(4, pass_as_threads, 60);
}

static void threads_alone(void)
{
    run_thread_ranks(4, pass_as_process, 30);
}

static void on_alarm(int number)
{
    (void)number;
}

static void pass_under_signals(int rank, int size)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    if (EXPECT_OK(ncclCommInitRank(&comm, size, id, rank))) {
        pass_rounds(comm, 200);
        EXPECT_OK(ncclCommDestroy(comm));
    }
    ranks_barrier();
    setitimer(ITIMER_REAL, &never, NULL);
}

static void signals(void)
{
    run_ranks(3, pass_under_signals, 60);
}

// Rank 1 has no descriptor free: all learn it.
static void pass_without_room(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    int received[8], fd = make_file(rank, 0);
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    EXPECT_EQ(pass_once(comm, 0, 0), true); // connections are there
    if (rank == 1) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        int highest = dup(fd);
        close(highest);
        limit.rlim_cur = (rlim_t)highest; // no number free below it
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    ranks_barrier();
    ncclResult_t result = tt_local_pass_descriptors(comm, fd, received);
    if (rank == 1) {
        EXPECT_EQ(result, ncclSystemError);
        EXPECT_CONTAINS(ncclGetLastError(comm), "ulimit -n");
    } else if (result != ncclSuccess) { // it may have finished before
        EXPECT_EQ(result, ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(comm), "rank 1 failed");
    }
    EXPECT(tt_meet_barrier(comm) != ncclSuccess);
    EXPECT_CONTAINS(ncclGetLastError(comm), "rank 1");
    ranks_barrier();
    EXPECT_OK(ncclCommAbort(comm));
    close(fd);
}

static void no_room(void)
{
    run_ranks(3, pass_without_room, 30);
}

static void die_before_passing(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    int received[8], fd = make_file(rank, 0);
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    if (rank != 1) {
        EXPECT_EQ(tt_local_pass_descriptors(comm, fd, received), ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(comm), "rank 1 (process");
        EXPECT_OK(ncclCommAbort(comm));
        if (rank == 0) {
            poll(NULL, 0, 500); // its root still serves
        }
        return;
    }
    poll(NULL, 0, 300);
    _exit(9);
}

static void dead_process(void)
{
    int statuses[3];
    run_ranks_status(3, die_before_passing, 30, statuses);
    for (int r = 0; r < 3; r++) {
        EXPECT_EQ(WIFEXITED(statuses[r]) ? WEXITSTATUS(statuses[r]) : -1, r == 1 ? 9 : 0);
    }
}

static int count_paths(void)
{
    int count = 0;
    DIR *directory = opendir("/tmp");
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        count += strncmp(entry->d_name, "tutti-", 6) == 0 && strlen(entry->d_name) == 6 + 32;
    }
    closedir(directory);
    return count;
}

static void pass_across_namespaces(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    if (rank == 1) { // connections that are there stay
        EXPECT_EQ(unshare(CLONE_NEWNET), 0);
    }
    pass_rounds(comm, 3);
    EXPECT_OK(ncclCommDestroy(comm));
}

static void namespaces(void)
{
    pid_t child = fork();
    if (child == 0) {
        _exit(unshare(CLONE_NEWNET) == 0 ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    if (status != 0) {
        SKIP("no right to make a network namespace");
        return;
    }
    int before = count_paths();
    run_ranks(3, pass_across_namespaces, 30);
    EXPECT_EQ(count_paths(), before);
}

// A rank of the process that gives up frees the others.
static void give_up(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    if (rank == 1) {
        poll(NULL, 0, 200);
        EXPECT_OK(ncclCommAbort(comm));
    } else {
        EXPECT(tt_local_barrier(comm) != ncclSuccess);
        EXPECT_OK(ncclCommAbort(comm));
    }
}

static void local_abort(void)
{
    run_thread_ranks(3, give_up, 30);
}

static void exchange_pointers(int rank, int size)
{
    ncclUniqueId id = share_id(rank);
    ncclComm_t comm = NULL;
    void *const *all;
    EXPECT_OK(ncclCommInitRank(&comm, size, id, rank));
    EXPECT_EQ(tt_local_size(comm), size);
    EXPECT_EQ(tt_local_rank(comm), rank);
    for (int round = 0; round < 500; round++) {
        int mine[2] = {rank, round};
        EXPECT_OK(tt_local_exchange(comm, mine, &all));
        for (int i = 0; i < size; i++) {
            EXPECT_EQ(((const int *)all[i])[0], tt_local_world_rank(comm, i));
            EXPECT_EQ(((const int *)all[i])[1], round);
        }
        EXPECT_OK(tt_local_barrier(comm)); // `mine` goes out of scope
    }
    EXPECT_OK(ncclCommDestroy(comm));
}

static void local_exchange(void)
{
    run_thread_ranks(4, exchange_pointers, 60);
}

// ---- Late greetings -----------------------------------------------------------------------------

static _Atomic int connects_late; // ms that this process's next connection to a rank takes

// In place of the system's: between a connection and its greeting the process gets no processor.
int connect(int fd, const struct sockaddr *where, socklen_t length)
{
    int result = (int)syscall(SYS_connect, fd, where, length);
    if (result == 0 && where->sa_family == AF_UNIX) {
        poll(NULL, 0, atomic_exchange(&connects_late, 0));
    }
    return result;
}

static void greet_late(int rank, int size)
{
    struct member m;
    connects_late = rank == 0 ? 3000 : 0;
    if (member_join(&m, rank, size)) {
        EXPECT_EQ(connects_late, 0);
        pass_once(m.comm, 1, 0);
        member_leave(&m);
    }
}

static void late_greetings(void)
{
    run_ranks(2, greet_late, 60);
}

int main(void)
{
    RUN(processes);
    RUN(threads_in_processes);
    RUN(threads_alone);
    RUN(signals);
    RUN(no_room);
    RUN(dead_process);
    RUN(namespaces);
    RUN(local_abort);
    RUN(local_exchange);
    RUN(late_greetings);
    return expect_result();
}

// The id by a file: rank 0 writes it beside, locks it and renames it into place, so that whoever
// sees it sees all of it. The kernel drops the lock with the process: a file without one is left
// over from a job that was killed, and nobody believes it.
// See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "launch/exchange.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_PAUSE_US = 500, // between two looks for the file; doubles
    LAST_PAUSE_US = 16000,
    TELL_S = 10,         // after so long a wait it is told for whom
    OTHER_JOB_MS = 1000, // for the job before to end
    LEFT_OVER_S = 60,    // nobody takes so long from a file to its lock
};

static bool is_private(const struct stat *status, mode_t type)
{
    return (status->st_mode & S_IFMT) == type && status->st_uid == geteuid() &&
           (status->st_mode & 077) == 0;
}

// Whether the process that wrote the file is alive: it alone has it locked for itself. File systems
// without locks are believed.
static bool is_locked(int fd)
{
    return flock(fd, LOCK_SH | LOCK_NB) != 0;
}

// Removes a file that a killed job has left. Another one that comes to its name meanwhile is put
// back: who looks for that looks again.
static void remove_left_over(int folder, const char *name)
{
    struct stat status, moved;
    char away[64];
    (void)snprintf(away, sizeof away, "left-over.%d.%d", (int)getpid(), (int)gettid());
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &status) == 0 && is_private(&status, S_IFREG) &&
        status.st_mtime < time(NULL) - LEFT_OVER_S && !is_locked(fd) &&
        renameat(folder, name, folder, away) == 0) {
        bool is_other = fstatat(folder, away, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
                        moved.st_ino != status.st_ino;
        if (!is_other || renameat(folder, away, folder, name) != 0) {
            (void)unlinkat(folder, away, 0);
        }
    }
    close(fd);
}

static void remove_left_overs(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] != '.') {
            remove_left_over(dirfd(folder), entry->d_name);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
}

ncclResult_t tt_file_of_job(const struct tt_place *place, char *path, size_t bytes)
{
    char folder[64], hex[33];
    unsigned char hash[16];
    struct stat status;
    (void)snprintf(folder, sizeof folder, "/tmp/tutti-%u", (unsigned)geteuid());
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return tt_fail(ncclSystemError, "rank %d: making %s, for the ranks to meet: %m",
                       place->rank, folder);
    }
    if (lstat(folder, &status) != 0 || !is_private(&status, S_IFDIR)) {
        return tt_fail(ncclSystemError,
                       "rank %d: %s must be a folder of user %u that nobody else can enter (mode "
                       "0700): remove it, or set TUTTI_RENDEZVOUS=file:PATH",
                       place->rank, folder, (unsigned)geteuid());
    }
    if (place->rank == 0) {
        remove_left_overs(folder);
    }
    crypto_generichash(hash, sizeof hash, (const unsigned char *)place->job, strlen(place->job),
                       NULL, 0);
    (void)sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    (void)snprintf(path, bytes, "%s/%s-%s", folder, place->source, hex);
    return ncclSuccess;
}

// A file at the path that another running job has put there.
static bool is_taken(const char *path)
{
    bool taken = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        taken = is_locked(fd) && errno == EWOULDBLOCK; // shared: a look is not mistaken for a job
        close(fd);
    }
    return taken;
}

static ncclResult_t refuse_taken(const char *path)
{
    uint64_t end_ns = tt_now_ns() + OTHER_JOB_MS * UINT64_C(1000000);
    while (is_taken(path)) {
        if (tt_now_ns() > end_ns) {
            return tt_fail(ncclInvalidUsage,
                           "rank 0: %s is the meeting place of a job that runs: each job needs its "
                           "own (TUTTI_RENDEZVOUS)",
                           path);
        }
        usleep(LAST_PAUSE_US);
    }
    return ncclSuccess;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    ssize_t written = write(fd, data, bytes);
    if (written >= 0 && (size_t)written != bytes) {
        errno = ENOSPC;
    }
    return written == (ssize_t)bytes;
}

ncclResult_t tt_file_put(struct tt_exchange *exchange, const char *path)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.%d.%d", path, (int)getpid(), exchange->turn) >=
            (int)sizeof beside ||
        snprintf(exchange->path, sizeof exchange->path, "%s", path) >= (int)sizeof exchange->path) {
        return tt_fail(ncclInvalidArgument, "TUTTI_RENDEZVOUS: the file's name is too long");
    }
    TRY(refuse_taken(path));
    (void)unlink(beside); // of a process that had this number
    int fd = open(beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return tt_fail(ncclSystemError, "rank 0: writing %s, for the ranks to meet: %m", beside);
    }
    bool locks = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (!locks || !write_all(fd, &exchange->offer, sizeof exchange->offer) ||
        rename(beside, path) != 0) {
        ncclResult_t result =
            tt_fail(ncclSystemError, "rank 0: writing %s, for the ranks to meet: %m", path);
        (void)unlink(beside);
        close(fd);
        return result;
    }
    exchange->fd = fd;
    return ncclSuccess;
}

void tt_file_end(struct tt_exchange *exchange)
{
    if (exchange->fd >= 0) {
        (void)unlink(exchange->path);
        close(exchange->fd);
        exchange->fd = -1;
    }
}

// Whether there is a file to believe, then in *out.
static bool look(const char *path, struct tt_offer *out)
{
    struct stat status;
    bool good = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    if (fstat(fd, &status) == 0 && is_private(&status, S_IFREG) &&
        read(fd, out, sizeof *out) == (ssize_t)sizeof *out && out->magic == TT_OFFER_MAGIC) {
        good = is_locked(fd);
    }
    close(fd);
    return good;
}

ncclResult_t tt_file_take(const struct tt_place *place, const char *path, struct tt_offer *out)
{
    uint64_t start_ns = tt_now_ns();
    uint64_t limit_s = (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    useconds_t pause_us = FIRST_PAUSE_US;
    bool told = false;
    while (!look(path, out)) {
        uint64_t waited_s = (tt_now_ns() - start_ns) / UINT64_C(1000000000);
        if (waited_s >= limit_s) {
            return tt_fail(ncclSystemError,
                           "rank %d: rank 0 has not come to %s within %llu s (TUTTI_INIT_TIMEOUT): "
                           "it has not started, or sees another file there",
                           place->rank, path, (unsigned long long)waited_s);
        }
        if (waited_s >= TELL_S && !told) {
            tt_say("rank %d: waiting for rank 0 to come to %s", place->rank, path);
            told = true;
        }
        tt_wait_told();
        usleep(pause_us);
        pause_us = pause_us * 2 < LAST_PAUSE_US ? pause_us * 2 : LAST_PAUSE_US;
    }
    return ncclSuccess;
}

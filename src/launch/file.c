// The id by a file: rank 0 writes it beside, locks it and renames it into place, so that whoever
// sees it sees all of it. Only what a rank 0 has left is replaced, whatever else is there stays.
// The kernel drops the lock with the process: a file without one is left over from a job that was
// killed, and nobody believes it.
// See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "base/wait.h"
#include "launch/exchange.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdarg.h>
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
    CLOCKS_S = 5,        // by which those of two machines may differ
    WHY_BYTES = 160,
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

// ---- What is at a meeting place -----------------------------------------------------------------

struct finding {
    enum {
        NOTHING,     // and a file can come there
        UNREACHABLE, // nothing, and none can come
        SOMETHING,   // that no job put there: never touched
        LEFT_OVER,   // of a job whose process has ended
        FAILED,      // left by a job whose start has failed
        OF_A_JOB,    // that runs
        UNLOCKED,    // one of these two: the file system has no locks
    } kind;
    char what[WHY_BYTES]; // all but NOTHING: in words
    int fd;               // of an offer: open
    struct stat status;
    struct tt_offer offer; // of the last four
};

static void describe(struct finding *out, int kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void describe(struct finding *out, int kind, const char *format, ...)
{
    va_list arguments;
    out->kind = kind;
    va_start(arguments, format);
    (void)vsnprintf(out->what, sizeof out->what, format, arguments);
    va_end(arguments);
}

// Why nothing is there: the folder may be missing, too.
static void describe_absence(const char *path, struct finding *out)
{
    char folder[PATH_MAX] = ".";
    int error = errno;
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        (void)snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path),
                       path);
    }
    if (error == ENOENT && access(folder, F_OK) != 0) {
        describe(out, UNREACHABLE, "its folder is not there: %m");
    } else {
        errno = error;
        describe(out, error == ENOENT ? NOTHING : UNREACHABLE, "it cannot be looked at: %m");
    }
}

static const char *name_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a folder";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

// Whether it can be an offer, as far as its owner, mode and size tell.
static bool looks_like_offer(struct finding *out)
{
    const struct stat *status = &out->status;
    if (!S_ISREG(status->st_mode)) {
        describe(out, SOMETHING, "%s is there", name_type(status->st_mode));
    } else if (status->st_uid != geteuid()) {
        describe(out, SOMETHING, "a file of user %u is there", (unsigned)status->st_uid);
    } else if (!is_private(status, S_IFREG)) {
        describe(out, SOMETHING, "a file of mode %04o is there, must be 0600",
                 (unsigned)status->st_mode & 07777);
    } else if (status->st_size != (off_t)sizeof out->offer) {
        describe(out, SOMETHING,
                 "a file of %lld bytes is there that no rank 0 of this version wrote",
                 (long long)status->st_size);
    } else {
        return true;
    }
    return false;
}

// Looks at the path, and opens it only where it is a file: to open a device or a FIFO does
// something. release() follows.
static void inspect(const char *path, struct finding *out)
{
    out->fd = -1;
    if (lstat(path, &out->status) != 0) {
        describe_absence(path, out);
        return;
    }
    if (!looks_like_offer(out)) {
        return;
    }
    out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (out->fd < 0 || fstat(out->fd, &out->status) != 0) {
        describe_absence(path, out);
    } else if (looks_like_offer(out)) {
        ssize_t got = read(out->fd, &out->offer, sizeof out->offer);
        if (got < 0) {
            describe(out, UNREACHABLE, "it cannot be read: %m");
        } else if (got != (ssize_t)sizeof out->offer || out->offer.magic != TT_OFFER_MAGIC) {
            describe(out, SOMETHING, "a file is there that no rank 0 of this version wrote");
        } else if (out->offer.failed_ns != 0) {
            describe(out, FAILED, "the file there tells of an older job");
        } else if (!is_locked(out->fd)) {
            describe(out, LEFT_OVER, "what is there was left by a job that was killed");
        } else {
            describe(out, errno == EWOULDBLOCK ? OF_A_JOB : UNLOCKED, "a job meets there");
        }
    }
}

static void release(struct finding *finding)
{
    if (finding->fd >= 0) {
        close(finding->fd);
        finding->fd = -1;
    }
}

// ---- Taking away and putting there --------------------------------------------------------------

// Puts a file at a path where nothing is; false, with errno (EEXIST: something is). Never replaces.
static bool place_at(int folder, const char *from, const char *to)
{
    if (renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) {
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return false;
    }
    // The file system has no such rename.
    if (linkat(folder, from, folder, to, 0) != 0) {
        return false;
    }
    (void)unlinkat(folder, from, 0);
    return true;
}

// Removes the file that `status` is of, by a name of our own. Another one that comes to its name
// meanwhile is put back: who looks for that looks again.
static void take_away(int folder, const char *name, const char *own, const struct stat *status)
{
    struct stat moved;
    if (renameat(folder, name, folder, own) != 0) {
        return;
    }
    bool is_other = fstatat(folder, own, &moved, AT_SYMLINK_NOFOLLOW) == 0 &&
                    (moved.st_ino != status->st_ino || moved.st_dev != status->st_dev);
    if (is_other) {
        (void)place_at(folder, own, name);
    } else {
        (void)unlinkat(folder, own, 0);
    }
}

// Removes a file that a killed job has left in the folder of jobs.
static void remove_left_over(int folder, const char *name)
{
    struct stat status;
    char own[64];
    (void)snprintf(own, sizeof own, "left-over.%d.%d", (int)getpid(), (int)gettid());
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (fstat(fd, &status) == 0 && is_private(&status, S_IFREG) &&
        status.st_mtime < time(NULL) - LEFT_OVER_S && !is_locked(fd)) {
        take_away(folder, name, own, &status);
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

static bool write_all(int fd, const void *data, size_t bytes)
{
    ssize_t written = write(fd, data, bytes);
    if (written >= 0 && (size_t)written != bytes) {
        errno = ENOSPC;
    }
    return written == (ssize_t)bytes;
}

static ncclResult_t fail_writing(const char *path)
{
    return tt_fail(ncclSystemError, "rank 0: writing %s, for the ranks to meet: %m",
                   tt_quote_path(path).text);
}

// Makes a new file beside the path, of a name that is nobody's; its descriptor, -1 with errno.
static int make_beside(const char *path, char beside[PATH_MAX])
{
    if (snprintf(beside, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return mkostemp(beside, O_CLOEXEC);
}

// Takes away what a job that was killed has left at the path.
static ncclResult_t take_left_over(const char *path, const struct stat *status)
{
    char own[PATH_MAX];
    int fd = make_beside(path, own);
    if (fd < 0) {
        return fail_writing(path);
    }
    close(fd);
    take_away(AT_FDCWD, path, own, status);
    (void)unlink(own); // where there was nothing to take
    return ncclSuccess;
}

// Makes the path free, where what is there may go: a job that runs gets a moment to end.
static ncclResult_t make_room(const char *path, uint64_t end_ns)
{
    struct finding finding;
    ncclResult_t result = ncclSuccess;
    inspect(path, &finding);
    while (finding.kind == OF_A_JOB && tt_now_ns() < end_ns) {
        release(&finding);
        usleep(LAST_PAUSE_US);
        inspect(path, &finding);
    }
    if (finding.kind == OF_A_JOB) {
        result = tt_fail(ncclInvalidUsage,
                         "rank 0: %s is the meeting place of a job that runs: each job needs its "
                         "own (TUTTI_RENDEZVOUS)",
                         tt_quote_path(path).text);
    } else if (finding.kind == SOMETHING) {
        result = tt_fail(ncclInvalidUsage,
                         "rank 0: the ranks cannot meet at %s: %s, and stays: remove it, or "
                         "set TUTTI_RENDEZVOUS=file:PATH to where nothing is",
                         tt_quote_path(path).text, finding.what);
    } else if (finding.kind == LEFT_OVER || finding.kind == FAILED || finding.kind == UNLOCKED) {
        result = take_left_over(path, &finding.status); // while it is open: its number stays its
    }
    release(&finding);
    return result;
}

// Puts the file beside to its place.
static ncclResult_t put_in_place(const char *beside, const char *path)
{
    uint64_t end_ns = tt_now_ns() + OTHER_JOB_MS * UINT64_C(1000000);
    do {
        TRY(make_room(path, end_ns));
        if (place_at(AT_FDCWD, beside, path)) {
            return ncclSuccess;
        }
    } while (errno == EEXIST && tt_now_ns() < end_ns); // another one was faster
    return fail_writing(path);
}

ncclResult_t tt_file_put(struct tt_exchange *exchange, const char *path)
{
    char beside[PATH_MAX];
    int length = snprintf(exchange->path, sizeof exchange->path, "%s", path);
    if (length >= PATH_MAX - (int)sizeof ".XXXXXX") {
        return tt_fail(ncclInvalidArgument,
                       "TUTTI_RENDEZVOUS: the file's name is too long: %zu bytes, at most %d",
                       strlen(path), PATH_MAX - (int)sizeof ".XXXXXX" - 1);
    }
    int fd = make_beside(path, beside);
    if (fd < 0) {
        return fail_writing(path);
    }
    bool locks = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    ncclResult_t result = locks && write_all(fd, &exchange->offer, sizeof exchange->offer)
                              ? put_in_place(beside, path)
                              : fail_writing(path);
    if (result != ncclSuccess) {
        (void)unlink(beside);
        close(fd);
        return result;
    }
    exchange->fd = fd;
    return ncclSuccess;
}

// Whether what is at the path is still the file that this process has put there.
static bool is_still_ours(const struct tt_exchange *exchange)
{
    struct stat ours, there;
    return fstat(exchange->fd, &ours) == 0 && lstat(exchange->path, &there) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t this_machine(void)
{
    char text[128] = "";
    uint64_t hash = 0;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (got > 0) {
        crypto_generichash((unsigned char *)&hash, sizeof hash, (const unsigned char *)text,
                           (size_t)got, NULL, 0);
    }
    return hash;
}

// The failure instead of the id. Without a lock: the process may end.
static void leave_failure(struct tt_exchange *exchange, ncclResult_t result)
{
    char beside[PATH_MAX];
    struct tt_offer offer = {.magic = TT_OFFER_MAGIC,
                             .result = (int32_t)result,
                             .failed_ns = nanoseconds(CLOCK_REALTIME),
                             .machine = this_machine()};
    (void)snprintf(offer.text, sizeof offer.text, "%s", tt_last_error());
    int fd = make_beside(exchange->path, beside);
    if (fd >= 0 && (!write_all(fd, &offer, sizeof offer) || !is_still_ours(exchange) ||
                    rename(beside, exchange->path) != 0)) {
        (void)unlink(beside);
    }
    if (fd >= 0) {
        close(fd);
    }
}

void tt_file_end(struct tt_exchange *exchange, ncclResult_t result)
{
    if (exchange->fd >= 0) {
        if (result != ncclSuccess) {
            leave_failure(exchange, result);
        }
        if (is_still_ours(exchange)) {
            (void)unlink(exchange->path);
        }
        close(exchange->fd);
        exchange->fd = -1;
    }
}

// ---- The others ---------------------------------------------------------------------------------

// Whether a failure is of this process's job: an older one's is older than the process. Other
// machines have other clocks.
static bool is_of_this_job(const struct tt_offer *offer)
{
    uint64_t second = UINT64_C(1000000000), tick = second / (uint64_t)sysconf(_SC_CLK_TCK);
    uint64_t began_ns = (uint64_t)(tt_process_start(getpid()) + 1) * tick;
    uint64_t ago_ns = nanoseconds(CLOCK_BOOTTIME) - began_ns;
    uint64_t margin_ns = offer->machine == this_machine() ? 0 : CLOCKS_S * second;
    return offer->failed_ns > nanoseconds(CLOCK_REALTIME) - ago_ns + margin_ns;
}

// Whether there is a file to believe, then in *out; else *why says why not.
static bool look(const char *path, struct tt_offer *out, char why[WHY_BYTES])
{
    struct finding finding;
    inspect(path, &finding);
    bool good = finding.kind == OF_A_JOB || finding.kind == UNLOCKED ||
                (finding.kind == FAILED && is_of_this_job(&finding.offer));
    if (good) {
        *out = finding.offer;
    }
    (void)snprintf(why, WHY_BYTES, "%s",
                   finding.kind == NOTHING ? "it has not started, or sees another file there"
                                           : finding.what);
    release(&finding);
    return good;
}

ncclResult_t tt_file_take(const struct tt_place *place, const char *path, struct tt_offer *out)
{
    uint64_t start_ns = tt_now_ns();
    uint64_t limit_s = (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    useconds_t pause_us = FIRST_PAUSE_US;
    bool told = false;
    char why[WHY_BYTES];
    while (!look(path, out, why)) {
        uint64_t waited_s = (tt_now_ns() - start_ns) / UINT64_C(1000000000);
        if (waited_s >= limit_s) {
            return tt_fail(ncclSystemError,
                           "rank %d: rank 0 has not come to %s within %llu s "
                           "(TUTTI_INIT_TIMEOUT): %s",
                           place->rank, tt_quote_path(path).text, (unsigned long long)waited_s,
                           why);
        }
        if (waited_s >= TELL_S && !told) {
            tt_say("rank %d: waiting for rank 0 to come to %s: %s", place->rank,
                   tt_quote_path(path).text, why);
            told = true;
        }
        tt_wait_told();
        usleep(pause_us);
        pause_us = pause_us * 2 < LAST_PAUSE_US ? pause_us * 2 : LAST_PAUSE_US;
    }
    return ncclSuccess;
}

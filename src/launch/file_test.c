// The id by a file: what is believed, and what is not. SPDX-License-Identifier: Apache-2.0
#include "launch/exchange.h"

#include "base/log.h"
#include "expect.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-file-test.XXXXXX";
static char path[80];
static const struct tt_place follower = {.source = "test", .rank = 3, .size = 4};

static void begin(struct tt_exchange *exchange, int number)
{
    *exchange = (struct tt_exchange){.fd = -1, .listener = -1, .wake = -1};
    exchange->offer = (struct tt_offer){.magic = TT_OFFER_MAGIC};
    (void)snprintf(exchange->offer.text, sizeof exchange->offer.text, "offer %d", number);
}

static bool takes(int number)
{
    struct tt_offer offer;
    char text[32];
    (void)snprintf(text, sizeof text, "offer %d", number);
    return EXPECT_OK(tt_file_take(&follower, path, &offer)) && EXPECT_STR(offer.text, text);
}

static void is_not_believed(void)
{
    struct tt_offer offer;
    EXPECT_EQ(tt_file_take(&follower, path, &offer), ncclSystemError);
    EXPECT_CONTAINS(tt_thread_error(), "rank 3: rank 0 has not come to ");
}

static void goes_round(void)
{
    struct tt_exchange exchange;
    struct stat status;
    begin(&exchange, 1);
    if (!EXPECT_OK(tt_file_put(&exchange, path))) {
        return;
    }
    EXPECT(stat(path, &status) == 0 && (status.st_mode & 0777) == 0600);
    takes(1);
    takes(1);
    struct tt_exchange other;
    begin(&other, 2);
    EXPECT_EQ(tt_file_put(&other, path), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_thread_error(), "is the meeting place of a job that runs");
    takes(1);
    tt_file_end(&exchange, ncclSuccess);
    tt_file_end(&exchange, ncclSuccess);
    EXPECT(access(path, F_OK) != 0);
}

static void *put_later(void *argument)
{
    usleep(100000);
    EXPECT_OK(tt_file_put(argument, path));
    return NULL;
}

static void is_waited_for(void)
{
    struct tt_exchange exchange;
    pthread_t thread;
    begin(&exchange, 3);
    if (EXPECT_EQ(pthread_create(&thread, NULL, put_later, &exchange), 0)) {
        takes(3);
        pthread_join(thread, NULL);
        tt_file_end(&exchange, ncclSuccess);
    }
}

// Writes `bytes` of an offer as anybody might, with a lock or without; the descriptor.
static int leave(mode_t mode, size_t bytes, bool locks, uint64_t magic)
{
    struct tt_exchange exchange;
    begin(&exchange, 4);
    exchange.offer.magic = magic;
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    EXPECT(fd >= 0 && fchmod(fd, mode) == 0 && (!locks || flock(fd, LOCK_EX | LOCK_NB) == 0) &&
           write(fd, &exchange.offer, bytes) == (ssize_t)bytes);
    return fd;
}

static void of_others_is_not_believed(void)
{
    const size_t whole = sizeof(struct tt_offer);
    const struct {
        mode_t mode;
        size_t bytes;
        bool locks;
        uint64_t magic;
        const char *why;
    } wrong[] = {{0600, whole, false, TT_OFFER_MAGIC, "was left by a job that was killed"},
                 {0644, whole, true, TT_OFFER_MAGIC, "a file of mode 0644 is there, must be 0600"},
                 {0600, whole - 1, true, TT_OFFER_MAGIC, "bytes is there that no rank 0"},
                 {0600, whole, true, TT_OFFER_MAGIC + 1, "no rank 0 of this version wrote"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int fd = leave(wrong[i].mode, wrong[i].bytes, wrong[i].locks, wrong[i].magic);
        is_not_believed();
        EXPECT_CONTAINS(tt_thread_error(), wrong[i].why);
        close(fd);
    }
    (void)unlink(path);
    EXPECT_EQ(symlink("/etc/hostname", path), 0);
    is_not_believed();
    EXPECT_CONTAINS(tt_thread_error(), "a symbolic link is there");
    (void)unlink(path);
    // The next job takes the place of what a killed one has left.
    struct tt_exchange exchange;
    close(leave(0600, whole, false, TT_OFFER_MAGIC));
    begin(&exchange, 5);
    EXPECT_OK(tt_file_put(&exchange, path));
    takes(5);
    tt_file_end(&exchange, ncclSuccess);
    EXPECT(access(path, F_OK) != 0);
}

// What is at the path is refused, and told, and stays as it is.
static void is_refused(const char *what)
{
    struct tt_exchange exchange;
    struct stat before, after;
    begin(&exchange, 7);
    EXPECT_EQ(lstat(path, &before), 0);
    EXPECT_EQ(tt_file_put(&exchange, path), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_thread_error(), "rank 0: the ranks cannot meet at /tmp/tutti-file-test.");
    EXPECT_CONTAINS(tt_thread_error(), what);
    tt_file_end(&exchange, ncclSuccess);
    EXPECT_EQ(lstat(path, &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_EQ(after.st_mode, before.st_mode);
    EXPECT_EQ(after.st_size, before.st_size);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

// Nobody loses anything by a wrong TUTTI_RENDEZVOUS.
static void of_others_stays(void)
{
    const size_t whole = sizeof(struct tt_offer);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    close(leave(0600, 5, false, TT_OFFER_MAGIC));
    is_refused("a file of 5 bytes is there that no rank 0 of this version wrote");
    close(leave(0600, 0, true, TT_OFFER_MAGIC));
    is_refused("a file of 0 bytes is there");
    close(leave(0644, whole, false, TT_OFFER_MAGIC));
    is_refused("a file of mode 0644 is there, must be 0600");
    close(leave(0600, whole, false, TT_OFFER_MAGIC + 1));
    is_refused("a file is there that no rank 0 of this version wrote");
    (void)unlink(path);
    EXPECT_EQ(symlink("/etc/hostname", path), 0);
    is_refused("a symbolic link is there");
    (void)unlink(path);
    EXPECT_EQ(mkfifo(path, 0600), 0);
    is_refused("a FIFO is there");
    (void)unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    EXPECT_EQ(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    is_refused("a socket is there");
    close(fd);
    (void)unlink(path);
    EXPECT_EQ(mkdir(path, 0700), 0);
    is_refused("a folder is there");
    EXPECT_EQ(rmdir(path), 0);
}

// What has come to the path meanwhile is not removed with the exchange.
static void end_removes_its_own(void)
{
    struct tt_exchange exchange;
    begin(&exchange, 8);
    if (EXPECT_OK(tt_file_put(&exchange, path))) {
        close(leave(0600, 9, false, TT_OFFER_MAGIC));
        tt_file_end(&exchange, ncclSuccess);
        EXPECT_EQ(access(path, F_OK), 0);
        (void)unlink(path);
    }
}

// A rank that comes after the start has failed hears why, from the file that rank 0 leaves, unless
// that is older than the rank's process. The next job replaces it.
static void failure_is_left(void)
{
    struct tt_exchange exchange;
    struct tt_offer offer;
    begin(&exchange, 9);
    usleep(30000); // more than a tick from the process's begin
    if (!EXPECT_OK(tt_file_put(&exchange, path))) {
        return;
    }
    (void)tt_fail(ncclSystemError, "rank 2 has died");
    tt_file_end(&exchange, ncclSystemError);
    EXPECT_OK(tt_file_take(&follower, path, &offer));
    EXPECT_EQ(offer.result, ncclSystemError);
    EXPECT(offer.failed_ns != 0);
    EXPECT_STR(offer.text, "rank 2 has died");
    int fd = open(path, O_RDWR | O_CLOEXEC);
    offer.failed_ns -= UINT64_C(1000000000) * 1000;
    EXPECT_EQ(pwrite(fd, &offer, sizeof offer, 0), sizeof offer);
    close(fd);
    is_not_believed();
    EXPECT_CONTAINS(tt_thread_error(), "the file there tells of an older job");
    begin(&exchange, 10);
    if (EXPECT_OK(tt_file_put(&exchange, path))) {
        takes(10);
        tt_file_end(&exchange, ncclSuccess);
    }
    EXPECT(access(path, F_OK) != 0);
}

// A folder that is not there, or no folder: the others say that, too.
static void has_a_folder(void)
{
    struct tt_offer offer;
    char below[160];
    (void)snprintf(below, sizeof below, "%s/none/id", folder);
    EXPECT_EQ(tt_file_take(&follower, below, &offer), ncclSystemError);
    EXPECT_CONTAINS(tt_thread_error(), "its folder is not there: No such file or directory");
    close(leave(0600, 1, false, TT_OFFER_MAGIC));
    (void)snprintf(below, sizeof below, "%s/id", path);
    EXPECT_EQ(tt_file_take(&follower, below, &offer), ncclSystemError);
    EXPECT_CONTAINS(tt_thread_error(), "it cannot be looked at: Not a directory");
    (void)unlink(path);
}

static void names(void)
{
    char first[PATH_MAX], second[PATH_MAX], start[64];
    struct stat status;
    struct tt_place place = {.source = "slurm", .job = "7.0"};
    struct tt_exchange exchange;
    begin(&exchange, 6);
    EXPECT_OK(tt_file_of_job(&place, first, sizeof first));
    EXPECT_OK(tt_file_of_job(&place, second, sizeof second));
    EXPECT_STR(first, second);
    (void)snprintf(place.job, sizeof place.job, "7.1");
    EXPECT_OK(tt_file_of_job(&place, second, sizeof second));
    EXPECT(strcmp(first, second) != 0);
    (void)snprintf(start, sizeof start, "/tmp/tutti-%u/slurm-", (unsigned)geteuid());
    EXPECT(strncmp(first, start, strlen(start)) == 0);
    *strrchr(first, '/') = 0;
    EXPECT(stat(first, &status) == 0 && (status.st_mode & 0777) == 0700);
    EXPECT_EQ(tt_file_put(&exchange, "/nonexistent/file"), ncclSystemError);
    EXPECT_CONTAINS(tt_thread_error(), "writing /nonexistent/file");
    memset(second, 'y', 1000);
    second[0] = '\n';
    second[1000] = 0;
    EXPECT_EQ(tt_file_put(&exchange, second), ncclSystemError);
    EXPECT_CONTAINS(tt_thread_error(), "writing \\x0ay");
    EXPECT_CONTAINS(tt_thread_error(), "y..., for the ranks to meet: File name too long");
    EXPECT(strlen(tt_thread_error()) < 400);
    memset(second, 'x', sizeof second - 1);
    second[sizeof second - 1] = 0;
    EXPECT_EQ(tt_file_put(&exchange, second), ncclInvalidArgument);
}

// In the folder of a user's jobs what killed ones have left goes with the next job; what is new, or
// of a job that lives, stays.
static void left_overs_go(void)
{
    static const char *const names[] = {"old", "new", "alive"};
    const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    struct tt_place place = {.source = "test", .job = "left overs"};
    char file[3][PATH_MAX], ours[PATH_MAX];
    int fd[3];
    EXPECT_OK(tt_file_of_job(&place, ours, sizeof ours));
    *strrchr(ours, '/') = 0;
    for (int i = 0; i < 3; i++) {
        (void)snprintf(file[i], sizeof file[i], "%.200s/file-test-%d-%s", ours, (int)getpid(),
                       names[i]);
        fd[i] = open(file[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        EXPECT(fd[i] >= 0 && (i == 1 || futimens(fd[i], old) == 0));
    }
    EXPECT_EQ(flock(fd[2], LOCK_EX | LOCK_NB), 0);
    place.rank = 1; // others leave it to rank 0
    EXPECT_OK(tt_file_of_job(&place, ours, sizeof ours));
    EXPECT_EQ(access(file[0], F_OK), 0);
    place.rank = 0;
    EXPECT_OK(tt_file_of_job(&place, ours, sizeof ours));
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(access(file[i], F_OK) == 0, i != 0);
        (void)unlink(file[i]);
        close(fd[i]);
    }
}

int main(void)
{
    setenv("TUTTI_INIT_TIMEOUT", "1", 1);
    if (mkdtemp(folder) == NULL) {
        return 1;
    }
    (void)snprintf(path, sizeof path, "%s/id", folder);
    RUN(goes_round);
    RUN(is_waited_for);
    RUN(of_others_is_not_believed);
    RUN(of_others_stays);
    RUN(end_removes_its_own);
    RUN(failure_is_left);
    RUN(has_a_folder);
    RUN(names);
    RUN(left_overs_go);
    EXPECT_EQ(rmdir(folder), 0); // nothing is left
    return expect_result();
}

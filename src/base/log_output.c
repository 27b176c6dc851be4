// See log_output.h. SPDX-License-Identifier: Apache-2.0
#include "base/log_output.h"

#include "base/file_name.h"
#include "base/quote.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 512, PATIENCE_MS = 1000 };

// Set by tt_output_open, before other threads write.
static char name[PATH_BYTES] = "standard output";
static struct stat opened; // which file the descriptor stands for
static atomic_int descriptor = STDOUT_FILENO;

// False, with errno, where not all of it was taken.
// errno belongs to the thread, and virtual GPU threads that share one take turns: no race.
__attribute__((no_sanitize("thread"))) static bool write_all(int fd, const char *line, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, line, bytes);
        if (n > 0) {
            line += n;
            bytes -= (size_t)n;
            continue;
        }
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        bool waits = n < 0 && errno == EAGAIN && poll(&room, 1, PATIENCE_MS) > 0;
        if (n == 0 || (errno != EINTR && !waits)) {
            errno = n == 0 ? ENOSPC : errno;
            return false;
        }
    }
    return true;
}

__attribute__((no_sanitize("thread"))) void tt_output_error(const char *line, size_t bytes)
{
    int before = errno;
    (void)write_all(STDERR_FILENO, line, bytes); // there is nowhere to say more
    errno = before;
}

// One line on standard error about the file; errno is the reason.
static void complain(const char *what)
{
    char line[PATH_BYTES + 128];
    int length = snprintf(line, sizeof line,
                          "tutti: NCCL_DEBUG_FILE: %s %s: %m; messages go to standard error\n",
                          what, tt_quote(name).text);
    tt_output_error(line, (size_t)length);
}

void tt_output_open(const char *pattern)
{
    if (*pattern == 0 || strcmp(pattern, "/dev/stdout") == 0) {
        return;
    }
    if (strcmp(pattern, "/dev/stderr") == 0) {
        atomic_store(&descriptor, STDERR_FILENO);
        return;
    }
    int fd = -1;
    errno = ENAMETOOLONG;
    if (tt_file_name(pattern, -1, name, sizeof name)) {
        // A pipe with a name that nobody reads is not waited for.
        fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    } else {
        (void)snprintf(name, sizeof name, "%s", tt_quote(pattern).text);
    }
    if (fd < 0 || fstat(fd, &opened) != 0) {
        complain("cannot open");
        fd = STDERR_FILENO;
    }
    atomic_store(&descriptor, fd);
}

// Whether the descriptor still stands for what was opened: programs that become daemons close all,
// and what they open next gets the number.
static bool is_ours(int fd)
{
    struct stat now;
    errno = EBADF;
    return fd <= STDERR_FILENO ||
           (fstat(fd, &now) == 0 && now.st_dev == opened.st_dev && now.st_ino == opened.st_ino);
}

void tt_output_line(const char *line, size_t bytes)
{
    int before = errno;
    int fd = atomic_load(&descriptor);
    if (!is_ours(fd) || !write_all(fd, line, bytes)) {
        int expected = fd;
        if (fd != STDERR_FILENO &&
            atomic_compare_exchange_strong(&descriptor, &expected, STDERR_FILENO)) {
            complain("cannot write");
        }
        tt_output_error(line, bytes);
    }
    errno = before;
}

// Output of tasks, line by line. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { READS_MAX = 64 }; // of one task before the others have their turn

static bool write_all(int fd, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t written = writev(fd, parts, count);
        if (written < 0 && errno == EAGAIN) { // a terminal or pipe that others made so
            (void)poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (written < 0 && errno != EINTR) {
            return false;
        }
        while (count > 0 && written >= (ssize_t)parts->iov_len) {
            written -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (count > 0 && written > 0) {
            parts->iov_base = (char *)parts->iov_base + written;
            parts->iov_len -= (size_t)written;
        }
    }
    return true;
}

// One line with its mark, in one write where the system allows.
static bool write_line(const struct run_output *output, char *line, size_t bytes)
{
    char mark[16], end[] = "\n";
    int length = snprintf(mark, sizeof mark, "[%d] ", output->task);
    struct iovec parts[] = {{mark, (size_t)length}, {line, bytes}, {end, 1}};
    return write_all(output->to, parts, 3);
}

// Writes the whole lines that are there; at the end, or where nothing more fits, the rest too.
static bool write_lines(struct run_output *output, bool at_end)
{
    size_t begin = 0;
    bool good = true;
    for (;;) {
        char *line = output->line + begin;
        size_t rest = output->bytes - begin;
        const char *end = memchr(line, '\n', rest);
        bool is_full = begin == 0 && rest == sizeof output->line;
        if (end == NULL && (rest == 0 || (!at_end && !is_full))) {
            memmove(output->line, line, rest);
            output->bytes = rest;
            return good;
        }
        size_t length = end == NULL ? rest : (size_t)(end - line);
        good = write_line(output, line, length) && good;
        begin += length + (end != NULL);
    }
}

bool run_output_pass(struct run_output *output)
{
    bool good = true;
    for (int reads = 0; output->fd >= 0 && reads < READS_MAX; reads++) {
        ssize_t got =
            read(output->fd, output->line + output->bytes, sizeof output->line - output->bytes);
        output->has_more = got > 0;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return good;
        }
        output->bytes += got > 0 ? (size_t)got : 0;
        good = write_lines(output, got <= 0) && good;
        if (got <= 0) {
            close(output->fd);
            output->fd = -1;
        }
    }
    return good;
}

void run_output_drain(struct run_job *job)
{
    for (int task = 0; task < job->options->tasks; task++) {
        for (int i = 0; i < 2; i++) {
            struct run_output *output = &job->tasks[task].output[i];
            while (run_output_pass(output) && output->has_more) {
            }
            if (output->fd >= 0) { // something else still has the other end
                (void)write_lines(output, true);
                close(output->fd);
                output->fd = -1;
            }
        }
    }
}

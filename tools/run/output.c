// Output of tasks, line by line. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    READS_MAX = 64, // of one task before the others have their turn
    EVENTS = 64,
    TELL_MS = 1000, // for room for a line of tutti-run's own
    STALLED = -1,   // beside 0 and errno: there is no room now
};

static bool has_room(int fd, int patience_ms)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, patience_ms) > 0;
}

static int write_all(int fd, struct iovec *parts, int count)
{
    while (count > 0) {
        ssize_t written = writev(fd, parts, count);
        if (written < 0 && errno == EAGAIN) { // a socket that others made so took a part
            (void)has_room(fd, -1);
        } else if (written < 0 && errno != EINTR) {
            return errno;
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
    return 0;
}

// One line with its mark, in one write where the system allows.
static int write_line(const struct run_output *output, char *line, size_t bytes)
{
    char mark[16], end[] = "\n";
    int length = snprintf(mark, sizeof mark, "[%d] ", output->task);
    struct iovec parts[] = {{mark, (size_t)length}, {line, bytes}, {end, 1}};
    return write_all(output->to, parts, 3);
}

// Writes the whole lines that are there; at the end, or where nothing more fits, the rest too.
static int write_lines(struct run_output *output, bool at_end, int patience_ms)
{
    size_t begin = 0;
    int error = 0;
    for (;;) {
        char *line = output->line + begin;
        size_t rest = output->bytes - begin;
        const char *end = memchr(line, '\n', rest);
        bool is_full = begin == 0 && rest == sizeof output->line;
        bool is_over = end == NULL && (rest == 0 || (!at_end && !is_full));
        bool is_stalled = !is_over && !has_room(output->to, patience_ms);
        if (is_over || is_stalled) {
            memmove(output->line, line, rest);
            output->bytes = rest;
            return error != 0 ? error : is_stalled ? STALLED : 0;
        }
        size_t length = end == NULL ? rest : (size_t)(end - line);
        int wrong = write_line(output, line, length); // what cannot be written is lost
        error = error != 0 ? error : wrong;
        begin += length + (end != NULL);
    }
}

static int pass(struct run_output *output, int patience_ms)
{
    int error = write_lines(output, false, patience_ms); // what the last time had no room
    for (int reads = 0; output->fd >= 0 && error != STALLED && reads < READS_MAX; reads++) {
        ssize_t got =
            read(output->fd, output->line + output->bytes, sizeof output->line - output->bytes);
        output->has_more = got > 0;
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            return error;
        }
        output->bytes += got > 0 ? (size_t)got : 0;
        int wrong = write_lines(output, got <= 0, patience_ms);
        error = wrong == STALLED || error == 0 ? wrong : error;
        if (got <= 0 && wrong != STALLED) {
            close(output->fd);
            output->fd = -1;
        }
    }
    return error;
}

int run_output_pass(struct run_output *output)
{
    int error = pass(output, 0);
    return error == STALLED ? 0 : error;
}

// ---- Sinks --------------------------------------------------------------------------------------

// Has `epoll` tell of the sink when `fd` is ready, and of `before` no longer.
static int await(struct run_sink *sink, int epoll, int before, int fd)
{
    struct epoll_event event = {.events = fd == sink->fd ? EPOLLOUT : EPOLLIN, .data.ptr = sink};
    if (before >= 0) {
        (void)epoll_ctl(epoll, EPOLL_CTL_DEL, before, NULL);
    }
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0 ? 0 : errno;
}

bool run_sinks_open(struct run_job *job, int epoll)
{
    for (int i = 0; i < 2; i++) {
        struct run_sink *sink = &job->sinks[i];
        *sink = (struct run_sink){.fd = i + 1, .pipes = epoll_create1(EPOLL_CLOEXEC)};
        if (sink->pipes < 0 || await(sink, epoll, -1, sink->pipes) != 0) {
            return false;
        }
    }
    return true;
}

int run_sink_pass(struct run_sink *sink, int epoll)
{
    struct epoll_event events[EVENTS];
    struct run_output *before = sink->stalled, *next = before;
    int error = 0, at = 0;
    int count = before != NULL ? 0 : epoll_wait(sink->pipes, events, EVENTS, 0);
    sink->stalled = NULL;
    while (sink->stalled == NULL && (next != NULL || at < count)) {
        struct run_output *output = next != NULL ? next : events[at++].data.ptr;
        int result = pass(output, 0);
        next = NULL;
        sink->stalled = result == STALLED ? output : NULL;
        error = error == 0 && result != STALLED ? result : error;
    }
    int wrong = 0;
    if (before == NULL && sink->stalled != NULL) {
        wrong = await(sink, epoll, sink->pipes, sink->fd);
    } else if (before != NULL && sink->stalled == NULL) {
        wrong = await(sink, epoll, sink->fd, sink->pipes);
    }
    return error != 0 ? error : wrong;
}

int run_output_drain(struct run_job *job, int patience_ms)
{
    int error = 0;
    for (int i = 0; i < 2 * job->options->tasks; i++) {
        struct run_output *output = &job->tasks[i / 2].output[i % 2];
        bool is_over = false;
        while (output->fd >= 0 && !is_over) {
            int result = pass(output, error == ETIMEDOUT ? 0 : patience_ms);
            is_over = result == STALLED || !output->has_more;
            result = is_over && result != STALLED // something else may still have the other end
                         ? write_lines(output, true, patience_ms)
                         : result;
            error = error != 0 ? error : result == STALLED ? ETIMEDOUT : result;
        }
        if (output->fd >= 0) {
            close(output->fd);
            output->fd = -1;
        }
    }
    return error;
}

void run_tell(const char *format, ...)
{
    char line[4096];
    int used = snprintf(line, sizeof line, "tutti-run: ");
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    size_t length = used < (int)sizeof line - 1 ? (size_t)used : sizeof line - 2;
    line[length] = '\n';
    if (has_room(STDERR_FILENO, TELL_MS)) {
        struct iovec part = {line, length + 1};
        (void)write_all(STDERR_FILENO, &part, 1);
    }
}

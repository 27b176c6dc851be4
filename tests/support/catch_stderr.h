// What this process writes to standard error between two calls. The including file defines
// _GNU_SOURCE. SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_SUPPORT_CATCH_STDERR_H
#define TESTS_SUPPORT_CATCH_STDERR_H

#include "expect.h"

#include <fcntl.h>
#include <unistd.h>

static int caught[2], real_stderr;

// Sends it into a pipe until take_stderr.
static inline void catch_stderr(void)
{
    real_stderr = dup(STDERR_FILENO);
    EXPECT_EQ(pipe2(caught, O_NONBLOCK), 0);
    dup2(caught[1], STDERR_FILENO);
}

// Gives what was written, as far as it has room, and lets go.
static inline void take_stderr(char *text, size_t bytes)
{
    ssize_t n = read(caught[0], text, bytes - 1);
    text[n < 0 ? 0 : n] = 0;
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(caught[0]);
    close(caught[1]);
}

#endif

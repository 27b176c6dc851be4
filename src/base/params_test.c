// Settings: defaults, what is set, what is refused. Each case runs in a process of its own, because
// settings are read once.
// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"

#include "expect.h"
#include "ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_defaults(int rank, int size)
{
    (void)rank;
    (void)size;
    EXPECT_EQ(tt_param_int(TT_PARAM_INIT_TIMEOUT), 600);
    EXPECT_EQ(tt_param_int(TT_PARAM_COMM_BLOCKING), -1);
    EXPECT_EQ(tt_param_int(TT_PARAM_WIN_ENABLE), 1);
    EXPECT_STR(tt_param_text(TT_PARAM_DEBUG), "");
    EXPECT_STR(tt_param_text(TT_PARAM_SECRET), "");
}

static void defaults(void)
{
    unsetenv("TUTTI_INIT_TIMEOUT");
    unsetenv("NCCL_COMM_BLOCKING");
    unsetenv("NCCL_WIN_ENABLE");
    unsetenv("NCCL_DEBUG");
    unsetenv("TUTTI_SECRET");
    run_ranks(1, check_defaults, 20);
}

static void check_set(int rank, int size)
{
    (void)rank;
    (void)size;
    EXPECT_EQ(tt_param_int(TT_PARAM_INIT_TIMEOUT), 16); // any base
    EXPECT_EQ(tt_param_int(TT_PARAM_COMM_BLOCKING), 0);
    EXPECT_STR(tt_param_text(TT_PARAM_SECRET), "a b c");
    // Read once: a later change does not matter.
    setenv("TUTTI_INIT_TIMEOUT", "77", 1);
    EXPECT_EQ(tt_param_int(TT_PARAM_INIT_TIMEOUT), 16);
}

static void set(void)
{
    setenv("TUTTI_INIT_TIMEOUT", "0x10", 1);
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    setenv("TUTTI_SECRET", "a b c", 1);
    run_ranks(1, check_set, 20);
}

// Runs with stderr in a pipe: the refusal names the variable, its value and the range.
static void check_refusal(int rank, int size)
{
    (void)rank;
    (void)size;
    int ends[2], saved = dup(2);
    char text[4096] = "";
    EXPECT_EQ(pipe(ends), 0);
    dup2(ends[1], 2);
    long timeout = tt_param_int(TT_PARAM_INIT_TIMEOUT);
    dup2(saved, 2);
    close(ends[1]);
    EXPECT(read(ends[0], text, sizeof text - 1) > 0);
    EXPECT_EQ(timeout, 600);
    EXPECT_CONTAINS(text, "TUTTI_INIT_TIMEOUT=");
    EXPECT_CONTAINS(text, "1 to 1000000");
    EXPECT_CONTAINS(text, "NCCL_COMM_BLOCKING=2");
    EXPECT_EQ(tt_param_int(TT_PARAM_COMM_BLOCKING), -1);
}

static void refused(void)
{
    static const char *const bad[] = {"abc", "", "3x", "0", "99999999999999999999", "-1", "1.5"};
    setenv("NCCL_COMM_BLOCKING", "2", 1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("TUTTI_INIT_TIMEOUT", bad[i], 1);
        run_ranks(1, check_refusal, 20);
    }
}

// Every row is complete, and its default is a value that it may have.
static void complete(void)
{
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        const struct tt_param_row *row = tt_param_row((enum tt_param)i);
        if (!EXPECT(row->name != NULL) || !EXPECT(row->help != NULL && row->since != NULL)) {
            fprintf(stderr, "row %d\n", i);
            continue;
        }
        EXPECT_STR(row->name, tt_param_name((enum tt_param)i));
        EXPECT(row->is_text == (row->least == row->most));
        EXPECT(row->is_text ? row->values != NULL
                            : row->standard >= row->least && row->standard <= row->most);
    }
}

int main(void)
{
    RUN(defaults);
    RUN(set);
    RUN(refused);
    RUN(complete);
    return expect_result();
}

// The command line, right and wrong. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include "expect.h"

#include <stdio.h>
#include <string.h>

static struct run_options options;
static char problem[200];

static bool read_words(int count, const char *const *words)
{
    static char *argv[16] = {"tutti-run"}; // options.program lies in it
    memset(argv + 1, 0, sizeof argv - sizeof argv[0]);
    for (int i = 0; i < count; i++) {
        argv[i + 1] = (char *)words[i];
    }
    problem[0] = 0;
    return run_options_read(count + 1, argv, &options, problem, sizeof problem);
}

#define READ(...)                                                                                  \
    read_words((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                      \
               (const char *const[]){__VA_ARGS__})
#define REFUSES(text, ...) (EXPECT(!READ(__VA_ARGS__)), EXPECT_CONTAINS(problem, text))

static void right_ones(void)
{
    EXPECT(READ("-n", "4", "program", "-n", "5"));
    EXPECT_EQ(options.tasks, 4);
    EXPECT_EQ(options.gpus_per_task, 0);
    EXPECT_EQ(options.host_count, 1);
    EXPECT_EQ(options.host_tasks[0], 4);
    EXPECT_STR(options.program[0], "program");
    EXPECT_STR(options.program[2], "5");
    EXPECT(READ("-n8", "--gpus-per-task=2", "--hosts", "3,5", "--", "-x"));
    EXPECT_EQ(options.tasks, 8);
    EXPECT_EQ(options.gpus_per_task, 2);
    EXPECT_STR(options.hosts, "3,5");
    EXPECT_STR(options.program[0], "-x");
    EXPECT(!options.keep_going);
    EXPECT(READ("--keep-going", "-n", "2", "x"));
    EXPECT(options.keep_going);
    EXPECT_STR(options.program[0], "x");
    EXPECT(READ("--help"));
    EXPECT(options.help);
    EXPECT(READ("--version", "-n"));
    EXPECT(options.version);
}

static void places(void)
{
    static const int hosts[] = {0, 0, 0, 1, 2, 2}, locals[] = {0, 1, 2, 0, 0, 1};
    EXPECT(READ("-n", "6", "--hosts", "3,1,2", "x"));
    for (int task = 0; task < 6; task++) {
        int host = -1, local = -1;
        run_options_place(&options, task, &host, &local);
        EXPECT_EQ(host, hosts[task]);
        EXPECT_EQ(local, locals[task]);
    }
}

static void wrong_ones(void)
{
    REFUSES("-n is missing", "program");
    REFUSES("no program", "-n", "2");
    REFUSES("-n: a number must follow", "-n");
    REFUSES("-n 0: must be", "-n", "0", "x");
    REFUSES("-n 1025: must be a number from 1 to 1024", "-n", "1025", "x");
    REFUSES("-n 2x: must be", "-n", "2x", "x");
    REFUSES("-n -1: must be", "-n", "-1", "x");
    REFUSES("-n 99999999999: must be", "-n", "99999999999", "x");
    REFUSES("--gpus-per-task : must be", "-n", "2", "--gpus-per-task=", "x");
    REFUSES("its processes are 8, -n has 7", "-n", "7", "--hosts", "3,5", "x");
    REFUSES("--hosts 3,: must be", "-n", "3", "--hosts", "3,", "x");
    REFUSES("--hosts 3;5: must be", "-n", "8", "--hosts", "3;5", "x");
    REFUSES("--hosts : must be", "-n", "8", "--hosts");
    REFUSES("--keep-going=1: no option", "--keep-going=1", "-n", "2", "x");
    REFUSES("--oversubscribe: no option", "--oversubscribe", "-n", "2", "x");
}

int main(void)
{
    RUN(right_ones);
    RUN(places);
    RUN(wrong_ones);
    return expect_result();
}

// Messages: levels, subsystems, files, the last error. Each case runs in a process of its own,
// because settings are read once.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "expect.h"
#include "ranks.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];

static void say_everything(int rank, int size)
{
    (void)rank;
    (void)size;
    tt_log(TT_LOG_WARN, TT_LOG_INIT, "a warning %d", 1);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "init info");
    tt_log(TT_LOG_INFO, TT_LOG_REG, "reg info");
    tt_log(TT_LOG_TRACE, TT_LOG_INIT, "a trace");
    tt_log_start(1);
    tt_log_start(0);
    tt_log_start(0);
    EXPECT_EQ(tt_fail(ncclInvalidArgument, "bad thing %s", "x%sy"), ncclInvalidArgument);
    EXPECT_STR(tt_last_error(), "bad thing x%sy");
}

// Runs say_everything with the given settings; what it wrote to its log file ("" where there is
// none).
static void run_with(const char *level, const char *subsystems, char *out, size_t out_bytes)
{
    char pattern[128], path[160];
    snprintf(pattern, sizeof pattern, "%s/log-%%%%-x", folder);
    snprintf(path, sizeof path, "%s/log-%%-x", folder);
    unlink(path);
    setenv("NCCL_DEBUG_FILE", pattern, 1);
    setenv("NCCL_DEBUG", level, 1);
    if (subsystems != NULL) {
        setenv("NCCL_DEBUG_SUBSYS", subsystems, 1);
    } else {
        unsetenv("NCCL_DEBUG_SUBSYS");
    }
    run_ranks(1, say_everything, 20);
    memset(out, 0, out_bytes);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        EXPECT(fread(out, 1, out_bytes - 1, file) < out_bytes);
        fclose(file);
    }
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)) != NULL; text++) {
        n++;
    }
    return n;
}

static void levels(void)
{
    char text[4096], expected[128];
    run_with("NONE", NULL, text, sizeof text);
    EXPECT_STR(text, "");
    run_with("warn", NULL, text, sizeof text);
    EXPECT_EQ(count(text, "NCCL version 2.30.7+cuda"), 1);
    EXPECT_CONTAINS(text, "\nNCCL version"); // bare
    EXPECT_CONTAINS(text, "NCCL WARN a warning 1\n");
    EXPECT_CONTAINS(text, "NCCL WARN bad thing x%sy\n");
    EXPECT(strstr(text, "info") == NULL);
    setenv("TUTTI_SECRET", "hush", 1);
    run_with("INFO", NULL, text, sizeof text);
    unsetenv("TUTTI_SECRET");
    EXPECT_EQ(count(text, "NCCL INFO NCCL version 2.30.7+cuda"), 1);
    EXPECT_CONTAINS(text, "NCCL INFO NCCL_DEBUG set by environment to INFO\n");
    EXPECT_CONTAINS(text, "TUTTI_SECRET set by environment");
    EXPECT_EQ(count(text, "hush"), 0);
    EXPECT_CONTAINS(text, "NCCL INFO init info\n");
    EXPECT(strstr(text, "reg info") == NULL);
    EXPECT(strstr(text, "trace") == NULL);
    run_with("TRACE", NULL, text, sizeof text);
    EXPECT_CONTAINS(text, "NCCL TRACE a trace\n");
    // host:pid:tid [device]
    char host[64];
    gethostname(host, sizeof host);
    snprintf(expected, sizeof expected, "%s:", host);
    EXPECT(strncmp(text, expected, strlen(expected)) == 0);
}

static void subsystems(void)
{
    char text[4096];
    run_with("INFO", "REG", text, sizeof text);
    EXPECT_CONTAINS(text, "reg info");
    EXPECT(strstr(text, "init info") == NULL);
    EXPECT_CONTAINS(text, "a warning"); // warnings have no subsystem
    run_with("INFO", "^REG", text, sizeof text);
    EXPECT_CONTAINS(text, "init info");
    EXPECT(strstr(text, "reg info") == NULL);
    run_with("INFO", "init,reg", text, sizeof text);
    EXPECT_CONTAINS(text, "init info");
    EXPECT_CONTAINS(text, "reg info");
}

// Texts longer than a line are cut, not overrun.
static void long_text(void)
{
    char text[5000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_EQ(tt_fail(ncclSystemError, "%s", text), ncclSystemError);
    EXPECT(strlen(tt_last_error()) < 1024);
    EXPECT(strlen(tt_last_error()) > 1000);
}

static void *fail_often(void *argument)
{
    const char *letter = argument;
    for (int i = 0; i < 2000; i++) {
        tt_fail(ncclSystemError, "%s%s%s%s", letter, letter, letter, letter);
        const char *text = tt_last_error();
        // Its own, whatever other threads met meanwhile.
        if (!EXPECT(strlen(text) == 4 && text[0] == letter[0] && text[1] == text[0] &&
                    text[2] == text[0] && text[3] == text[0])) {
            break;
        }
    }
    return NULL;
}

// A thread that met no failure reads the process's.
static void *read_others(void *unused)
{
    const char *text = tt_last_error();
    EXPECT(strlen(text) == 4 && text[1] == text[0] && text[2] == text[0] && text[3] == text[0]);
    return unused;
}

static void threads(void)
{
    static const char *const letters[] = {"a", "b", "c", "d"};
    pthread_t thread[4];
    for (int i = 0; i < 4; i++) {
        EXPECT_EQ(pthread_create(&thread[i], NULL, fail_often, (void *)letters[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
    }
    EXPECT_EQ(pthread_create(&thread[0], NULL, read_others, NULL), 0);
    pthread_join(thread[0], NULL);
}

// Within a call, every failure has the function and the rank, once.
static void calls(void)
{
    tt_call_begin("ncclX", 3);
    (void)tt_fail(ncclSystemError, "no memory");
    EXPECT_STR(tt_last_error(), "ncclX: rank 3: no memory");
    (void)tt_fail(ncclSystemError, "ncclX: comm is NULL");
    EXPECT_STR(tt_last_error(), "ncclX: rank 3: comm is NULL");
    (void)tt_fail(ncclSystemError, "ncclX: rank 3: no");
    EXPECT_STR(tt_last_error(), "ncclX: rank 3: no");
    (void)tt_fail(ncclSystemError, "rank 3: aborted");
    EXPECT_STR(tt_last_error(), "ncclX: rank 3: aborted");
    tt_call_begin("ncclInner", 4); // the outermost counts
    EXPECT_EQ(tt_cuda(cudaErrorInvalidValue, "cudaFree(nothing)"), ncclUnhandledCudaError);
    EXPECT_CONTAINS(tt_last_error(), "ncclX: rank 3: cudaFree: invalid argument (1)");
    tt_call_end();
    EXPECT_STR(tt_call_name(), "ncclX");
    tt_call_end();
    EXPECT(tt_call_name() == NULL);
    tt_call_begin("ncclMemAlloc", -1); // of no rank
    (void)tt_fail(ncclSystemError, "no memory");
    EXPECT_STR(tt_last_error(), "ncclMemAlloc: no memory");
    tt_call_end();
    (void)tt_fail(ncclSystemError, "outside");
    EXPECT_STR(tt_last_error(), "outside");
}

// A failure is told with the runtime's own reason, and never with an older failure's.
static void details(void)
{
    EXPECT_EQ(tt_cuda((int)cudaSetDevice(99), "cudaSetDevice(99)"), ncclUnhandledCudaError);
    EXPECT_CONTAINS(tt_last_error(), "cudaSetDevice: invalid device ordinal (101): ");
    EXPECT_EQ(tt_cuda(12345, "cudaFree(nothing)"), ncclUnhandledCudaError);
    EXPECT_STR(tt_last_error(), "cudaFree: unrecognized error code (12345)");
    EXPECT_EQ(cudaSetDevice(99), cudaErrorInvalidDevice); // nobody has asked for it
    EXPECT_EQ(tt_cuda(12345, "cudaFree(nothing)"), ncclUnhandledCudaError);
    EXPECT_STR(tt_last_error(), "cudaFree: unrecognized error code (12345)");
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

int main(void)
{
    unsetenv("NCCL_DEBUG");
    snprintf(folder, sizeof folder, "/tmp/tutti-log-test-XXXXXX");
    if (mkdtemp(folder) == NULL) {
        perror("mkdtemp");
        return 1;
    }
    RUN(levels);
    RUN(subsystems);
    RUN(long_text);
    RUN(threads);
    RUN(calls);
    RUN(details);
    char path[128];
    snprintf(path, sizeof path, "%s/log-%%-x", folder);
    unlink(path);
    rmdir(folder);
    return expect_result();
}

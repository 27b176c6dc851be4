// Messages: levels, subsystems, files, the last error. Each case runs in a process of its own,
// because settings are read once.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "catch_stderr.h"
#include "expect.h"
#include "ranks.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
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

static bool matches(const char *text, const char *pattern)
{
    regex_t compiled;
    bool matched = EXPECT_EQ(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0) &&
                   regexec(&compiled, text, 0, NULL, 0) == 0;
    if (!matched) {
        printf("\"%s\" is not in:\n%s\n", pattern, text);
    }
    regfree(&compiled);
    return matched;
}

static void levels(void)
{
    char text[4096];
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
}

// The whole form of each kind of line: time, host:pid:tid, [device], place.
static void forms(void)
{
    char text[4096], pattern[512], host[64];
    gethostname(host, sizeof host - 1);
    host[strcspn(host, ".")] = 0;
#define PREFIX "%s:[0-9]+:[0-9]+ \\[0\\] "
#define TIME   "\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\] "
    run_with("TRACE", NULL, text, sizeof text);
    snprintf(pattern, sizeof pattern,
             "\n\n" TIME PREFIX "log_test\\.c:[0-9]+ \\(say_everything\\) NCCL WARN a warning 1\n",
             host);
    EXPECT(matches(text, pattern + 1)); // the file's first line is the empty one
    snprintf(pattern, sizeof pattern, "\n" PREFIX "NCCL INFO init info\n", host);
    EXPECT(matches(text, pattern));
    snprintf(pattern, sizeof pattern,
             "\n" PREFIX "[0-9]+\\.[0-9]+ say_everything:[0-9]+ NCCL TRACE a trace\n", host);
    EXPECT(matches(text, pattern));
    // Settings come before everything else at INFO, as with NCCL.
    const char *setting = strstr(text, "NCCL_DEBUG set by environment to TRACE");
    EXPECT(setting != NULL && strstr(text, "init info") > setting);
    const char *driver = strstr(text, "NCCL INFO cudaDriverVersion 13000\n");
    const char *version = strstr(text, "NCCL INFO NCCL version");
    const char *ours = strstr(text, "NCCL INFO tutti version ");
    EXPECT(setting != NULL && driver > setting && version > driver && ours > version);
    // The lines that have a time, and its form.
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "INFO", 1);
    setenv("NCCL_DEBUG_TIMESTAMP_FORMAT", "<%Y_%3f>_", 1);
    run_with("INFO", NULL, text, sizeof text);
    snprintf(pattern, sizeof pattern, "\n<[0-9]{4} [0-9]{3}> " PREFIX "NCCL INFO init info\n",
             host);
    EXPECT(matches(text, pattern));
    snprintf(pattern, sizeof pattern, "\n" PREFIX "log_test\\.c:[0-9]+ ", host);
    EXPECT(matches(text, pattern));
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "", 1);
    run_with("WARN", NULL, text, sizeof text);
    EXPECT(matches(text, pattern));
    unsetenv("NCCL_DEBUG_TIMESTAMP_LEVELS");
    unsetenv("NCCL_DEBUG_TIMESTAMP_FORMAT");
}

static void warnings_raise(void)
{
    char text[4096];
    setenv("NCCL_WARN_ENABLE_DEBUG_INFO", "1", 1);
    run_with("WARN", NULL, text, sizeof text);
    EXPECT_CONTAINS(text, "a warning 1\n");
    EXPECT_CONTAINS(text, "NCCL INFO init info\n"); // said after the warning
    EXPECT(strstr(text, "a trace") == NULL);
    unsetenv("NCCL_WARN_ENABLE_DEBUG_INFO");
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

// ---- Where lines go -----------------------------------------------------------------------------

static void say_three(void)
{
    for (int i = 0; i < 3; i++) {
        errno = EXDEV;
        tt_log(TT_LOG_INFO, TT_LOG_INIT, "line %d: %m", i);
        EXPECT_EQ(errno, EXDEV);
    }
}

// A full disk, a file that cannot be made, a pipe that nobody reads: told once, and stderr takes
// its place.
static void to_bad_file(int rank, int size)
{
    char text[4096];
    const char *name = getenv("NCCL_DEBUG_FILE");
    (void)rank;
    (void)size;
    catch_stderr();
    say_three();
    take_stderr(text, sizeof text);
    EXPECT_EQ(count(text, "tutti: NCCL_DEBUG_FILE: cannot "), 1);
    EXPECT_EQ(count(text, name), 1);
    EXPECT_CONTAINS(text, strcmp(name, "/dev/full") == 0
                              ? "cannot write /dev/full: No space left on device; messages go to "
                                "standard error\n"
                          : strcmp(name, "/nowhere/log") == 0
                              ? "cannot open /nowhere/log: No such file or directory; messages"
                              : "/unread: No such device or address; messages go to standard");
    EXPECT_EQ(count(text, "NCCL INFO line "), 3);
    EXPECT_EQ(count(text, "Invalid cross-device link\n"), 3);
}

static void bad_files(void)
{
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_FILE", "/dev/full", 1);
    run_ranks(1, to_bad_file, 20);
    setenv("NCCL_DEBUG_FILE", "/nowhere/log", 1);
    run_ranks(1, to_bad_file, 20);
    char path[128];
    snprintf(path, sizeof path, "%s/unread", folder);
    EXPECT_EQ(mkfifo(path, 0600), 0);
    setenv("NCCL_DEBUG_FILE", path, 1);
    run_ranks(1, to_bad_file, 20);
    unlink(path);
}

// A program that closes all descriptors and opens a file of its own: that file gets no line.
static void to_lost_file(int rank, int size)
{
    char text[4096], path[128];
    struct stat found;
    (void)rank;
    (void)size;
    say_three();
    for (int fd = 3; fd < 64; fd++) {
        close(fd);
    }
    snprintf(path, sizeof path, "%s.own", getenv("NCCL_DEBUG_FILE"));
    for (int i = 0; i < 16; i++) { // one of them has the log's number
        EXPECT(open(path, O_WRONLY | O_CREAT, 0600) >= 0);
    }
    catch_stderr();
    say_three();
    take_stderr(text, sizeof text);
    EXPECT_EQ(count(text, "cannot write "), 1);
    EXPECT_CONTAINS(text, ": Bad file descriptor; messages go to standard error\n");
    EXPECT_EQ(count(text, "NCCL INFO line "), 3);
    EXPECT(stat(path, &found) == 0 && found.st_size == 0);
    EXPECT_EQ(unlink(path), 0);
}

static void to_standard(int rank, int size)
{
    char text[4096];
    (void)rank;
    (void)size;
    catch_stderr();
    say_three();
    take_stderr(text, sizeof text);
    EXPECT_EQ(count(text, "NCCL INFO line "), 3);
    EXPECT(strstr(text, "NCCL_DEBUG_FILE") == NULL);
}

static void other_files(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/lost", folder);
    setenv("NCCL_DEBUG_FILE", path, 1);
    run_ranks(1, to_lost_file, 20);
    unlink(path);
    setenv("NCCL_DEBUG_FILE", "/dev/stderr", 1);
    run_ranks(1, to_standard, 20);
    unsetenv("NCCL_DEBUG_FILE");
}

static void refused_settings(int rank, int size)
{
    char text[4096];
    (void)rank;
    (void)size;
    catch_stderr();
    say_three();
    take_stderr(text, sizeof text);
    EXPECT_CONTAINS(text, "tutti: NCCL_DEBUG_SUBSYS: LIFE is ignored: must be INIT, COLL");
    EXPECT_CONTAINS(text, "tutti: NCCL_DEBUG_TIMESTAMP_LEVELS: 3 is ignored: must be VERSION");
    EXPECT_EQ(count(text, "tutti: "), 2);
}

static void refusals(void)
{
    setenv("NCCL_DEBUG_SUBSYS", "INIT,LIFE", 1);
    setenv("NCCL_DEBUG_TIMESTAMP_LEVELS", "WARN,3", 1);
    run_ranks(1, refused_settings, 20);
    unsetenv("NCCL_DEBUG_SUBSYS");
    unsetenv("NCCL_DEBUG_TIMESTAMP_LEVELS");
}

// Threads, and children of fork meanwhile: whole lines, all of them, and no child hangs.
static void *say_often(void *argument)
{
    for (int i = 0; i < 300; i++) {
        tt_log(TT_LOG_WARN, TT_LOG_INIT, "thread %s says %d abcdefghijklmnopqrstuvwxyz\nend",
               (const char *)argument, i);
    }
    return NULL;
}

static void from_all_sides(int rank, int size)
{
    static char *names[] = {"a", "b", "c"};
    pthread_t thread[3];
    (void)rank;
    (void)size;
    tt_log(TT_LOG_WARN, TT_LOG_INIT, "child says -1"); // the file is opened, and emptied, here
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(pthread_create(&thread[i], NULL, say_often, names[i]), 0);
    }
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            (void)tt_fail(ncclSystemError, "child says %d", i);
            // Without a sanitizer's end: the other threads are not there.
            (void)syscall(SYS_exit_group, strcmp(tt_last_error(), "") == 0);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], NULL);
    }
}

static void whole_lines(void)
{
    char path[128], line[1024];
    int warnings = 0, children = 0, empty = 0, other = 0;
    snprintf(path, sizeof path, "%s/sides", folder);
    setenv("NCCL_DEBUG", "WARN", 1);
    setenv("NCCL_DEBUG_FILE", path, 1);
    run_ranks(1, from_all_sides, 60);
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int number;
        char name;
        const char *said = strstr(line, "NCCL WARN ");
        if (line[0] == '\n') {
            empty++;
        } else if (said != NULL &&
                   sscanf(said, "NCCL WARN thread %c says %d", &name, &number) == 2 &&
                   strstr(said, " abcdefghijklmnopqrstuvwxyz end\n") != NULL) {
            warnings++;
        } else if (said != NULL && sscanf(said, "NCCL WARN child says %d", &number) == 1) {
            children++;
        } else {
            other++;
            printf("not a whole line: %s", line);
        }
    }
    EXPECT(file != NULL && fclose(file) == 0);
    EXPECT_EQ(warnings, 900);
    EXPECT_EQ(children, 21);
    EXPECT_EQ(empty, 921);
    EXPECT_EQ(other, 0);
    unlink(path);
    unsetenv("NCCL_DEBUG_FILE");
}

// ---- Failures -----------------------------------------------------------------------------------

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
    RUN(forms);
    RUN(warnings_raise);
    RUN(subsystems);
    RUN(bad_files);
    RUN(other_files);
    RUN(refusals);
    RUN(whole_lines);
    unsetenv("NCCL_DEBUG");
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

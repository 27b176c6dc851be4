// Messages and the last error. See log.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "base/file_name.h"
#include "base/params.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, ERROR_BYTES = 1024 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
// Set by open_log, constant afterwards.
static int level; // enum tt_log_level; 0: only failures of the library's own making are silent too
static uint64_t subsystems;
static FILE *log_file;
static char host[256];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards last_error and serialises lines
static char last_error[ERROR_BYTES];
static _Thread_local char last_error_copy[ERROR_BYTES];
static _Thread_local char thread_error[ERROR_BYTES];
static _Thread_local struct {
    const char *call; // NULL: none runs
    int rank, depth, relaxed;
    CUstreamCaptureMode mode; // the thread's own, meanwhile
} running;

static const struct {
    const char *name;
    uint64_t bits;
} subsystem_names[] = {
    {"INIT", TT_LOG_INIT},
    {"COLL", TT_LOG_COLL},
    {"NET", TT_LOG_NET},
    {"ENV", TT_LOG_ENV},
    {"ALLOC", TT_LOG_ALLOC},
    {"NVLS", TT_LOG_NVLS},
    {"REG", TT_LOG_REG},
    {"BOOTSTRAP", TT_LOG_BOOTSTRAP},
    {"DESTROY", TT_LOG_DESTROY},
    {"ALL", UINT64_MAX},
    // NCCL's names for parts that say nothing here.
    {"P2P", 0},
    {"SHM", 0},
    {"GRAPH", 0},
    {"TUNING", 0},
    {"CALL", 0},
    {"PROXY", 0},
    {"RAS", 0},
    {"PROFILE", 0},
};

static int parse_level(const char *text)
{
    static const struct {
        const char *name;
        int value;
    } names[] = {{"NONE", 0},           {"VERSION", TT_LOG_VERSION},
                 {"WARN", TT_LOG_WARN}, {"INFO", TT_LOG_INFO},
                 {"ABORT", 4},          {"TRACE", TT_LOG_TRACE}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(text, names[i].name) == 0) {
            return names[i].value;
        }
    }
    if (*text != 0) {
        (void)fprintf(
            stderr, "tutti: NCCL_DEBUG=%s is ignored: must be NONE, VERSION, WARN, INFO or TRACE\n",
            text);
    }
    return 0;
}

static uint64_t parse_subsystems(const char *text)
{
    if (*text == 0) {
        return TT_LOG_INIT | TT_LOG_BOOTSTRAP | TT_LOG_ENV;
    }
    bool inverted = *text == '^';
    uint64_t bits = 0;
    char copy[256];
    (void)snprintf(copy, sizeof copy, "%s", text + inverted);
    char *rest = copy;
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        bool known = *word == 0;
        for (size_t i = 0; i < sizeof subsystem_names / sizeof subsystem_names[0]; i++) {
            bool same = strcasecmp(word, subsystem_names[i].name) == 0;
            bits |= same ? subsystem_names[i].bits : 0;
            known = known || same;
        }
        if (!known) {
            (void)fprintf(stderr,
                          "tutti: NCCL_DEBUG_SUBSYS: %s is ignored: must be INIT, COLL, NET, ENV, "
                          "ALLOC, NVLS, REG, BOOTSTRAP, DESTROY or ALL\n",
                          word);
        }
    }
    return inverted ? ~bits : bits;
}

static FILE *open_file(const char *pattern)
{
    char path[512];
    if (!tt_file_name(pattern, -1, path, sizeof path)) {
        (void)fprintf(stderr,
                      "tutti: NCCL_DEBUG_FILE: the name is too long; messages go to stdout\n");
        return stdout;
    }
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        (void)fprintf(stderr,
                      "tutti: NCCL_DEBUG_FILE: cannot write %s: %m; messages go to stdout\n", path);
        return stdout;
    }
    (void)setvbuf(file, NULL, _IOLBF, 0);
    return file;
}

static void open_log(void)
{
    if (gethostname(host, sizeof host - 1) != 0) {
        (void)snprintf(host, sizeof host, "localhost");
    }
    level = parse_level(tt_param_text(TT_PARAM_DEBUG));
    subsystems = parse_subsystems(tt_param_text(TT_PARAM_DEBUG_SUBSYS));
    const char *pattern = tt_param_text(TT_PARAM_DEBUG_FILE);
    log_file = *pattern != 0 && level > TT_LOG_VERSION ? open_file(pattern) : stdout;
}

static void write_line(const char *word, const char *text)
{
    int device = -1;
    cudaGetDevice(&device);
    pthread_mutex_lock(&mutex);
    (void)fprintf(log_file, "%s:%d:%d [%d] NCCL %s %s\n", host, (int)getpid(),
                  (int)syscall(SYS_gettid), device, word, text);
    (void)fflush(log_file);
    pthread_mutex_unlock(&mutex);
}

void tt_log(enum tt_log_level message_level, enum tt_log_subsystem subsystem, const char *format,
            ...)
{
    pthread_once(&once, open_log);
    if ((int)message_level > level ||
        (message_level >= TT_LOG_INFO && (subsystems & (uint64_t)subsystem) == 0)) {
        return;
    }
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    write_line(message_level == TT_LOG_WARN    ? "WARN"
               : message_level == TT_LOG_TRACE ? "TRACE"
                                               : "INFO",
               text);
}

static atomic_int has_started;

void tt_log_start(int rank)
{
    pthread_once(&once, open_log);
    if (level < TT_LOG_VERSION || (level < TT_LOG_INFO && rank != 0) ||
        atomic_exchange(&has_started, 1) != 0) {
        return;
    }
    int cuda = 0;
    char version[64];
    (void)cudaRuntimeGetVersion(&cuda);
    (void)snprintf(version, sizeof version, "NCCL version %d.%d.%d+cuda%d.%d", NCCL_MAJOR,
                   NCCL_MINOR, NCCL_PATCH, cuda / 1000, cuda % 1000 / 10);
    if (level < TT_LOG_INFO) {
        pthread_mutex_lock(&mutex);
        (void)fprintf(log_file, "%s\n", version);
        (void)fflush(log_file);
        pthread_mutex_unlock(&mutex);
        return;
    }
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "%s", version);
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        const char *text = tt_param_as_set((enum tt_param)i);
        if (text != NULL) {
            tt_log(TT_LOG_INFO, TT_LOG_ENV, "%s set by environment to %s",
                   tt_param_name((enum tt_param)i), text);
        }
    }
}

static void store_error(const char *text)
{
    pthread_mutex_lock(&mutex);
    (void)snprintf(last_error, sizeof last_error, "%s", text);
    pthread_mutex_unlock(&mutex);
}

// By the driver's function: the runtime's makes a context in a thread that has none yet.
void tt_relax_begin(void)
{
    if (running.relaxed++ == 0) {
        running.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        (void)cuThreadExchangeStreamCaptureMode(&running.mode);
    }
}

void tt_relax_end(void)
{
    if (--running.relaxed == 0) {
        (void)cuThreadExchangeStreamCaptureMode(&running.mode);
    }
}

void tt_call_begin(const char *call, int rank)
{
    if (running.depth++ == 0) {
        running.call = call;
        running.rank = rank;
        tt_relax_begin();
    }
}

void tt_call_end(void)
{
    if (--running.depth == 0) {
        running.call = NULL;
        tt_relax_end();
    }
}

const char *tt_call_name(void)
{
    return running.call;
}

// Puts "ncclX: rank 3: " in front of a text that does not say so itself; returns what is left of
// it.
static const char *begin_text(const char *said, char *text, size_t bytes)
{
    text[0] = 0;
    if (running.call == NULL) {
        return said;
    }
    size_t length = strlen(running.call);
    bool begins = strncmp(said, running.call, length) == 0 && strncmp(said + length, ": ", 2) == 0;
    bool needs_rank = running.rank >= 0 && strstr(said, "rank ") == NULL;
    if (begins && !needs_rank) {
        return said;
    }
    if (begins || strstr(said, running.call) == NULL) {
        (void)snprintf(text, bytes, "%s: ", running.call);
    }
    if (needs_rank) {
        size_t used = strlen(text);
        (void)snprintf(text + used, bytes - used, "rank %d: ", running.rank);
    }
    return begins ? said + length + 2 : said;
}

// Native kernels fail here too: the thread sanitizer takes the fibers of one worker for threads and
// the worker's thread-local text for shared.
__attribute__((no_sanitize("thread"))) ncclResult_t tt_fail(ncclResult_t result, const char *format,
                                                            ...)
{
    pthread_once(&once, open_log);
    char said[ERROR_BYTES], text[ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(said, sizeof said, format, arguments);
    va_end(arguments);
    const char *rest = begin_text(said, text, sizeof text);
    size_t used = strlen(text), length = strnlen(rest, sizeof text - used - 1);
    memcpy(text + used, rest, length);
    text[used + length] = 0;
    memcpy(thread_error, text, sizeof thread_error);
    store_error(text);
    if (level >= TT_LOG_WARN) {
        write_line("WARN", text);
    }
    return result;
}

void tt_say(const char *format, ...)
{
    char text[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "tutti: %s\n", text);
}

ncclResult_t tt_bug(const char *format, ...)
{
    char text[ERROR_BYTES];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ncclResult_t result = tt_fail(ncclInternalError, "internal error: %s", text);
#ifdef TUTTI_CHECKED
    fprintf(stderr, "tutti: internal error: %s\n", text);
    abort();
#endif
    return result;
}

const char *tt_cuda_detail(void)
{
    // A CUDA runtime may keep the text of the calling thread's last failure; NVIDIA's does not.
    static _Atomic(void *) known;
    static char none;
    void *found = atomic_load(&known);
    if (found == NULL) {
        found = dlsym(RTLD_DEFAULT, "vgpuLastErrorText");
        atomic_store(&known, found == NULL ? &none : found);
    }
    if (found == NULL || found == &none) {
        return "";
    }
    const char *(*last_text)(void);
    memcpy(&last_text, &found, sizeof last_text);
    return last_text();
}

ncclResult_t tt_cuda(int cuda_error, const char *call)
{
    if (cuda_error == cudaSuccess) {
        return ncclSuccess;
    }
    // The runtime's reason is that of the failure which it met last; another one's is none of this.
    bool is_last = cudaPeekAtLastError() == (cudaError_t)cuda_error;
    char detail[512];
    (void)snprintf(detail, sizeof detail, "%s", is_last ? tt_cuda_detail() : "");
    if (is_last) {
        cudaGetLastError(); // else it is the program's
    }
    return tt_fail(ncclUnhandledCudaError, "%.*s: %s (%d)%s%s", (int)strcspn(call, "("), call,
                   cudaGetErrorString((cudaError_t)cuda_error), cuda_error,
                   detail[0] != 0 ? ": " : "", detail);
}

const char *tt_thread_error(void)
{
    return thread_error;
}

void tt_restore_error(const char *text)
{
    (void)snprintf(thread_error, sizeof thread_error, "%s", text);
    store_error(text);
}

const char *tt_last_error(void)
{
    if (thread_error[0] != 0) {
        return thread_error;
    }
    pthread_mutex_lock(&mutex);
    memcpy(last_error_copy, last_error, sizeof last_error_copy);
    pthread_mutex_unlock(&mutex);
    return last_error_copy;
}

// ---- Results ------------------------------------------------------------------------------------

const char *tt_result_text(ncclResult_t result)
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "a CUDA call failed (ncclGetLastError names it)",
        [ncclSystemError] = "a system call or a library call failed (ncclGetLastError names it)",
        [ncclInternalError] =
            "internal error, or the communicator was aborted (see ncclGetLastError)",
        [ncclInvalidArgument] = "invalid argument (ncclGetLastError names it)",
        [ncclInvalidUsage] = "invalid usage (ncclGetLastError explains it)",
        [ncclRemoteError] = "another rank failed or ended (ncclGetLastError names it)",
        [ncclInProgress] = "the operation is still in progress",
        [ncclTimeout] = "a time limit was reached (ncclGetLastError names what was waited for)",
    };
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result]
                                                             : "unknown result code";
}

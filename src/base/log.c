// Messages: who wants them, their lines. See log.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "base/log_output.h"
#include "base/log_settings.h"
#include "base/params.h"
#include "tutti.h"

#include <cuda_runtime.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TEXT_BYTES = 1024, LINE_BYTES = TEXT_BYTES + 768 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
atomic_int tt_log_most = INT_MAX;
// Set by open_log, constant afterwards.
static uint64_t subsystems, stamped;
static bool warnings_raise; // the first one makes INFO wanted
static const char *stamp_format;
static struct timespec start;
static char host[256];
// The C library locks the time zone: a child of fork must not find that lock taken by another
// thread of ours.
static pthread_mutex_t zone_mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock_zone(void)
{
    pthread_mutex_lock(&zone_mutex);
}

static void unlock_zone(void)
{
    pthread_mutex_unlock(&zone_mutex);
}

// One line on stderr about what a setting should be.
static void refuse(enum tt_param param, const struct tt_log_unknown *unknown, const char *values)
{
    if (unknown->length > 0) {
        tt_say("%s: %.*s is ignored: must be %s", tt_param_name(param), unknown->length,
               unknown->word, values);
    }
}

static void open_log(void)
{
    struct tt_log_unknown unknown;
    if (gethostname(host, sizeof host - 1) != 0) {
        (void)snprintf(host, sizeof host, "localhost");
    }
    host[strcspn(host, ".")] = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    (void)pthread_atfork(lock_zone, unlock_zone, unlock_zone);
    int most = tt_log_level_of(tt_param_text(TT_PARAM_DEBUG), &unknown);
    refuse(TT_PARAM_DEBUG, &unknown, "NONE, VERSION, WARN, INFO, ABORT or TRACE");
    subsystems = tt_log_subsystems_of(tt_param_text(TT_PARAM_DEBUG_SUBSYS), &unknown);
    refuse(TT_PARAM_DEBUG_SUBSYS, &unknown,
           "INIT, COLL, NET, ENV, ALLOC, NVLS, REG, BOOTSTRAP, PROFILE, DESTROY or ALL");
    bool has_levels = tt_param_as_set(TT_PARAM_DEBUG_TIMED) != NULL;
    stamped =
        tt_log_stamped_of(has_levels ? tt_param_text(TT_PARAM_DEBUG_TIMED) : "WARN", &unknown);
    refuse(TT_PARAM_DEBUG_TIMED, &unknown, "VERSION, WARN, INFO, ABORT, TRACE or ALL");
    stamp_format = tt_param_as_set(TT_PARAM_DEBUG_TIME);
    stamp_format = stamp_format != NULL ? stamp_format : "[%F %T] ";
    warnings_raise = tt_param_int(TT_PARAM_DEBUG_WARN) != 0;
    if (most > TT_LOG_VERSION) {
        tt_output_open(tt_param_text(TT_PARAM_DEBUG_FILE));
    }
    atomic_store(&tt_log_most, most);
}

// What stands before the time's milliseconds, the place and NCCL's word: "time host:pid:tid [gpu]".
static int begin_line(enum tt_log_level level, char *line, size_t bytes)
{
    char stamp[128] = "";
    struct timespec now;
    int device = -1;
    cudaGetDevice(&device);
    if ((stamped >> level & 1) != 0) {
        (void)clock_gettime(CLOCK_REALTIME, &now);
        lock_zone();
        tt_log_stamp(stamp_format, &now, stamp, sizeof stamp);
        unlock_zone();
    }
    return snprintf(line, bytes, "%s%s%s:%d:%d [%d] ", level == TT_LOG_WARN ? "\n" : "", stamp,
                    host, (int)getpid(), (int)syscall(SYS_gettid), device);
}

static double milliseconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start.tv_sec) * 1e3 + (double)(now.tv_nsec - start.tv_nsec) / 1e6;
}

static void write_line(const struct tt_origin *origin, enum tt_log_level level, const char *text)
{
    int before = errno;
    char line[LINE_BYTES];
    int used = begin_line(level, line, sizeof line);
    size_t left = sizeof line - (size_t)used;
    if (level == TT_LOG_WARN) {
        used += snprintf(line + used, left, "%s:%d (%s) NCCL WARN %s", origin->file, origin->line,
                         origin->function, text);
    } else if (level == TT_LOG_TRACE) {
        used += snprintf(line + used, left, "%.6f %s:%d NCCL TRACE %s", milliseconds(),
                         origin->function, origin->line, text);
    } else {
        used += snprintf(line + used, left, "NCCL INFO %s", text);
    }
    used = used < LINE_BYTES - 1 ? used : LINE_BYTES - 2;
    for (char *c = line + 1; c < line + used; c++) {
        *c = *c == '\n' ? ' ' : *c; // a name with a line's end in it begins no line of its own
    }
    line[used] = '\n';
    tt_output_line(line, (size_t)used + 1);
    errno = before;
}

// As NCCL does: before everything else at INFO.
static void say_settings_once(void)
{
    static atomic_int has_said;
    if (atomic_exchange(&has_said, 1) != 0) {
        return;
    }
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        const char *text = tt_param_as_set((enum tt_param)i);
        if (text != NULL) {
            tt_log(TT_LOG_INFO, TT_LOG_ENV, "%s set by environment to %s",
                   tt_param_name((enum tt_param)i), text);
        }
    }
}

void tt_log_at(const struct tt_origin *origin, enum tt_log_level level,
               enum tt_log_subsystem subsystem, const char *format, ...)
{
    int before = errno;
    pthread_once(&once, open_log);
    if (!tt_log_level_wanted(level) ||
        (level >= TT_LOG_INFO && (subsystems & (uint64_t)subsystem) == 0)) {
        errno = before;
        return;
    }
    if (level >= TT_LOG_INFO) {
        say_settings_once();
    }
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    errno = before; // for %m
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (level == TT_LOG_WARN) {
        tt_log_warn(origin, text);
    } else {
        write_line(origin, level, text);
    }
    errno = before;
}

void tt_log_warn(const struct tt_origin *origin, const char *text)
{
    pthread_once(&once, open_log);
    if (!tt_log_level_wanted(TT_LOG_WARN)) {
        return;
    }
    write_line(origin, TT_LOG_WARN, text);
    int expected = TT_LOG_WARN;
    if (warnings_raise) {
        (void)atomic_compare_exchange_strong(&tt_log_most, &expected, TT_LOG_INFO);
    }
}

void tt_log_start(int rank)
{
    static atomic_int has_started;
    pthread_once(&once, open_log);
    int most = atomic_load(&tt_log_most);
    if (most < TT_LOG_VERSION || (most < TT_LOG_INFO && rank != 0) ||
        atomic_exchange(&has_started, 1) != 0) {
        return;
    }
    int cuda = 0, driver = 0;
    char version[64];
    (void)cudaRuntimeGetVersion(&cuda);
    (void)snprintf(version, sizeof version, "NCCL version %d.%d.%d+cuda%d.%d", NCCL_MAJOR,
                   NCCL_MINOR, NCCL_PATCH, cuda / 1000, cuda % 1000 / 10);
    if (most < TT_LOG_INFO) {
        size_t length = strlen(version);
        version[length] = '\n';
        tt_output_line(version, length + 1);
        return;
    }
    say_settings_once();
    (void)cudaDriverGetVersion(&driver);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "cudaDriverVersion %d", driver);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "%s", version);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "tutti version %d.%d.%d", TUTTI_MAJOR, TUTTI_MINOR,
           TUTTI_PATCH);
}

void tt_say(const char *format, ...)
{
    char line[TEXT_BYTES];
    int used = snprintf(line, sizeof line, "tutti: ");
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    used = used < TEXT_BYTES - 1 ? used : TEXT_BYTES - 2;
    line[used] = '\n';
    tt_output_error(line, (size_t)used + 1);
}

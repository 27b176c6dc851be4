// Messages and the one way to fail. Levels, subsystems, settings (NCCL_DEBUG and its relatives) and
// the form of the lines are NCCL's.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

#include "nccl.h"

#include <stdatomic.h>

// Nothing is said at ABORT; it may be set.
enum tt_log_level {
    TT_LOG_VERSION = 1,
    TT_LOG_WARN = 2,
    TT_LOG_INFO = 3,
    TT_LOG_ABORT = 4,
    TT_LOG_TRACE = 5
};
enum tt_log_subsystem {
    TT_LOG_INIT = 0x1,
    TT_LOG_COLL = 0x2,
    TT_LOG_NET = 0x10,
    TT_LOG_ENV = 0x80,
    TT_LOG_ALLOC = 0x100,
    TT_LOG_NVLS = 0x800,
    TT_LOG_BOOTSTRAP = 0x1000,
    TT_LOG_REG = 0x2000,
    TT_LOG_PROFILE = 0x4000,
    TT_LOG_DESTROY = 0x10000,
};

// A place in the sources, for lines that name it.
struct tt_origin {
    const char *file, *function;
    int line;
};
#ifdef __FILE_NAME__
#define TT_HERE (&(const struct tt_origin){__FILE_NAME__, __func__, __LINE__})
#else
#define TT_HERE (&(const struct tt_origin){__FILE__, __func__, __LINE__})
#endif

// tt_log(level, subsystem, format, ...): one line, lower case, what happened and to whom
// ("rank 3: ..."). Keeps errno. Costs a load and a comparison where the level is not wanted.
// NOLINTNEXTLINE(readability-identifier-naming): it is called as a function
#define tt_log(level, subsystem, ...)                                                              \
    (tt_log_level_wanted(level) ? tt_log_at(TT_HERE, level, subsystem, __VA_ARGS__) : (void)0)
void tt_log_at(const struct tt_origin *origin, enum tt_log_level level,
               enum tt_log_subsystem subsystem, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

extern atomic_int tt_log_most; // the highest level that is wanted; INT_MAX: not known yet
static inline int tt_log_level_wanted(enum tt_log_level level)
{
    return (int)level <= atomic_load_explicit(&tt_log_most, memory_order_relaxed);
}

// Says once per process which settings the environment has and which version this is: at INFO as
// messages, at VERSION and WARN as one bare line of rank 0, as NCCL does.
void tt_log_start(int rank);

// One line on stderr, "tutti: ...", whatever the settings: for what a user must know and no return
// value can carry.
void tt_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// From begin to end, what CUDA forbids to other threads while a stream is captured is allowed to
// the calling thread, so that the library spoils nobody's capture. The outermost pair counts.
void tt_relax_begin(void);
void tt_relax_end(void);
// The same; and failures of the thread are told with the name of the public function and the rank
// (-1: none), where their text does not have them.
void tt_call_begin(const char *call, int rank);
void tt_call_end(void);
const char *tt_call_name(void); // NULL outside
// From now on failures name this call (NULL: none, nor the rank); returns the one before.
const char *tt_call_rename(const char *call);

// tt_fail(result, format, ...): where a failure is first seen. Stores the text for
// ncclGetLastError, warns once, returns `result`. Callers above only pass the result on. The text
// names the argument, its value, the rank and what would be right.
// NOLINTNEXTLINE(readability-identifier-naming): it is called as a function
#define tt_fail(result, ...) tt_fail_at(TT_HERE, result, __VA_ARGS__)
ncclResult_t tt_fail_at(const struct tt_origin *origin, ncclResult_t result, const char *format,
                        ...) __attribute__((format(printf, 3, 4)));
// A broken invariant of ours: ncclInternalError in release builds, abort in debug and sanitizer
// builds.
ncclResult_t tt_bug(const char *format, ...) __attribute__((format(printf, 1, 2)));
// A call of CUDA failed: ncclUnhandledCudaError with the call's name, CUDA's own text and, where
// the runtime keeps one and has met no other failure since, its reason; ncclSuccess for 0.
ncclResult_t tt_cuda(int cuda_error, const char *call);
// What the CUDA runtime itself says of this thread's last failed call; "" where it says nothing.
const char *tt_cuda_detail(void);

// Returns on error. Only in functions that own nothing at that point.
#define TRY(expression)                                                                            \
    do {                                                                                           \
        ncclResult_t try_result = (expression);                                                    \
        if (try_result != ncclSuccess) {                                                           \
            return try_result;                                                                     \
        }                                                                                          \
    } while (0)
#define TRY_CUDA(call) TRY(tt_cuda((int)(call), #call))

// The text of this thread's last failure; the process's last where this thread met none.
const char *tt_last_error(void);
// The text of this thread's own last failure ("" before the first), and a way to make a text the
// last one again: where several threads fail together, the first one's text is what a user should
// read.
const char *tt_thread_error(void);
void tt_restore_error(const char *text);

// Warns of a text that is stored already; for tt_fail_at.
void tt_log_warn(const struct tt_origin *origin, const char *text);

// What ncclGetErrorString says.
const char *tt_result_text(ncclResult_t result);

#endif

// Every setting from the environment, one row each in params.c, which docs/env.md is made from.
// Read once, at the first question.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_PARAMS_H
#define TT_BASE_PARAMS_H

#include <stdbool.h>

enum tt_param {
    TT_PARAM_DEBUG,          // NCCL_DEBUG
    TT_PARAM_DEBUG_SUBSYS,   // NCCL_DEBUG_SUBSYS
    TT_PARAM_DEBUG_FILE,     // NCCL_DEBUG_FILE
    TT_PARAM_DEBUG_TIME,     // NCCL_DEBUG_TIMESTAMP_FORMAT
    TT_PARAM_DEBUG_TIMED,    // NCCL_DEBUG_TIMESTAMP_LEVELS
    TT_PARAM_DEBUG_WARN,     // NCCL_WARN_ENABLE_DEBUG_INFO
    TT_PARAM_COMM_ID,        // NCCL_COMM_ID
    TT_PARAM_COMM_BLOCKING,  // NCCL_COMM_BLOCKING
    TT_PARAM_SOCKET_IFNAME,  // NCCL_SOCKET_IFNAME
    TT_PARAM_HOSTID,         // NCCL_HOSTID
    TT_PARAM_ALGO,           // NCCL_ALGO
    TT_PARAM_PROTO,          // NCCL_PROTO
    TT_PARAM_NVLS_ENABLE,    // NCCL_NVLS_ENABLE
    TT_PARAM_WIN_ENABLE,     // NCCL_WIN_ENABLE
    TT_PARAM_CUMEM_ENABLE,   // NCCL_CUMEM_ENABLE
    TT_PARAM_LOCAL_REGISTER, // NCCL_LOCAL_REGISTER
    TT_PARAM_LSA_TEAM_SIZE,  // NCCL_LSA_TEAM_SIZE
    TT_PARAM_VERSION_CHECK,  // NCCL_ENABLE_VERSION_CHECK
    TT_PARAM_INIT_TIMEOUT,   // TUTTI_INIT_TIMEOUT
    TT_PARAM_TIMEOUT,        // TUTTI_TIMEOUT
    TT_PARAM_CHECK_CALLS,    // TUTTI_CHECK_CALLS
    TT_PARAM_FAKE_HOSTS,     // TUTTI_FAKE_HOSTS
    TT_PARAM_SECRET,         // TUTTI_SECRET
    TT_PARAM_INSECURE,       // TUTTI_INSECURE
    TT_PARAM_MUNGE_SOCKET,   // TUTTI_MUNGE_SOCKET
    TT_PARAM_LAUNCH,         // TUTTI_LAUNCH
    TT_PARAM_RENDEZVOUS,     // TUTTI_RENDEZVOUS
    TT_PARAM_RANK,           // TUTTI_RANK
    TT_PARAM_SIZE,           // TUTTI_SIZE
    TT_PARAM_LOCAL_RANK,     // TUTTI_LOCAL_RANK
    TT_PARAM_LOCAL_SIZE,     // TUTTI_LOCAL_SIZE
    TT_PARAM_MAP,            // TUTTI_MAP
    TT_PARAM_TRACE,          // TUTTI_TRACE
    TT_PARAM_TRACE_LIMIT,    // TUTTI_TRACE_LIMIT
    TT_PARAM_SUMMARY,        // TUTTI_SUMMARY
    TT_PARAM_DUMP_SIGNAL,    // TUTTI_DUMP_SIGNAL
    TT_PARAM_DUMP_FILE,      // TUTTI_DUMP_FILE
    TT_PARAM_CONNECTIONS,    // CUDA_DEVICE_MAX_CONNECTIONS
    TT_PARAM_MPS_PIPE,       // CUDA_MPS_PIPE_DIRECTORY
    TT_PARAM_COUNT
};

struct tt_param_row {
    const char *name;
    bool is_text;
    long standard, least, most; // integers only
    const char *values;         // that it may have; NULL: `least` to `most`
    const char *unset;          // what holds where a text is not set; NULL: nothing
    const char *since;          // version
    const char *help;           // as in docs/env.md, Markdown
};

const struct tt_param_row *tt_param_row(enum tt_param param);

// The value of an integer setting: as set, or its default. A text that is no number in the row's
// range is refused with one line on stderr, and the default stands.
long tt_param_int(enum tt_param param);
// The value of a text setting, "" where it is not set.
const char *tt_param_text(enum tt_param param);
// The name of a setting, and its text as the environment has it; NULL where it is not set. A
// secret's text is not shown.
const char *tt_param_name(enum tt_param param);
const char *tt_param_as_set(enum tt_param param);

// A variable of a launcher (src/launch/sources.c has their table), as it is now; NULL: not set.
const char *tt_param_of_launcher(const char *name);

// For library constructors, before settings are read: what the environment has (NULL: nothing), and
// setting a variable for others that read it (CUDA), unless it is set; true where it was not.
const char *tt_param_peek(enum tt_param param);
bool tt_param_propose(enum tt_param param, const char *text);

#endif

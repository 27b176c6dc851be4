// The table of settings. The only place of the library that reads the environment. See params.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    bool is_text;
    long standard, least, most; // integers only
    const char *help;
};

static const struct row rows[TT_PARAM_COUNT] = {
    [TT_PARAM_DEBUG] = {"NCCL_DEBUG", true, 0, 0, 0,
                        "what is said: NONE, VERSION, WARN (errors), INFO, TRACE; unset: only what "
                        "a user must know"},
    [TT_PARAM_DEBUG_SUBSYS] =
        {"NCCL_DEBUG_SUBSYS", true, 0, 0, 0,
         "of which parts INFO is said: INIT, BOOTSTRAP, ENV, REG, NVLS, COLL, ALL, ^ means not"},
    [TT_PARAM_DEBUG_FILE] = {"NCCL_DEBUG_FILE", true, 0, 0, 0,
                             "file for messages instead of stdout; %h host, %p process id"},
    [TT_PARAM_COMM_ID] =
        {"NCCL_COMM_ID", true, 0, 0, 0,
         "address:port where rank 0 listens; the secret then comes from TUTTI_SECRET"},
    [TT_PARAM_COMM_BLOCKING] = {"NCCL_COMM_BLOCKING", false, -1, -1, 1,
                                "overrides the configuration's `blocking`: 0 or 1"},
    [TT_PARAM_SOCKET_IFNAME] = {"NCCL_SOCKET_IFNAME", true, 0, 0, 0,
                                "network interface for the rendezvous: prefixes, = exact, ^ not"},
    [TT_PARAM_HOSTID] = {"NCCL_HOSTID", true, 0, 0, 0,
                         "names this process's host, to pretend several hosts"},
    [TT_PARAM_ALGO] = {"NCCL_ALGO", true, 0, 0, 0,
                       "algorithms that may be used: Ring,Tree or ^NVLS, also by function: "
                       "Ring;allreduce:Direct"},
    [TT_PARAM_NVLS_ENABLE] = {"NCCL_NVLS_ENABLE", false, 2, 0, 2,
                              "multicast: 0 never, 1 or 2 where the devices have it"},
    [TT_PARAM_WIN_ENABLE] = {"NCCL_WIN_ENABLE", false, 1, 0, 1, "symmetric windows: 0 off"},
    [TT_PARAM_CUMEM_ENABLE] = {"NCCL_CUMEM_ENABLE", false, -2, -2, 1,
                               "virtual memory management: 0 off"},
    [TT_PARAM_LSA_TEAM_SIZE] = {"NCCL_LSA_TEAM_SIZE", false, 0, 0, INT_MAX,
                                "ranks of an LSA team; 0: as many as every host allows"},
    [TT_PARAM_VERSION_CHECK] = {"NCCL_ENABLE_VERSION_CHECK", false, 1, 0, 1,
                                "refuse device programs compiled for a newer version: 0 off"},
    [TT_PARAM_INIT_TIMEOUT] =
        {"TUTTI_INIT_TIMEOUT", false, 600, 1, 1000000,
         "seconds after which a rank that does not come, or a root that does not answer, is an "
         "error"},
    [TT_PARAM_TIMEOUT] = {"TUTTI_TIMEOUT", false, 0, 0, 1000000,
                          "seconds after which a rank that does not come to an operation is an "
                          "error; 0: never"},
    [TT_PARAM_FAKE_HOSTS] =
        {"TUTTI_FAKE_HOSTS", true, 0, 0, 0,
         "splits the ranks into pretended hosts: 3,5 puts ranks 0-2 and 3-7 apart"},
    [TT_PARAM_SECRET] = {"TUTTI_SECRET", true, 0, 0, 0,
                         "shared secret where no unique id carries one"},
    [TT_PARAM_INSECURE] = {"TUTTI_INSECURE", false, 0, 0, 1,
                           "1 allows a rendezvous without a secret off loopback"},
    [TT_PARAM_TRACE] = {"TUTTI_TRACE", true, 0, 0, 0,
                        "file for a trace of all operations, for Perfetto; %h host, %p process id, "
                        "%r rank"},
    [TT_PARAM_TRACE_LIMIT] = {"TUTTI_TRACE_LIMIT", false, 100000, 100, 100000000,
                              "operations of a communicator and rank that a trace keeps, the last"},
    [TT_PARAM_SUMMARY] = {"TUTTI_SUMMARY", false, 0, 0, 1,
                          "1: at exit, who came last and how long others waited, on stderr"},
    [TT_PARAM_DUMP_SIGNAL] = {"TUTTI_DUMP_SIGNAL", true, 0, 0, 0,
                              "signal that makes a process tell its state: USR2, or a number"},
    [TT_PARAM_DUMP_FILE] = {"TUTTI_DUMP_FILE", true, 0, 0, 0,
                            "file for such states instead of stderr; %h host, %p process id, %r "
                            "rank"},
};

// Filled once by read_all; constant afterwards.
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long integers[TT_PARAM_COUNT];
static char *texts[TT_PARAM_COUNT];

static long read_integer(const struct row *row, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 0);
    if (*text == 0 || *end != 0 || errno != 0 || value < row->least || value > row->most) {
        (void)fprintf(stderr,
                      "tutti: %s=%s is ignored: must be an integer from %ld to %ld; %ld stands\n",
                      row->name, text, row->least, row->most, row->standard);
        return row->standard;
    }
    return value;
}

static void read_all(void)
{
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        const char *text = getenv(rows[i].name); // NOLINT(concurrency-mt-unsafe): once
        integers[i] = rows[i].standard;
        if (text == NULL) {
            continue;
        }
        texts[i] = strdup(text);
        if (!rows[i].is_text) {
            integers[i] = read_integer(&rows[i], text);
        }
    }
}

long tt_param_int(enum tt_param param)
{
    pthread_once(&once, read_all);
    return integers[param];
}

const char *tt_param_text(enum tt_param param)
{
    pthread_once(&once, read_all);
    return texts[param] == NULL ? "" : texts[param];
}

const char *tt_param_name(enum tt_param param)
{
    return rows[param].name;
}

const char *tt_param_as_set(enum tt_param param)
{
    pthread_once(&once, read_all);
    return param == TT_PARAM_SECRET && texts[param] != NULL ? "(not shown)" : texts[param];
}

void tt_param_print(FILE *file)
{
    for (int i = 0; i < TT_PARAM_COUNT; i++) {
        if (rows[i].is_text) {
            (void)fprintf(file, "%-26s text     %s\n", rows[i].name, rows[i].help);
        } else {
            (void)fprintf(file, "%-26s %-8ld %s\n", rows[i].name, rows[i].standard, rows[i].help);
        }
    }
}

// The table of settings. The only place of the library that reads the environment. See params.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/params.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct tt_param_row rows[TT_PARAM_COUNT] = {
    [TT_PARAM_DEBUG] = {"NCCL_DEBUG", true, 0, 0, 0,
                        "`NONE`, `VERSION`, `WARN`, `INFO`, `ABORT`, `TRACE`", NULL, "0.1",
                        "what is said: `WARN`: errors; unset: only what a user must know"},
    [TT_PARAM_DEBUG_SUBSYS] = {"NCCL_DEBUG_SUBSYS", true, 0, 0, 0,
                               "`INIT`, `BOOTSTRAP`, `ENV`, `REG`, `ALLOC`, `NVLS`, `COLL`, `NET`, "
                               "`PROFILE`, `DESTROY`, `ALL`, between commas",
                               "`INIT,BOOTSTRAP,ENV`", "0.1",
                               "the parts that INFO speaks of; `^` before them: all others"},
    [TT_PARAM_DEBUG_FILE] =
        {"NCCL_DEBUG_FILE", true, 0, 0, 0, "a file", "stdout", "0.1",
         "where messages go; `%h` is the host, `%p` the process id. Emptied first; one that "
         "takes no more is told of once, and stderr takes its place"},
    [TT_PARAM_DEBUG_TIME] = {"NCCL_DEBUG_TIMESTAMP_FORMAT", true, 0, 0, 0, "as for strftime",
                             "`[%F %T] `", "0.2",
                             "the time before lines that have one; `%3f`: three digits of the "
                             "second, `_`: a space"},
    [TT_PARAM_DEBUG_TIMED] = {"NCCL_DEBUG_TIMESTAMP_LEVELS", true, 0, 0, 0,
                              "levels as in `NCCL_DEBUG`, or `ALL`, between commas", "`WARN`",
                              "0.2", "which lines have a time; `^` before them: all others"},
    [TT_PARAM_DEBUG_WARN] = {"NCCL_WARN_ENABLE_DEBUG_INFO", false, 0, 0, 1, NULL, NULL, "0.2",
                             "`1`: the first warning turns `WARN` into `INFO`"},
    [TT_PARAM_COMM_ID] = {"NCCL_COMM_ID", true, 0, 0, 0, "`address:port`", NULL, "0.1",
                          "where rank 0 listens; the secret then comes from `TUTTI_SECRET`"},
    [TT_PARAM_COMM_BLOCKING] = {"NCCL_COMM_BLOCKING", false, -1, -1, 1, NULL, NULL, "0.1",
                                "`0` or `1` overrides `blocking` in the configuration"},
    [TT_PARAM_SOCKET_IFNAME] =
        {"NCCL_SOCKET_IFNAME", true, 0, 0, 0, "prefixes of names, between commas", NULL, "0.1",
         "network interfaces for the rendezvous; `=` before them: exactly these, `^`: not these"},
    [TT_PARAM_HOSTID] = {"NCCL_HOSTID", true, 0, 0, 0, "any text", NULL, "0.1",
                         "names this process's host, to pretend that there are several"},
    [TT_PARAM_ALGO] =
        {"NCCL_ALGO", true, 0, 0, 0,
         "names between commas; `^` before them: all but these; by function as well: "
         "`Ring;AllReduce:direct`",
         "all", "0.1",
         "algorithms that may be used: `NVLS`, `Ring`, `Tree`, `direct`, `staged`; an algorithm's "
         "own name (`tutti-plan --list`) stands for it, too: `NVLS` is `switch` and `far_switch`. "
         "Uneven sizes are not done by `NVLS`. What NCCL has and tutti has not (`CollNetDirect`, "
         "`CollNetChain`, "
         "`NVLSTree`, `PAT`) may be named and allows nothing. Functions: Broadcast, Reduce, "
         "AllGather, ReduceScatter, AllReduce"},
    [TT_PARAM_PROTO] = {"NCCL_PROTO", true, 0, 0, 0, "names between commas, as in `NCCL_ALGO`",
                        "all", "0.1",
                        "protocols that may be used: `LL`, `LL128`, `Simple`. There is one way to "
                        "move bytes here, so that only a list that leaves none matters: the "
                        "function is then refused"},
    [TT_PARAM_NVLS_ENABLE] = {"NCCL_NVLS_ENABLE", false, 2, 0, 2, NULL, NULL, "0.1",
                              "`0`: no multimem; `1` or `2`: where the devices have it"},
    [TT_PARAM_WIN_ENABLE] = {"NCCL_WIN_ENABLE", false, 1, 0, 1, NULL, NULL, "0.1",
                             "`0`: no symmetric windows"},
    [TT_PARAM_CUMEM_ENABLE] = {"NCCL_CUMEM_ENABLE", false, -2, -2, 1, NULL, NULL, "0.1",
                               "`0`: no virtual memory management, so no symmetric windows"},
    [TT_PARAM_LOCAL_REGISTER] = {"NCCL_LOCAL_REGISTER", false, 1, 0, 1, NULL, NULL, "0.1",
                                 "`0`: `ncclCommRegister` does nothing, its handle is NULL"},
    [TT_PARAM_LSA_TEAM_SIZE] = {"NCCL_LSA_TEAM_SIZE", false, 0, 0, INT_MAX, "a number of ranks",
                                NULL, "0.1",
                                "ranks of an LSA team; `0`: as many as every host allows"},
    [TT_PARAM_VERSION_CHECK] = {"NCCL_ENABLE_VERSION_CHECK", false, 1, 0, 1, NULL, NULL, "0.1",
                                "`0`: accept device programs compiled for a newer version"},
    [TT_PARAM_INIT_TIMEOUT] = {"TUTTI_INIT_TIMEOUT", false, 600, 1, 1000000, NULL, NULL, "0.1",
                               "seconds after which a missing rank, or a root that does not "
                               "answer, is an error (a connection alone waits at most 30)"},
    [TT_PARAM_TIMEOUT] =
        {"TUTTI_TIMEOUT", false, 0, 0, 1000000, NULL, NULL, "0.1",
         "seconds after which a rank that does not come to an operation is an error on all ranks; "
         "`0`: never (it is named on stderr after 10 s, and again each time the wait has doubled)"},
    [TT_PARAM_CHECK_CALLS] =
        {"TUTTI_CHECK_CALLS", false, 1, 0, 1, NULL, NULL, "0.1",
         "`0`: ranks do not compare their calls, and different ones end in wrong results, hangs or "
         "worse. A comparison costs some 40 instructions a collective (`./dev bench checks`)"},
    [TT_PARAM_FAKE_HOSTS] = {"TUTTI_FAKE_HOSTS", true, 0, 0, 0, "numbers between commas", NULL,
                             "0.1",
                             "`4,4`: the first 4 ranks count as one host, the next 4 as another; "
                             "ranks beyond the list are on one more. LSA teams have as many ranks "
                             "as divide every host: with `3,5` that is 1"},
    [TT_PARAM_SECRET] = {"TUTTI_SECRET", true, 0, 0, 0, "any text", NULL, "0.1",
                         "the shared secret where no unique id carries one"},
    [TT_PARAM_INSECURE] =
        {"TUTTI_INSECURE", false, 0, 0, 1, NULL, NULL, "0.1",
         "`1`: allow a rendezvous without a secret off the loopback, with a warning"},
    [TT_PARAM_MUNGE_SOCKET] = {"TUTTI_MUNGE_SOCKET", true, 0, 0, 0, "a path", "munge's own", "0.1",
                               "where munge listens, as Slurm's `AuthInfo=socket=` has it"},
    [TT_PARAM_LAUNCH] = {"TUTTI_LAUNCH", true, 0, 0, 0,
                         "`tutti`, `torchrun`, `pmix`, `openmpi`, `mpich`, `variables`, `slurm`, "
                         "`none`",
                         "the first that fits, in this order", "0.1",
                         "what `tuttiCommInit` takes rank and size from: "
                         "[launching.md](launching.md)"},
    [TT_PARAM_RENDEZVOUS] = {"TUTTI_RENDEZVOUS", true, 0, 0, 0,
                             "`file:PATH`, `host:port` or `[address]:port`",
                             "as the launcher allows", "0.1",
                             "where `tuttiCommInit` hands on the unique id: a file that all ranks "
                             "see, or an address of rank 0"},
    [TT_PARAM_RANK] = {"TUTTI_RANK", true, 0, 0, 0, "a number", NULL, "0.1",
                       "this process's rank; `tutti-run` sets it and the next three"},
    [TT_PARAM_SIZE] = {"TUTTI_SIZE", true, 0, 0, 0, "a number", NULL, "0.1", "number of ranks"},
    [TT_PARAM_LOCAL_RANK] = {"TUTTI_LOCAL_RANK", true, 0, 0, 0, "a number", NULL, "0.1",
                             "this process's number among those of its host: it picks the GPU"},
    [TT_PARAM_LOCAL_SIZE] = {"TUTTI_LOCAL_SIZE", true, 0, 0, 0, "a number", NULL, "0.1",
                             "number of ranks on this host"},
    [TT_PARAM_MAP] = {"TUTTI_MAP", false, 1, 0, 1, NULL, NULL, "0.1",
                      "`0`: `tuttiCommInit` does not say on stderr which rank has which GPU"},
    [TT_PARAM_TRACE] = {"TUTTI_TRACE", true, 0, 0, 0, "a file", NULL, "0.1",
                        "where a trace of all operations goes, which Perfetto shows; `%h` is the "
                        "host, `%p` the process id, `%r` the rank. Where several processes would "
                        "write one file, their lowest ranks come before its ending, "
                        "`trace.0.json`: [tracing.md](tracing.md)"},
    [TT_PARAM_TRACE_LIMIT] =
        {"TUTTI_TRACE_LIMIT", false, 100000, 100, 100000000, NULL, NULL, "0.1",
         "how many operations of a communicator and rank a trace keeps: the last ones"},
    [TT_PARAM_SUMMARY] =
        {"TUTTI_SUMMARY", false, 0, 0, 1, NULL, NULL, "0.1",
         "`1`: at exit, which rank came last how often and how long others waited, on stderr"},
    [TT_PARAM_DUMP_SIGNAL] =
        {"TUTTI_DUMP_SIGNAL", true, 0, 0, 0,
         "`USR1`, `USR2`, `HUP`, `QUIT`, or the number of a real-time signal, 34 to 64", "none",
         "0.1", "signal that makes a process tell its state, as `tuttiDumpState` does"},
    [TT_PARAM_DUMP_FILE] = {"TUTTI_DUMP_FILE", true, 0, 0, 0, "a file", "stderr", "0.1",
                            "where such states go, and those of `tuttiDumpState` without a path; "
                            "appended to; `%h`, `%p`, `%r` as above"},
    [TT_PARAM_CONNECTIONS] =
        {"CUDA_DEVICE_MAX_CONNECTIONS", false, 8, 1, 32, NULL, NULL, "0.1",
         "hardware queues of a process on a GPU; streams beyond them wait for each other, and "
         "ranks "
         "that share a GPU can then wait for ever. The library asks for 32 when it is loaded, "
         "unless the variable is set or MPS runs, whose processes share the GPU's queues"},
    [TT_PARAM_MPS_PIPE] = {"CUDA_MPS_PIPE_DIRECTORY", true, 0, 0, 0, "a folder",
                           "`/tmp/nvidia-mps`", "0.1",
                           "where MPS (`nvidia-cuda-mps-control -d`) is found, by CUDA too"},
};

// Filled once by read_all; constant afterwards.
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long integers[TT_PARAM_COUNT];
static char *texts[TT_PARAM_COUNT];

static long read_integer(const struct tt_param_row *row, const char *text)
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

const struct tt_param_row *tt_param_row(enum tt_param param)
{
    return &rows[param];
}

const char *tt_param_name(enum tt_param param)
{
    return rows[param].name;
}

const char *tt_param_of_launcher(const char *name)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody writes it in a program with threads
    return getenv(name);
}

const char *tt_param_peek(enum tt_param param)
{
    return getenv(rows[param].name); // NOLINT(concurrency-mt-unsafe): while libraries are loaded
}

bool tt_param_propose(enum tt_param param, const char *text)
{
    // NOLINTNEXTLINE(concurrency-mt-unsafe): while libraries are loaded
    return tt_param_peek(param) == NULL && setenv(rows[param].name, text, 0) == 0;
}

const char *tt_param_as_set(enum tt_param param)
{
    pthread_once(&once, read_all);
    return param == TT_PARAM_SECRET && texts[param] != NULL ? "(not shown)" : texts[param];
}

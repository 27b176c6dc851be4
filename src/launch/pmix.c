// PMIx, from mpirun, srun --mpi=pmix or tutti-run: who this process is, and rank 0's id by Put,
// Commit, Fence, Get; for further communicators without the Fence. libpmix is loaded when a
// launcher has set its variables. Fences gather data and span the whole job: others are wrong, or
// hang, under Slurm 22.05.
// See exchange.h. SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "base/wait.h"
#include "launch/exchange.h"

#include <dlfcn.h>
#include <pmix.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    GET_PATIENCE_S = 5, // of one question
    GET_PAUSE_US = 5000,
};

static struct {
    pmix_status_t (*init)(pmix_proc_t *proc, pmix_info_t info[], size_t count);
    int (*initialized)(void);
    pmix_status_t (*finalize)(const pmix_info_t info[], size_t count);
    pmix_status_t (*put)(pmix_scope_t scope, const char key[], pmix_value_t *value);
    pmix_status_t (*commit)(void);
    pmix_status_t (*fence)(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                           size_t count);
    pmix_status_t (*get)(const pmix_proc_t *proc, const char key[], const pmix_info_t info[],
                         size_t count, pmix_value_t **value);
    const char *(*text)(pmix_status_t status);
} pmix;

struct words {
    char text[160];
};

// What a status means here, with PMIx's own word for it.
static struct words explain(pmix_status_t status)
{
    struct words words;
    const char *meaning;
    switch (status) {
    case PMIX_ERR_UNREACH:
    case PMIX_ERR_LOST_CONNECTION:
        meaning = "this process's PMIx server has ended, or cannot be reached: ";
        break;
    case PMIX_ERR_NOT_FOUND:
#ifdef PMIX_ERR_DATA_VALUE_NOT_FOUND // older versions
    case PMIX_ERR_DATA_VALUE_NOT_FOUND:
#endif
        meaning = "the PMIx server knows of no such value: its rank has not put it, or was started "
                  "by another launcher: ";
        break;
    case PMIX_ERR_NO_PERMISSIONS:
        meaning = "the PMIx server is another user's: ";
        break;
    default:
        meaning = "PMIx says ";
    }
    (void)snprintf(words.text, sizeof words.text, "%s%s", meaning, pmix.text(status));
    return words;
}

static struct {
    pthread_mutex_t mutex;
    int users;   // communicators, and the call that makes one
    bool is_own; // the program had not called PMIx_Init before
    pid_t owner;
    pmix_proc_t self;
    struct tt_place place; // as first asked for: a client that begins anew is not told all again
    bool is_absent;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const struct {
        const char *name;
        void *place;
    } symbols[] = {{"PMIx_Init", &pmix.init},         {"PMIx_Initialized", &pmix.initialized},
                   {"PMIx_Finalize", &pmix.finalize}, {"PMIx_Put", &pmix.put},
                   {"PMIx_Commit", &pmix.commit},     {"PMIx_Fence", &pmix.fence},
                   {"PMIx_Get", &pmix.get},           {"PMIx_Error_string", &pmix.text}};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].place, &symbol, sizeof symbol);
        library = symbol == NULL ? NULL : library;
    }
    state.is_absent = library == NULL;
}

// Its thread must not take the program's signals.
static pmix_status_t init_without_signals(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pmix_status_t status = pmix.init(&state.self, NULL, 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

// With the mutex. One more user.
static bool hold(const char **why_out)
{
    if (state.users == 0 || state.owner != getpid()) { // after fork() PMIx is the parent's
        state.is_own = pmix.initialized() == 0;
        pmix_status_t status = init_without_signals();
        if (status != PMIX_SUCCESS) {
            static _Thread_local struct words why; // lives on with *why_out
            why = explain(status);
            *why_out = why.text;
            return false;
        }
        state.users = 0;
        state.owner = getpid();
    }
    state.users++;
    return true;
}

static void release(void)
{
    pthread_mutex_lock(&state.mutex);
    if (state.users > 0 && state.owner == getpid() && --state.users == 0) {
        (void)pmix.finalize(NULL, 0);
    }
    pthread_mutex_unlock(&state.mutex);
}

// A process that ends without destroying its communicators: its launcher takes it for one that has
// crashed, unless it says goodbye.
__attribute__((destructor)) static void say_goodbye(void)
{
    if (state.users > 0 && state.owner == getpid() && state.is_own) {
        (void)pmix.finalize(NULL, 0);
    }
}

bool tt_pmix_hold(void)
{
    pthread_mutex_lock(&state.mutex);
    bool holds = state.is_own;
    state.users += holds;
    pthread_mutex_unlock(&state.mutex);
    return holds;
}

void tt_pmix_release(void)
{
    release();
}

static void free_value(pmix_value_t *value)
{
    if (value->type == PMIX_BYTE_OBJECT) {
        free(value->data.bo.bytes);
    } else if (value->type == PMIX_STRING) {
        free(value->data.string);
    }
    free(value);
}

// A number of this process, or of the job.
static bool get_number(bool of_job, const char *key, int *out)
{
    pmix_proc_t proc = state.self;
    pmix_value_t *value = NULL;
    if (of_job) {
        proc.rank = PMIX_RANK_WILDCARD;
    }
    if (pmix.get(&proc, key, NULL, 0, &value) != PMIX_SUCCESS || value == NULL) {
        return false;
    }
    bool is_number = true;
    switch (value->type) {
    case PMIX_UINT32:
        *out = (int)value->data.uint32;
        break;
    case PMIX_UINT16:
        *out = value->data.uint16;
        break;
    case PMIX_PROC_RANK:
        *out = (int)value->data.rank;
        break;
    default:
        is_number = false;
    }
    free_value(value);
    return is_number && *out >= 0;
}

static bool ask_server(struct tt_place *place)
{
    int size = 0;
    place->rank = (int)state.self.rank;
    if (!get_number(true, PMIX_JOB_SIZE, &size) || place->rank >= size ||
        !get_number(false, PMIX_LOCAL_RANK, &place->local_rank)) {
        return false;
    }
    (void)get_number(true, PMIX_LOCAL_SIZE, &place->local_size);
    place->size = size;
    return true;
}

bool tt_pmix_ask(struct tt_place *place, const char **why_out)
{
    pthread_once(&once, load);
    if (state.is_absent) {
        *why_out = "libpmix.so.2 is not there";
        return false;
    }
    pthread_mutex_lock(&state.mutex);
    bool held = hold(why_out);
    pthread_mutex_unlock(&state.mutex);
    if (!held) {
        return false;
    }
    struct tt_place *known = &state.place;
    bool knows = known->size > 0 || ask_server(known);
    if (!knows) {
        *why_out = "the server does not know the job's size, or this process's local rank";
        release();
        return false;
    }
    place->rank = known->rank;
    place->size = known->size;
    place->local_rank = known->local_rank;
    place->local_size = known->local_size;
    return true;
}

// All ranks, with what they have put.
static pmix_status_t fence(void)
{
    pmix_info_t info[2] = {{.flags = 0}, {.flags = 0}};
    (void)snprintf(info[0].key, sizeof info[0].key, "%s", PMIX_COLLECT_DATA);
    info[0].value.type = PMIX_BOOL;
    info[0].value.data.flag = true;
    (void)snprintf(info[1].key, sizeof info[1].key, "%s", PMIX_TIMEOUT);
    info[1].value.type = PMIX_INT;
    info[1].value.data.integer = (int)tt_param_int(TT_PARAM_INIT_TIMEOUT);
    return pmix.fence(NULL, 0, info, 2);
}

static ncclResult_t fail(const struct tt_place *place, const char *call, pmix_status_t status)
{
    return status == PMIX_ERR_TIMEOUT
               ? tt_fail(ncclSystemError,
                         "rank %d: %s: not all %d ranks of the job have called tuttiCommInit "
                         "within %ld s (TUTTI_INIT_TIMEOUT)",
                         place->rank, call, place->size, tt_param_int(TT_PARAM_INIT_TIMEOUT))
               : tt_fail(ncclSystemError, "rank %d: %s: %s", place->rank, call,
                         explain(status).text);
}

static ncclResult_t put(const struct tt_place *place, const char *key, struct tt_offer *offer)
{
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT};
    value.data.bo.bytes = (char *)offer;
    value.data.bo.size = sizeof *offer;
    pmix_status_t status = pmix.put(PMIX_GLOBAL, key, &value);
    return status == PMIX_SUCCESS ? ncclSuccess : fail(place, "PMIx_Put", status);
}

// Gets rank 0's offer as soon as it is there, without a fence: PMIx may have been ended meanwhile,
// with the last communicator, and begun anew, on some ranks, which servers do not count in fences.
static pmix_status_t get_patiently(const pmix_proc_t *root, const char *key, pmix_value_t **value)
{
    uint64_t end_ns =
        tt_now_ns() + (uint64_t)tt_param_int(TT_PARAM_INIT_TIMEOUT) * UINT64_C(1000000000);
    pmix_info_t info = {.flags = 0};
    (void)snprintf(info.key, sizeof info.key, "%s", PMIX_TIMEOUT);
    info.value.type = PMIX_INT;
    info.value.data.integer = GET_PATIENCE_S;
    for (;;) {
        pmix_status_t status = pmix.get(root, key, &info, 1, value);
        if (status == PMIX_SUCCESS || tt_now_ns() > end_ns) {
            return status == PMIX_SUCCESS ? status : PMIX_ERR_TIMEOUT;
        }
        tt_wait_told();
        usleep(GET_PAUSE_US);
    }
}

ncclResult_t tt_pmix_exchange(const struct tt_place *place, int turn, struct tt_offer *offer)
{
    char key[64];
    pmix_value_t *value = NULL;
    pmix_proc_t root = state.self;
    root.rank = 0;
    (void)snprintf(key, sizeof key, "tutti.id.%d", turn);
    if (place->rank == 0) {
        TRY(put(place, key, offer));
    }
    pmix_status_t status = pmix.commit();
    if (status != PMIX_SUCCESS) {
        return fail(place, "PMIx_Commit", status);
    }
    if (place->rank == 0 && turn > 0) {
        return ncclSuccess;
    }
    status = turn == 0 ? fence() : PMIX_SUCCESS;
    if (status != PMIX_SUCCESS) {
        return fail(place, "PMIx_Fence", status);
    }
    status = turn == 0 ? pmix.get(&root, key, NULL, 0, &value) : get_patiently(&root, key, &value);
    if (status != PMIX_SUCCESS) {
        return fail(place, "PMIx_Get of rank 0's unique id", status);
    }
    bool good = value->type == PMIX_BYTE_OBJECT && value->data.bo.size == sizeof *offer;
    if (good) {
        memcpy(offer, value->data.bo.bytes, sizeof *offer);
    }
    free_value(value);
    return good && offer->magic == TT_OFFER_MAGIC
               ? ncclSuccess
               : tt_fail(ncclRemoteError,
                         "rank %d: rank 0 has another version of the library: its unique id cannot "
                         "be read",
                         place->rank);
}

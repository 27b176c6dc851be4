// A PMIx server for the tasks of this host: libpmix, loaded at run time; without it tasks run
// without. All tasks are its clients, so it answers fences by itself; calls of it come on its own
// thread. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <dlfcn.h>
#include <pmix.h>
#include <pmix_server.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    pmix_status_t (*init)(pmix_server_module_t *module, pmix_info_t info[], size_t count);
    pmix_status_t (*finalize)(void);
    pmix_status_t (*regex)(const char *input, char **regex);
    pmix_status_t (*ppn)(const char *input, char **ppn);
    pmix_status_t (*register_nspace)(const pmix_nspace_t name, int local, pmix_info_t info[],
                                     size_t count, pmix_op_cbfunc_t done, void *context);
    pmix_status_t (*register_client)(const pmix_proc_t *proc, uid_t user, gid_t group, void *object,
                                     pmix_op_cbfunc_t done, void *context);
    pmix_status_t (*setup_fork)(const pmix_proc_t *proc, char ***environment);
    pmix_status_t (*load)(pmix_info_t *info, const char *key, const void *value,
                          pmix_data_type_t type);
    void (*destruct)(pmix_value_t *value);
    const char *(*text)(pmix_status_t status);
} pmix;

static struct {
    pmix_nspace_t name;
    char **words; // of the last task that was asked for
    bool is_up;
} server;
static _Atomic int aborted;

static bool load(void)
{
    static const struct {
        const char *name;
        void *place;
    } symbols[] = {{"PMIx_server_init", &pmix.init},
                   {"PMIx_server_finalize", &pmix.finalize},
                   {"PMIx_generate_regex", &pmix.regex},
                   {"PMIx_generate_ppn", &pmix.ppn},
                   {"PMIx_server_register_nspace", &pmix.register_nspace},
                   {"PMIx_server_register_client", &pmix.register_client},
                   {"PMIx_server_setup_fork", &pmix.setup_fork},
                   {"PMIx_Info_load", &pmix.load},
                   {"PMIx_Value_destruct", &pmix.destruct},
                   {"PMIx_Error_string", &pmix.text}};
    void *library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; library != NULL && i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].place, &symbol, sizeof symbol);
        library = symbol == NULL ? NULL : library;
    }
    return library != NULL;
}

// ---- Calls that end later -----------------------------------------------------------------------

// One call, or several at a time: each wait for the other thread costs a turn of the processor.
struct operation {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int left;
    bool failed;
};
#define OPERATION(calls)                                                                           \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .left = (calls)   \
    }

static void end_call(pmix_status_t status, void *context)
{
    struct operation *operation = context;
    pthread_mutex_lock(&operation->mutex);
    operation->failed = operation->failed || status != PMIX_SUCCESS;
    operation->left--;
    pthread_cond_signal(&operation->changed);
    pthread_mutex_unlock(&operation->mutex);
}

// begun: what the call returned.
static void note_call(struct operation *operation, pmix_status_t begun)
{
    if (begun != PMIX_SUCCESS) { // nothing follows
        end_call(begun == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : begun, operation);
    }
}

static bool await(struct operation *operation)
{
    pthread_mutex_lock(&operation->mutex);
    while (operation->left > 0) {
        pthread_cond_wait(&operation->changed, &operation->mutex);
    }
    pthread_mutex_unlock(&operation->mutex);
    return !operation->failed;
}

// ---- What the server asks of tutti-run ----------------------------------------------------------

static pmix_status_t on_connect(const pmix_proc_t *proc, void *object, pmix_info_t info[],
                                size_t count, pmix_op_cbfunc_t done, void *context)
{
    (void)proc, (void)object, (void)info, (void)count, (void)done, (void)context;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalize(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done,
                                 void *context)
{
    (void)proc, (void)object, (void)done, (void)context;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char text[],
                              pmix_proc_t procs[], size_t count, pmix_op_cbfunc_t done,
                              void *context)
{
    int none = 0;
    (void)object, (void)procs, (void)count, (void)done, (void)context;
    run_tell("rank %u ends the job with status %d (PMIx_Abort)%s%s", proc->rank, status,
             text != NULL && *text != 0 ? ": " : "", text != NULL ? text : "");
    (void)atomic_compare_exchange_strong(&aborted, &none, (status & 0xff) == 0 ? 1 : status & 0xff);
    (void)kill(getpid(), SIGCHLD); // the main thread looks
    return PMIX_OPERATION_SUCCEEDED;
}

// All ranks are here: what they gave goes back as it is.
static pmix_status_t on_fence(const pmix_proc_t procs[], size_t nprocs, const pmix_info_t info[],
                              size_t count, char *data, size_t bytes, pmix_modex_cbfunc_t done,
                              void *context)
{
    (void)procs, (void)nprocs, (void)info, (void)count;
    if (done != NULL) {
        done(PMIX_SUCCESS, data, bytes, context, NULL, NULL);
    }
    return PMIX_SUCCESS;
}

// Only for ranks of other hosts: there are none.
static pmix_status_t on_lookup(const pmix_proc_t *proc, const pmix_info_t info[], size_t count,
                               pmix_modex_cbfunc_t done, void *context)
{
    (void)proc, (void)info, (void)count, (void)done, (void)context;
    return PMIX_ERR_NOT_FOUND;
}

static pmix_server_module_t module = {.client_connected2 = on_connect,
                                      .client_finalized = on_finalize,
                                      .abort = on_abort,
                                      .fence_nb = on_fence,
                                      .direct_modex = on_lookup};

// ---- The job's description ----------------------------------------------------------------------

static void put(pmix_info_t *info, const char *key, pmix_data_type_t type, const void *value)
{
    (void)snprintf(info->key, sizeof info->key, "%s", key);
    info->value.type = type;
    switch (type) {
    case PMIX_UINT32:
    case PMIX_PROC_RANK:
        memcpy(&info->value.data.uint32, value, sizeof(uint32_t));
        break;
    case PMIX_UINT16:
        memcpy(&info->value.data.uint16, value, sizeof(uint16_t));
        break;
    case PMIX_DATA_ARRAY:
        info->value.data.darray = (pmix_data_array_t *)value;
        break;
    default:
        info->value.data.string = (char *)value;
    }
}

enum { OF_JOB = 9, OF_TASK = 6 };

struct described_task {
    pmix_info_t info[OF_TASK];
    pmix_data_array_t array;
    uint32_t rank, node, app;
    uint16_t local;
};

static void describe_task(const struct run_options *options, int task, char *host,
                          struct described_task *out, pmix_info_t *info)
{
    int node, local;
    run_options_place(options, task, &node, &local);
    out->rank = (uint32_t)task;
    out->local = (uint16_t)local;
    out->node = (uint32_t)node;
    put(&out->info[0], PMIX_RANK, PMIX_PROC_RANK, &out->rank); // must be the first
    put(&out->info[1], PMIX_LOCAL_RANK, PMIX_UINT16, &out->local);
    put(&out->info[2], PMIX_NODE_RANK, PMIX_UINT16, &out->local);
    put(&out->info[3], PMIX_NODEID, PMIX_UINT32, &out->node);
    put(&out->info[4], PMIX_HOSTNAME, PMIX_STRING, host);
    put(&out->info[5], PMIX_APPNUM, PMIX_UINT32, &out->app);
    out->array = (pmix_data_array_t){.type = PMIX_INFO, .size = OF_TASK, .array = out->info};
    put(info, PMIX_PROC_DATA, PMIX_DATA_ARRAY, &out->array);
}

static bool describe_job(const struct run_options *options, char *host)
{
    size_t tasks = (size_t)options->tasks, used = 0;
    uint32_t size = (uint32_t)options->tasks, local = (uint32_t)options->host_tasks[0];
    uint32_t nodes = (uint32_t)options->host_count;
    char *regex = NULL, *ppn = NULL, *peers = calloc(tasks, 12);
    pmix_info_t *info = calloc(OF_JOB + tasks, sizeof *info);
    struct described_task *described = calloc(tasks, sizeof *described);
    bool good = peers != NULL && info != NULL && described != NULL;
    for (size_t task = 0; good && task < tasks; task++) {
        used +=
            (size_t)snprintf(peers + used, 12 * tasks - used, "%s%zu", task > 0 ? "," : "", task);
    }
    good =
        good && pmix.regex(host, &regex) == PMIX_SUCCESS && pmix.ppn(peers, &ppn) == PMIX_SUCCESS;
    if (good) {
        put(&info[0], PMIX_JOB_SIZE, PMIX_UINT32, &size);
        put(&info[1], PMIX_UNIV_SIZE, PMIX_UINT32, &size);
        put(&info[2], PMIX_MAX_PROCS, PMIX_UINT32, &size);
        put(&info[3], PMIX_LOCAL_SIZE, PMIX_UINT32, &local);
        put(&info[4], PMIX_NUM_NODES, PMIX_UINT32, &nodes);
        put(&info[5], PMIX_LOCAL_PEERS, PMIX_STRING, peers);
        // Not always texts: only libpmix knows their length.
        (void)pmix.load(&info[6], PMIX_NODE_MAP, regex, PMIX_REGEX);
        (void)pmix.load(&info[7], PMIX_PROC_MAP, ppn, PMIX_REGEX);
        put(&info[8], PMIX_JOBID, PMIX_STRING, server.name);
        for (int task = 0; task < options->tasks; task++) {
            describe_task(options, task, host, &described[task], &info[OF_JOB + task]);
        }
        struct operation operation = OPERATION(1);
        note_call(&operation, pmix.register_nspace(server.name, options->tasks, info,
                                                   OF_JOB + tasks, end_call, &operation));
        good = await(&operation);
    }
    free(regex);
    free(ppn);
    free(peers);
    free(info);
    free(described);
    return good;
}

static bool add_clients(int tasks)
{
    struct operation operation = OPERATION(tasks);
    for (int task = 0; task < tasks; task++) {
        pmix_proc_t proc = {.rank = (pmix_rank_t)task};
        memcpy(proc.nspace, server.name, sizeof proc.nspace);
        note_call(&operation,
                  pmix.register_client(&proc, getuid(), getgid(), NULL, end_call, &operation));
    }
    return await(&operation);
}

bool run_pmix_start(const struct run_job *job)
{
    char host[128] = "localhost";
    pmix_info_t info[2] = {{.flags = 0}, {.flags = 0}};
    if (!load()) {
        return false;
    }
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(server.name, sizeof server.name, "tutti-run.%d", (int)getpid());
    put(&info[0], PMIX_SERVER_TMPDIR, PMIX_STRING, job->folder);
    put(&info[1], PMIX_HOSTNAME, PMIX_STRING, host);
    pmix_status_t status = pmix.init(&module, info, 2);
    if (status != PMIX_SUCCESS) {
        run_tell("without PMIx: %s", pmix.text(status));
        return false;
    }
    server.is_up = true;
    bool good = describe_job(job->options, host) && add_clients(job->options->tasks);
    if (!good) {
        run_tell("without PMIx: its server does not take the job");
    }
    return good;
}

char **run_pmix_words(int task)
{
    pmix_proc_t proc = {.rank = (pmix_rank_t)task};
    for (char **word = server.words; word != NULL && *word != NULL; word++) {
        free(*word);
    }
    free(server.words);
    server.words = NULL;
    memcpy(proc.nspace, server.name, sizeof proc.nspace);
    return pmix.setup_fork(&proc, &server.words) == PMIX_SUCCESS ? server.words : NULL;
}

int run_pmix_aborted(void)
{
    return atomic_load(&aborted);
}

void run_pmix_end(void)
{
    if (server.is_up) {
        (void)pmix.finalize();
        server.is_up = false;
    }
}

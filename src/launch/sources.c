// The table of launchers, and how a process's place is read from what they leave in the
// environment. A launcher that is started by another (torchrun by srun, mpirun in a batch job)
// leaves both one's variables: whichever starts single ranks comes first.
// See sources.h. SPDX-License-Identifier: Apache-2.0
#include "launch/sources.h"

#include "base/log.h"
#include "base/quote.h"
#include "bootstrap/wire.h"
#include "launch/numbers.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    JOB_WORDS = 3,
    HOST_BYTES = 240, // of a host's name
};

struct source {
    const char *name;
    const char *needs; // a variable without which it is another launcher; NULL: none
    const char *rank, *size;
    const char *step_size;               // is believed before `size`, which may be the job's
    const char *local_rank, *local_size; // NULL: it has none
    const char *node, *node_tasks;       // for local_size, as Slurm tells it
    const char *nodes;                   // the number of hosts
    const char *host, *port;             // rank 0's address
    const char *hosts;                   // the same as a list
    const char *job[JOB_WORDS];          // together they name the job; what may be cut off last
    const char *job_descriptor;          // whose other end does
    const char *remedy;                  // how its variables come to be there
};

static const struct source sources[] = {
    {.name = "tutti",
     .rank = "TUTTI_RANK",
     .size = "TUTTI_SIZE",
     .local_rank = "TUTTI_LOCAL_RANK",
     .local_size = "TUTTI_LOCAL_SIZE",
     .remedy = "start it with tutti-run"},
    {.name = "torchrun",
     .needs = "TORCHELASTIC_RUN_ID",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .job = {"MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"},
     .remedy = "start it with torchrun"},
    {.name = "pmix",
     .needs = "PMIX_NAMESPACE",
     .remedy = "start it with srun --mpi=pmix, Open MPI's mpirun or tutti-run"},
    {.name = "openmpi",
     .rank = "OMPI_COMM_WORLD_RANK",
     .size = "OMPI_COMM_WORLD_SIZE",
     .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
     .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
     .job = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"},
     .remedy = "start it with Open MPI's mpirun"},
    {.name = "mpich",
     .needs = "MPI_LOCALNRANKS", // srun --mpi=pmi2 has PMI's alone, and Slurm's
     .rank = "PMI_RANK",
     .size = "PMI_SIZE",
     .local_rank = "MPI_LOCALRANKID",
     .local_size = "MPI_LOCALNRANKS",
     .job = {"PMI_JOBID", "PMI_ID"},
     .job_descriptor = "PMI_FD",
     .remedy = "start it with MPICH's mpirun"},
    {.name = "variables",
     .rank = "RANK",
     .size = "WORLD_SIZE",
     .local_rank = "LOCAL_RANK",
     .local_size = "LOCAL_WORLD_SIZE",
     .host = "MASTER_ADDR",
     .port = "MASTER_PORT",
     .job = {"MASTER_PORT", "MASTER_ADDR"},
     .remedy = "set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT"},
    {.name = "slurm",
     .needs = "SLURM_STEP_ID", // a batch script itself has none
     .rank = "SLURM_PROCID",
     .size = "SLURM_NTASKS", // the job's under srun --preserve-env
     .step_size = "SLURM_STEP_NUM_TASKS",
     .local_rank = "SLURM_LOCALID",
     .node = "SLURM_NODEID",
     .node_tasks = "SLURM_STEP_TASKS_PER_NODE",
     .nodes = "SLURM_STEP_NUM_NODES",
     .hosts = "SLURM_STEP_NODELIST",
     .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
     .remedy = "start it with srun"},
};
enum { SOURCES = sizeof sources / sizeof sources[0] };

static const char *get(const struct tt_environment *environment, const char *name)
{
    const char *value = name == NULL ? NULL : environment->get(environment->context, name);
    return value == NULL || *value == 0 ? NULL : value;
}

// Reads a number that must be `least` to `most`; *out stays where the variable is not set.
static ncclResult_t read_number(const struct tt_environment *environment, const char *name,
                                int least, int most, int *out)
{
    const char *text = get(environment, name);
    int value;
    if (text == NULL) {
        return ncclSuccess;
    }
    if (!tt_read_number(text, most, &value) || value < least) {
        return tt_fail(ncclInvalidUsage, "%s=%s: must be a number from %d to %d", name,
                       tt_quote(text).text, least, most);
    }
    *out = value;
    return ncclSuccess;
}

// ---- Where rank 0 is ----------------------------------------------------------------------------

static bool names_this_host(const char *host)
{
    return strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "::1") == 0;
}

// A framework's own store listens at MASTER_PORT: the ranks meet one above.
static ncclResult_t read_master(const struct tt_environment *environment,
                                const struct source *source, struct tt_place *place)
{
    const char *host = get(environment, source->host);
    int port = 0;
    TRY(read_number(environment, source->port, 1, 65535, &port));
    if (host == NULL || port == 0) {
        return ncclSuccess;
    }
    for (const char *p = host; *p != 0; p++) {
        if (p - host >= HOST_BYTES || !isgraph((unsigned char)*p) || *p == '[' || *p == ']') {
            return tt_fail(ncclInvalidUsage,
                           "%s=%s (%zu characters): must be the name of rank 0's host, or its "
                           "address without brackets, of at most %d characters",
                           source->host, tt_quote(host).text, strlen(host), HOST_BYTES);
        }
    }
    bool is_v6 = strchr(host, ':') != NULL;
    (void)snprintf(place->meeting, sizeof place->meeting, is_v6 ? "[%s]:%d" : "%s:%d", host,
                   port < 65535 ? port + 1 : port - 1);
    place->meant_by = "MASTER_ADDR and MASTER_PORT";
    return ncclSuccess;
}

enum { FIRST_PORT = 20000, PORTS = 10000 }; // below those that the kernel gives to clients

// Slurm gives no port: one from the job's numbers.
static void read_hosts(const struct tt_environment *environment, const struct source *source,
                       struct tt_place *place)
{
    char host[200];
    const char *list = get(environment, source->hosts);
    if (list == NULL || !tt_read_first_host(list, host, sizeof host)) {
        return;
    }
    unsigned mixed = 0;
    for (const char *p = place->job; *p != 0; p++) {
        mixed = mixed * 31 + (unsigned char)*p;
    }
    (void)snprintf(place->meeting, sizeof place->meeting, "%s:%u", host,
                   FIRST_PORT + mixed % PORTS);
    place->meant_by = source->hosts;
}

// ---- The place ----------------------------------------------------------------------------------

static void read_job(const struct tt_environment *environment, const struct source *source,
                     struct tt_place *place)
{
    size_t used = 0;
    for (int i = 0; i < JOB_WORDS; i++) {
        const char *word = get(environment, source->job[i]);
        if (word != NULL && used < sizeof place->job) {
            used += (size_t)snprintf(place->job + used, sizeof place->job - used, "%s/%s",
                                     source->job[i], word);
        }
    }
    int fd = -1;
    const char *descriptor = get(environment, source->job_descriptor);
    if (used == 0 && descriptor != NULL && tt_read_number(descriptor, INT_MAX, &fd) &&
        !environment->name_peer(environment->context, fd, place->job, (int)sizeof place->job)) {
        place->job[0] = 0;
    }
}

// How many ranks this host has, where the source says so in any way.
static ncclResult_t read_local_size(const struct tt_environment *environment,
                                    const struct source *source, struct tt_place *place)
{
    TRY(read_number(environment, source->local_size, 1, place->size, &place->local_size));
    int node = -1, nodes = 0;
    TRY(read_number(environment, source->node, 0, INT_MAX, &node));
    TRY(read_number(environment, source->nodes, 1, INT_MAX, &nodes));
    const char *tasks = get(environment, source->node_tasks);
    if (tasks != NULL && node >= 0 && place->local_size == 0 &&
        (!tt_read_tasks_per_node(tasks, node, &place->local_size) || place->local_size < 1 ||
         place->local_size > place->size)) {
        return tt_fail(ncclInvalidUsage,
                       "%s=%s has no tasks for node %d (%s), or more than %s, %d: must be as "
                       "Slurm writes it, such as 4(x2),3",
                       source->node_tasks, tt_quote(tasks).text, node, source->node, source->size,
                       place->size);
    }
    if (place->local_size == 0 && nodes == 1) {
        place->local_size = place->size;
    }
    return ncclSuccess;
}

// The number among this host's ranks; where the source has none, all ranks must be here.
static ncclResult_t read_local_rank(const struct tt_environment *environment,
                                    const struct source *source, struct tt_place *place)
{
    char host[200];
    int port;
    TRY(read_number(environment, source->local_rank, 0, place->rank, &place->local_rank));
    const char *rendezvous = get(environment, "TUTTI_RENDEZVOUS");
    const char *meeting = rendezvous != NULL ? rendezvous : place->meeting;
    if (place->local_size == 0 && tt_read_host_port(meeting, host, sizeof host, &port) &&
        names_this_host(host)) {
        place->local_size = place->size; // they meet on the loopback
    }
    bool is_alone = place->local_size == place->size || place->size == 1;
    if (place->local_rank < 0 && !is_alone) {
        return tt_fail(
            ncclInvalidUsage,
            "rank %d: %s is not set: the ranks may be on several hosts, and it picks the "
            "GPU",
            place->rank, source->local_rank);
    }
    place->local_rank = place->local_rank < 0 ? place->rank : place->local_rank;
    place->local_size = place->size == 1 ? 1 : place->local_size;
    if (place->local_size != 0 && place->local_rank >= place->local_size) {
        return tt_fail(ncclInvalidUsage,
                       "rank %d: it is number %d (%s) of %d ranks on its host (%s): must be less",
                       place->rank, place->local_rank, source->local_rank, place->local_size,
                       source->local_size != NULL ? source->local_size : source->node_tasks);
    }
    return ncclSuccess;
}

static ncclResult_t read_variables(const struct tt_environment *environment,
                                   const struct source *source, struct tt_place *place)
{
    place->local_rank = -1;
    TRY(read_number(environment, source->size, 1, TT_MOST_RANKS, &place->size));
    TRY(read_number(environment, source->step_size, 1, TT_MOST_RANKS, &place->size));
    TRY(read_number(environment, source->rank, 0, TT_MOST_RANKS - 1, &place->rank));
    if (place->rank >= place->size) {
        return tt_fail(ncclInvalidUsage, "%s=%d: must be less than %s, %d", source->rank,
                       place->rank, source->size, place->size);
    }
    read_job(environment, source, place);
    TRY(read_master(environment, source, place));
    read_hosts(environment, source, place);
    TRY(read_local_size(environment, source, place));
    return read_local_rank(environment, source, place);
}

// ---- Choosing -----------------------------------------------------------------------------------

// The variable that is missing for the source to be there; NULL: none.
static const char *find_missing(const struct tt_environment *environment,
                                const struct source *source)
{
    const char *const wanted[] = {source->needs, source->rank, source->size};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (wanted[i] != NULL && get(environment, wanted[i]) == NULL) {
            return wanted[i];
        }
    }
    return NULL;
}

#define ALONE "TUTTI_LAUNCH=none makes it a job of one rank"

// No source is there, yet a launcher may have been: then this is no job of one.
static ncclResult_t refuse_announced(const struct tt_environment *environment, const char *pmix)
{
    static const struct {
        const char *size, *rank; // NULL: looked at with another size
        const char *missing;     // what a source would have
        int least;               // rank that is no accident without a size
        const char *remedy;
    } announcers[] = {
        {"TUTTI_SIZE", "TUTTI_RANK", "TUTTI_RANK", 0, "start it with tutti-run"},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", 1,
         "start it with Open MPI's mpirun"},
        {"PMI_SIZE", "PMI_RANK", "PMI_RANK", 1, "start it with MPICH's mpirun"},
        {"WORLD_SIZE", "RANK", "RANK", 1,
         "start it with torchrun, or set RANK, WORLD_SIZE, LOCAL_RANK and MASTER_PORT"},
        {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_PROCID and SLURM_STEP_ID", 1, "start it with srun"},
        {"SLURM_NPROCS", NULL, "SLURM_PROCID and SLURM_STEP_ID", 1, "start it with srun"},
    };
    for (size_t i = 0; i < sizeof announcers / sizeof announcers[0]; i++) {
        const char *text = get(environment, announcers[i].rank);
        int size = 0, rank = -1;
        TRY(read_number(environment, announcers[i].size, 1, TT_MOST_RANKS, &size));
        if (size > 1) {
            return tt_fail(ncclInvalidUsage,
                           "%d tasks are announced (%s), but this one's rank is not known, as no "
                           "launcher has set %s: %s; " ALONE,
                           size, announcers[i].size, announcers[i].missing, announcers[i].remedy);
        }
        bool is_known = text != NULL && tt_read_number(text, INT_MAX, &rank);
        if (size == 0 && text != NULL &&
            (is_known ? rank >= announcers[i].least : announcers[i].least == 0)) {
            return tt_fail(ncclInvalidUsage, "%s=%s, but %s is not set: %s; " ALONE,
                           announcers[i].rank, tt_quote(text).text, announcers[i].size,
                           announcers[i].remedy);
        }
    }
    if (pmix != NULL) {
        return tt_fail(ncclInvalidUsage,
                       "this process was started by PMIx (PMIX_NAMESPACE), but its rank is not "
                       "known: %s; " ALONE,
                       pmix);
    }
    return ncclSuccess;
}

static ncclResult_t refuse_name(const char *name)
{
    char names[160] = "";
    for (size_t i = 0, used = 0; i < SOURCES; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "%s, ", sources[i].name);
    }
    return tt_fail(ncclInvalidUsage, "TUTTI_LAUNCH=%s: must be one of %snone", tt_quote(name).text,
                   names);
}

static bool is_known(const char *name)
{
    for (size_t i = 0; i < SOURCES; i++) {
        if (strcmp(sources[i].name, name) == 0) {
            return true;
        }
    }
    return *name == 0 || strcmp(name, "none") == 0;
}

// Takes the source, if it is there; else *missing_out is the variable that is not set, or *why_out
// why its server does not answer.
static ncclResult_t try_source(const struct tt_environment *environment,
                               const struct source *source, struct tt_place *place,
                               const char **missing_out, const char **why_out)
{
    *missing_out = find_missing(environment, source);
    *why_out = NULL;
    if (*missing_out != NULL) {
        return ncclSuccess;
    }
    *place = (struct tt_place){.source = source->name};
    if (source->rank != NULL) {
        return read_variables(environment, source, place);
    }
    if (!environment->ask_pmix(environment->context, place, why_out) && *why_out == NULL) {
        *why_out = "the server does not answer";
    }
    return ncclSuccess;
}

static ncclResult_t refuse_absent(const struct source *source, const char *missing, const char *why)
{
    return missing != NULL ? tt_fail(ncclInvalidUsage, "TUTTI_LAUNCH=%s, but %s is not set: %s",
                                     source->name, missing, source->remedy)
                           : tt_fail(ncclInvalidUsage, "TUTTI_LAUNCH=%s: %s; %s", source->name, why,
                                     source->remedy);
}

ncclResult_t tt_sources_find(const struct tt_environment *environment, const char *only,
                             struct tt_place *place)
{
    const char *pmix = NULL; // why it does not answer
    if (!is_known(only)) {
        return refuse_name(only);
    }
    for (size_t i = 0; i < SOURCES && strcmp(only, "none") != 0; i++) {
        const char *missing, *why;
        bool is_named = strcmp(only, sources[i].name) == 0;
        if (*only != 0 && !is_named) {
            continue;
        }
        TRY(try_source(environment, &sources[i], place, &missing, &why));
        if (missing == NULL && why == NULL) {
            return ncclSuccess;
        }
        if (is_named) {
            return refuse_absent(&sources[i], missing, why);
        }
        pmix = why != NULL ? why : pmix;
    }
    if (*only == 0) {
        TRY(refuse_announced(environment, pmix));
    }
    *place = (struct tt_place){.source = "none", .size = 1, .local_size = 1};
    return ncclSuccess;
}

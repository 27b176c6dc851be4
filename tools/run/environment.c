// What a task finds in its environment: tutti's own variables, and those by which programs for
// torchrun, Open MPI and Slurm find their place. See run.h. SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { WORDS_MAX = 64 }; // of ours

struct words {
    char **list; // the last is NULL
    size_t count, capacity;
    bool failed;
};

static void add(struct words *words, char *word)
{
    if (word == NULL || words->count + 2 > words->capacity) {
        free(word);
        words->failed = true;
        return;
    }
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
}

__attribute__((format(printf, 2, 3))) static void set(struct words *words, const char *format, ...)
{
    char *word = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&word, format, arguments) < 0) {
        word = NULL;
    }
    va_end(arguments);
    add(words, word);
}

// What another launcher has said of tutti-run itself, and not of its tasks.
static bool is_of_launcher(const char *word)
{
    static const char *const prefixes[] = {"TUTTI_RANK=",
                                           "TUTTI_SIZE=",
                                           "TUTTI_LOCAL_",
                                           "TUTTI_RENDEZVOUS=",
                                           "TUTTI_FAKE_HOSTS=",
                                           "TORCHELASTIC_",
                                           "RANK=",
                                           "WORLD_SIZE=",
                                           "LOCAL_RANK=",
                                           "LOCAL_WORLD_SIZE=",
                                           "GROUP_RANK=",
                                           "NODE_RANK=",
                                           "MASTER_ADDR=",
                                           "MASTER_PORT=",
                                           "OMPI_COMM_WORLD_",
                                           "PMI_",
                                           "PMIX_",
                                           "MPI_LOCALRANKID=",
                                           "MPI_LOCALNRANKS=",
                                           "SLURM_PROCID=",
                                           "SLURM_LOCALID=",
                                           "SLURM_NODEID=",
                                           "SLURM_NTASKS=",
                                           "SLURM_NPROCS=",
                                           "SLURM_NNODES=",
                                           "SLURM_STEP_",
                                           "SLURM_TASKS_PER_NODE="};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(word, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void set_place(struct words *words, const struct run_job *job, int task)
{
    const struct run_options *options = job->options;
    int host = 0, local = 0, size = options->tasks;
    run_options_place(options, task, &host, &local);
    int local_size = options->host_tasks[host];
    set(words, "TUTTI_RANK=%d", task);
    set(words, "TUTTI_SIZE=%d", size);
    set(words, "TUTTI_LOCAL_RANK=%d", local);
    set(words, "TUTTI_LOCAL_SIZE=%d", local_size);
    set(words, "TUTTI_RENDEZVOUS=file:%s/id", job->folder);
    if (options->hosts != NULL) {
        set(words, "TUTTI_FAKE_HOSTS=%s", options->hosts);
    }
    set(words, "RANK=%d", task);
    set(words, "WORLD_SIZE=%d", size);
    set(words, "LOCAL_RANK=%d", local);
    set(words, "LOCAL_WORLD_SIZE=%d", local_size);
    set(words, "GROUP_RANK=%d", host);
    set(words, "MASTER_ADDR=127.0.0.1");
    set(words, "MASTER_PORT=%d", job->port);
    set(words, "OMPI_COMM_WORLD_RANK=%d", task);
    set(words, "OMPI_COMM_WORLD_SIZE=%d", size);
    set(words, "OMPI_COMM_WORLD_LOCAL_RANK=%d", local);
    set(words, "OMPI_COMM_WORLD_LOCAL_SIZE=%d", local_size);
    set(words, "OMPI_COMM_WORLD_NODE_RANK=%d", local);
    set(words, "SLURM_PROCID=%d", task);
    set(words, "SLURM_NTASKS=%d", size);
    set(words, "SLURM_NPROCS=%d", size);
    set(words, "SLURM_LOCALID=%d", local);
    set(words, "SLURM_NODEID=%d", host);
    set(words, "SLURM_NNODES=%d", options->host_count);
}

char **run_environment(const struct run_job *job, int task, char *const *extra)
{
    struct words words = {.capacity = WORDS_MAX};
    char gpus[4096];
    const char *gpu_word = run_gpus_word(task, gpus, sizeof gpus);
    for (char **word = environ; *word != NULL; word++) {
        words.capacity++;
    }
    for (char *const *word = extra; word != NULL && *word != NULL; word++) {
        words.capacity++;
    }
    words.list = calloc(words.capacity, sizeof *words.list);
    if (words.list == NULL) {
        return NULL;
    }
    for (char **word = environ; *word != NULL; word++) {
        bool is_replaced = gpu_word != NULL && strncmp(*word, "CUDA_VISIBLE_DEVICES=", 21) == 0;
        if (!is_of_launcher(*word) && !is_replaced) {
            add(&words, strdup(*word));
        }
    }
    set_place(&words, job, task);
    for (char *const *word = extra; word != NULL && *word != NULL; word++) {
        add(&words, strdup(*word));
    }
    if (gpu_word != NULL && *gpu_word != 0) {
        add(&words, strdup(gpu_word));
    }
    if (words.failed) {
        run_environment_free(words.list);
        return NULL;
    }
    return words.list;
}

void run_environment_free(char **environment)
{
    for (char **word = environment; word != NULL && *word != NULL; word++) {
        free(*word);
    }
    free(environment);
}

// The parts of tutti-run. See main.c for how it goes.
// SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_RUN_RUN_H
#define TOOLS_RUN_RUN_H

#include "options.h"

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

// One of the two outputs of a task, split into lines.
struct run_output {
    int fd; // the pipe's end here; -1: over
    int to; // 1 or 2
    int task;
    bool has_more; // than was read the last time
    size_t bytes;
    char line[4080]; // a longer line is cut in two; with its mark, what a pipe takes whole
};

// Where they lead: one of tutti-run's own two.
struct run_sink {
    int fd;
    int pipes;                  // epoll: the tasks' pipes that lead here
    struct run_output *stalled; // has lines that there is no room for; NULL: none
};

struct run_task {
    pid_t pid;  // 0: not started, or has ended
    int handle; // its pidfd; -1: the kernel has none
    struct run_output output[2];
};

struct run_job {
    const struct run_options *options;
    char program[4096]; // as found in PATH
    char folder[64];    // private, for the rendezvous and PMIx
    int port;           // for programs that meet at MASTER_PORT
    // What tasks begin with, as tutti-run itself did.
    sigset_t signals;
    void (*on_pipe)(int signal), (*on_child)(int signal);
    struct rlimit descriptors;
    struct run_keeper *keeper;
    struct run_task *tasks; // [options->tasks]
    int ends;               // epoll: the tasks' handles, in the order in which tasks end
    int started;            // the first so many
    int left;               // that run
    struct run_sink sinks[2];
    bool is_ending; // tasks have been told to end
    int status;     // of tutti-run
};

// ---- environment.c ------------------------------------------------------------------------------
// The environment of a task: tutti-run's own, with what tells the task its place. extra: words to
// add ("NAME=value", ended by NULL). To be freed by run_environment_free; NULL without memory.
char **run_environment(const struct run_job *job, int task, char *const *extra);
void run_environment_free(char **environment);

// ---- gpus.c -------------------------------------------------------------------------------------
// Which GPUs each task gets (--gpus-per-task). False: there are too few, said on stderr.
bool run_gpus_share(const struct run_options *options);
// In the task, before it becomes the program: it sees no others from now on. False: impossible,
// said on stderr.
bool run_gpus_limit(int task);
// What takes the place of CUDA_VISIBLE_DEVICES in its environment, "": nothing; NULL: that stays.
const char *run_gpus_word(int task, char *text, size_t bytes);

// ---- keeper.c -----------------------------------------------------------------------------------
// A process that outlives tutti-run, only to end its tasks if that is killed. folder: removed then,
// too. NULL, said on stderr: it cannot be started. To be called before there are threads.
struct run_keeper *run_keeper_start(const char *folder);
void run_keeper_add(struct run_keeper *keeper, int task, pid_t group);
void run_keeper_forget(struct run_keeper *keeper, int task);
// All tasks have ended.
void run_keeper_end(struct run_keeper *keeper);
void run_remove_folder(const char *folder);

// ---- tasks.c ------------------------------------------------------------------------------------
// Finds the program; false, with tutti-run's status: it cannot be run, said on stderr.
bool run_find_program(struct run_job *job);
// Starts one task, in a process group of its own. False: said on stderr.
bool run_task_start(struct run_job *job, int task, char *const *pmix_words);
// A signal for all tasks and what they have started.
void run_tasks_signal(const struct run_job *job, int signal);
// Takes the tasks that have ended, the first one first; the first failure is told, and true then.
// With
// --keep-going every one is told, and false.
bool run_tasks_reap(struct run_job *job);

// ---- output.c -----------------------------------------------------------------------------------
// Whoever reads tutti-run's output may be slow, or stopped: nothing here waits for him, so that
// tasks wait instead, and tutti-run still hears signals and sees tasks end.
//
// Makes the sinks, without tasks yet, and has `epoll` tell of them. False, with errno.
bool run_sinks_open(struct run_job *job, int epoll);
// Moves what there is, as whole lines, marked with the rank, and closes pipes at their end. 0, or
// errno where tutti-run's output takes no more for good.
int run_sink_pass(struct run_sink *sink, int epoll);
// The same for one output of a task alone; what there is no room for stays.
int run_output_pass(struct run_output *output);
// The rest of all tasks' output, with at most so long a wait for room (-1: any): ETIMEDOUT then.
int run_output_drain(struct run_job *job, int patience_ms);
// A line of tutti-run's own on stderr; where there is no room for it soon, it is dropped.
void run_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- pmix.c, or pmix_absent.c -------------------------------------------------------------------
// A PMIx server for the tasks. False: there is none, and tasks run without it.
bool run_pmix_start(const struct run_job *job);
// Words for a task's environment, ended by NULL, or NULL.
char **run_pmix_words(int task);
// A task has called PMIx_Abort: its status, at least 1; 0: none has. SIGCHLD tells of it.
int run_pmix_aborted(void);
void run_pmix_end(void);

#endif

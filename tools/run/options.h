// The command line of tutti-run. SPDX-License-Identifier: Apache-2.0
#ifndef TOOLS_RUN_OPTIONS_H
#define TOOLS_RUN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum { RUN_TASKS_MAX = 1024 };

struct run_options {
    int tasks;
    int gpus_per_task;             // 0: every task sees all
    const char *hosts;             // as given; NULL: one
    int host_tasks[RUN_TASKS_MAX]; // tasks of each pretended host
    int host_count;                // at least 1
    bool keep_going;               // a process that fails does not end the others
    bool help, version;
    char **program; // and its arguments, ended by NULL
};

// Reads the command line. False: it is wrong, and `problem` says what would be right. program:
// points into argv. With help or version, nothing else need be there.
bool run_options_read(int argc, char **argv, struct run_options *out, char *problem, size_t bytes);

// Of the pretended hosts: the one of task `task`, and the task's number on it.
void run_options_place(const struct run_options *options, int task, int *host_out, int *local_out);

const char *run_options_help(void);

#endif

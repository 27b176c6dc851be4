// See options.h. SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
    "usage: tutti-run -n N [options] program [argument ...]\n"
    "\n"
    "Starts N processes of the program on this host, as the ranks of one job.\n"
    "  -n N                 processes, 1 to 1024\n"
    "  --gpus-per-task K    each sees K GPUs of its own, numbered from 0\n"
    "  --hosts A,B,...      pretends several hosts, with A, B, ... processes\n"
    "  --keep-going         a process that fails does not end the others\n"
    "  --help, --version\n"
    "\n"
    "Lines of output begin with the rank: \"[3] \". Process 0 reads the input, unless that is a\n"
    "terminal. The first process that fails ends the others; its status is tutti-run's own (128 + "
    "n\n"
    "for signal n). SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on.\n"
    "Programs find their rank with tuttiCommInit, and as under torchrun, Open MPI, Slurm and "
    "PMIx.\n";

const char *run_options_help(void)
{
    return help;
}

__attribute__((format(printf, 3, 4))) static bool refuse(char *problem, size_t bytes,
                                                         const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(problem, bytes, format, arguments);
    va_end(arguments);
    return false;
}

// A number of digits alone, 1 to `most`; *end_out: what follows it.
static bool take_number(const char *text, int most, int *out, const char **end_out)
{
    int value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        value = value * 10 + (*p - '0');
        if (value > most) {
            return false;
        }
    }
    *out = value;
    *end_out = p;
    return p != text && value >= 1;
}

static bool read_count(const char *name, const char *text, int most, int *out, char *problem,
                       size_t bytes)
{
    const char *end;
    if (text == NULL) {
        return refuse(problem, bytes, "%s: a number must follow, 1 to %d", name, most);
    }
    return (take_number(text, most, out, &end) && *end == 0) ||
           refuse(problem, bytes, "%s %.60s: must be a number from 1 to %d", name, text, most);
}

static bool read_hosts(const char *text, struct run_options *options, char *problem, size_t bytes)
{
    const char *p = text, *end = "";
    options->hosts = text;
    options->host_count = 0;
    do {
        bool good = p != NULL && options->host_count < RUN_TASKS_MAX &&
                    take_number(p, RUN_TASKS_MAX, &options->host_tasks[options->host_count], &end);
        if (!good || (*end != 0 && *end != ',')) {
            return refuse(problem, bytes,
                          "--hosts %.60s: must be processes of each host, such as 3,5",
                          text == NULL ? "" : text);
        }
        options->host_count++;
        p = end + 1;
    } while (*end == ',');
    return true;
}

// The value of --name VALUE or --name=VALUE; NULL where `word` is another option. *at: moves.
static bool is_option(const char *name, char **argv, int argc, int *at, const char **value_out)
{
    size_t length = strlen(name);
    const char *word = argv[*at];
    if (strcmp(word, name) == 0) {
        *at += 1;
        *value_out = *at < argc ? argv[*at] : NULL;
        return true;
    }
    if (strncmp(word, name, length) == 0 && word[length] == '=') {
        *value_out = word + length + 1;
        return true;
    }
    // -n4
    if (length == 2 && strncmp(word, name, 2) == 0 && word[2] >= '0' && word[2] <= '9') {
        *value_out = word + 2;
        return true;
    }
    return false;
}

// What is in the options alone fits together.
static bool check(struct run_options *options, char *problem, size_t bytes)
{
    int sum = 0;
    if (options->tasks == 0) {
        return refuse(problem, bytes, "-n is missing: how many processes?");
    }
    if (*options->program == NULL) {
        return refuse(problem, bytes, "no program is named");
    }
    for (int i = 0; i < options->host_count && options->hosts != NULL; i++) {
        sum += options->host_tasks[i];
    }
    if (options->hosts != NULL && sum != options->tasks) {
        return refuse(problem, bytes, "--hosts %.60s: its processes are %d, -n has %d",
                      options->hosts, sum, options->tasks);
    }
    if (options->hosts == NULL) {
        options->host_count = 1;
        options->host_tasks[0] = options->tasks;
    }
    return true;
}

bool run_options_read(int argc, char **argv, struct run_options *out, char *problem, size_t bytes)
{
    int at = 1;
    *out = (struct run_options){.tasks = 0};
    for (; at < argc && argv[at][0] == '-'; at++) {
        const char *value = NULL;
        bool good = true;
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            out->help = true;
            return true;
        }
        if (strcmp(argv[at], "--version") == 0) {
            out->version = true;
            return true;
        }
        if (strcmp(argv[at], "--keep-going") == 0) {
            out->keep_going = true;
        } else if (is_option("-n", argv, argc, &at, &value)) {
            good = read_count("-n", value, RUN_TASKS_MAX, &out->tasks, problem, bytes);
        } else if (is_option("--gpus-per-task", argv, argc, &at, &value)) {
            good = read_count("--gpus-per-task", value, 64, &out->gpus_per_task, problem, bytes);
        } else if (is_option("--hosts", argv, argc, &at, &value)) {
            good = read_hosts(value, out, problem, bytes);
        } else {
            good = refuse(problem, bytes, "%.60s: no option of tutti-run", argv[at]);
        }
        if (!good) {
            return false;
        }
    }
    out->program = argv + at;
    return check(out, problem, bytes);
}

void run_options_place(const struct run_options *options, int task, int *host_out, int *local_out)
{
    int host = 0;
    while (host + 1 < options->host_count && task >= options->host_tasks[host]) {
        task -= options->host_tasks[host++];
    }
    *host_out = host;
    *local_out = task;
}

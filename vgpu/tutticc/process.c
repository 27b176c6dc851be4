// Child processes, signals, temporary files.
// SPDX-License-Identifier: Apache-2.0
#include "process.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
enum { SIGNAL_COUNT = sizeof(SIGNALS) / sizeof(SIGNALS[0]) };

static volatile sig_atomic_t pending; // the signal that came; 0: none
static volatile pid_t child;          // written with the signals blocked
static char *folder;
static int file_count;

static void on_signal(int number)
{
    int error = errno;
    pending = number;
    if (child > 0) {
        kill(child, number);
    }
    errno = error;
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        sigaddset(set, SIGNALS[i]);
    }
}

void process_start(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; i++) {
        struct sigaction old;
        if (sigaction(SIGNALS[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
            sigaction(SIGNALS[i], &action, NULL);
        }
    }
}

static int spawn(const struct strings *arguments, const sigset_t *mask)
{
    posix_spawnattr_t attributes;
    if (posix_spawnattr_init(&attributes) != 0) {
        return ENOMEM;
    }
    sigset_t defaults;
    signal_set(&defaults);
    posix_spawnattr_setsigmask(&attributes, mask);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t started = 0;
    int error =
        posix_spawnp(&started, arguments->item[0], NULL, &attributes, arguments->item, environ);
    posix_spawnattr_destroy(&attributes);
    if (error == 0) {
        child = started;
    }
    return error;
}

int process_run(const struct strings *arguments)
{
    sigset_t blocked, before;
    signal_set(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    if (pending) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        return 128 + pending;
    }
    fflush(NULL);
    int error = spawn(arguments, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (error) {
        fprintf(stderr, "tutticc: error: cannot run %s: %s\n", arguments->item[0], strerror(error));
        return 127;
    }
    int status = 0;
    pid_t waited;
    while ((waited = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
    child = 0;
    if (waited < 0) {
        return 127;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void process_print(const struct strings *arguments)
{
    fputs("#$", stderr);
    for (int i = 0; i < arguments->count; i++) {
        const char *word = arguments->item[i];
        bool quote = word[0] == '\0' || strpbrk(word, " \t\n\"'\\$`&|;<>()[]{}*?!#~") != NULL;
        fputs(quote ? " '" : " ", stderr);
        for (const char *c = word; *c; c++) {
            if (*c == '\'' && quote) {
                fputs("'\\''", stderr);
            } else {
                fputc(*c, stderr);
            }
        }
        fputs(quote ? "'" : "", stderr);
    }
    fputc('\n', stderr);
}

char *temporary_file(const char *stem, const char *suffix)
{
    if (!folder) {
        const char *base = getenv("TMPDIR");
        char *name = format_string("%s/tutticc-XXXXXX", base && base[0] ? base : "/tmp");
        if (!mkdtemp(name)) {
            fprintf(stderr, "tutticc: error: cannot make a temporary folder %s: %s\n", name,
                    strerror(errno));
            free(name);
            return NULL;
        }
        folder = name;
    }
    return format_string("%s/%d-%s%s", folder, file_count++, stem, suffix);
}

void process_finish(void)
{
    DIR *open = folder ? opendir(folder) : NULL;
    if (open) {
        for (struct dirent *entry; (entry = readdir(open));) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
                unlinkat(dirfd(open), entry->d_name, 0);
            }
        }
        closedir(open);
    }
    if (folder) {
        rmdir(folder);
        free(folder);
        folder = NULL;
    }
    if (pending) {
        signal(pending, SIG_DFL);
        raise(pending);
    }
}

// A signal that makes the process tell its state. The handler only wakes a thread of the library,
// which then does the work.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "record/record_internal.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic int awake = -1; // the descriptor; set once, before the handler, and after a fork

static void wake(int number)
{
    (void)number;
    int before = errno;
    uint64_t one = 1;
    ssize_t written = write(atomic_load(&awake), &one, sizeof one);
    (void)written; // a full counter is awake already
    errno = before;
}

// The number of "USR2", "SIGUSR2" or "12"; 0 where it is no signal that can be taken.
static int parse_signal(const char *text)
{
    static const struct {
        const char *name;
        int number;
    } names[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}};
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    char *end;
    long number = strtol(text, &end, 10);
    bool is_number = end != text && *end == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcasecmp(name, names[i].name) == 0 || (is_number && number == names[i].number)) {
            return names[i].number;
        }
    }
    return is_number && number >= SIGRTMIN && number <= SIGRTMAX ? (int)number : 0;
}

static void take_signal(void)
{
    const char *text = tt_param_text(TT_PARAM_DUMP_SIGNAL);
    int number = text[0] != 0 ? parse_signal(text) : 0;
    if (number == 0) {
        if (text[0] != 0) {
            tt_say(
                "TUTTI_DUMP_SIGNAL=%s is ignored: must be USR1, USR2, HUP, QUIT or the number of "
                "a real-time signal, %d to %d",
                tt_quote(text).text, SIGRTMIN, SIGRTMAX);
        }
        return;
    }
    struct sigaction present, action = {.sa_handler = wake, .sa_flags = SA_RESTART | SA_ONSTACK};
    if (sigaction(number, NULL, &present) != 0 || present.sa_handler != SIG_DFL) {
        tt_say("TUTTI_DUMP_SIGNAL=%s is ignored: the program handles that signal itself",
               tt_quote(text).text);
        return;
    }
    int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_store(&awake, descriptor);
    sigemptyset(&action.sa_mask);
    if (descriptor < 0 || sigaction(number, &action, NULL) != 0) {
        tt_say("TUTTI_DUMP_SIGNAL=%s is ignored: %m", tt_quote(text).text);
    }
}

void tt_record_signal_anew(void)
{
    int before = atomic_load(&awake);
    if (before >= 0) {
        atomic_store(&awake, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        (void)close(before);
    }
}

int tt_record_signal(void)
{
    pthread_once(&once, take_signal);
    return atomic_load(&awake);
}

void tt_record_signalled(void)
{
    uint64_t times;
    if (read(atomic_load(&awake), &times, sizeof times) != sizeof times) {
        return;
    }
    if (tt_record_dump_to(0, -1, NULL, NULL) != ncclSuccess) {
        tt_say("the state cannot be told: %s", tt_thread_error());
    }
}

// See launch.h. SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include "base/log.h"
#include "base/params.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINES_MAX = 64 }; // of the map

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // one start at a time
static int turns;                                         // starts so far; guarded by it

static const char *get_variable(void *context, const char *name)
{
    (void)context;
    return tt_param_of_launcher(name);
}

static bool ask_pmix(void *context, struct tt_place *place, const char **why_out)
{
    (void)context;
    return tt_pmix_ask(place, why_out);
}

long long tt_process_start(int pid)
{
    char path[64], line[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, line, sizeof line - 1);
    if (file >= 0) {
        close(file);
    }
    const char *p = got > 0 ? strrchr(line, ')') : NULL; // ends the name, field 2; the time is 22
    for (int field = 2; p != NULL && field < 22; field++) {
        p = strchr(p + 1, ' ');
    }
    return p == NULL ? 0 : strtoll(p, NULL, 10);
}

// The process that made the socket, and when it began: a number is used again.
static bool name_peer(void *context, int fd, char *text, int bytes)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    (void)context;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0 || peer.pid <= 0) {
        return false;
    }
    (void)snprintf(text, (size_t)bytes, "pid/%d/%lld", (int)peer.pid, tt_process_start(peer.pid));
    return true;
}

ncclResult_t tt_launch_begin(struct tt_launch *launch)
{
    const struct tt_environment environment = {
        .get = get_variable, .ask_pmix = ask_pmix, .name_peer = name_peer};
    *launch = (struct tt_launch){.place.source = ""};
    pthread_mutex_lock(&mutex);
    ncclResult_t result =
        tt_sources_find(&environment, tt_param_text(TT_PARAM_LAUNCH), &launch->place);
    if (result != ncclSuccess) {
        pthread_mutex_unlock(&mutex);
    }
    return result;
}

ncclResult_t tt_launch_exchange(struct tt_launch *launch)
{
    return tt_exchange_begin(&launch->place, turns++, &launch->exchange, &launch->id);
}

static bool is_by_pmix(const struct tt_launch *launch)
{
    return strcmp(launch->place.source, "pmix") == 0;
}

bool tt_launch_hold(const struct tt_launch *launch)
{
    return is_by_pmix(launch) && tt_pmix_hold();
}

void tt_launch_release(void)
{
    tt_pmix_release();
}

void tt_launch_tell_meeting(const struct tt_launch *launch)
{
    const struct tt_exchange *exchange = &launch->exchange;
    char text[1024];
    if (exchange->setting != NULL) {
        (void)snprintf(text, sizeof text,
                       "%.600s; the ranks meet at %s (%s), which no other job may use",
                       tt_last_error(), exchange->meeting, exchange->setting);
        tt_restore_error(text);
    }
}

void tt_launch_end(struct tt_launch *launch, ncclResult_t result)
{
    tt_exchange_end(&launch->exchange, result);
    if (is_by_pmix(launch)) {
        tt_pmix_release(); // the asking's
    }
    pthread_mutex_unlock(&mutex);
}

void tt_launch_tell_map(const struct tt_launch *launch, const struct tt_seat *seats)
{
    int size = launch->place.size, lines = size < LINES_MAX ? size : LINES_MAX;
    int host = 4, gpu = 3; // widths
    for (int r = 0; r < lines; r++) {
        int length = (int)strlen(seats[r].host);
        host = length > host ? length : host;
        length = (int)strlen(seats[r].gpu);
        gpu = length > gpu ? length : gpu;
    }
    if (strcmp(launch->place.source, "none") == 0) {
        tt_say("1 rank (no launcher: tutti-run -n N, or another one, starts more)");
    } else {
        tt_say("%d rank%s (from: %s; the unique id came by %s)", size, size == 1 ? "" : "s",
               launch->place.source, launch->exchange.way);
    }
    tt_say(" rank  %-*s      pid  %-*s  PCI bus id", host, "host", gpu, "GPU");
    for (int r = 0; r < lines; r++) {
        tt_say("%5d  %-*s  %7d  %-*s  %s", r, host, seats[r].host, seats[r].pid, gpu, seats[r].gpu,
               seats[r].pci);
    }
    if (lines < size) {
        tt_say("  and %d more", size - lines);
    }
}

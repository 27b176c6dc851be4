// The time that launches would take, from the bytes that they move and how fast this machine
// copies. See estimate.h.
//
// Ranks work side by side on the cores that there are. Each operation costs every rank a flag's way
// from each other one, or a turn of its core where ranks outnumber cores (ARCHITECTURE.md, section
// 7).
// SPDX-License-Identifier: Apache-2.0
#include "comm/estimate.h"

#include "base/wait.h"
#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

static const double flag_ns = 80, turn_ns = 1250;
enum { MOST = 64, COPY_BYTES = 4 << 20 };

static _Thread_local bool is_on;
// Of each communicator; those behind MOST share the last place, so that nothing is lost.
static _Thread_local struct {
    const struct ncclComm *comm;
    double ns;
} sum[MOST];
static _Thread_local int sums;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static double ns_per_byte; // read or written

// The best of some copies between buffers larger than a core's share of the cache.
static void measure(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    ns_per_byte = 0.1; // without memory to measure with: ten gigabytes a second
    for (int i = 0; from != NULL && to != NULL && i < 5; i++) {
        memset(from, i, COPY_BYTES);
        uint64_t start_ns = tt_now_ns();
        memcpy(to, from, COPY_BYTES);
        double each = (double)(tt_now_ns() - start_ns) / (2.0 * COPY_BYTES);
        ns_per_byte = i > 0 && each > 0 && (each < ns_per_byte || i == 1) ? each : ns_per_byte;
    }
    free(from);
    free(to);
}

void tt_estimate_begin(void)
{
    (void)pthread_once(&once, measure);
    is_on = true;
    sums = 0;
}

float tt_estimate_end(void)
{
    double most = 0;
    for (int i = 0; i < sums; i++) {
        most = sum[i].ns > most ? sum[i].ns : most;
    }
    is_on = false;
    return (float)(most / 1000);
}

bool tt_estimate_instead(const struct ncclComm *comm, size_t bytes)
{
    if (!is_on) {
        return false;
    }
    int cores = get_nprocs(), place = 0;
    double share = comm->nranks > cores ? (double)comm->nranks / cores : 1;
    double each = comm->nranks > cores ? turn_ns : flag_ns;
    while (place < sums && place < MOST - 1 && sum[place].comm != comm) {
        place++;
    }
    if (place == sums) {
        sum[sums].comm = comm;
        sum[sums++].ns = 0;
    }
    sum[place].ns += (comm->nranks - 1) * each + (double)bytes * ns_per_byte * share;
    return true;
}

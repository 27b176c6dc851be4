// See failure.h. SPDX-License-Identifier: Apache-2.0
#include "exec/failure.h"

#include "base/log.h"
#include "base/wait.h"
#include "exec/executor.h"

#include <stdio.h>
#include <string.h>

// How long a rank that fails waits for the text of another that is failing.
static const uint64_t text_ns = 1000000;

static bool has_error(const struct tt_team *team)
{
    int error = atomic_load_explicit(team->async_error, memory_order_acquire);
    return (error != ncclSuccess && error != ncclInProgress) ||
           (team->device_error != NULL &&
            atomic_load_explicit(team->device_error, memory_order_relaxed) != 0);
}

static void tell_owner(const struct tt_team *team, ncclResult_t result, const char *text)
{
    (void)tt_fail(result, "%s", text);
    if (team->fail != NULL) {
        team->fail(team->owner, result, text);
    }
    int none = ncclSuccess;
    (void)atomic_compare_exchange_strong(team->async_error, &none, (int)result);
}

// What another rank failed with; false: none has.
static bool adopt(const struct tt_failure *failure, const struct tt_team *team)
{
    if (atomic_load_explicit(&failure->state, memory_order_acquire) != 2) {
        return false;
    }
    char text[sizeof failure->text];
    memcpy(text, failure->text, sizeof text);
    text[sizeof text - 1] = 0;
    ncclResult_t result = (ncclResult_t)failure->result;
    bool is_known = result > ncclSuccess && result < ncclNumResults && result != ncclInProgress;
    tell_owner(team, is_known ? result : ncclInternalError, text);
    return true;
}

bool tt_failure_is_over(const struct tt_failure *failure, const struct tt_team *team)
{
    return has_error(team) || atomic_load_explicit(team->abort_flag, memory_order_acquire) != 0 ||
           adopt(failure, team);
}

// Makes this rank's failure everybody's; false: another was first.
static bool publish(struct tt_failure *failure, const struct tt_team *team, ncclResult_t result,
                    const char *text)
{
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&failure->state, &none, 1)) {
        return false;
    }
    failure->result = result;
    failure->rank = team->rank;
    (void)snprintf(failure->text, sizeof failure->text, "%s", text);
    atomic_store_explicit(&failure->state, 2, memory_order_release);
    return true;
}

ncclResult_t tt_failure_set(struct tt_failure *failure, const struct tt_team *team, bool is_ending,
                            ncclResult_t result, const char *text)
{
    if (publish(failure, team, result, text)) {
        tell_owner(team, result, text);
        tt_say("%s; end the communicator %s with ncclCommAbort%s", text,
               team->comm_name == NULL ? "" : team->comm_name,
               is_ending ? " on the other ranks" : "");
        return result;
    }
    uint64_t start_ns = tt_now_ns();
    while (!adopt(failure, team)) {
        if (tt_now_ns() - start_ns > text_ns) { // it died while it wrote
            tell_owner(team, result, text);
            break;
        }
    }
    return result;
}

ncclResult_t tt_failure_set_again(struct tt_failure *failure, const struct tt_team *team,
                                  bool is_ending, ncclResult_t result)
{
    char text[TT_FAILURE_TEXT], own[24];
    const char *last = tt_thread_error();
    (void)snprintf(own, sizeof own, "rank %d: ", team->rank);
    const char *at = strstr(last, own); // "rank 0: ..." or, of CUDA's calls, "ncclX: rank 0: ..."
    if (at == NULL && strncmp(last, "rank ", 5) == 0) {
        (void)snprintf(text, sizeof text, "%s", last);
    } else if (at == NULL) {
        (void)snprintf(text, sizeof text, "%s%s", own, last);
    } else {
        (void)snprintf(text, sizeof text, "%s%.*s%s", own, (int)(at - last), last,
                       at + strlen(own));
    }
    return tt_failure_set(failure, team, is_ending, result, text);
}

// See registrations.h. As with all of a communicator, one thread at a time calls.
// SPDX-License-Identifier: Apache-2.0
#include "comm/registrations.h"

#include "base/log.h"
#include "comm/comm.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

// A list, linked. An entry's address is its handle.
struct tt_registrations {
    struct tt_registrations *next;
    uintptr_t first, end;
    size_t times;
};

ncclResult_t tt_registration_add(struct ncclComm *comm, const void *buffer, size_t bytes,
                                 void **handle_out)
{
    uintptr_t first = (uintptr_t)buffer & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t last = (uintptr_t)buffer + bytes; // the byte behind it
    if (last < (uintptr_t)buffer || last > UINTPTR_MAX - PAGE_BYTES) {
        return tt_fail(
            ncclInvalidArgument,
            "rank %d: size is %zu, which from buff %p on is more than there are addresses",
            comm->rank, bytes, buffer);
    }
    uintptr_t end = (last + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    struct tt_registrations *known = comm->registrations;
    while (known != NULL && (known->first > first || known->end < end)) {
        known = known->next;
    }
    if (known == NULL) {
        known = calloc(1, sizeof *known);
        if (known == NULL) {
            return tt_fail(ncclSystemError, "rank %d: no memory for another registration",
                           comm->rank);
        }
        *known = (struct tt_registrations){comm->registrations, first, end, 0};
        comm->registrations = known;
    }
    known->times++;
    *handle_out = known;
    return ncclSuccess;
}

bool tt_registration_remove(struct ncclComm *comm, const void *handle)
{
    struct tt_registrations **place = &comm->registrations;
    while (*place != NULL && *place != handle) {
        place = &(*place)->next;
    }
    struct tt_registrations *found = *place;
    if (found == NULL) {
        return false;
    }
    if (--found->times == 0) {
        *place = found->next;
        free(found);
    }
    return true;
}

void tt_registrations_free(struct tt_registrations *registrations)
{
    while (registrations != NULL) {
        struct tt_registrations *next = registrations->next;
        free(registrations);
        registrations = next;
    }
}

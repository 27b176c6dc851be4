// Registering windows and asking about them: what ncclCommWindowRegister and its relatives do,
// arguments already checked.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_REGISTER_H
#define TT_WINDOW_REGISTER_H

#include "nccl.h"
#include "nccl_device.h"

#include <stddef.h>

struct ncclComm;

// Collective; through the calling thread's group. *window_out is written when the group ends: NULL
// where some rank cannot share memory. A rank's bad buffer or size is an error on all ranks.
ncclResult_t tt_window_register(struct ncclComm *comm, void *pointer, size_t bytes,
                                ncclWindow_t *window_out, int flags);
// Local; in a group at its end, behind its launches, which may use the window.
ncclResult_t tt_window_deregister(struct ncclComm *comm, ncclWindow_t window);

// Device addresses of byte `offset`; *pointer_out NULL where it cannot be reached. `call` names the
// function in messages.
ncclResult_t tt_window_member_pointer(ncclWindow_t window, size_t offset, int lsa_rank,
                                      void **pointer_out, const char *call);
ncclResult_t tt_window_peer_pointer(ncclWindow_t window, size_t offset, int peer,
                                    void **pointer_out, const char *call);
// multimem: of the team; NULL: the window's own LSA team.
ncclResult_t tt_window_multimem_pointer(ncclWindow_t window, size_t offset,
                                        const ncclMultimemHandle_t *multimem, void **pointer_out,
                                        const char *call);
ncclResult_t tt_window_user_pointer(struct ncclComm *comm, ncclWindow_t window, void **pointer_out);

// The arguments of ncclPutSignal that name memory.
struct tt_window_put {
    const void *from;
    size_t count;
    ncclDataType_t type; // count * type has been checked
    int peer;            // has been checked
    ncclWindow_t window;
    size_t offset; // bytes
};
// Where it goes in the peer's memory, by an address of this process. ncclInvalidArgument naming the
// argument where `from` is in no symmetric window of this rank, or the window is none or does not
// hold the bytes. There must be no tt_one_sided_obstacle.
ncclResult_t tt_window_put_place(const struct ncclComm *comm, const struct tt_window_put *put,
                                 void **to_out);
// Why the communicator has no one-sided communication; NULL: it has.
const char *tt_one_sided_obstacle(const struct ncclComm *comm);

// Fills *properties, checked for magic, version and size.
ncclResult_t tt_query_properties(struct ncclComm *comm, ncclCommProperties_t *properties);

// Collective; through the calling thread's group. See device_comm.c for what can be asked for.
ncclResult_t tt_dev_comm_create(struct ncclComm *comm,
                                const ncclDevCommRequirements_t *requirements,
                                ncclDevComm_t *device_comm_out);
// Local; in a group at its end, as freeing waits for kernels, of other ranks too, that may wait for
// the group's.
ncclResult_t tt_dev_comm_destroy(struct ncclComm *comm, const ncclDevComm_t *device_comm);

#endif

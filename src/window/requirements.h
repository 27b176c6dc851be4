// What a user asks of a device communicator: checked, copied, and laid out in the resource window.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_WINDOW_REQUIREMENTS_H
#define TT_WINDOW_REQUIREMENTS_H

#include "window/window_internal.h"

// One buffer of the resource window, from resourceRequirementsList.
struct tt_wanted_buffer {
    size_t bytes, alignment;
    size_t offset; // filled by tt_requirements_lay_out
    ncclDevResourceHandle_t *handle_out;
};
// One entry of teamRequirementsList. own_view: multimem of a part of the LSA team.
struct tt_wanted_team {
    ncclTeam_t team;
    bool own_view;
    int view;                         // its number, once there is one
    ncclMultimemHandle_t *handle_out; // NULL also where no multimem is asked for
};
// A deep copy, one block of `bytes` bytes that may be moved: buffers and teams follow the
// structure.
struct tt_requirements {
    size_t bytes;
    ncclDevComm_t *device_comm_out;
    bool lsa_multimem;
    int views; // teams with own_view
    // Of lsaBarrierCount and barrierCount; bufHandle and total_bytes are filled by
    // tt_requirements_lay_out.
    ncclLsaBarrierHandle_t lsa_barrier, hybrid_barrier;
    size_t total_bytes;
    int team_count, buffer_count;
    struct tt_wanted_buffer buffer[]; // [buffer_count], then struct tt_wanted_team [team_count]
};
struct tt_wanted_team *tt_requirements_teams(struct tt_requirements *requirements);

// Checks and copies; *copy_out is freed with free(). Errors: as ncclDevCommCreate's, each naming
// the field.
ncclResult_t tt_requirements_copy(const struct ncclComm *comm,
                                  const ncclDevCommRequirements_t *requirements,
                                  struct tt_requirements **copy_out);
// Gives everything its place, in units of 128 bytes.
ncclResult_t tt_requirements_lay_out(const struct ncclComm *comm,
                                     struct tt_requirements *requirements);
// A number that is equal on all ranks exactly where they ask for the same, and a text of it.
uint64_t tt_requirements_signature(const struct tt_requirements *requirements, char *text,
                                   size_t text_bytes);

#endif

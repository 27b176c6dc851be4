// How long the launches of a group would take: ncclGroupSimulateEnd.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_COMM_ESTIMATE_H
#define TT_COMM_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>

struct ncclComm;

// Between begin and end the calling thread's launches are estimated, not made. The end returns
// microseconds: those of the communicator that takes longest.
void tt_estimate_begin(void);
float tt_estimate_end(void);

// For a launch of an operation, or of messages, for which this rank moves so many bytes (read or
// written). True: it has been added to the estimate and must not be made.
bool tt_estimate_instead(const struct ncclComm *comm, size_t bytes);

#endif

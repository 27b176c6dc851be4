// Which action a stage of a pipeline does when, and which messages go before it: plain data, which
// pipeline.c runs and schedule_test.c plays through. SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_SCHEDULE_H
#define PARALLEL_SCHEDULE_H

#include "tutti_parallel/pipeline.h"

#include <stdbool.h>

enum { SCHEDULE_MOST = 1 << 20 }; // stages, and micro-batches

// Checks what all functions take. name: of the public function, for the text.
ncclResult_t parallel_schedule_check(const char *name, enum tuttiPipelineSchedule schedule,
                                     int stages, int microBatches);

// A message between neighbours: what an action has made or needs. Forward: activations, to the next
// stage; backward: gradients, to the stage before.
struct schedule_message {
    bool exists;
    enum tuttiPipelineKind kind;
    int microBatch;
    int peer; // the other stage
};

// The messages that stand between action index - 1 and action index, which are one group: what the
// former sends and what the latter must have. index: 0 to actions; at `actions` the last one's send
// alone.
struct schedule_exchange {
    struct schedule_message send, receive;
};

struct schedule_exchange parallel_schedule_exchange(const struct tuttiPipelineAction *action,
                                                    int actions, int index, int stage, int stages);

#endif

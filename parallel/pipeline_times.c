// The times of a run, on one clock. See tuttiPipelineTimes. SPDX-License-Identifier: Apache-2.0
#include "device.h"
#include "fail.h"
#include "pipeline_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What stages tell each other before their times.
struct clock_card {
    char machine[40]; // the kernel's boot id: machines have a clock of their own
    double now;       // just after a barrier
    int32_t has_times;
};

// Empty where the kernel does not tell: then each stage is a machine of its own.
static void read_machine(char *machine, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    machine[0] = 0;
    if (file != NULL) {
        if (fgets(machine, (int)bytes, file) == NULL) {
            machine[0] = 0;
        }
        (void)fclose(file);
    }
}

// Sets all stages' times to stage 0's clock, then to the first begin.
static void align(struct tuttiPipelineTime *times, const struct clock_card *card, int stages,
                  size_t actions)
{
    double first = INFINITY;
    for (int s = 0; s < stages; s++) {
        bool is_same = card[0].machine[0] != 0 && strcmp(card[0].machine, card[s].machine) == 0;
        double shift = is_same ? 0 : card[0].now - card[s].now;
        for (size_t k = 0; k < actions; k++) {
            struct tuttiPipelineTime *time = &times[(size_t)s * actions + k];
            time->begin += shift;
            time->end += shift;
            first = fmin(first, time->begin);
        }
    }
    for (size_t i = 0; i < (size_t)stages * actions; i++) {
        times[i].begin -= first;
        times[i].end -= first;
    }
}

static ncclResult_t gather_times(const struct tuttiPipeline *p, struct clock_card *card,
                                 struct tuttiPipelineTime *times)
{
    struct clock_card mine = {.now = 0, .has_times = p->has_times && times != NULL};
    size_t actions = 2 * (size_t)p->options.microBatches;
    read_machine(mine.machine, sizeof mine.machine);
    TRY(parallel_pipeline_gather(p, &mine, card, sizeof mine)); // is the barrier, too
    mine.now = parallel_pipeline_now();
    TRY(parallel_pipeline_gather(p, &mine, card, sizeof mine));
    if (times == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineTimes: times is NULL at stage %d",
                         p->stage);
    }
    for (int s = 0; s < p->stages; s++) {
        if (!card[s].has_times) {
            return tuttiFail(ncclInvalidUsage,
                             "tuttiPipelineTimes: stage %d has none: its last tuttiPipelineRun "
                             "must have returned ncclSuccess, and times not be NULL",
                             s);
        }
    }
    TRY(parallel_pipeline_gather(p, p->time, times, actions * sizeof *times));
    align(times, card, p->stages, actions);
    return ncclSuccess;
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineTimes(struct tuttiPipeline *pipeline,
                                                struct tuttiPipelineTime *times)
{
    if (pipeline == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineTimes: pipeline is NULL");
    }
    TRY(tuttiRefuseGroup("tuttiPipelineTimes"));
    int previous = 0;
    struct clock_card *card = malloc((size_t)pipeline->stages * sizeof *card);
    if (card == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineTimes: no memory for %d stages",
                         pipeline->stages);
    }
    ncclResult_t result = parallel_enter_known_device(pipeline->device, &previous);
    if (result == ncclSuccess) {
        result = gather_times(pipeline, card, times);
        parallel_leave_device(previous);
    }
    free(card);
    return result;
}

// Pipelines in which something goes wrong: functions that fail, ranks that die or abort, options
// that are wrong or do not fit together. SPDX-License-Identifier: Apache-2.0
#include "pipeline_parcel.h"

#include <stdio.h>

// ---- Failures -----------------------------------------------------------------------------------

// Each stage in turn fails in its first, its third and its last call; then all is well again.
static void failing_function(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int i = 0; i < 2 * 3 * size; i++) {
        struct tuttiPipeline *pipeline = NULL;
        struct parcel p =
            make_parcel(&m, i % 2 == 0 ? tuttiPipelineGPipe : tuttiPipeline1F1B, 4, 1000);
        int at = i / 2 % 3 == 0 ? 0 : i / 2 % 3 == 1 ? 2 : 7, stage = i / 6;
        char text[64];
        if (!create(&p, &m, &pipeline)) {
            break;
        }
        p.fails_at = rank == stage ? at : -2;
        EXPECT_EQ(tuttiPipelineRun(pipeline), rank == stage ? ncclInternalError : ncclRemoteError);
        (void)snprintf(text, sizeof text, "failed at stage %d", stage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "of micro-batch ");
        if (rank == stage) {
            EXPECT_CONTAINS(ncclGetLastError(NULL), "the test's own failure");
            EXPECT_EQ(p.calls, at + 1);
        }
        EXPECT_EQ(member_state(&m), ncclSuccess);
        p.fails_at = -1;
        p.calls = p.flying = p.most_flying = 0;
        EXPECT_OK(tuttiPipelineRun(pipeline));
        check_calls(&p);
        EXPECT_OK(tuttiPipelineDestroy(pipeline));
    }
    member_leave(&m);
}

static void functions_that_fail(void)
{
    for (int p = 1; p <= MOST_STAGES; p++) {
        run_ranks(p, failing_function, LIMIT_S);
    }
    run_thread_ranks(3, failing_function, LIMIT_S);
}

// ---- A function that fails behind what it has enqueued ------------------------------------------

static void sleep_and_tell(void *done)
{
    struct timespec time = {0, 50 * 1000000L};
    (void)nanosleep(&time, NULL);
    *(bool *)done = true;
}

struct late {
    cudaStream_t stream;
    bool is_done;
};

static ncclResult_t enqueue_and_fail(void *context, int micro, const void *input, void *output)
{
    struct late *late = context;
    (void)micro;
    (void)input;
    (void)output;
    EXPECT_CUDA(cudaLaunchHostFunc(late->stream, sleep_and_tell, &late->is_done));
    return tuttiFail(ncclInternalError, "failed behind its work");
}

// It is over when the run returns, as after a call that ends well.
static void late_work(int rank, int size)
{
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct late late = {m.stream, false};
    struct parcel p = make_parcel(&m, tuttiPipelineGPipe, 1, 10);
    struct tuttiPipeline *pipeline = NULL;
    p.options.forward = enqueue_and_fail;
    p.options.context = &late;
    EXPECT_OK(tuttiPipelineCreate(m.comm, &p.options, &pipeline));
    EXPECT_EQ(tuttiPipelineRun(pipeline), ncclInternalError);
    EXPECT(late.is_done);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_OK(tuttiPipelineDestroy(pipeline));
    member_leave(&m);
}

static void work_behind_a_failure(void)
{
    run_ranks(2, late_work, LIMIT_S);
}

// ---- Ranks that end -----------------------------------------------------------------------------

// Stage 1 is gone in its second call.
static void dying_rank(int rank, int size)
{
    struct member m;
    struct tuttiPipeline *pipeline = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct parcel p = make_parcel(&m, tuttiPipeline1F1B, 5, 1000);
    if (create(&p, &m, &pipeline)) {
        p.fails_at = rank == 1 ? 1 : -2;
        p.dies = true;
        EXPECT_EQ(tuttiPipelineRun(pipeline), ncclRemoteError);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "rank 1");
        EXPECT_EQ(tuttiPipelineRun(pipeline), ncclRemoteError);
        EXPECT_OK(ncclCommAbort(m.comm));
        m.comm = NULL;
        EXPECT_OK(tuttiPipelineDestroy(pipeline));
    }
    member_leave(&m);
}

static void ranks_that_die(void)
{
    int statuses[3];
    run_ranks_status(3, dying_rank, LIMIT_S, statuses);
    EXPECT_EQ(statuses[0], 0);
    EXPECT_EQ(statuses[2], 0);
}

// Stage 1 aborts the communicator in its second call.
static void aborting_rank(int rank, int size)
{
    struct member m;
    struct tuttiPipeline *pipeline = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct parcel p = make_parcel(&m, tuttiPipelineGPipe, 5, 1000);
    if (create(&p, &m, &pipeline)) {
        p.fails_at = rank == 1 ? 1 : -2;
        p.aborts = m.comm;
        EXPECT_EQ(tuttiPipelineRun(pipeline), rank == 1 ? ncclInvalidArgument : ncclRemoteError);
        if (rank != 1) {
            EXPECT_OK(ncclCommAbort(m.comm));
        }
        m.comm = NULL;
        EXPECT_OK(tuttiPipelineDestroy(pipeline));
    }
    member_leave(&m);
}

static void ranks_that_abort(void)
{
    run_thread_ranks(3, aborting_rank, LIMIT_S);
    run_ranks(4, aborting_rank, LIMIT_S);
}

// ---- Bad arguments ------------------------------------------------------------------------------

// Stage 1 of three has something wrong: all learn, and the text says what.
static void expect_refused(const struct member *m, const struct tuttiPipelineOptions *options,
                           ncclResult_t at_1, ncclResult_t elsewhere, const char *text)
{
    char place = 0;
    struct tuttiPipeline *pipeline = (void *)&place; // becomes NULL
    EXPECT_EQ(tuttiPipelineCreate(m->comm, options, &pipeline), m->rank == 1 ? at_1 : elsewhere);
    EXPECT(pipeline == NULL);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "stage 1");
    if (m->rank == 1 || at_1 == elsewhere) {
        EXPECT_CONTAINS(ncclGetLastError(NULL), text);
    }
}

enum change {
    SIZE,
    SCHEDULE,
    MICRO,
    TYPE,
    GRADIENT,
    ELEMENTS,
    FORWARD,
    OTHER_MICRO,
    OTHER_SCHEDULE,
    OTHER_TYPE,
    OTHER_ELEMENTS,
    OTHER_BACKWARD,
    CHANGES
};

static void change_options(struct tuttiPipelineOptions *o, enum change change)
{
    o->size -= change == SIZE ? 1 : 0;
    o->schedule = change == SCHEDULE         ? (enum tuttiPipelineSchedule)5
                  : change == OTHER_SCHEDULE ? tuttiPipeline1F1B
                                             : o->schedule;
    o->microBatches = change == MICRO ? 0 : change == OTHER_MICRO ? 3 : o->microBatches;
    o->activationType = change == TYPE         ? ncclInt32
                        : change == OTHER_TYPE ? ncclBfloat16
                                               : o->activationType;
    o->gradientType = change == GRADIENT ? ncclFloat16 : o->gradientType;
    o->outputElements = change == ELEMENTS         ? (size_t)-1
                        : change == OTHER_ELEMENTS ? 5
                                                   : o->outputElements;
    o->forward = change == FORWARD ? NULL : o->forward;
    o->backward = change == OTHER_BACKWARD ? NULL : o->backward;
}

static void wrong_options(int rank, int size)
{
    static const char *const texts[CHANGES] = {"options.size is",
                                               "schedule is 5",
                                               "microBatches is 0",
                                               "activationType is 2",
                                               "gradientType is 6",
                                               "outputElements is",
                                               "forward is NULL",
                                               "microBatches is 2 at stage 0",
                                               "schedule is 0 at stage 0 and 1",
                                               "activationType is 7",
                                               "outputElements is 5 at stage 1",
                                               "backward != NULL is 1 at stage 0"};
    struct member m;
    if (!member_join(&m, rank, size)) {
        return;
    }
    for (int change = 0; change < CHANGES; change++) {
        struct parcel p = make_parcel(&m, tuttiPipelineGPipe, 2, 10);
        if (rank == 1) {
            change_options(&p.options, (enum change)change);
        }
        bool is_own = change < OTHER_MICRO;
        expect_refused(&m, &p.options, is_own ? ncclInvalidArgument : ncclInvalidUsage,
                       is_own ? ncclRemoteError : ncclInvalidUsage, texts[change]);
    }
    struct parcel p = make_parcel(&m, tuttiPipelineGPipe, 2, 10);
    struct tuttiPipeline *pipeline = NULL;
    EXPECT_EQ(tuttiPipelineCreate(m.comm, rank == 1 ? NULL : &p.options, &pipeline),
              rank == 1 ? ncclInvalidArgument : ncclRemoteError);
    EXPECT_EQ(tuttiPipelineCreate(m.comm, &p.options, rank == 1 ? NULL : &pipeline),
              rank == 1 ? ncclInvalidArgument : ncclRemoteError);
    run_parcel(&m, p); // nothing of it has stayed
    member_leave(&m);
}

static void without_backward(int rank, int size)
{
    struct member m;
    struct tuttiPipeline *pipeline = NULL;
    if (!member_join(&m, rank, size)) {
        return;
    }
    struct parcel p = make_parcel(&m, tuttiPipeline1F1B, 5, 10);
    p.options.backward = NULL;
    if (create(&p, &m, &pipeline)) {
        EXPECT_EQ(tuttiPipelineRun(pipeline), ncclInvalidUsage);
        EXPECT_CONTAINS(ncclGetLastError(NULL), "backward is NULL");
        EXPECT_OK(tuttiPipelineEvaluate(pipeline));
        EXPECT_EQ(p.calls, 5);
        struct tuttiPipelineTime times[2 * 5 * 2];
        EXPECT_EQ(tuttiPipelineTimes(pipeline, times), ncclInvalidUsage); // after Evaluate
        EXPECT_OK(tuttiPipelineDestroy(pipeline));
    }
    member_leave(&m);
}

static void bad_arguments(void)
{
    struct tuttiPipeline *pipeline = NULL;
    struct tuttiPipelineOptions options = TUTTI_PIPELINE_OPTIONS_INITIALIZER;
    struct tuttiPipelineTime times[2];
    size_t bytes = 0;
    EXPECT_EQ(tuttiPipelineCreate(NULL, &options, &pipeline), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineRun(NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineEvaluate(NULL), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineTimes(NULL, times), ncclInvalidArgument);
    EXPECT_EQ(tuttiPipelineBytes(NULL, &bytes), ncclInvalidArgument);
    EXPECT_OK(tuttiPipelineDestroy(NULL));
    run_ranks(3, wrong_options, LIMIT_S);
    run_ranks(2, without_backward, LIMIT_S);
}

int main(void)
{
    RUN(functions_that_fail);
    RUN(work_behind_a_failure);
    RUN(ranks_that_die);
    RUN(ranks_that_abort);
    RUN(bad_arguments);
    return expect_result();
}

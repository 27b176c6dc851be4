// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool gpt_fail(struct gpt_problem *problem, int status, const char *format, ...)
{
    if (problem->status == 0) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(problem->text, sizeof problem->text, format, arguments);
        va_end(arguments);
        problem->status = status;
        problem->teller = GPT_EACH_TELLS;
    }
    return false;
}

bool gpt_nccl(struct gpt_problem *problem, ncclResult_t result, const char *what)
{
    if (result == ncclSuccess) {
        return true;
    }
    const char *text = ncclGetLastError(NULL);
    bool said = text != NULL && text[0] != 0;
    if (said && strncmp(text, "gpt: ", 5) == 0) { // it says already what it is about
        text += 5;
        what = "";
    }
    int status = result == ncclInvalidArgument ? GPT_USAGE : GPT_FAILED;
    text = said ? text : ncclGetErrorString(result);
    return what[0] == 0 ? gpt_fail(problem, status, "%s", text)
                        : gpt_fail(problem, status, "%s: %s", what, text);
}

bool gpt_cuda(struct gpt_problem *problem, int error, const char *what)
{
    if (error == 0) {
        return true;
    }
    return gpt_fail(problem, GPT_FAILED, "%s: %s", what, cudaGetErrorString((cudaError_t)error));
}

bool gpt_fail_alike(struct gpt_problem *problem)
{
    if (problem->status == GPT_USAGE) {
        problem->teller = 0;
    }
    return false;
}

void gpt_tell(const struct gpt_problem *problem, int rank, int size)
{
    if (problem->status == 0 || (problem->teller >= 0 && problem->teller != rank)) {
        return;
    }
    if (size > 1 && problem->teller != 0) {
        (void)fprintf(stderr, "gpt: rank %d: %s\n", rank, problem->text);
    } else {
        (void)fprintf(stderr, "gpt: %s\n", problem->text);
    }
}

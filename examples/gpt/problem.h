// What went wrong, in one line, and the status that the program then ends with.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_PROBLEM_H
#define GPT_PROBLEM_H

#include <nccl.h>
#include <stdbool.h>

enum { GPT_FAILED = 1, GPT_USAGE = 2 }; // exit statuses: the run failed; a wrong argument

enum { GPT_EACH_TELLS = -1 };

struct gpt_problem {
    int status; // 0: nothing is wrong
    int teller; // the rank that tells, where all have the same problem; else GPT_EACH_TELLS
    char text[640];
};

// Notes a problem, unless there is one already; format: as for printf, one line without its end.
// Always false, so that functions can return it.
bool gpt_fail(struct gpt_problem *problem, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// True for ncclSuccess; else notes the library's last text. what: of the call, for the message.
bool gpt_nccl(struct gpt_problem *problem, ncclResult_t result, const char *what);

// The same for a call of CUDA; error: its value, 0 for success.
bool gpt_cuda(struct gpt_problem *problem, int error, const char *what);

// A wrong argument (GPT_USAGE) that every rank has found in the same words, as all have the same
// options, is rank 0's to tell. Always false.
bool gpt_fail_alike(struct gpt_problem *problem);

// Writes the problem's line to stderr, where there is one and it is this rank's to tell it. size:
// ranks of the run; the line names the rank where there are several and it is this rank's own.
void gpt_tell(const struct gpt_problem *problem, int rank, int size);

#endif

// In place of pmix.c where PMIx's headers were not there at build time. See run.h.
// SPDX-License-Identifier: Apache-2.0
#include "run.h"

bool run_pmix_start(const struct run_job *job)
{
    (void)job;
    return false;
}

char **run_pmix_words(int task)
{
    (void)task;
    return NULL;
}

int run_pmix_aborted(void)
{
    return 0;
}

void run_pmix_end(void) {}

// SPDX-License-Identifier: Apache-2.0
// A C program from outside: two ranks of one process, driven by one thread, make a communicator and
// ask it who they are.
#include "try.h"

#include <nccl.h>
#include <stdio.h>
#include <tutti.h>

int main(void)
{
    int version = 0;
    TRY(ncclGetVersion(&version));
    if (version != NCCL_VERSION_CODE) {
        fprintf(stderr, "the library says %d, its header %d\n", version, NCCL_VERSION_CODE);
        return 1;
    }
    ncclComm_t comms[2];
    TRY(ncclCommInitAll(comms, 2, NULL));
    for (int i = 0; i < 2; i++) {
        int rank = -1;
        int count = -1;
        TRY(ncclCommUserRank(comms[i], &rank));
        TRY(ncclCommCount(comms[i], &count));
        if (rank != i || count != 2) {
            fprintf(stderr, "rank %d of %d instead of %d of 2\n", rank, count, i);
            return 1;
        }
    }
    TRY(ncclGroupStart());
    for (int i = 0; i < 2; i++) {
        TRY(ncclCommFinalize(comms[i]));
    }
    TRY(ncclGroupEnd());
    for (int i = 0; i < 2; i++) {
        TRY(ncclCommDestroy(comms[i]));
    }
    printf("SUCCESS\n");
    return 0;
}

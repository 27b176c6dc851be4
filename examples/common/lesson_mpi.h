// SPDX-License-Identifier: Apache-2.0
// Ranks that MPI has started, on one host: what make MPI=1 adds to a lesson. Where lesson_mpi.c is
// not linked, its functions are not there (weak), and ranks are threads or processes.
#ifndef EXAMPLES_COMMON_LESSON_MPI_H
#define EXAMPLES_COMMON_LESSON_MPI_H

#include <stddef.h>

#pragma weak lesson_mpi_begin
#pragma weak lesson_mpi_share
#pragma weak lesson_mpi_meet
#pragma weak lesson_mpi_end

// MPI_Init; this process's rank, and in *ranks how many there are. Ends the program where they are
// not as many as *ranks says (0: any number), or more than `most`.
int lesson_mpi_begin(int *ranks, int most);
// Memory that all ranks have, all 0, and a file without a name. Ends the program where the ranks
// are on several hosts.
void *lesson_mpi_share(size_t bytes, int *file_out);
// All ranks have come here.
void lesson_mpi_meet(void);
void lesson_mpi_end(void);

#endif

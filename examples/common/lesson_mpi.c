// SPDX-License-Identifier: Apache-2.0
// Ranks that MPI has started (see lesson_mpi.h).
#define _GNU_SOURCE
#include "lesson_mpi.h"

#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static MPI_Win window;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// All ranks come here, with the same numbers.
static void refuse(int rank, int started, int wanted, int most)
{
    if (rank == 0 && wanted != 0) {
        printf("REFUSED: mpirun has started %d ranks; the lesson, or --ranks, wants %d: "
               "mpirun -n %d\n",
               started, wanted, wanted);
    } else if (rank == 0) {
        printf("REFUSED: mpirun has started %d ranks; lessons have at most %d\n", started, most);
    }
    MPI_Finalize();
    exit(1);
}

int lesson_mpi_begin(int *ranks, int most)
{
    int rank, started, wanted = *ranks;
    setvbuf(stdout, NULL, _IOLBF, 0); // lines of several processes: in the order of printing
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &started);
    MPI_Bcast(&wanted, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if ((wanted != 0 && wanted != started) || started > most) {
        refuse(rank, started, wanted, most);
    }
    *ranks = started;
    return rank;
}

// Rank 0's file, by its number in rank 0's process.
static int open_file(int rank)
{
    char path[64];
    int place[2] = {(int)getpid(), rank == 0 ? memfd_create("lesson", MFD_CLOEXEC) : 0};
    MPI_Bcast(place, 2, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        return place[1];
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", place[0], place[1]);
    return open(path, O_RDWR | O_CLOEXEC);
}

void *lesson_mpi_share(size_t bytes, int *file_out)
{
    MPI_Comm host;
    int rank, ranks, here, unit;
    MPI_Aint size;
    void *memory = NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    if (here != ranks) {
        fail("REFUSED", "the ranks are on several hosts; lessons need one");
    }
    MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                            &memory, &window);
    MPI_Win_shared_query(window, 0, &size, &unit, &memory);
    if (rank == 0) {
        memset(memory, 0, bytes);
    }
    *file_out = open_file(rank);
    if (*file_out < 0) {
        fail("memory for the ranks to share", strerror(errno));
    }
    lesson_mpi_meet();
    return memory;
}

void lesson_mpi_meet(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

void lesson_mpi_end(void)
{
    MPI_Win_free(&window);
    MPI_Finalize();
}

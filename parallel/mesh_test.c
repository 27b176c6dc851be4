// The mesh: who is where, who is in which communicator, what is refused.
// SPDX-License-Identifier: Apache-2.0
#include "member.h"
#include "tutti_parallel/mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_RANKS = 24 };

struct shape {
    int dp, pp, ep, tp;
};

struct place {
    int d, p, e, t;
};

// The place of a rank by counting, tp fastest.
static struct place place_of(const struct shape *s, int rank)
{
    int next = 0;
    for (int d = 0; d < s->dp; d++) {
        for (int p = 0; p < s->pp; p++) {
            for (int e = 0; e < s->ep; e++) {
                for (int t = 0; t < s->tp; t++) {
                    if (next++ == rank) {
                        return (struct place){d, p, e, t};
                    }
                }
            }
        }
    }
    return (struct place){-1, -1, -1, -1};
}

// The world ranks of a communicator, by an all-gather in it, are `count` ranks at `expected`.
static void check_members(const struct member *m, ncclComm_t comm, const int *expected, int count)
{
    int got[MOST_RANKS] = {0}, ranks = 0;
    int *device = NULL;
    if (!EXPECT_OK(ncclCommCount(comm, &ranks)) || !EXPECT_EQ(ranks, count)) {
        return;
    }
    // Ranks share devices: cudaFree would wait for the others' all-gathers, too.
    EXPECT_CUDA(cudaMallocAsync((void **)&device, (MOST_RANKS + 1) * sizeof *device, m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(device, &m->rank, sizeof m->rank, cudaMemcpyDefault, m->stream));
    EXPECT_OK(ncclAllGather(device, device + 1, 1, ncclInt32, comm, m->stream));
    EXPECT_CUDA(cudaMemcpyAsync(got, device + 1, (size_t)ranks * sizeof *device, cudaMemcpyDefault,
                                m->stream));
    EXPECT_CUDA(cudaFreeAsync(device, m->stream));
    EXPECT_CUDA(cudaStreamSynchronize(m->stream));
    for (int i = 0; i < count; i++) {
        EXPECT_EQ(got[i], expected[i]);
    }
}

// Which of the four places may differ among the members: a bit each for d, p, e, t.
static void check_direction(const struct member *m, const struct shape *s, ncclComm_t comm,
                            int differ)
{
    int expected[MOST_RANKS], count = 0;
    struct place mine = place_of(s, m->rank);
    for (int rank = 0; rank < m->size; rank++) {
        struct place other = place_of(s, rank);
        if ((other.d == mine.d || (differ & 8)) && (other.p == mine.p || (differ & 4)) &&
            (other.e == mine.e || (differ & 2)) && (other.t == mine.t || (differ & 1))) {
            expected[count++] = rank;
        }
    }
    check_members(m, comm, expected, count);
}

static void check_mesh(const struct member *m, const struct shape *s, const struct tuttiMesh *mesh)
{
    struct place mine = place_of(s, m->rank);
    char text[TUTTI_MESH_TEXT], expected[TUTTI_MESH_TEXT];
    EXPECT_EQ(mesh->dp, s->dp);
    EXPECT_EQ(mesh->pp, s->pp);
    EXPECT_EQ(mesh->ep, s->ep);
    EXPECT_EQ(mesh->tp, s->tp);
    EXPECT_EQ(mesh->rank, m->rank);
    EXPECT_EQ(mesh->size, m->size);
    EXPECT(mesh->world == m->comm);
    EXPECT_EQ(mesh->dpRank, mine.d);
    EXPECT_EQ(mesh->ppRank, mine.p);
    EXPECT_EQ(mesh->epRank, mine.e);
    EXPECT_EQ(mesh->tpRank, mine.t);
    check_direction(m, s, mesh->dpComm, 8);
    check_direction(m, s, mesh->ppComm, 4);
    check_direction(m, s, mesh->epComm, 2);
    check_direction(m, s, mesh->tpComm, 1);
    check_direction(m, s, mesh->dataComm, 8 | 2);
    (void)snprintf(expected, sizeof expected, "dp %d, pp %d, ep %d, tp %d", mine.d, mine.p, mine.e,
                   mine.t);
    EXPECT_OK(tuttiMeshDescribe(mesh, text, sizeof text));
    EXPECT_STR(text, expected);
}

// Every shape of this many ranks; in each, what remains instead of each size once.
static void shapes_of(int rank, int size)
{
    struct member m;
    struct tuttiMesh mesh;
    if (!member_join(&m, rank, size)) {
        return;
    }
    int number = 0;
    for (int i = 0; i < size * size * size; i++) {
        struct shape s = {1 + i / size / size, 1 + i / size % size, 1 + i % size, 0};
        if (size % (s.dp * s.pp * s.ep) != 0) {
            continue;
        }
        s.tp = size / (s.dp * s.pp * s.ep);
        int open = number++ % 5;
        if (EXPECT_OK(tuttiMeshCreate(m.comm, open == 0 ? 0 : s.dp, open == 1 ? 0 : s.pp,
                                      open == 2 ? 0 : s.ep, open == 3 ? 0 : s.tp, &mesh))) {
            check_mesh(&m, &s, &mesh);
        }
        EXPECT_OK(tuttiMeshDestroy(&mesh));
    }
    EXPECT(number >= (size > 1 ? 4 : 1));
    member_leave(&m);
}

static void shapes(void)
{
    for (int size = 1; size <= 6; size++) {
        run_thread_ranks(size, shapes_of, 60);
    }
    run_ranks(1, shapes_of, 60);
    run_ranks(3, shapes_of, 60);
    run_ranks(4, shapes_of, 60);
}

// All four directions at once; the world goes first.
static void sixteen_of(int rank, int size)
{
    const struct shape s = {2, 2, 2, 2};
    struct member m;
    struct tuttiMesh mesh;
    if (!member_join(&m, rank, size)) {
        return;
    }
    if (EXPECT_OK(tuttiMeshCreate(m.comm, 2, 2, 2, 2, &mesh))) {
        check_mesh(&m, &s, &mesh);
        EXPECT_OK(ncclCommDestroy(m.comm));
        m.comm = NULL;
        check_direction(&m, &s, mesh.dataComm, 8 | 2);
    }
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    member_leave(&m);
}

static void sixteen(void)
{
    run_thread_ranks(16, sixteen_of, 60);
}

// ---- What is refused ----------------------------------------------------------------------------

// On every rank the same error with the same text, and nothing is left in the mesh.
static void refuse(const struct member *m, struct shape s, bool with_mesh, const char *text)
{
    char mine[512], all[MOST_RANKS * sizeof mine];
    struct tuttiMesh mesh;
    memset(&mesh, 0x55, sizeof mesh);
    EXPECT_EQ(tuttiMeshCreate(m->comm, s.dp, s.pp, s.ep, s.tp, with_mesh ? &mesh : NULL),
              ncclInvalidArgument);
    memset(mine, 0, sizeof mine);
    (void)snprintf(mine, sizeof mine, "%s", ncclGetLastError(NULL));
    EXPECT_CONTAINS(mine, text);
    ranks_gather(mine, all, sizeof mine);
    for (int rank = 0; rank < m->size; rank++) {
        EXPECT_STR(all + (size_t)rank * sizeof mine, mine);
    }
    if (with_mesh) {
        EXPECT(mesh.dpComm == NULL && mesh.dataComm == NULL && mesh.size == 0);
        EXPECT_OK(tuttiMeshDestroy(&mesh));
    }
}

static void refusals_of(int rank, int size)
{
    const struct shape fits = {size, 1, 1, 1};
    struct member m;
    struct tuttiMesh mesh;
    if (!member_join(&m, rank, size)) {
        return;
    }
    int last = rank == size - 1;
    refuse(&m, (struct shape){3, 2, 1, 1}, true,
           "dp 3 x pp 2 x ep 1 x tp 1 is 6, must be the number of ranks, 4");
    refuse(&m, (struct shape){1, 1, 1, 2}, true, "tp 2 is 2, must be the number of ranks, 4");
    refuse(&m, (struct shape){0, 3, 1, 1}, true,
           "dp 0, pp 3, ep 1, tp 1 (0: what remains): the number of ranks, 4, is not divisible by "
           "the others' product, 3");
    refuse(&m, (struct shape){0, 4, 2, 1}, true, "not divisible by the others' product, 8");
    refuse(&m, (struct shape){0, 2, 0, 1}, true, "dp and ep are 0, only one may be");
    refuse(&m, (struct shape){4, 1, -1, 1}, true, "ep is -1, must be 1 to the number of ranks, 4");
    refuse(&m, (struct shape){1, 1, 1, INT32_MAX}, true, "tp is 2147483647, must be 1 to");
    refuse(&m, (struct shape){1, INT32_MIN, 1, 4}, true, "pp is -2147483648, must be 1 to");
    // What differs between ranks is told to all, though each asks for what would do by itself.
    refuse(&m, last ? (struct shape){2, 1, 1, 2} : (struct shape){2, 2, 1, 1}, true,
           "pp is 2 on rank 0 and 1 on rank 3, must be equal on all ranks");
    refuse(&m, last ? (struct shape){4, 1, 1, 0} : (struct shape){4, 1, 1, 1}, true,
           "tp is 1 on rank 0 and 0 on rank 3");
    refuse(&m, fits, !last, "mesh is NULL on rank 3");
    EXPECT_EQ(tuttiMeshCreate(NULL, 1, 1, 1, 1, &mesh), ncclInvalidArgument);
    EXPECT(mesh.size == 0);
    // And the world is as good as before.
    EXPECT_OK(tuttiMeshCreate(m.comm, 0, 1, 1, 1, &mesh));
    check_mesh(&m, &fits, &mesh);
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    member_leave(&m);
}

static void refusals(void)
{
    run_thread_ranks(4, refusals_of, 60);
    run_ranks(4, refusals_of, 60);
}

static void texts_of(int rank, int size)
{
    struct member m;
    struct tuttiMesh mesh = {0};
    char text[TUTTI_MESH_TEXT];
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_EQ(tuttiMeshDescribe(&mesh, text, sizeof text), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "mesh has 0 ranks");
    EXPECT_OK(tuttiMeshCreate(m.comm, 1, 0, 1, 1, &mesh));
    EXPECT_EQ(tuttiMeshDescribe(NULL, text, sizeof text), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "mesh is NULL");
    EXPECT_EQ(tuttiMeshDescribe(&mesh, NULL, sizeof text), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "text is NULL");
    EXPECT_EQ(tuttiMeshDescribe(&mesh, text, 22), ncclInvalidArgument);
    EXPECT_CONTAINS(ncclGetLastError(NULL), "size is 22, must be 23");
    EXPECT_OK(tuttiMeshDescribe(&mesh, text, 23));
    EXPECT_STR(text, "dp 0, pp 0, ep 0, tp 0");
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    member_leave(&m);
}

static void texts(void)
{
    run_thread_ranks(1, texts_of, 30);
}

// ---- Ends ---------------------------------------------------------------------------------------

static void ends_of(int rank, int size)
{
    struct member m;
    struct tuttiMesh mesh = {0};
    EXPECT_EQ(tuttiMeshDestroy(NULL), ncclInvalidArgument);
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_OK(tuttiMeshCreate(m.comm, size, 1, 1, 1, &mesh));
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    EXPECT(mesh.world == NULL && mesh.tpComm == NULL);
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    member_leave(&m);
}

// Operations that do not fit together: the mesh can be destroyed nevertheless, and the world works.
static void failed_of(int rank, int size)
{
    struct member m;
    struct tuttiMesh mesh = {0};
    float *buffer = NULL;
    ncclResult_t state = ncclSuccess;
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT_CUDA(cudaMalloc((void **)&buffer, 8 * sizeof *buffer));
    EXPECT_OK(tuttiMeshCreate(m.comm, size, 1, 1, 1, &mesh));
    (void)ncclAllReduce(buffer, buffer, rank == 0 ? 7 : 8, ncclFloat, ncclSum, mesh.dpComm,
                        m.stream);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT_OK(ncclCommGetAsyncError(mesh.dpComm, &state));
    EXPECT_EQ(state, ncclInvalidUsage);
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    EXPECT_OK(tuttiMeshCreate(m.comm, 1, size, 1, 1, &mesh));
    check_mesh(&m, &(struct shape){1, size, 1, 1}, &mesh);
    EXPECT_OK(tuttiMeshDestroy(&mesh));
    // A world that has failed is refused, and nobody waits.
    (void)ncclAllReduce(buffer, buffer, rank == 0 ? 7 : 8, ncclFloat, ncclSum, m.comm, m.stream);
    EXPECT_CUDA(cudaStreamSynchronize(m.stream));
    EXPECT(tuttiMeshCreate(m.comm, 1, size, 1, 1, &mesh) != ncclSuccess);
    EXPECT(mesh.size == 0);
    EXPECT_OK(ncclCommAbort(m.comm));
    m.comm = NULL;
    EXPECT_CUDA(cudaFree(buffer));
    member_leave(&m);
}

static void ends(void)
{
    run_thread_ranks(2, ends_of, 30);
    run_thread_ranks(3, failed_of, 60);
    run_ranks(3, failed_of, 60);
}

// Communicators of a nonblocking world are made in the background; the mesh is ready all the same.
static void nonblocking_of(int rank, int size)
{
    struct member m;
    struct tuttiMesh mesh = {0};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t world = NULL;
    ncclResult_t state = ncclInProgress;
    config.blocking = 0;
    if (!member_join(&m, rank, size)) {
        return;
    }
    (void)ncclCommSplit(m.comm, 0, rank, &world, &config);
    while (state == ncclInProgress && EXPECT_OK(ncclCommGetAsyncError(world, &state))) {
        (void)usleep(1000);
    }
    EXPECT_EQ(state, ncclSuccess);
    for (int i = 0; i < 10; i++) {
        EXPECT_OK(tuttiMeshCreate(world, 1, 1, 0, 2, &mesh));
        mesh.world = m.comm; // of the same ranks in the same order
        check_mesh(&m, &(struct shape){1, 1, size / 2, 2}, &mesh);
        EXPECT_OK(tuttiMeshDestroy(&mesh));
    }
    EXPECT_OK(ncclCommDestroy(world));
    member_leave(&m);
}

static void nonblocking(void)
{
    run_thread_ranks(4, nonblocking_of, 60);
}

int main(void)
{
    RUN(shapes);
    RUN(sixteen);
    RUN(refusals);
    RUN(texts);
    RUN(ends);
    RUN(nonblocking);
    return expect_result();
}

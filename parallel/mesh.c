// The mesh: what ranks ask for is compared first, then each direction is one split of the world.
// See tutti_parallel/mesh.h. SPDX-License-Identifier: Apache-2.0
#include "tutti_parallel/mesh.h"

#include "device.h"
#include "fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DP, PP, EP, TP, DIRECTIONS, LOOK_US = 50 };

static const char *const names[DIRECTIONS] = {"dp", "pp", "ep", "tp"};

// What a rank tells the others of its call.
struct wish {
    int sizes[DIRECTIONS];
    int has_mesh;
};

// All ranks have the wishes of all, so all come to the same end, with the same text.
static ncclResult_t compare_wishes(const struct wish *wishes, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        if (!wishes[rank].has_mesh) {
            return tuttiFail(ncclInvalidArgument, "tuttiMeshCreate: mesh is NULL on rank %d", rank);
        }
        for (int i = 0; i < DIRECTIONS; i++) {
            if (wishes[rank].sizes[i] != wishes[0].sizes[i]) {
                return tuttiFail(ncclInvalidArgument,
                                 "tuttiMeshCreate: %s is %d on rank 0 and %d on rank %d, must be "
                                 "equal on all ranks",
                                 names[i], wishes[0].sizes[i], wishes[rank].sizes[i], rank);
            }
        }
    }
    return ncclSuccess;
}

// Each size by itself. *open: the direction that gets what remains, or -1.
static ncclResult_t check_sizes(const int *sizes, int ranks, int *open)
{
    *open = -1;
    for (int i = 0; i < DIRECTIONS; i++) {
        if (sizes[i] < 0 || sizes[i] > ranks) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiMeshCreate: %s is %d, must be 1 to the number of ranks, %d, or "
                             "0 for what remains",
                             names[i], sizes[i], ranks);
        }
        if (sizes[i] == 0 && *open >= 0) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiMeshCreate: %s and %s are 0, only one may be, as what remains",
                             names[*open], names[i]);
        }
        *open = sizes[i] == 0 ? i : *open;
    }
    return ncclSuccess;
}

// Puts what remains in the place of a 0; the product is the number of ranks then.
static ncclResult_t complete_sizes(int *sizes, int ranks)
{
    int open = -1;
    TRY(check_sizes(sizes, ranks, &open));
    long long product = 1; // 16384 ranks: below 2^56
    for (int i = 0; i < DIRECTIONS; i++) {
        product *= i == open ? 1 : sizes[i];
    }
    if (open >= 0 && ranks % product != 0) {
        return tuttiFail(
            ncclInvalidArgument,
            "tuttiMeshCreate: dp %d, pp %d, ep %d, tp %d (0: what remains): the number "
            "of ranks, %d, is not divisible by the others' product, %lld",
            sizes[DP], sizes[PP], sizes[EP], sizes[TP], ranks, product);
    }
    if (open < 0 && product != ranks) {
        return tuttiFail(
            ncclInvalidArgument,
            "tuttiMeshCreate: dp %d x pp %d x ep %d x tp %d is %lld, must be the number "
            "of ranks, %d",
            sizes[DP], sizes[PP], sizes[EP], sizes[TP], product, ranks);
    }
    if (open >= 0) {
        sizes[open] = (int)(ranks / product);
    }
    return ncclSuccess;
}

// The ranks tell each other what they ask for; sizes: what all of them get.
static ncclResult_t agree(ncclComm_t world, int ranks, const struct wish *mine, int *sizes)
{
    cudaStream_t stream = NULL;
    struct wish *wishes = calloc((size_t)ranks, sizeof *wishes);
    if (wishes == NULL) {
        return tuttiFail(ncclSystemError, "tuttiMeshCreate: no memory for %d ranks", ranks);
    }
    ncclResult_t result = parallel_cuda(
        (int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    if (result == ncclSuccess) {
        result = parallel_exchange(mine, wishes, sizeof *mine, world, stream);
        (void)cudaStreamDestroy(stream);
    }
    if (result == ncclSuccess) {
        result = compare_wishes(wishes, ranks);
    }
    if (result == ncclSuccess) {
        memcpy(sizes, wishes[0].sizes, sizeof wishes[0].sizes);
        result = complete_sizes(sizes, ranks);
    }
    free(wishes);
    return result;
}

// Waits while something is made in the background.
static ncclResult_t await(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;
    TRY(ncclCommGetAsyncError(comm, &state));
    while (state == ncclInProgress) {
        (void)usleep(LOOK_US);
        TRY(ncclCommGetAsyncError(comm, &state));
    }
    return state;
}

// Splits the world. What is split from a nonblocking one is made in the background, and the world
// takes the next call when that is over, too.
static ncclResult_t split(ncclComm_t world, int color, int key, ncclComm_t *comm)
{
    ncclResult_t result = ncclCommSplit(world, color, key, comm, NULL);
    if (result != ncclInProgress) {
        return result;
    }
    TRY(await(*comm));
    return await(world);
}

static ncclResult_t make_comms(struct tuttiMesh *m)
{
    int d = m->dpRank, p = m->ppRank, e = m->epRank, t = m->tpRank;
    TRY(split(m->world, (p * m->ep + e) * m->tp + t, d, &m->dpComm));
    TRY(split(m->world, (d * m->ep + e) * m->tp + t, p, &m->ppComm));
    TRY(split(m->world, (d * m->pp + p) * m->tp + t, e, &m->epComm));
    TRY(split(m->world, (d * m->pp + p) * m->ep + e, t, &m->tpComm));
    return split(m->world, p * m->tp + t, d * m->ep + e, &m->dataComm);
}

static void set_place(struct tuttiMesh *m, const int *sizes)
{
    int rest = m->rank;
    m->dp = sizes[DP];
    m->pp = sizes[PP];
    m->ep = sizes[EP];
    m->tp = sizes[TP];
    m->tpRank = rest % m->tp;
    rest /= m->tp;
    m->epRank = rest % m->ep;
    rest /= m->ep;
    m->ppRank = rest % m->pp;
    m->dpRank = rest / m->pp;
}

static ncclResult_t make_on_device(const struct wish *mine, struct tuttiMesh *m)
{
    int sizes[DIRECTIONS];
    TRY(agree(m->world, m->size, mine, sizes));
    set_place(m, sizes);
    return make_comms(m);
}

PARALLEL_EXPORT ncclResult_t tuttiMeshCreate(ncclComm_t world, int dp, int pp, int ep, int tp,
                                             struct tuttiMesh *mesh)
{
    struct tuttiMesh made = {.world = world};
    struct wish mine = {{dp, pp, ep, tp}, mesh != NULL};
    int previous = 0;
    if (mesh != NULL) {
        memset(mesh, 0, sizeof *mesh);
    }
    TRY(tuttiRefuseGroup("tuttiMeshCreate"));
    TRY(ncclCommCount(world, &made.size));
    TRY(ncclCommUserRank(world, &made.rank));
    TRY(parallel_enter_device(world, &previous));
    ncclResult_t result = make_on_device(&mine, &made);
    parallel_leave_device(previous);
    if (result == ncclSuccess && mesh != NULL) {
        *mesh = made;
    } else {
        (void)tuttiMeshDestroy(&made);
    }
    return result;
}

// A communicator that has failed cannot end in good order with the others.
static ncclResult_t end(ncclComm_t comm)
{
    ncclResult_t state = ncclSuccess;
    if (comm == NULL) {
        return ncclSuccess;
    }
    TRY(ncclCommGetAsyncError(comm, &state));
    return state == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm);
}

PARALLEL_EXPORT ncclResult_t tuttiMeshDestroy(struct tuttiMesh *mesh)
{
    ncclResult_t first = ncclSuccess;
    if (mesh == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMeshDestroy: mesh is NULL");
    }
    const ncclComm_t comms[] = {mesh->dataComm, mesh->tpComm, mesh->epComm, mesh->ppComm,
                                mesh->dpComm};
    for (size_t i = 0; i < sizeof comms / sizeof comms[0]; i++) {
        ncclResult_t result = end(comms[i]);
        first = first == ncclSuccess ? result : first;
    }
    memset(mesh, 0, sizeof *mesh);
    return first;
}

PARALLEL_EXPORT ncclResult_t tuttiMeshDescribe(const struct tuttiMesh *mesh, char *text,
                                               size_t size)
{
    if (mesh == NULL || text == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiMeshDescribe: %s is NULL",
                         mesh == NULL ? "mesh" : "text");
    }
    if (mesh->size < 1) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMeshDescribe: mesh has %d ranks: give one that "
                         "tuttiMeshCreate has made",
                         mesh->size);
    }
    int length = snprintf(text, size, "dp %d, pp %d, ep %d, tp %d", mesh->dpRank, mesh->ppRank,
                          mesh->epRank, mesh->tpRank);
    if (length < 0 || (size_t)length >= size) {
        return tuttiFail(ncclInvalidArgument,
                         "tuttiMeshDescribe: size is %zu, must be %d; TUTTI_MESH_TEXT always does",
                         size, length + 1);
    }
    return ncclSuccess;
}

// The mesh: the ranks of a communicator as dp x pp x ep x tp, and a communicator for each
// direction.
//   dp  data parallel: the same parameters, other sequences
//   pp  pipeline parallel: other layers
//   ep  expert parallel: other experts; all other parameters are the same, the sequences others
//   tp  tensor parallel: other slices of the same matrices, the same sequences
// tp is fastest, because its ranks speak to each other most and should be neighbours:
//   rank = ((dpRank * pp + ppRank) * ep + epRank) * tp + tpRank
// Source: D. Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM", 2021, sections 3.1 and 3.2 (three directions and their order); ep as in S.
// Rajbhandari et al., "DeepSpeed-MoE", 2022, section 5.2.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_MESH_H
#define TUTTI_PARALLEL_MESH_H

#include "tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

// Where a rank is. All fields are to be read only. A communicator of a direction of size 1 has one
// rank and works as any other.
struct tuttiMesh {
    ncclComm_t world; // the program's; not owned
    int rank, size;   // this rank, and the number of ranks, in world
    int dp, pp, ep, tp;
    int dpRank, ppRank, epRank, tpRank;
    ncclComm_t dpComm, ppComm, epComm, tpComm; // the ranks that differ from this one in that place
                                               // alone, in its order
    ncclComm_t dataComm; // [dp * ep] the ranks that differ in dp and ep alone, dp slowest: they
                         // have other sequences and the same parameters, but for experts
};

// Makes the mesh by splits of `world`. Collective over world; synchronous; not between
// ncclGroupStart and ncclGroupEnd. Ranks first tell each other their arguments, so that a wrong
// argument of one is the same error, with the same text, on all, and nobody waits in vain.
// world: ready; must not be used by other threads meanwhile, and may be destroyed before the mesh.
// dp, pp, ep, tp: sizes, whose product is the number of ranks; one of them may be 0: what remains.
//     Equal on all ranks.
// mesh: receives it, to be given to tuttiMeshDestroy; all zeros after an error.
// Errors: ncclInvalidArgument where world is no communicator (on that rank alone), mesh is NULL, a
// size is negative, more than one is 0, the sizes do not multiply to the number of ranks (or do not
// divide it, where one is 0), or differ between ranks; those of ncclAllGather and ncclCommSplit.
// Since 0.1.
ncclResult_t tuttiMeshCreate(ncclComm_t world, int dp, int pp, int ep, int tp,
                             struct tuttiMesh *mesh);

// Destroys its communicators and makes it all zeros. Where one of them has failed it is aborted.
// mesh: made by tuttiMeshCreate, well or not, or all zeros (so it may be called twice). Errors:
// ncclInvalidArgument where mesh is NULL; the first of ncclCommDestroy, after all have been given
// up. Since 0.1.
ncclResult_t tuttiMeshDestroy(struct tuttiMesh *mesh);

// Characters that tuttiMeshDescribe needs at most, the zero at the end included.
#define TUTTI_MESH_TEXT 64

// Writes where this rank is, for logs: "dp 0, pp 1, ep 0, tp 1". text: [size]. Errors:
// ncclInvalidArgument where mesh or text is NULL, the mesh was not made, or size is too small.
// Since 0.1.
ncclResult_t tuttiMeshDescribe(const struct tuttiMesh *mesh, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif

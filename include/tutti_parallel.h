// tutti_parallel.h: the strategies by which several ranks train one model, as functions over NCCL
// communicators. Each has a header of its own, and a page in docs/parallelism.md. Link
// libtutti_parallel besides libnccl.
//
// The functions follow NCCL's manners: they return ncclResult_t, ncclGetLastError gives the text of
// the last failure. Matrices are row-major and contiguous; [a x b] is a rows of b elements.
// SPDX-License-Identifier: Apache-2.0
#ifndef TUTTI_PARALLEL_H
#define TUTTI_PARALLEL_H

#include "tutti_parallel/data.h"
#include "tutti_parallel/expert.h"
#include "tutti_parallel/mesh.h"
#include "tutti_parallel/pipeline.h"
#include "tutti_parallel/sequence.h"
#include "tutti_parallel/tensor.h"

#endif

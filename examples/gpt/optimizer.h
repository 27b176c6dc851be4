// The optimizer of a rank: gradients are summed over the data ranks in buckets while the backward
// pass goes on, clipped by their global norm, and AdamW updates the weights. Dense parameters have
// the data ranks in common, experts' the ranks of dp: two sets of buckets. Under ZeRO 1 a rank has
// the moments (and masters) of its parts alone, updates these, and weights are gathered.
// SPDX-License-Identifier: Apache-2.0
#ifndef GPT_OPTIMIZER_H
#define GPT_OPTIMIZER_H

#include "adamw.h"
#include "model.h"
#include "problem.h"

#include <tutti_parallel/data.h>

// The dense parameters, or the experts'.
struct gpt_set {
    int first, count; // parameters of the table
    size_t base;      // where they begin in the buffers of weights and gradients, in elements
    size_t state;     // where the parts' state begins, in elements
    int ranks;        // that have the same parameters
    struct tuttiBuckets *buckets;    // NULL: the set is empty
    struct tuttiGradient *gradients; // [count]
    struct tuttiPart *parts;         // [part_count], that this rank updates
    int *replicas;                   // [part_count], ranks that hold the same sum
    int part_count;
};

struct gpt_optimizer {
    struct gpt_model *model; // not owned
    const struct tuttiMesh *mesh;
    cudaStream_t stream;
    bool zero;
    struct gpt_set sets[2];  // dense, experts
    int arrived;             // layers up to this one have the weights of the last step
    size_t elements;         // of the state: all parts, one behind the other
    size_t element_bytes;    // of moments and masters
    size_t bytes;            // of both, allocated
    void *moment1, *moment2; // [elements], float or (GPT_DOUBLE) double, device memory
    float *master;           // [elements]; NULL but for bf16
};

struct gpt_optimizer_options {
    bool zero, stub; // stub: gradients are not communicated
    size_t bucket_bytes;
};

// Makes it for a model that has its initial values. Everything is used until the end, not owned.
bool gpt_optimizer_open(struct gpt_optimizer *optimizer, struct gpt_model *model,
                        const struct tuttiMesh *mesh, cudaStream_t stream,
                        const struct gpt_optimizer_options *options, struct gpt_problem *problem);
void gpt_optimizer_close(struct gpt_optimizer *optimizer);

// After the backward pass: sums, clips and updates. settings: rate, betas, eps, step; decay: of
// matrices. clip: the largest norm; 0: none. norm: receives it, of before. Collective. A norm that
// is not finite is a problem, and nothing is updated.
bool gpt_optimizer_step(struct gpt_optimizer *optimizer, const struct gpt_adamw *settings,
                        double clip, double *norm, struct gpt_problem *problem);

// Waits until all of this rank's weights are whole again (ZeRO): before the program uses them. The
// model's forward passes need no call: each waits for a layer's weights before it uses them.
bool gpt_optimizer_wait(struct gpt_optimizer *optimizer, struct gpt_problem *problem);

#endif

// What the files of tuttiMoe share. Internal.
//
// A rank has a host (LSA team) and a lane, its place there. One token in one host is an item of the
// rank of that host with the source's lane, the forwarder: the source itself, or who got the token
// from it. The forwarder stores the token's row into the window of each rank of the host that has
// an expert for it, at the place of the first such row; that rank has a record of it, copies it to
// the places of its other rows, and later stores the weighted sum of their results into a slot in
// the forwarder's window. The forwarder adds an item's slots; the source adds the hosts' sums.
// All places follow from three tables that every rank knows: rows of each source for each expert,
// records of each source for each rank, items of each source for each host.
// SPDX-License-Identifier: Apache-2.0
#ifndef PARALLEL_MOE_H
#define PARALLEL_MOE_H

#include "moe_job.h"
#include "tutti_parallel/expert.h"

#include <stdbool.h>

enum { MOE_MOST_CHOICES = 64, MOE_MOST_EXPERTS = 1 << 20, MOE_MOST_ALIGN = 1 << 20 };

// How rows move; a table for each path. Both enqueue, and both meet the other ranks in between.
struct moe_path {
    // When a tuttiMoe is made and ends; NULL: nothing to do.
    ncclResult_t (*open)(tuttiMoe_t moe, cudaStream_t stream);
    void (*close)(tuttiMoe_t moe);
    // push, then copy inside the window.
    ncclResult_t (*dispatch)(tuttiMoeRoute_t route, const struct moe_job *job, const void *tokens,
                             cudaStream_t stream);
    // sums of rows into slots, then sums of slots.
    ncclResult_t (*combine)(tuttiMoeRoute_t route, const struct moe_job *job, const void *rows,
                            void *out, cudaStream_t stream);
    // push of gradients, then weights' gradients, scaled rows.
    ncclResult_t (*backward)(tuttiMoeRoute_t route, const struct moe_job *job, const void *grads,
                             const void *rows, cudaStream_t stream);
    // Gradients of pairs to their places in job->to [tokens x list_width].
    ncclResult_t (*scatter)(tuttiMoeRoute_t route, const struct moe_job *job, cudaStream_t stream);
};

struct moe_buffer { // of this rank alone
    char *memory;
    size_t bytes;
};

struct tuttiMoe {
    ncclComm_t comm;
    struct tuttiMoeOptions options;
    int rank, ranks, device;
    int lane, lanes, host, hosts;
    size_t *first_expert;         // [ranks + 1]
    size_t weight_bytes;          // of an element of weights and gradients
    size_t item_words;            // of an item: MOE_ITEM_HEAD + 2 for each rank that it may have
    size_t record_bytes;          // of a record, with the choices that it may have
    size_t rows_room, slots_room; // bytes of the window's two parts, rows first
    char *memory;                 // rows_room + slots_room
    ncclWindow_t window;
    char **peers;              // [lanes] the windows of the host's ranks
    struct moe_buffer rail[2]; // rows from and to other hosts
    int32_t *meeting;          // device memory, two words for moe_meet
    void *kernel;              // what the kernels' path needs; NULL: another path
    const struct moe_path *path;
};

struct tuttiMoeRoute {
    tuttiMoe_t moe;
    size_t tokens;
    cudaStream_t stream; // that used it last
    struct tuttiMoeReport report;
    size_t *counts, *offsets;           // [experts of this rank]
    size_t *demand, *dropped;           // [experts]
    size_t row_count;                   // with padding
    size_t most_rows, most_slots;       // of all ranks
    size_t items, own_first, own_items; // of this rank as forwarder; those of its own tokens
    size_t pairs, records;              // sent, received
    size_t *pairs_to, *records_from;    // [ranks]
    size_t *items_to, *items_from;      // [ranks] rows across hosts; 0: another lane, or this host
    size_t out_rows, in_rows;           // their sums
    size_t parts;                       // items of this rank's tokens, in all hosts
    size_t part_first;                  // the first of them in the own host
    char *memory;                       // device memory, in which lie:
    char *record;                       // [records x record_bytes]
    char *pair;                         // [pairs x record_bytes] what others have as records
    int32_t *item;                      // [items x item_words]
    int32_t *out_token;                 // [out_rows] whose rows go to other hosts, by host
    int32_t *part;                      // [tokens x hosts] the item or part of each; -1: none
    int32_t *padding;                   // [experts of this rank x 2] first row, rows of zeros
    void *record_grad, *pair_grad; // [records or pairs x choices of a record] weights' gradients
};

// ---- moe_create.c -------------------------------------------------------------------------------

// Room in the window for so many bytes, equal on all ranks. Collective where it must grow; the
// stream is then synchronised.
ncclResult_t moe_reserve(tuttiMoe_t moe, size_t row_bytes, size_t slot_bytes, cudaStream_t stream);
// Room in a buffer of this rank. Synchronises the stream where it must grow.
ncclResult_t moe_reserve_rail(tuttiMoe_t moe, int number, size_t bytes, cudaStream_t stream);
// Choices that a record may have.
size_t moe_record_choices(const struct tuttiMoe *moe);

// ---- moe_counts.c -------------------------------------------------------------------------------

// What the tables say, and this rank's choices. Host memory.
struct moe_counts {
    size_t tokens;
    int32_t *indices;    // [tokens x choices]
    double *weights;     // [tokens x choices]
    size_t words;        // of one rank's table
    int32_t *mine, *all; // [words], [ranks x words]; see moe_counts.c
    size_t *base;        // [experts] rows of sources before this one
    size_t *demand;      // [experts] rows of all sources
    size_t *kept;        // [experts] of them kept
    size_t capacity;     // 0: no limit
};

// What a rank has for: rows for an expert, records for a rank, items for a host.
int32_t moe_rows_for(const struct moe_counts *counts, int source, int expert);
int32_t moe_records_for(const struct tuttiMoe *moe, const struct moe_counts *counts, int source,
                        int rank);
int32_t moe_items_for(const struct tuttiMoe *moe, const struct moe_counts *counts, int source,
                      int host);

struct moe_choices { // of the program
    const void *tokens;
    size_t count;
    const int32_t *indices;
    const void *weights;
    bool has_route; // whether there is where to put the route
};
// Reads and checks the choices, exchanges the tables, applies the capacity. Collective,
// synchronous; all ranks fail together. moe_counts_free follows whatever is returned.
ncclResult_t moe_count(tuttiMoe_t moe, const struct moe_choices *choices, struct moe_counts *counts,
                       cudaStream_t stream);
void moe_counts_free(struct moe_counts *counts);

// The columns of a token's choices by ascending expert. indices, columns: [choices].
void moe_sort_choices(const int32_t *indices, int choices, int32_t *columns);
int moe_rank_of(const struct tuttiMoe *moe, int expert);

// ---- moe_plan.c, moe_layout.c -------------------------------------------------------------------

// What is uploaded, as it is planned in host memory.
struct moe_plan {
    char *pair;         // [pairs x record_bytes], by rank, then token
    int32_t *own_item;  // [own_items x item_words]
    int32_t *out_item;  // [out_rows x item_words], by host, then token
    int32_t *out_token; // [out_rows]
    int32_t *part;      // [tokens x hosts]
    int32_t *padding;   // [experts of this rank x 2]
};

// Sizes, tables and device memory of a route. The route is freed by the caller, also after errors.
ncclResult_t moe_layout(tuttiMoe_t moe, const struct moe_counts *counts, tuttiMoeRoute_t route);
// Plans this rank's tokens. plan: to be freed with moe_plan_free.
ncclResult_t moe_plan(const struct moe_counts *counts, tuttiMoeRoute_t route,
                      struct moe_plan *plan);
void moe_plan_free(struct moe_plan *plan);

// ---- moe_route.c --------------------------------------------------------------------------------

ncclResult_t moe_check_route(const char *call, tuttiMoeRoute_t route);
// An array of so many rows: NULL only where there are none, and aligned as its elements are.
ncclResult_t moe_check_array(const char *call, const char *name, const void *array, size_t rows,
                             ncclDataType_t type, tuttiMoeRoute_t route);

// ---- moe_stages.c -------------------------------------------------------------------------------

// Waits in the stream for all ranks of the communicator to come here.
ncclResult_t moe_meet(tuttiMoe_t moe, cudaStream_t stream);
// The same at the beginning of a call, so that ranks in another call are an error and no wrong
// result: each call has an operator of its own, which all ranks must have. What it gives is not
// read.
ncclResult_t moe_meet_in(tuttiMoe_t moe, ncclRedOp_t of_call, cudaStream_t stream);
// The job that the paths fill in further. type: of the rows that move.
struct moe_job moe_job_of(tuttiMoeRoute_t route, ncclDataType_t type);

extern const struct moe_path moe_native_path, moe_kernel_path;

#endif

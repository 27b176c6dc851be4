// See forms.h. SPDX-License-Identifier: Apache-2.0
#include "forms.h"

#include <stdio.h>
#include <stdlib.h>

enum { GUARD_BYTES = 256, MOST_RANKS = 257 };

static const char *const names[FUNCTIONS] = {"AllReduce", "Reduce",        "Broadcast",
                                             "Bcast",     "ReduceScatter", "AllGather",
                                             "AlltoAll",  "Gather",        "Scatter"};

bool reduces(enum function function)
{
    return function == ALL_REDUCE || function == REDUCE || function == REDUCE_SCATTER;
}

bool has_root(enum function function)
{
    return function == REDUCE || function == BROADCAST || function == BCAST || function == GATHER ||
           function == SCATTER;
}

size_t send_elements(const struct form *form, const struct member *m)
{
    size_t all = form->count * (size_t)m->size;
    switch (form->function) {
    case BROADCAST:
    case BCAST:
        return m->rank == form->root ? form->count : 0;
    case SCATTER:
        return m->rank == form->root ? all : 0;
    case REDUCE_SCATTER:
    case ALL_TO_ALL:
        return all;
    default:
        return form->count;
    }
}

size_t recv_elements(const struct form *form, const struct member *m)
{
    size_t all = form->count * (size_t)m->size;
    switch (form->function) {
    case REDUCE:
        return m->rank == form->root ? form->count : 0;
    case GATHER:
        return m->rank == form->root ? all : 0;
    case ALL_GATHER:
    case ALL_TO_ALL:
        return all;
    default:
        return form->count;
    }
}

ncclResult_t call_form(const struct form *form, const void *send, void *recv, struct member *m)
{
    size_t n = form->count;
    switch (form->function) {
    case ALL_REDUCE:
        return ncclAllReduce(send, recv, n, form->type, form->op, m->comm, m->stream);
    case REDUCE:
        return ncclReduce(send, recv, n, form->type, form->op, form->root, m->comm, m->stream);
    case BROADCAST:
        return ncclBroadcast(send, recv, n, form->type, form->root, m->comm, m->stream);
    case BCAST:
        return ncclBcast(recv, n, form->type, form->root, m->comm, m->stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, n, form->type, form->op, m->comm, m->stream);
    case ALL_GATHER:
        return ncclAllGather(send, recv, n, form->type, m->comm, m->stream);
    case ALL_TO_ALL:
        return ncclAlltoAll(send, recv, n, form->type, m->comm, m->stream);
    case GATHER:
        return ncclGather(send, recv, n, form->type, form->root, m->comm, m->stream);
    default:
        return ncclScatter(send, recv, n, form->type, form->root, m->comm, m->stream);
    }
}

// ---- The right outcome
// ---------------------------------------------------------------------------

static void put_reduced(void *element, const struct form *form, int size, size_t i)
{
    size_t bytes = bytes_of_type(form->type);
    char in[MOST_RANKS * 8];
    for (int r = 0; r < size; r++) {
        put_input(in + (size_t)r * bytes, form->type, r, i, form->seed);
    }
    struct reference reference = {form->type, form->factors != NULL ? SCALED_SUM : (int)form->op,
                                  form->factors};
    put_reduction(element, &reference, in, bytes, size);
}

void put_expected(void *element, const struct form *form, int rank, int size, size_t i)
{
    size_t count = form->count, mine = (size_t)rank * count;
    int from = form->root;
    switch (form->function) {
    case ALL_REDUCE:
    case REDUCE:
        put_reduced(element, form, size, i);
        return;
    case REDUCE_SCATTER:
        put_reduced(element, form, size, mine + i);
        return;
    case ALL_GATHER:
    case GATHER:
        from = (int)(i / count);
        i %= count;
        break;
    case ALL_TO_ALL:
        from = (int)(i / count);
        i = mine + i % count;
        break;
    case SCATTER:
        i += mine;
        break;
    default:
        break;
    }
    put_input(element, form->type, from, i, form->seed);
}

// Elements of the largest buffer of any rank.
static size_t largest(const struct form *form, int size)
{
    bool whole = form->function == ALL_REDUCE || form->function == REDUCE ||
                 form->function == BROADCAST || form->function == BCAST;
    return form->count * (whole ? 1 : (size_t)size);
}

// Where buffers begin in an area, in bytes; the same on all ranks but for shifts and in place.
struct places {
    size_t send, recv;
};

static size_t round_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

// In place, the smaller buffer lies inside the larger one.
static struct places place(const struct form *form, const struct member *m, bool together)
{
    size_t element = bytes_of_type(form->type);
    struct places at = {GUARD_BYTES + form->send_shift * element,
                        GUARD_BYTES + form->recv_shift * element};
    bool parts = form->function == ALL_GATHER || form->function == REDUCE_SCATTER ||
                 ((form->function == GATHER || form->function == SCATTER) && m->rank == form->root);
    size_t offset = parts ? (size_t)m->rank * form->count * element : 0;
    bool apart = (form->function == GATHER || form->function == SCATTER) && m->rank != form->root;
    if (form->function == BCAST || (form->in_place && !apart)) {
        bool receives_more = recv_elements(form, m) > send_elements(form, m);
        at.send = at.recv + (receives_more ? offset : 0);
        at.recv += receives_more ? 0 : offset;
    } else if (together) {
        at.recv += round_up(at.send + largest(form, m->size) * element);
    }
    return at;
}

size_t area_bytes(const struct form *form, int size)
{
    size_t element = bytes_of_type(form->type);
    size_t elements = 2 * largest(form, size) + form->send_shift + form->recv_shift;
    return round_up(elements * element) + 4 * GUARD_BYTES;
}

static void put_inputs(char *to, const struct form *form, const struct member *m)
{
    size_t element = bytes_of_type(form->type);
    for (size_t i = 0; i < send_elements(form, m); i++) {
        put_input(to + i * element, form->type, m->rank, i, form->seed);
    }
}

static void put_outputs(char *to, const struct form *form, const struct member *m)
{
    size_t element = bytes_of_type(form->type);
    for (size_t i = 0; i < recv_elements(form, m); i++) {
        put_expected(to + i * element, form, m->rank, m->size, i);
    }
}

// ---- Running and comparing
// -----------------------------------------------------------------------

// What an area holds: before, and as it must be and was afterwards.
struct image {
    const struct area *area;
    size_t bytes;
    char *before, *right, *after;
};

static struct image make_image(const struct area *area, size_t bytes)
{
    struct image image = {area, bytes, malloc(bytes), malloc(bytes), malloc(bytes)};
    memset(image.before, 0xa5, bytes);
    return image;
}

static void free_image(struct image *image)
{
    free(image->before);
    free(image->right);
    free(image->after);
}

static void report(const struct form *form, const struct image *image, size_t at,
                   const struct member *m, const char *where)
{
    fprintf(stderr,
            "%s %s op %d count %zu root %d%s shifts %zu %zu seed %u: rank %d of %d: %s byte "
            "%zu is 0x%02x, must be 0x%02x\n",
            names[form->function], name_of_type(form->type), (int)form->op, form->count, form->root,
            form->in_place ? " in place" : "", form->send_shift, form->recv_shift, form->seed,
            m->rank, m->size, where, at, (unsigned char)image->after[at],
            (unsigned char)image->right[at]);
}

// recv: where the receive buffer begins; SIZE_MAX: not here.
static bool judge(const struct form *form, const struct image *image, size_t recv,
                  const struct member *m)
{
    if (memcmp(image->after, image->right, image->bytes) == 0) {
        return true;
    }
    size_t element = bytes_of_type(form->type);
    size_t end = recv == SIZE_MAX ? 0 : recv + recv_elements(form, m) * element;
    for (size_t at = 0; at < image->bytes; at++) {
        if (image->after[at] == image->right[at]) {
            continue;
        }
        bool inside = at >= recv && at < end;
        size_t first = inside ? at - (at - recv) % element : at;
        if (inside && reduces(form->function) &&
            same_element(image->after + first, image->right + first, form->type)) {
            at = first + element - 1;
            continue;
        }
        report(form, image, at, m, inside ? "output" : "outside the output");
        return false;
    }
    return true;
}

static bool run(const struct form *form, struct image *images, int count, struct places at,
                struct member *m)
{
    struct image *to = &images[count - 1];
    for (int i = 0; i < count; i++) {
        EXPECT_CUDA(cudaMemcpyAsync(images[i].area->memory, images[i].before, images[i].bytes,
                                    cudaMemcpyDefault, m->stream));
    }
    bool called =
        EXPECT_OK(call_form(form, images[0].area->memory + at.send, to->area->memory + at.recv, m));
    for (int i = 0; i < count; i++) {
        EXPECT_CUDA(cudaMemcpyAsync(images[i].after, images[i].area->memory, images[i].bytes,
                                    cudaMemcpyDefault, m->stream));
    }
    return EXPECT_CUDA(cudaStreamSynchronize(m->stream)) && called;
}

bool check_form(struct member *m, const struct area *area, const struct form *form)
{
    size_t bytes = area_bytes(form, m->size);
    if (!EXPECT(bytes <= area->bytes) || !EXPECT(m->size <= MOST_RANKS)) {
        return false;
    }
    struct places at = place(form, m, true);
    struct image image = make_image(area, bytes);
    put_inputs(image.before + at.send, form, m);
    memcpy(image.right, image.before, bytes);
    put_outputs(image.right + at.recv, form, m);
    bool good = run(form, &image, 1, at, m) && EXPECT(judge(form, &image, at.recv, m));
    free_image(&image);
    return good;
}

bool check_form_between(struct member *m, const struct area *send, const struct area *recv,
                        const struct form *form)
{
    size_t bytes = area_bytes(form, m->size);
    if (!EXPECT(bytes <= send->bytes && bytes <= recv->bytes) ||
        !EXPECT(m->size <= MOST_RANKS && !form->in_place)) {
        return false;
    }
    struct places at = place(form, m, false);
    struct image images[2] = {make_image(send, bytes), make_image(recv, bytes)};
    if (form->function == BCAST) {
        put_inputs(images[1].before + at.recv, form, m);
    }
    put_inputs(images[0].before + at.send, form, m);
    for (int i = 0; i < 2; i++) {
        memcpy(images[i].right, images[i].before, bytes);
    }
    put_outputs(images[1].right + at.recv, form, m);
    bool good = run(form, images, 2, at, m) && EXPECT(judge(form, &images[0], SIZE_MAX, m)) &&
                EXPECT(judge(form, &images[1], at.recv, m));
    for (int i = 0; i < 2; i++) {
        free_image(&images[i]);
    }
    return good;
}

// One collective of any form, run and judged: buffers between guards, every byte of them compared
// with the one right outcome, outputs, inputs and guards alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef TESTS_COLLECTIVES_FORMS_H
#define TESTS_COLLECTIVES_FORMS_H

#include "member.h"
#include "values.h"

enum function {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    BCAST,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    FUNCTIONS
};

struct form {
    enum function function;
    ncclDataType_t type;
    ncclRedOp_t op;
    size_t count; // as the function takes it
    int root;
    bool in_place;                 // by NCCL's rules of the function
    size_t send_shift, recv_shift; // elements by which buffers begin after a multiple of 256 bytes
    unsigned seed;                 // another one: other inputs
    const void *factors;           // where op is a handle: [size] elements, each rank's; else NULL
};

// Memory for buffers and guards, of any kind that cudaMemcpyAsync reaches.
struct area {
    char *memory;
    size_t bytes;
};

bool reduces(enum function function);
bool has_root(enum function function);
// In elements.
size_t send_elements(const struct form *form, const struct member *m);
size_t recv_elements(const struct form *form, const struct member *m);

// The call. Buffers that do not matter on a rank may be NULL.
ncclResult_t call_form(const struct form *form, const void *send, void *recv, struct member *m);

// Puts this rank's inputs into `area` between guards, calls, waits and compares all of it. False,
// with a message and a failed check, where a byte is wrong or the call fails. Needs
// area_bytes(form, size) bytes.
bool check_form(struct member *m, const struct area *area, const struct form *form);
size_t area_bytes(const struct form *form, int size);

// As check_form with two areas (of one size): send buffer in one, receive buffer in the other; not
// in place.
bool check_form_between(struct member *m, const struct area *send, const struct area *recv,
                        const struct form *form);

// Element i of the right result on this rank of `size`; i < recv_elements().
void put_expected(void *element, const struct form *form, int rank, int size, size_t i);

#endif

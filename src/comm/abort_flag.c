// Words in pinned memory that tell kernels and host waits to give up, one per communicator. See
// comm.h.
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "comm/comm.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <stdlib.h>

enum {
    SLOTS = 256,
    SLOT_BYTES = 128, // two cache lines: each has its own readers
    RESTING = 256,
};

_Static_assert(SLOT_BYTES == NCCL_ABORT_FLAG_WORDS * sizeof(uint32_t), "all its words");

struct slab {
    struct slab *next;
    char *host, *device;
    bool taken[SLOTS]; // or it rests
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the slabs
static struct slab *slabs;
// The last ones that were given back raised, the oldest at next_resting. They stay raised for a
// kernel that has not looked yet; all of them for ever would be memory that grows with each abort.
static _Atomic uint32_t *resting[RESTING];
static size_t next_resting;

static ncclResult_t add_slab(void)
{
    struct slab *slab = calloc(1, sizeof *slab);
    if (slab == NULL) {
        return tt_fail(ncclSystemError, "no memory for abort flags");
    }
    ncclResult_t result =
        tt_cuda((int)cudaHostAlloc((void **)&slab->host, (size_t)SLOTS * SLOT_BYTES,
                                   cudaHostAllocPortable | cudaHostAllocMapped),
                "cudaHostAlloc(abort flags)");
    if (result == ncclSuccess) {
        result = tt_cuda((int)cudaHostGetDevicePointer((void **)&slab->device, slab->host, 0),
                         "cudaHostGetDevicePointer(abort flags)");
        if (result != ncclSuccess) {
            cudaFreeHost(slab->host);
        }
    }
    if (result != ncclSuccess) {
        free(slab);
        return result;
    }
    slab->next = slabs;
    slabs = slab;
    return ncclSuccess;
}

static bool take_from(struct slab *slab, _Atomic uint32_t **host_out, uint32_t **device_out)
{
    for (int i = 0; i < SLOTS; i++) {
        if (!slab->taken[i]) {
            slab->taken[i] = true;
            *host_out = (_Atomic uint32_t *)(void *)(slab->host + (size_t)i * SLOT_BYTES);
            *device_out = (uint32_t *)(void *)(slab->device + (size_t)i * SLOT_BYTES);
            for (int word = 0; word < NCCL_ABORT_FLAG_WORDS; word++) {
                atomic_store(*host_out + word, 0);
            }
            return true;
        }
    }
    return false;
}

ncclResult_t tt_abort_flag_take(_Atomic uint32_t **host_out, uint32_t **device_out)
{
    pthread_mutex_lock(&mutex);
    ncclResult_t result = ncclSuccess;
    bool found = false;
    for (struct slab *s = slabs; s != NULL && !found; s = s->next) {
        found = take_from(s, host_out, device_out);
    }
    if (!found && (result = add_slab()) == ncclSuccess) {
        take_from(slabs, host_out, device_out);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

// With the mutex held.
static void free_slot(const _Atomic uint32_t *host)
{
    for (struct slab *s = slabs; s != NULL; s = s->next) {
        ptrdiff_t offset = (const char *)(const void *)host - s->host;
        if (offset >= 0 && offset < (ptrdiff_t)SLOTS * SLOT_BYTES) {
            s->taken[offset / SLOT_BYTES] = false;
        }
    }
}

void tt_abort_flag_give(_Atomic uint32_t *host)
{
    if (host == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    if (atomic_load(host) != 0) {
        _Atomic uint32_t *rested = resting[next_resting];
        resting[next_resting] = host;
        next_resting = (next_resting + 1) % RESTING;
        host = rested;
    }
    if (host != NULL) {
        free_slot(host);
    }
    pthread_mutex_unlock(&mutex);
}

// See native_all_reduce.h.
// SPDX-License-Identifier: Apache-2.0
#include "native_all_reduce.h"

#include "reduce/reduce.h"

#include <unistd.h>
#include <vgpu/device_runtime.h>
#include <vgpu/native.h>

// Waits until `target` blocks have arrived, this one included.
static void meet(unsigned *arrivals, unsigned target)
{
    (void)__atomic_fetch_add(arrivals, 1, __ATOMIC_ACQ_REL);
    while ((int)(__atomic_load_n(arrivals, __ATOMIC_ACQUIRE) - target) < 0) {
        vgpu_yield();
    }
}

static void run_block(void *argument, unsigned block, unsigned blocks)
{
    const struct bench_all_reduce *work = argument;
    unsigned all = (unsigned)work->ranks * blocks;
    size_t parts = all, part = (size_t)work->rank * blocks + block;
    // Parts begin where cache lines do, as far as the buffers do.
    size_t element = tt_type_bytes(work->type), line = 64 / element;
    size_t lines = (work->count + line - 1) / line;
    size_t begin = lines * part / parts * line, end = lines * (part + 1) / parts * line;
    end = end < work->count ? end : work->count;
    meet(work->arrivals, work->before + all);
    if (begin < end) {
        const void *in[BENCH_RANKS];
        void *out[BENCH_RANKS];
        for (int r = 0; r < work->ranks; r++) {
            in[r] = work->in[r] + begin * element;
            out[r] = work->out[r] + begin * element;
        }
        struct tt_reduction reduction = {.type = work->type, .op = TT_REDUCE_SUM};
        struct tt_reduce_places places = {out, work->ranks, in, work->ranks};
        long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
        size_t share = cache > 0 ? (size_t)cache / 2 / (size_t)work->ranks : (size_t)4 << 20;
        tt_reduce(&reduction, &places, end - begin, work->count * element > share);
        tt_reduce_fence();
    }
    meet(work->arrivals, work->before + 2 * all);
}

cudaError_t bench_native_all_reduce(const struct bench_all_reduce *work, unsigned blocks,
                                    cudaStream_t stream)
{
    return vgpuLaunchNative("all-reduce in C", run_block, work, sizeof *work, blocks, stream);
}

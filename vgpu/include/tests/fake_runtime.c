// The runtime that tests of device headers link instead of the real one.
// SPDX-License-Identifier: Apache-2.0
#define VGPU_RUNTIME
#include "fake_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__thread uint3 threadIdx, blockIdx;
__thread dim3 blockDim = {32, 1, 1}, gridDim = {1, 1, 1};
__thread struct vgpu_multimem_range vgpu_multimem_cache;
bool vgpu_counting;

unsigned char fake_lanes[32][16];
unsigned fake_mask = 0xffffffffu;
int fake_mismatches;
__thread int fake_yields;
struct vgpu_multimem_range fake_range;
int fake_finds, fake_loads, fake_stores;
size_t fake_counted_bytes;

static __thread jmp_buf *fault_target;
static __thread cudaError_t fault_error;

cudaError_t fake_catch(void (*call)(void *argument), void *argument)
{
    jmp_buf here;
    fault_error = cudaSuccess;
    fault_target = &here;
    if (setjmp(here) == 0)
        call(argument);
    fault_target = NULL;
    return fault_error;
}

void fake_become(unsigned lane)
{
    threadIdx.x = lane;
    threadIdx.y = threadIdx.z = 0;
}

void vgpu_fault(cudaError_t error, const char *format, ...)
{
    if (fault_target) {
        fault_error = error;
        longjmp(*fault_target, 1);
    }
    va_list list;
    va_start(list, format);
    fprintf(stderr, "unexpected fault %d: ", (int)error);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

unsigned vgpu_warp_exchange(unsigned mask, const void *value, size_t bytes, void *lanes_out)
{
    (void)mask;
    fake_mismatches += memcmp(value, fake_lanes[threadIdx.x & 31u], bytes) != 0;
    memset(lanes_out, 0, sizeof(fake_lanes));
    for (int i = 0; i < 32; i++)
        if ((fake_mask >> i & 1u) != 0)
            memcpy((char *)lanes_out + 16 * i, fake_lanes[i], bytes);
    return fake_mask;
}

const struct vgpu_multimem_range *vgpu_multimem_find(uintptr_t address, size_t bytes)
{
    fake_finds++;
    if (address - fake_range.base >= fake_range.bytes)
        vgpu_fault(cudaErrorIllegalAddress, "%zu bytes at %#lx: no multicast address", bytes,
                   (unsigned long)address);
    vgpu_multimem_cache = fake_range;
    return &vgpu_multimem_cache;
}

void vgpu_count_multimem(const struct vgpu_multimem_range *range, size_t bytes, bool is_load)
{
    (void)range;
    fake_counted_bytes += bytes;
    *(is_load ? &fake_loads : &fake_stores) += 1;
}

void vgpu_count_pause(bool now_paused)
{
    (void)now_paused; // this stand-in counts multimem accesses only
}

void vgpu_yield(void)
{
    fake_yields++;
}
bool vgpu_in_kernel(void)
{
    return true;
}
enum vgpu_space vgpu_memory_space(const void *address)
{
    (void)address;
    return VGPU_SPACE_GLOBAL;
}
unsigned vgpu_active_mask(unsigned line)
{
    (void)line;
    return fake_mask;
}
void vgpu_syncthreads(void) {}
int vgpu_syncthreads_count(int predicate)
{
    return predicate != 0;
}
int vgpu_syncthreads_and(int predicate)
{
    return predicate != 0;
}
int vgpu_syncthreads_or(int predicate)
{
    return predicate != 0;
}
void vgpu_barrier_sync(int id, unsigned threads)
{
    (void)id;
    (void)threads;
}
void vgpu_syncwarp(unsigned mask)
{
    (void)mask;
}
void vgpu_grid_sync(void) {}
bool vgpu_grid_is_cooperative(void)
{
    return false;
}
long long vgpu_clock(void)
{
    return 0;
}
unsigned long long vgpu_global_timer(void)
{
    return 0;
}

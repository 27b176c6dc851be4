// Marks: phases of blocks with their times; counts of barriers and launches.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "kernel_by_hand.h"
#include "vgpu/native.h"
#include "vgpu/stats.h"
#include "vgpu/trace.h"

#include <string.h>

KERNEL(marks_phases, int, 0)
{
    (void)data;
    vgpu_mark("first");
    vgpu_syncthreads();
    vgpu_mark("second");
    vgpu_syncthreads();
    vgpu_mark("second"); // the same one goes on
    vgpu_mark(NULL);
    vgpu_mark("last"); // ends with the block
}

static void phases_are_recorded(void)
{
    enum { BLOCKS = 5 };
    const struct vgpu_trace_event *event = NULL;
    EXPECT_EQ(vgpuTraceStart(100), 0);
    EXPECT_CUDA(cudaSetDevice(3));
    EXPECT_CUDA(LAUNCH(marks_phases, BLOCKS, 64, 0, NULL));
    EXPECT_CUDA(cudaDeviceSynchronize());
    size_t count = vgpuTraceStop(&event);
    EXPECT_EQ(count, 3 * BLOCKS);
    uint64_t last_end[BLOCKS] = {0};
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(event[i].device, 3);
        EXPECT_STR(event[i].kernel, "marks_phases");
        EXPECT(event[i].end_ns >= event[i].begin_ns);
        if (!EXPECT(event[i].block < BLOCKS)) {
            return;
        }
        EXPECT(event[i].begin_ns >= last_end[event[i].block]);
        last_end[event[i].block] = event[i].end_ns;
    }
    EXPECT_CUDA(LAUNCH(marks_phases, BLOCKS, 64, 0, NULL)); // not recording
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(vgpuTraceStop(&event), 3 * BLOCKS);
}

static void more_than_fits_is_dropped(void)
{
    const struct vgpu_trace_event *event = NULL;
    EXPECT_EQ(vgpuTraceStart(4), 0);
    EXPECT_CUDA(LAUNCH(marks_phases, 7, 1, 0, NULL));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(vgpuTraceStop(&event), 4);
    EXPECT(event != NULL);
}

static void do_nothing(void *argument, unsigned block, unsigned block_count)
{
    (void)argument;
    (void)block;
    (void)block_count;
}

static void barriers_and_launches_are_counted(void)
{
    struct vgpu_device_stats stats[8];
    memset(stats, 0, sizeof(stats));
    EXPECT_CUDA(cudaSetDevice(2));
    vgpuStatsStart();
    EXPECT_CUDA(LAUNCH(marks_phases, 6, 32, 0, NULL));
    EXPECT_CUDA(vgpuLaunchNative("nothing", do_nothing, NULL, 0, 3, 0));
    EXPECT_CUDA(cudaDeviceSynchronize());
    EXPECT_EQ(vgpuStatsRead(stats, 8), 8);
    vgpuStatsStop();
    EXPECT_EQ(stats[2].barriers, 12);
    EXPECT_EQ(stats[2].launches, 2);
    EXPECT_EQ(stats[0].barriers, 0);
    EXPECT_EQ(stats[0].launches, 0);
}

int main(void)
{
    RUN(phases_are_recorded);
    RUN(more_than_fits_is_dropped);
    RUN(barriers_and_launches_are_counted);
    return expect_result();
}

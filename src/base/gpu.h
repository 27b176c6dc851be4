// Which GPU a CUDA device of this process is. The process's own number says little to others:
// launchers give each task GPUs of its own, and in each of them they count from 0.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_GPU_H
#define TT_BASE_GPU_H

// Facts that are the same in every process that sees the GPU.
struct tt_gpu {
    int physical;  // its number in the machine; -1: CUDA does not know it (NVIDIA's never does)
    char pci[20];  // "0000:1b:00.0"; "" where CUDA does not say
    char uuid[44]; // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as nvidia-smi writes it; or ""
    // For messages: "GPU 0 (physical 3)", "GPU 0 (GPU-8932f937)": what stands in parentheses may be
    // given to VGPU_DEVICES, to CUDA_VISIBLE_DEVICES of a new process. "GPU 9" for what is none.
    char name[48];
};

// Never NULL; of CUDA's number of a device in this process. Asks CUDA once for each device. What it
// returns for a number that is no device lives until the thread's next call.
const struct tt_gpu *tt_gpu(int device);

#endif

// Which GPU a CUDA device of this process is. The process's own number says little to others:
// launchers give each task GPUs of its own, and in each of them they count from 0.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_GPU_H
#define TT_BASE_GPU_H

// Facts that are the same in every process that sees the GPU.
struct tt_gpu {
    int physical;  // its number in the machine; -1: CUDA does not know it (NVIDIA's never does)
    char pci[20];  // "0000:1B:00.0", as cudaDeviceGetPCIBusId has it; "" where it does not say
    char uuid[44]; // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as nvidia-smi writes it; or ""
    unsigned char uuid_bytes[16]; // the same as CUDA has it; zeros where the text is ""
    char name[48];                // for messages, as below; "GPU 9" for what is none
};

// "GPU 0 (physical 3)"; where the machine's number is not known (-1), "GPU 0 (GPU-8932f937)", which
// may be given to CUDA_VISIBLE_DEVICES as it is. `device`: CUDA's number, in its own process. To be
// used as an argument: the text lives until the call returns.
struct tt_gpu_name {
    char text[48];
};
struct tt_gpu_name tt_gpu_name(int device, int physical, const unsigned char uuid[16]);

// Never NULL; of CUDA's number of a device in this process. Asks CUDA once for each device. What it
// returns for a number that is no device lives until the thread's next call.
const struct tt_gpu *tt_gpu(int device);

// CUDA's number in this process of the device with this uuid; -1: it is not visible.
int tt_gpu_find(const unsigned char uuid[16]);

#endif

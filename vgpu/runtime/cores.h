// How many cores this process may use. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_CORES_H
#define VGPU_RUNTIME_CORES_H

// 1 to VGPU_MAX_WORKERS: VGPU_WORKERS where that is a number, else the cores of the affinity mask,
// at most what the control group's quota pays for.
int vgpu_usable_cores(void);

#endif

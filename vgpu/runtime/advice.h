// Advice about managed memory, for the table of mappings. SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_ADVICE_H
#define VGPU_RUNTIME_ADVICE_H

struct vgpu_advice;

void vgpu_advice_free(struct vgpu_advice *advice); // accepts NULL

#endif

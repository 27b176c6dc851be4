// Where multicast addresses lead: from an alias range to the members' memory in this process.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_MULTIMEM_H
#define VGPU_RUNTIME_MULTIMEM_H

// Makes every thread forget the ranges that it remembers. Under the memory lock.
void vgpu_multimem_forget(void);
// How often that has happened. Under the lock.
unsigned vgpu_multimem_epoch(void);

#endif

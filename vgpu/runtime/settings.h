// Every setting of virtual GPUs from the environment, one row each in settings.c, which docs/env.md
// is made from. The only place of the runtime that reads the environment.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_SETTINGS_H
#define VGPU_RUNTIME_SETTINGS_H

enum vgpu_setting {
    VGPU_SETTING_MACHINE,         // VGPU_MACHINE
    VGPU_SETTING_STATS,           // VGPU_STATS
    VGPU_SETTING_CHECK,           // VGPU_CHECK
    VGPU_SETTING_CHECK_SECONDS,   // VGPU_CHECK_SECONDS
    VGPU_SETTING_WORKERS,         // VGPU_WORKERS
    VGPU_SETTING_LOG,             // VGPU_LOG
    VGPU_SETTING_HOST_MEMORY,     // VGPU_HOST_MEMORY
    VGPU_SETTING_OVERCOMMIT,      // VGPU_OVERCOMMIT
    VGPU_SETTING_DEVICES,         // VGPU_DEVICES
    VGPU_SETTING_VISIBLE_DEVICES, // CUDA_VISIBLE_DEVICES
    VGPU_SETTING_DEVICE_ORDER,    // CUDA_DEVICE_ORDER
    VGPU_SETTINGS
};

struct vgpu_setting_row {
    const char *name;
    const char *values;   // that it may have
    const char *standard; // what holds where it is not set; "": nothing
    const char *since;    // version
    const char *help;     // as in docs/env.md, Markdown
};

extern const struct vgpu_setting_row vgpu_setting_rows[VGPU_SETTINGS];

// The value as the environment has it; NULL where it is not set.
const char *vgpu_setting(enum vgpu_setting setting);

#endif

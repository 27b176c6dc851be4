// The table of settings; see settings.h.
// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include "pool.h"

#include <stdlib.h>

_Static_assert(VGPU_MAX_WORKERS == 256, "as the table says");

const struct vgpu_setting_row vgpu_setting_rows[VGPU_SETTINGS] = {
    [VGPU_SETTING_MACHINE] = {"VGPU_MACHINE",
                              "`dgx-h100`, `hgx-a100`, `pcie-4`, `none`, or the path of a topology "
                              "in XML",
                              "`dgx-h100`", "0.1",
                              "the machine that programs find: [vgpu.md](vgpu.md)"},
    [VGPU_SETTING_STATS] =
        {"VGPU_STATS", "`0`, `1`, `json:FILE`", "`0`", "0.1",
         "count bytes, messages, multimem accesses, barriers and launches of each device and link; "
         "at exit `1`: print tables, `json:FILE`: write them there (`%p`: the process id). "
         "[debugging.md](debugging.md#counts-vgpu_stats)"},
    [VGPU_SETTING_CHECK] =
        {"VGPU_CHECK", "`0`, `1`", "`0`", "0.1",
         "`1`: misuse of windows, multimem and barriers, and waits that nothing can end, are "
         "reported with rank, window and source line: [checking.md](checking.md)"},
    [VGPU_SETTING_CHECK_SECONDS] =
        {"VGPU_CHECK_SECONDS", "1 to 86400", "`10`", "0.1",
         "in that mode: seconds after which a wait that somebody might still end is a warning"},
    [VGPU_SETTING_WORKERS] = {"VGPU_WORKERS", "1 to 256", "usable cores", "0.1",
                              "pool threads that run kernel blocks"},
    [VGPU_SETTING_LOG] = {"VGPU_LOG", "`0`, `1`", "`0`", "0.1",
                          "`1`: every failing CUDA call says why, on stderr"},
    [VGPU_SETTING_HOST_MEMORY] = {"VGPU_HOST_MEMORY", "bytes, or a number with `K`, `M`, `G`", "",
                                  "0.1", "at most this much memory for one process"},
    [VGPU_SETTING_OVERCOMMIT] =
        {"VGPU_OVERCOMMIT", "`0`, `1`", "`0`", "0.1",
         "`1`: give out more device memory than the host could fill (sparse windows)"},
    [VGPU_SETTING_DEVICES] =
        {"VGPU_DEVICES", "the machine's numbers or UUIDs, between commas", "all", "0.2",
         "the GPUs of the machine that a task has; `CUDA_VISIBLE_DEVICES` then counts from 0 among "
         "these: [binding.md](binding.md)"},
    [VGPU_SETTING_VISIBLE_DEVICES] =
        {"CUDA_VISIBLE_DEVICES", "numbers or UUIDs between commas", "all", "0.1",
         "which GPUs the program sees, in which order; as with CUDA, an entry that names no device "
         "ends the list: [binding.md](binding.md)"},
    [VGPU_SETTING_DEVICE_ORDER] =
        {"CUDA_DEVICE_ORDER", "`FASTEST_FIRST`, `PCI_BUS_ID`", "`FASTEST_FIRST`", "0.2",
         "how GPUs are numbered, before `CUDA_VISIBLE_DEVICES`; among equals the machine's order"},
};

const char *vgpu_setting(enum vgpu_setting setting)
{
    return getenv(vgpu_setting_rows[setting].name); // NOLINT(concurrency-mt-unsafe)
}

// Counting usable cores. SPDX-License-Identifier: Apache-2.0
#include "cores.h"

#include "error.h"
#include "pool.h"
#include "settings.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

// Cores that the control group's quota pays for, rounded up; 0: no quota is known.
static long read_quota(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) {
        return 0;
    }
    char line[64];
    long cores = 0;
    if (fgets(line, sizeof(line), file)) {
        char *end;
        long quota = strtol(line, &end, 10); // "max PERIOD" where there is none
        long period = end != line ? strtol(end, NULL, 10) : 0;
        if (quota > 0 && period > 0) {
            cores = (quota + period - 1) / period;
        }
    }
    (void)fclose(file);
    return cores;
}

int vgpu_usable_cores(void)
{
    const char *setting = vgpu_setting(VGPU_SETTING_WORKERS); // read once
    if (setting && *setting) {
        char *end;
        long wanted = strtol(setting, &end, 10);
        if (*end == '\0' && wanted >= 1 && wanted <= VGPU_MAX_WORKERS) {
            return (int)wanted;
        }
        vgpu_say("VGPU_WORKERS is \"%.20s\": must be 1 to %d; using the cores that there are",
                 setting, VGPU_MAX_WORKERS);
    }
    cpu_set_t set;
    long cores = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        cores = CPU_COUNT(&set);
    }
    long quota = read_quota();
    if (quota > 0 && quota < cores) {
        cores = quota;
    }
    return (int)(cores < 1 ? 1 : cores > VGPU_MAX_WORKERS ? VGPU_MAX_WORKERS : cores);
}

// See process.h. SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

bool tt_process_has_ended(int pid)
{
    char path[40], program[8];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid);
    return readlink(path, program, sizeof program) < 0 && errno == ENOENT;
}

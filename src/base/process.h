// Other processes of this machine.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_PROCESS_H
#define TT_BASE_PROCESS_H

#include <stdbool.h>

// Whether a process is no more; its parent may not have asked for it yet. As /proc shows it.
bool tt_process_has_ended(int pid);

#endif

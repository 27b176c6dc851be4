// Hardware queues: streams that share one wait for each other's work, also for work that waits for
// another rank.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_EXEC_CUDA_CONNECTIONS_H
#define TT_EXEC_CUDA_CONNECTIONS_H

// One line on stderr, once in a process, where `ranks` ranks of this process share a GPU and it may
// not have enough queues for them: says what to set.
void tt_connections_check(int ranks);

#endif

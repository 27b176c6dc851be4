// Numbers and lists as launchers write them.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_LAUNCH_NUMBERS_H
#define TT_LAUNCH_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

// A whole number from 0 to `most`, digits only.
bool tt_read_number(const char *text, int most, int *out);
// Slurm's tasks of each node, "4(x2),3": that of node `node`.
bool tt_read_tasks_per_node(const char *text, int node, int *out);
// The first host of Slurm's list, "gpu[03-05,9],login": "gpu03".
bool tt_read_first_host(const char *list, char *host, size_t bytes);
// "host:port" or "[address]:port" in two parts; port 1 to 65535. host: without brackets.
bool tt_read_host_port(const char *text, char *host, size_t bytes, int *port_out);

#endif

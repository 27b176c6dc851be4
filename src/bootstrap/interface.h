// Where the root listens. SPDX-License-Identifier: Apache-2.0
#ifndef TT_BOOTSTRAP_INTERFACE_H
#define TT_BOOTSTRAP_INTERFACE_H

#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"

// NCCL_COMM_ID: "host:port" or "[v6]:port", numbers only.
ncclResult_t tt_interface_parse(const char *text, struct tt_address *address_out);
// An address for a new root, port 0: the first interface that NCCL_SOCKET_IFNAME names (list of
// prefixes, `=` exact, `^` not), else loopback where all ranks are on one host, else the first that
// leads out of it (loopback where none does).
ncclResult_t tt_interface_pick(enum tt_reach reach, struct tt_address *address_out);

#endif

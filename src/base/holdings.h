// What the library holds in this process, all communicators together, for the log and for tests:
// nothing is left once the last one is gone.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_BASE_HOLDINGS_H
#define TT_BASE_HOLDINGS_H

#include <stddef.h>

enum tt_holding {
    TT_HOLD_SCRATCH,     // bytes mapped for partial results
    TT_HOLD_STAGING,     // bytes mapped for contents that cannot be reached in place
    TT_HOLD_MAPPINGS,    // other bytes that ranks share: boards, arenas, windows of peers
    TT_HOLD_CONNECTIONS, // sockets to other ranks and processes
    TT_HOLDINGS
};

// More of it, or less. Any thread.
void tt_holdings_add(enum tt_holding what, size_t amount);
void tt_holdings_remove(enum tt_holding what, size_t amount);
size_t tt_holdings(enum tt_holding what);
// "scratch 0, staging 0, mappings 4096 bytes; 2 connections"
void tt_holdings_describe(char *text, size_t bytes);

#endif

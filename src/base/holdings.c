// See holdings.h. SPDX-License-Identifier: Apache-2.0
#include "base/holdings.h"

#include <stdatomic.h>
#include <stdio.h>

static _Atomic size_t held[TT_HOLDINGS];

void tt_holdings_add(enum tt_holding what, size_t amount)
{
    atomic_fetch_add_explicit(&held[what], amount, memory_order_relaxed);
}

void tt_holdings_remove(enum tt_holding what, size_t amount)
{
    atomic_fetch_sub_explicit(&held[what], amount, memory_order_relaxed);
}

size_t tt_holdings(enum tt_holding what)
{
    return atomic_load_explicit(&held[what], memory_order_relaxed);
}

void tt_holdings_describe(char *text, size_t bytes)
{
    size_t connections = tt_holdings(TT_HOLD_CONNECTIONS);
    (void)snprintf(text, bytes, "scratch %zu, staging %zu, mappings %zu bytes; %zu connection%s",
                   tt_holdings(TT_HOLD_SCRATCH), tt_holdings(TT_HOLD_STAGING),
                   tt_holdings(TT_HOLD_MAPPINGS), connections, connections == 1 ? "" : "s");
}

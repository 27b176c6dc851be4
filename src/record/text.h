// Numbers as people read them.
// SPDX-License-Identifier: Apache-2.0
#ifndef TT_RECORD_TEXT_H
#define TT_RECORD_TEXT_H

#include <stddef.h>
#include <stdio.h>

// "12.3 s", "4.56 ms", "780 ns".
static inline void tt_text_time(double ns, char *text, size_t bytes)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    size_t i = 0;
    while (i < 3 && ns < units[i].ns) {
        i++;
    }
    double value = ns / units[i].ns;
    int digits = i == 3 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    (void)snprintf(text, bytes, "%.*f %s", digits, value, units[i].unit);
}

#endif

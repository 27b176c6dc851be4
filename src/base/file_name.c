// See file_name.h. SPDX-License-Identifier: Apache-2.0
#include "base/file_name.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool tt_file_name(const char *pattern, int rank, char *name, size_t bytes)
{
    char host[256];
    if (gethostname(host, sizeof host - 1) != 0) {
        (void)snprintf(host, sizeof host, "localhost");
    }
    host[sizeof host - 1] = 0;
    host[strcspn(host, ".")] = 0;
    size_t used = 0;
    for (const char *p = pattern; *p != 0 && used < bytes; p++) {
        int n;
        size_t left = bytes - used;
        if (p[0] == '%' && p[1] == 'h') {
            n = snprintf(name + used, left, "%s", host);
        } else if (p[0] == '%' && p[1] == 'p') {
            n = snprintf(name + used, left, "%d", (int)getpid());
        } else if (p[0] == '%' && p[1] == 'r' && rank >= 0) {
            n = snprintf(name + used, left, "%d", rank);
        } else {
            n = snprintf(name + used, left, "%c", *p);
            p -= !(p[0] == '%' && p[1] == '%');
        }
        p++;
        used += (size_t)n;
    }
    if (used >= bytes) {
        return false;
    }
    name[used] = 0;
    return true;
}

// See numbers.h. SPDX-License-Identifier: Apache-2.0
#include "launch/numbers.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

// Digits at *at, at least one; moves behind them. False where they are more than `most`.
static bool take_number(const char **at, int most, int *out)
{
    long value = 0;
    const char *p = *at;
    for (; isdigit((unsigned char)*p); p++) {
        value = value * 10 + (*p - '0');
        if (value > most) {
            return false;
        }
    }
    if (p == *at) {
        return false;
    }
    *at = p;
    *out = (int)value;
    return true;
}

bool tt_read_number(const char *text, int most, int *out)
{
    int value;
    if (!take_number(&text, most, &value) || *text != 0) {
        return false;
    }
    *out = value;
    return true;
}

bool tt_read_tasks_per_node(const char *text, int node, int *out)
{
    int first = 0; // of the nodes that the next entry speaks of
    for (;;) {
        int tasks, nodes = 1;
        if (!take_number(&text, INT_MAX, &tasks)) {
            return false;
        }
        if (strncmp(text, "(x", 2) == 0) {
            text += 2;
            if (!take_number(&text, INT_MAX, &nodes) || *text++ != ')') {
                return false;
            }
        }
        if (node >= first && node - first < nodes) {
            *out = tasks;
            return true;
        }
        if (*text++ != ',' || nodes > INT_MAX - first) {
            return false;
        }
        first += nodes;
    }
}

static bool append(char *host, size_t bytes, size_t *used, const char *text, size_t length)
{
    if (length >= bytes - *used) {
        return false;
    }
    memcpy(host + *used, text, length);
    *used += length;
    host[*used] = 0;
    return true;
}

bool tt_read_first_host(const char *list, char *host, size_t bytes)
{
    size_t used = 0;
    host[0] = 0;
    while (*list != 0 && *list != ',') {
        size_t plain = strcspn(list, "[,");
        if (!append(host, bytes, &used, list, plain)) {
            return false;
        }
        list += plain;
        if (*list == '[') {
            const char *end = strchr(list, ']');
            if (end == NULL || !append(host, bytes, &used, list + 1, strcspn(list + 1, "-,]"))) {
                return false;
            }
            list = end + 1;
        }
    }
    return used > 0;
}

bool tt_read_host_port(const char *text, char *host, size_t bytes, int *port_out)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon == NULL ? 0 : (size_t)(colon - text);
    bool is_bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
    int port = 0;
    if (is_bracketed) {
        text++;
        length -= 2;
    }
    if (length == 0 || length >= bytes || !tt_read_number(colon + 1, 65535, &port) || port == 0 ||
        (!is_bracketed && strcspn(text, ":[]") < length)) {
        return false;
    }
    memcpy(host, text, length);
    host[length] = 0;
    *port_out = port;
    return true;
}

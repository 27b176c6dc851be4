// Feeds the table of launchers whole environments: lines of the input are "NAME=value". What is
// accepted must be a place in a job. SPDX-License-Identifier: Apache-2.0
#include "launch/numbers.h"
#include "launch/sources.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// An environment of lines, each ended by a 0.
struct lines {
    const char *text;
    size_t bytes;
};

static const char *get(void *context, const char *name)
{
    const struct lines *lines = context;
    size_t length = strlen(name);
    for (size_t at = 0; at < lines->bytes; at += strlen(lines->text + at) + 1) {
        const char *line = lines->text + at;
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            return line + length + 1;
        }
    }
    return NULL;
}

static bool ask_pmix(void *context, struct tt_place *place, const char **why_out)
{
    (void)context;
    *place = (struct tt_place){.source = "pmix", .size = 1, .local_size = 1};
    *why_out = "no server";
    return false;
}

static bool name_peer(void *context, int fd, char *text, int bytes)
{
    (void)context;
    (void)snprintf(text, (size_t)bytes, "%d", fd);
    return true;
}

static void read_alone(const char *text)
{
    char host[32];
    int value = -1;
    if (tt_read_host_port(text, host, sizeof host, &value) &&
        (value < 1 || value > 65535 || strlen(host) == 0)) {
        abort();
    }
    if (tt_read_first_host(text, host, sizeof host) && strlen(host) == 0) {
        abort();
    }
    if (tt_read_tasks_per_node(text, 3, &value) && value < 0) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct tt_place place;
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = 0;
    read_alone(text);
    for (size_t i = 0; i < size; i++) {
        text[i] = (char)(text[i] == '\n' ? 0 : text[i]);
    }
    struct lines lines = {text, size};
    struct tt_environment environment = {get, ask_pmix, name_peer, &lines};
    const char *only = get(&lines, "TUTTI_LAUNCH");
    if (tt_sources_find(&environment, only != NULL ? only : "", &place) == ncclSuccess &&
        (place.size < 1 || place.rank < 0 || place.rank >= place.size || place.local_rank < 0 ||
         place.local_rank > place.rank || place.local_size < 0 || place.local_size > place.size ||
         (place.local_size > 0 && place.local_rank >= place.local_size))) {
        abort();
    }
    free(text);
    return 0;
}

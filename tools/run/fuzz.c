// Feeds the command line words, one a line. What is accepted must be a job that can be started.
// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS_MAX = 32 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run_options options;
    char *words[WORDS_MAX + 2] = {"tutti-run"}, problem[64];
    char *text = malloc(size + 1);
    int count = 1;
    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = 0;
    for (char *rest = text, *word; count <= WORDS_MAX && (word = strsep(&rest, "\n")) != NULL;) {
        words[count++] = word;
    }
    if (!run_options_read(count, words, &options, problem, sizeof problem)) {
        if (strlen(problem) == 0) {
            abort();
        }
    } else if (!options.help && !options.version) {
        int sum = 0, host = -1, local = -1;
        for (int i = 0; i < options.host_count; i++) {
            sum += options.host_tasks[i];
        }
        run_options_place(&options, options.tasks - 1, &host, &local);
        if (options.tasks < 1 || options.tasks > RUN_TASKS_MAX || sum != options.tasks ||
            *options.program == NULL || host != options.host_count - 1 ||
            local != options.host_tasks[host] - 1) {
            abort();
        }
    }
    free(text);
    return 0;
}

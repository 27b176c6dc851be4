// SPDX-License-Identifier: Apache-2.0
// README.md tells the truth: each function that it lists as not implemented yet is in the library,
// answers ncclInvalidUsage, and names itself. (Collectives look at their arguments first and find a
// NULL communicator here.) Arguments: the library, the README.
#include "expect.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    README_BYTES = 1 << 16,
    NAME_BYTES = 64,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    LEAST_NAMES = 5
};

typedef int (*any_function)(long, long, long, long, long, long);

static void *library;
static const char *(*last_error)(void *);
static char readme[README_BYTES];

static bool load(const char *library_path, const char *readme_path)
{
    library = dlopen(library_path, RTLD_NOW);
    if (!EXPECT(library)) {
        fprintf(stderr, "%s\n", dlerror());
        return false;
    }
    last_error = (const char *(*)(void *))dlsym(library, "ncclGetLastError");
    FILE *file = fopen(readme_path, "r");
    if (!EXPECT(last_error) || !EXPECT(file)) {
        return false;
    }
    size_t bytes = fread(readme, 1, sizeof readme - 1, file);
    readme[bytes] = '\0';
    return EXPECT_EQ(fclose(file), 0);
}

// Calls a function with zeros for all its arguments. True when it said that it is not implemented.
static bool expect_unavailable(const char *name)
{
    any_function function = (any_function)dlsym(library, name);
    if (!EXPECT(function)) {
        fprintf(stderr, "README.md lists %s, which the library does not have\n", name);
        return false;
    }
    char text[NAME_BYTES + 32];
    snprintf(text, sizeof text, "not implemented yet: %s", name);
    int result = function(0, 0, 0, 0, 0, 0);
    if (result == INVALID_ARGUMENT) {
        return EXPECT_CONTAINS(last_error(NULL), "comm") && false;
    }
    return EXPECT_EQ(result, INVALID_USAGE) && EXPECT_CONTAINS(last_error(NULL), text);
}

int main(int argc, char **argv)
{
    if (!EXPECT_EQ(argc, 3) || !load(argv[1], argv[2])) {
        return expect_result();
    }
    const char *at = strstr(readme, "**Not implemented yet**");
    const char *end = at ? strstr(at, "\n\n") : NULL;
    int names = 0;
    while (at && end && (at = strstr(at, "`nccl")) != NULL && at < end) {
        char name[NAME_BYTES] = "";
        const char *close = strchr(at + 1, '`');
        if (!EXPECT(close && close - at < NAME_BYTES)) {
            break;
        }
        memcpy(name, at + 1, (size_t)(close - at - 1));
        if (strcmp(name, "ncclInvalidUsage") != 0) {
            names += expect_unavailable(name);
        }
        at = close + 1;
    }
    EXPECT(names >= LEAST_NAMES); // else the list was not found
    return expect_result();
}

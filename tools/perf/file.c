// Files that appear whole or not at all: written beside their place, then renamed.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *perf_file_open(struct perf_file *file, const char *path)
{
    struct stat facts;
    *file = (struct perf_file){.path = path};
    // A terminal, a pipe or another device is written as it is.
    file->is_device = stat(path, &facts) == 0 && !S_ISREG(facts.st_mode);
    int length =
        snprintf(file->partial, sizeof file->partial, file->is_device ? "%s" : "%s.part", path);
    if (length >= (int)sizeof file->partial) {
        errno = ENAMETOOLONG;
    } else {
        file->to = fopen(file->partial, "w");
    }
    file->error = file->to == NULL ? errno : 0;
    return file->to;
}

bool perf_file_check(const char *path, const char *option)
{
    struct stat facts;
    struct perf_file file = {.path = path};
    if (path == NULL) {
        return true;
    }
    if (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode)) {
        file.error = S_ISDIR(facts.st_mode) ? EISDIR : 0; // a pipe may have no reader yet
    } else if (perf_file_open(&file, path) != NULL) {
        (void)fclose(file.to);
        (void)unlink(file.partial);
        return true;
    }
    return perf_file_close(&file, option);
}

bool perf_file_close(struct perf_file *file, const char *option)
{
    if (file->to != NULL) {
        bool failed = ferror(file->to) != 0;
        if (fclose(file->to) != 0 || failed) {
            file->error = errno != 0 ? errno : EIO;
        } else if (!file->is_device && rename(file->partial, file->path) != 0) {
            file->error = errno;
        }
        if (file->error != 0 && !file->is_device) {
            (void)unlink(file->partial);
        }
    }
    if (file->error != 0) {
        (void)fprintf(stderr, "tutti-perf: %s: writing %s: %s\n", option, file->path,
                      strerror(file->error));
    }
    return file->error == 0;
}

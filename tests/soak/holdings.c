// See holdings.h. SPDX-License-Identifier: Apache-2.0
#include "holdings.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 }; // they keep what is freed, and map what they like
#else
enum { IS_SANITIZED = 0 };
#endif

// The library keeps the last 256 communicators that ended, so that a handle of theirs is an error,
// and as many plans as fit until the last of a process ends; the runtime what it knows of the last
// windows: 256 KiB at most, which fill up after the warm-up. Malloc's pages, half empty, and the
// stacks of blocks that ran at once add to that; to what is resident also pages of the segments
// that device memory is cut from, which stay once they were touched, and of programs' files.
static const struct {
    const char *name;
    long slack; // by which it may grow
    bool with_sanitizers;
} known[HOLDINGS] = {
    [RESIDENT_KIB] = {"resident KiB", 16384, false},
    [ANONYMOUS_KIB] = {"anonymous KiB", 2048, false},
    [HEAP_KIB] = {"heap KiB", 256, false},
    [MAPPINGS] = {"mappings", 8, false},
    [MAPPED_MIB] = {"mapped MiB", 64, false},
    [DESCRIPTORS] = {"descriptors", 0, true},
    [THREADS] = {"threads", 0, true},
    [CHILDREN] = {"children", 0, true},
    [ENTRIES] = {"entries", 1000, true}, // told, not judged: other programs have some, too,
};

// Entries of a folder; of a name with `part` in it.
static long count_entries(const char *path, const char *part)
{
    long count = 0;
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        count += strstr(entry->d_name, part) != NULL;
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

// The first number behind `name` at the beginning of a line of a file.
static long number_behind(const char *path, const char *name)
{
    char line[256];
    long number = -1;
    size_t length = strlen(name);
    FILE *file = fopen(path, "r");
    while (file != NULL && number < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, length) == 0) {
            number = strtol(line + length, NULL, 10);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return number;
}

static void count_mappings(struct holdings *holdings)
{
    char line[1024];
    unsigned long bytes = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *end;
        unsigned long first = strtoul(line, &end, 16);
        holdings->of[MAPPINGS]++;
        bytes += *end == '-' ? strtoul(end + 1, NULL, 16) - first : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    holdings->of[MAPPED_MIB] = (long)(bytes >> 20);
}

// Numbers in /proc/self/task/*/children.
static long count_children(void)
{
    long count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char path[300];
        int c;
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/children", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (file != NULL && (c = fgetc(file)) != EOF) {
            count += c == ' ';
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

struct holdings take_holdings(void)
{
    struct holdings now = {{0}};
    (void)malloc_trim(0);
    struct mallinfo2 heap = mallinfo2();
    now.of[HEAP_KIB] = (long)((heap.uordblks + heap.hblkhd) >> 10);
    now.of[RESIDENT_KIB] = number_behind("/proc/self/smaps_rollup", "Rss:");
    now.of[ANONYMOUS_KIB] = number_behind("/proc/self/smaps_rollup", "Anonymous:");
    count_mappings(&now);
    now.of[DESCRIPTORS] = count_entries("/proc/self/fd", "");
    now.of[THREADS] = count_entries("/proc/self/task", "") - 2;
    now.of[CHILDREN] = count_children();
    now.of[ENTRIES] = count_entries("/dev/shm", "tutti") + count_entries("/tmp", "tutti-");
    return now;
}

bool holdings_are_kept(const struct holdings *first, const struct holdings *now)
{
    for (int i = 0; i < HOLDINGS; i++) {
        if (now->of[i] > first->of[i] + known[i].slack &&
            (known[i].with_sanitizers || !IS_SANITIZED)) {
            return false;
        }
    }
    return true;
}

void print_holdings(const char *title, const struct holdings *first, const struct holdings *now)
{
    char text[600];
    int length = snprintf(text, sizeof text, "  %s:", title);
    for (int i = 0; i < HOLDINGS; i++) {
        length +=
            snprintf(text + length, sizeof text - (size_t)length, "%s %s %ld%s", i == 0 ? "" : ",",
                     known[i].name, now->of[i],
                     now->of[i] > first->of[i] + known[i].slack ? " TOO MANY, from" : " from");
        length += snprintf(text + length, sizeof text - (size_t)length, " %ld", first->of[i]);
    }
    printf("%s\n", text);
}

// See holdings.h. SPDX-License-Identifier: Apache-2.0
#include "holdings.h"
#include "expect.h"

#include <cuda_runtime.h>
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

// What may still grow when a process is warm, each up to a bound: tables of the library and the
// runtime have been filled, and pages of device memory touched (soak.c). Left are blocks of kernels
// with their stacks, as many as ever ran at once; malloc's pages, which a few small pieces keep;
// pages of programs that were not read before; stacks of threads, which libc keeps for the next
// ones (one or two mappings each, 8 MiB of addresses).
static const struct {
    const char *name;
    long slack;         // by which it may grow
    long for_each_core; // beyond two: workers that have blocks and stacks of their own
    bool with_sanitizers;
} known[HOLDINGS] = {
    [RESIDENT_KIB] = {"resident KiB", 4096, 64, false},
    [ANONYMOUS_KIB] = {"anonymous KiB", 1024, 64, false},
    [HEAP_KIB] = {"heap KiB", 128, 0, false},
    [MAPPINGS] = {"mappings", 6, 4, false},
    [MAPPED_MIB] = {"mapped MiB", 32, 0, false},
    [DESCRIPTORS] = {"descriptors", 0, 0, true},
    [THREADS] = {"threads", 0, 0, true},
    [CHILDREN] = {"children", 0, 0, true},
    [DEVICE_KIB] = {"device KiB", 0, 0, true},
    [ENTRIES] = {"entries", 1000, 0, true}, // told, not judged: other programs have some, too,
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

// Exact where the host's memory does not limit what is free (VGPU_OVERCOMMIT).
static long count_device_memory(void)
{
    int devices = 0;
    size_t used = 0;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    for (int i = 0; i < devices; i++) {
        size_t left = 0, all = 0;
        EXPECT_CUDA(cudaSetDevice(i));
        EXPECT_CUDA(cudaMemGetInfo(&left, &all));
        used += all - left;
    }
    EXPECT_CUDA(cudaSetDevice(0));
    return (long)(used >> 10);
}

struct holdings take_holdings(bool with_devices)
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
    now.of[DEVICE_KIB] = with_devices ? count_device_memory() : 0;
    now.of[ENTRIES] = count_entries("/dev/shm", "tutti") + count_entries("/tmp", "tutti-");
    return now;
}

static bool is_kept(int i, const struct holdings *first, const struct holdings *now)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), more = cores > 2 ? cores - 2 : 0;
    return now->of[i] <= first->of[i] + known[i].slack + known[i].for_each_core * more ||
           (IS_SANITIZED && !known[i].with_sanitizers);
}

bool holdings_are_kept(const struct holdings *first, const struct holdings *now)
{
    for (int i = 0; i < HOLDINGS; i++) {
        if (!is_kept(i, first, now)) {
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
        length += snprintf(text + length, sizeof text - (size_t)length, "%s %s %ld%s",
                           i == 0 ? "" : ",", known[i].name, now->of[i],
                           is_kept(i, first, now) ? " from" : " TOO MANY, from");
        length += snprintf(text + length, sizeof text - (size_t)length, " %ld", first->of[i]);
    }
    printf("%s\n", text);
}

void add_to_course(struct course *course, double part, const struct holdings *now)
{
    int third = part < 1 / 3.0 ? 0 : part < 2 / 3.0 ? 1 : 2;
    course->looks[third]++;
    for (int i = 0; i < HOLDINGS; i++) {
        course->sum[i][third] += now->of[i];
    }
}

void print_course(const char *title, const struct course *course)
{
    const int *looks = course->looks;
    if (looks[0] == 0 || looks[1] == 0 || looks[2] == 0) {
        return;
    }
    printf("  %s, means of each third of the time:", title);
    for (int i = 0; i < HOLDINGS; i++) {
        const long *sum = course->sum[i];
        printf("%s %s %ld %ld %ld", i == 0 ? "" : ",", known[i].name, sum[0] / looks[0],
               sum[1] / looks[1], sum[2] / looks[2]);
    }
    printf("\n");
}

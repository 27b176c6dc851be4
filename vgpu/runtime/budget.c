// How much memory may still be given out: the device's announced size, and what the host really
// has.
//
// Memory that was given out but not touched yet is counted as taken, exactly for this process:
// what was given out minus the pages that its memfds hold. Nothing is touched before the host is
// known to have it, so that a program that asks for too much gets an error and not the kernel's
// out-of-memory killer. With VGPU_OVERCOMMIT=1 only the device's size counts. SPDX-License-Identifier: Apache-2.0
#include "backing.h"
#include "error.h"
#include "settings.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Under the memory lock.
static size_t given_out;  // by this process in memfds: all devices
static size_t pinned_out; // pinned memory, which is touched when it is allocated

// ---- What the host has -------------------------------------------------------------------------

struct host_memory {
    size_t total, available;
};

// A limit file of the control group: its number, or SIZE_MAX for "max" or none.
static size_t read_limit(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "re");
    if (!file) {
        return SIZE_MAX;
    }
    if (!fgets(text, sizeof(text), file)) {
        text[0] = '\0';
    }
    (void)fclose(file);
    char *rest;
    unsigned long long value = strtoull(text, &rest, 10);
    return rest == text ? SIZE_MAX : (size_t)value;
}

// Memory left to this process's control group (version 2); SIZE_MAX where nothing limits it.
static size_t group_left(void)
{
    char line[512];
    char folder[480] = "";
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) {
        return SIZE_MAX;
    }
    while (fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0) {
            (void)snprintf(folder, sizeof(folder), "%.400s", line + 3);
        }
    }
    (void)fclose(file);
    char path[512];
    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", folder);
    size_t limit = read_limit(path);
    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", folder);
    size_t used = read_limit(path);
    if (limit == SIZE_MAX || used == SIZE_MAX) {
        return SIZE_MAX;
    }
    return limit > used ? limit - used : 0;
}

static struct host_memory read_host(void)
{
    struct host_memory host = {0, 0};
    FILE *file = fopen("/proc/meminfo", "re");
    if (file) {
        char line[128];
        while (fgets(line, sizeof(line), file)) {
            const char *number = strchr(line, ':'); // the lines are "Name:   123 kB"
            size_t bytes = number ? strtoull(number + 1, NULL, 10) << 10 : 0;
            if (strncmp(line, "MemTotal:", 9) == 0) {
                host.total = bytes;
            } else if (strncmp(line, "MemAvailable:", 13) == 0) {
                host.available = bytes;
                break;
            }
        }
        (void)fclose(file);
    }
    if (host.total == 0) { // no /proc: nothing to go by
        host.total = host.available = SIZE_MAX / 4;
    }
    size_t group = group_left();
    if (group < host.available) {
        host.available = group;
    }
    return host;
}

// Read at most every 20 ms.
static struct host_memory host_now(void)
{
    static struct host_memory last; // under the memory lock
    static int64_t read_at_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (read_at_ns == 0 || ns - read_at_ns > 20000000) {
        last = read_host();
        read_at_ns = ns;
    }
    return last;
}

// VGPU_HOST_MEMORY: at most this many bytes (K, M, G) for one process; SIZE_MAX where not set.
static size_t user_cap(void)
{
    const char *text = vgpu_setting(VGPU_SETTING_HOST_MEMORY);
    if (!text || !*text) {
        return SIZE_MAX;
    }
    char *rest;
    unsigned long long value = strtoull(text, &rest, 10);
    int shift = *rest == 'G' ? 30 : *rest == 'M' ? 20 : *rest == 'K' ? 10 : 0;
    if (rest == text || (shift ? rest[1] : *rest) ||
        value > (unsigned long long)SIZE_MAX >> shift) {
        static bool said; // under the memory lock
        if (!said) {
            (void)fprintf(stderr,
                          "vgpu: VGPU_HOST_MEMORY is \"%.40s\"; it must be bytes, or a number "
                          "with K, M or G; ignored\n",
                          text);
        }
        said = true;
        return SIZE_MAX;
    }
    return (size_t)value << shift;
}

static pthread_once_t overcommit_once = PTHREAD_ONCE_INIT;
static bool overcommit; // constant after overcommit_once

static void read_overcommit(void)
{
    overcommit = vgpu_switch("VGPU_OVERCOMMIT", vgpu_setting(VGPU_SETTING_OVERCOMMIT));
}

// What the host can still give this process. Exact only if less than `wanted` is left: counting
// touched pages costs a system call for every memfd.
static size_t host_left(size_t wanted)
{
    struct host_memory host = host_now();
    size_t margin = host.total / 32; // for everybody else; at most 1 GiB
    if (margin > (size_t)1 << 30) {
        margin = (size_t)1 << 30;
    }
    size_t left = host.available > margin ? host.available - margin : 0;
    pthread_once(&overcommit_once, read_overcommit);
    if (overcommit) {
        left = SIZE_MAX;
    } else {
        size_t untouched = given_out;
        if (untouched > left || left - untouched < wanted) {
            size_t touched = vgpu_backing_touched();
            untouched = given_out > touched ? given_out - touched : 0;
        }
        left = left > untouched ? left - untouched : 0;
    }
    size_t cap = user_cap();
    size_t out = given_out + pinned_out;
    size_t cap_left = cap > out ? cap - out : 0;
    return cap_left < left ? cap_left : left;
}

// ---- Taking and returning ----------------------------------------------------------------------

static cudaError_t check_host(const char *function, const char *where, size_t bytes)
{
    size_t left = host_left(bytes);
    if (bytes <= left) {
        return cudaSuccess;
    }
    return vgpu_fail(cudaErrorMemoryAllocation,
                     "%s: %zu bytes asked for %s, but the host's memory, which holds them, has %zu "
                     "left (VGPU_HOST_MEMORY and VGPU_OVERCOMMIT=1 change that)",
                     function, bytes, where, left);
}

cudaError_t vgpu_budget_take(const char *function, struct vgpu_device *device, size_t bytes)
{
    char where[64] = "in host memory";
    if (device) {
        size_t used = atomic_load(&device->memory_used);
        size_t total = device->info.memory_bytes;
        if (bytes > total || used > total - bytes) {
            return vgpu_fail(cudaErrorMemoryAllocation,
                             "%s: %zu bytes asked for, %zu of %zu free on %s", function, bytes,
                             total > used ? total - used : 0, total,
                             vgpu_device_name(device->ordinal).text);
        }
        (void)snprintf(where, sizeof(where), "on %s", vgpu_device_name(device->ordinal).text);
    }
    cudaError_t error = check_host(function, where, bytes);
    if (error != cudaSuccess) {
        return error;
    }
    given_out += bytes;
    if (device) {
        atomic_fetch_add(&device->memory_used, bytes);
    }
    return cudaSuccess;
}

void vgpu_budget_return(struct vgpu_device *device, size_t bytes)
{
    given_out -= bytes;
    if (device) {
        atomic_fetch_sub(&device->memory_used, bytes);
    }
}

cudaError_t vgpu_budget_take_pinned(const char *function, size_t bytes)
{
    cudaError_t error = check_host(function, "in pinned memory", bytes);
    if (error == cudaSuccess) {
        pinned_out += bytes;
    }
    return error;
}

void vgpu_budget_return_pinned(size_t bytes)
{
    pinned_out -= bytes;
}

size_t vgpu_budget_left(struct vgpu_device *device)
{
    size_t used = atomic_load(&device->memory_used);
    size_t total = device->info.memory_bytes;
    size_t left = total > used ? total - used : 0;
    size_t host = host_left(left);
    return host < left ? host : left;
}

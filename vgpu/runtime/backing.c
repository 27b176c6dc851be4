// Sealed memfds with labels, and the list of those that this process knows.
// SPDX-License-Identifier: Apache-2.0
#include "backing.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(struct vgpu_label) <= VGPU_PAGE_BYTES, "a label is one page");
_Static_assert(sizeof(struct vgpu_label) == 80, "other processes read it");

static const char MAGIC[8] = {'v', 'g', 'p', 'u', 'm', 'e', 'm', '1'};
enum { LABEL_VERSION = 1, SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static struct vgpu_backing *backings; // under the memory lock

// The number in a one-line file such as /proc/sys/vm/max_map_count; 0 where it cannot be read.
static unsigned long read_number(const char *path)
{
    unsigned long value = 0;
    char line[32];
    FILE *file = fopen(path, "re");
    if (file) {
        if (fgets(line, sizeof(line), file)) {
            value = strtoul(line, NULL, 10);
        }
        (void)fclose(file);
    }
    return value;
}

cudaError_t vgpu_fail_limit(const char *function, const char *what, int number)
{
    struct rlimit descriptors = {0};
    switch (number) {
    case EMFILE:
        getrlimit(RLIMIT_NOFILE, &descriptors);
        return vgpu_fail(cudaErrorMemoryAllocation,
                         "%s: %s: this process has reached its limit of %llu descriptors "
                         "(ulimit -n, RLIMIT_NOFILE)",
                         function, what, (unsigned long long)descriptors.rlim_cur);
    case ENFILE:
        return vgpu_fail(cudaErrorMemoryAllocation,
                         "%s: %s: the system has reached its limit of open files "
                         "(/proc/sys/fs/file-max is %lu)",
                         function, what, read_number("/proc/sys/fs/file-max"));
    case ENOMEM:
        return vgpu_fail(cudaErrorMemoryAllocation,
                         "%s: %s: no room: this process has reached its limit of mappings "
                         "(/proc/sys/vm/max_map_count is %lu) or of addresses (ulimit -v)",
                         function, what, read_number("/proc/sys/vm/max_map_count"));
    default:
        errno = number;
        return vgpu_fail(cudaErrorMemoryAllocation, "%s: %s: %m", function, what);
    }
}

static struct vgpu_backing *find(dev_t filesystem, ino_t inode)
{
    struct vgpu_backing *backing = backings;
    while (backing && (backing->inode != inode || backing->filesystem != filesystem)) {
        backing = backing->next;
    }
    return backing;
}

// Writes the label and seals the size.
static bool finish_memfd(int fd, const struct vgpu_label *label)
{
    return ftruncate(fd, (off_t)label->bytes + VGPU_PAGE_BYTES) == 0 &&
           pwrite(fd, label, sizeof(*label), (off_t)label->bytes) == sizeof(*label) &&
           fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) == 0;
}

cudaError_t vgpu_backing_create(const char *function, const char *name,
                                const struct vgpu_label *label, int device,
                                struct vgpu_backing **out)
{
    struct vgpu_backing *backing = calloc(1, sizeof(*backing));
    if (!backing) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    backing->label = *label;
    memcpy(backing->label.magic, MAGIC, sizeof(MAGIC));
    backing->label.version = LABEL_VERSION;
    backing->device = device;
    backing->references = 1;
    if (getrandom(backing->label.key, sizeof(backing->label.key), 0) !=
        (ssize_t)sizeof(backing->label.key)) {
        free(backing);
        return vgpu_fail(cudaErrorOperatingSystem, "%s: no random numbers: %m", function);
    }
    backing->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (backing->fd < 0) {
        int number = errno;
        free(backing);
        return vgpu_fail_limit(function, "no descriptor for device memory", number);
    }
    struct stat status;
    if (!finish_memfd(backing->fd, &backing->label) || fstat(backing->fd, &status) != 0) {
        int number = errno;
        close(backing->fd);
        free(backing);
        return vgpu_fail_limit(function, "a memfd cannot be prepared", number);
    }
    backing->filesystem = status.st_dev;
    backing->inode = status.st_ino;
    backing->next = backings;
    backings = backing;
    *out = backing;
    return cudaSuccess;
}

// Reads the label and checks that the descriptor is sealed memory of the size it says.
static bool read_label(int fd, const struct stat *status, struct vgpu_label *label)
{
    if (!S_ISREG(status->st_mode) || status->st_size <= VGPU_PAGE_BYTES) {
        return false;
    }
    int seals = fcntl(fd, F_GET_SEALS);
    off_t bytes = status->st_size - VGPU_PAGE_BYTES;
    return seals >= 0 && (seals & SEALS) == SEALS &&
           pread(fd, label, sizeof(*label), bytes) == sizeof(*label) &&
           memcmp(label->magic, MAGIC, sizeof(MAGIC)) == 0 && label->version == LABEL_VERSION &&
           label->bytes == (uint64_t)bytes && label->kind >= VGPU_BACKING_SEGMENT &&
           label->kind <= VGPU_BACKING_EVENT;
}

cudaError_t vgpu_backing_import(const char *function, int fd, struct vgpu_backing **out)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return vgpu_fail(cudaErrorInvalidValue, "%s: descriptor %d: %m", function, fd);
    }
    struct vgpu_backing *backing = find(status.st_dev, status.st_ino);
    if (backing) {
        vgpu_backing_retain(backing);
        *out = backing;
        return cudaSuccess;
    }
    struct vgpu_label label;
    if (!read_label(fd, &status, &label)) {
        return vgpu_fail(cudaErrorInvalidValue,
                         "%s: descriptor %d is not memory that a virtual device exported", function,
                         fd);
    }
    backing = calloc(1, sizeof(*backing));
    if (!backing) {
        return vgpu_fail_limit(function, "no memory for bookkeeping", ENOMEM);
    }
    // An open file description of our own, so that its locks are this process's (multicast.c).
    char path[40];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    backing->fd = open(path, O_RDWR | O_CLOEXEC);
    if (backing->fd < 0) {
        int number = errno;
        free(backing);
        return vgpu_fail_limit(function, "no descriptor for imported memory", number);
    }
    struct vgpu_device *device = vgpu_device_by_uuid(label.uuid);
    backing->device = device ? device->ordinal : -1;
    backing->filesystem = status.st_dev;
    backing->inode = status.st_ino;
    backing->imported = true;
    backing->references = 1;
    backing->label = label;
    backing->next = backings;
    backings = backing;
    *out = backing;
    return cudaSuccess;
}

cudaError_t vgpu_backing_open(const char *function, int pid, int fd, uint64_t inode,
                              const unsigned char key[16], struct vgpu_backing **out)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    if (opened < 0) {
        int number = errno;
        if (number == EMFILE || number == ENFILE) {
            return vgpu_fail_limit(function, "no descriptor for another process's memory", number);
        }
        errno = number;
        return vgpu_fail(cudaErrorInvalidResourceHandle,
                         "%s: the memory of process %d cannot be opened: %m (it has ended or freed "
                         "the memory, or belongs to another user)",
                         function, pid);
    }
    struct stat status;
    struct vgpu_label label;
    cudaError_t error;
    if (fstat(opened, &status) != 0 || (uint64_t)status.st_ino != inode ||
        !read_label(opened, &status, &label) || memcmp(label.key, key, sizeof(label.key)) != 0) {
        error = vgpu_fail(cudaErrorInvalidResourceHandle,
                          "%s: process %d no longer has this memory; it was freed there", function,
                          pid);
    } else {
        error = vgpu_backing_import(function, opened, out);
    }
    close(opened);
    return error;
}

bool vgpu_backing_exists(uint64_t inode, const unsigned char key[16])
{
    for (const struct vgpu_backing *b = backings; b; b = b->next) {
        if ((uint64_t)b->inode == inode && memcmp(b->label.key, key, sizeof(b->label.key)) == 0) {
            return true;
        }
    }
    return false;
}

void vgpu_backing_retain(struct vgpu_backing *backing)
{
    backing->references++;
}

void vgpu_backing_release(struct vgpu_backing *backing)
{
    if (!backing || --backing->references > 0) {
        return;
    }
    struct vgpu_backing **link = &backings;
    while (*link != backing) {
        link = &(*link)->next;
    }
    *link = backing->next;
    close(backing->fd);
    free(backing);
}

void *vgpu_backing_map(struct vgpu_backing *backing, void *at, size_t bytes, size_t offset,
                       int protection)
{
    void *address =
        mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), backing->fd, (off_t)offset);
    return address == MAP_FAILED ? NULL : address;
}

size_t vgpu_backing_touched(void)
{
    size_t bytes = 0;
    for (struct vgpu_backing *b = backings; b; b = b->next) {
        struct stat status;
        if (!b->imported && fstat(b->fd, &status) == 0) {
            bytes += (size_t)status.st_blocks * 512;
        }
    }
    return bytes;
}

// The devices of the virtual machine that a task may use, for launchers: what is set here cannot be
// undone by anything that the task starts, as with the device lists of cgroups. The limit is whole
// in this header, so that a launcher needs no library.
//
// The runtime asks the kernel about each device, by an option of prctl(2) that the kernel does not
// have, and a seccomp filter answers for the devices that are not allowed. Filters pass to all that
// a process starts, root's too, and cannot be taken off; of several the strictest answers, so a
// limit inside a limit only narrows. Other system calls are not touched, nor slower.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_LIMIT_H
#define VGPU_LIMIT_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#elif !defined(__USE_MISC)
long syscall(long number, ...); // <unistd.h> keeps it from programs in strict C
#endif

enum { VGPU_LIMIT_QUESTION = 0x76677075, VGPU_LIMIT_DEVICES = 64 };

// Leaves the calling thread, and all that it starts from now on, the devices d of the machine (its
// own numbers, before CUDA_VISIBLE_DEVICES) of which bit d of `allowed` is set. To be called
// between fork and exec, before the first CUDA call. The thread gives up gaining privileges by exec
// (PR_SET_NO_NEW_PRIVS) where the kernel asks for that, which it does not of root. 0, or errno: no
// limit was set. Since 0.2.
static inline int vgpuLimitDevices(uint64_t allowed)
{
    enum { BEFORE = 7 };
    unsigned char count = 0;
    struct sock_filter code[BEFORE + VGPU_LIMIT_DEVICES + 2];
    for (unsigned device = 0; device < VGPU_LIMIT_DEVICES; device++) {
        count = (unsigned char)(count + (allowed >> device & 1));
    }
    // Loads of a word of the call; comparisons that go on, or leave for the last line: allow.
    const uint16_t load = BPF_LD | BPF_W | BPF_ABS, equal = BPF_JMP | BPF_JEQ | BPF_K;
    const struct sock_filter before[BEFORE] = {
        {load, 0, 0, offsetof(struct seccomp_data, arch)},
        {equal, 0, (unsigned char)(count + 6), AUDIT_ARCH_X86_64},
        {load, 0, 0, offsetof(struct seccomp_data, nr)},
        {equal, 0, (unsigned char)(count + 4), SYS_prctl},
        {load, 0, 0, offsetof(struct seccomp_data, args[0])},
        {equal, 0, (unsigned char)(count + 2), VGPU_LIMIT_QUESTION},
        {load, 0, 0, offsetof(struct seccomp_data, args[1])},
    };
    unsigned short at = 0;
    for (; at < BEFORE; at++) {
        code[at] = before[at];
    }
    for (unsigned device = 0; device < VGPU_LIMIT_DEVICES; device++) {
        if ((allowed >> device & 1) != 0) {
            const struct sock_filter allow = {equal, (unsigned char)(BEFORE + count - at), 0,
                                              device};
            code[at++] = allow;
        }
    }
    const struct sock_filter refuse = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENODEV};
    const struct sock_filter pass = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
    code[at++] = refuse;
    code[at++] = pass;
    const struct sock_fprog program = {at, code};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) ==
        0) {
        return 0;
    }
    if (errno == EACCES && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) ==
            0) {
        return 0;
    }
    return errno;
}

// Whether a limit leaves device `device` of the machine to this process. Since 0.2.
static inline int vgpuDeviceIsAllowed(int device)
{
    int before = errno;
    int answer = prctl(VGPU_LIMIT_QUESTION, (unsigned long)device, 0, 0, 0);
    int is_allowed = answer == 0 || errno != ENODEV;
    errno = before;
    return is_allowed;
}

// The number that the machine itself gives the visible device `device`: the same in all processes,
// whatever they see of the machine (CUDA_VISIBLE_DEVICES, limits). -1: there is no such device.
// Since 0.2.
int vgpuPhysicalDevice(int device);

#ifdef __cplusplus
}
#endif
#endif

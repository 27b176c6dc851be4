// The calling thread's last error and its text; what goes to stderr.
//
// VGPU_LOG=1 prints every failed call. Sticky errors live in the
// devices; they are given to every thread whose current device failed.
// SPDX-License-Identifier: Apache-2.0
#include "error.h"

#include "cuda_runtime_api.h"
#include "device.h"
#include "settings.h"
#include "thread_memory.h"
#include "vgpu/native.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_BYTES = 512, LINE_BYTES = 1024 };

static __thread cudaError_t last_error;

// Whether any device ever failed: until then no device needs to be looked at. Relaxed: a thread
// that is to see a failure has synchronised with the work that failed.
static atomic_bool any_sticky;

static pthread_once_t log_once = PTHREAD_ONCE_INIT;
static bool log_failures; // constant after log_once

static void read_log_setting(void)
{
    log_failures = vgpu_switch("VGPU_LOG", vgpu_setting(VGPU_SETTING_LOG));
}

static void write_line(const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof(line), "vgpu: ");
    int more = vsnprintf(line + used, sizeof(line) - (size_t)used - 1, format, arguments);
    size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (length > sizeof(line) - 2) {
        length = sizeof(line) - 2;
    }
    line[length++] = '\n';
    if (write(STDERR_FILENO, line, length) < 0) {
        return; // nowhere left to say it
    }
}

void vgpu_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line(format, arguments);
    va_end(arguments);
}

bool vgpu_switch(const char *name, const char *value)
{
    bool on = value && strcmp(value, "1") == 0;
    if (value && *value && !on && strcmp(value, "0") != 0) {
        vgpu_say("%s is \"%s\"; it must be 0 or 1: taken for 0", name, value);
    }
    return on;
}

cudaError_t(vgpu_fail)(cudaError_t error, const char *format, ...)
{
    int number = errno; // for %m
    char *text = vgpu_thread_memory(VGPU_THREAD_ERROR_TEXT, TEXT_BYTES);
    if (text) {
        va_list arguments;
        va_start(arguments, format);
        errno = number;
        (void)vsnprintf(text, TEXT_BYTES, format, arguments);
        va_end(arguments);
    }
    last_error = error;
    pthread_once(&log_once, read_log_setting);
    if (log_failures && error != cudaErrorNotReady) {
        vgpu_say("%s: %s", cudaGetErrorName(error), text ? text : "(no memory for a text)");
    }
    return error;
}

const char *vgpu_last_error_text(void)
{
    const char *text = vgpu_thread_memory(VGPU_THREAD_ERROR_TEXT, TEXT_BYTES);
    return text ? text : "";
}

const char *vgpuLastErrorText(void)
{
    return vgpu_last_error_text();
}

cudaError_t vgpu_last_error_exchange(cudaError_t error)
{
    cudaError_t before = last_error;
    last_error = error;
    return before;
}

void vgpu_device_fail(struct vgpu_device *device, cudaError_t error)
{
    int none = cudaSuccess;
    atomic_store_explicit(&any_sticky, true, memory_order_relaxed);
    atomic_compare_exchange_strong(&device->sticky_error, &none, (int)error);
}

// The sticky error of the calling thread's device.
static cudaError_t sticky_error(void)
{
    if (!atomic_load_explicit(&any_sticky, memory_order_relaxed)) {
        return cudaSuccess;
    }
    struct vgpu_device *device = vgpu_current_device();
    return device ? (cudaError_t)atomic_load(&device->sticky_error) : cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t sticky = sticky_error();
    return sticky != cudaSuccess ? sticky : last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}

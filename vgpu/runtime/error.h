// Errors of the runtime: one place that words them, remembers them and says them.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_RUNTIME_ERROR_H
#define VGPU_RUNTIME_ERROR_H

#include "driver_types.h"

#include <stdarg.h>
#include <stdbool.h>

// Records `error` as the calling thread's last error (cudaGetLastError), stores the text for
// vgpu_last_error_text and prints it where VGPU_LOG asks for it; returns `error`. Text: what was
// wrong, the value, what would be right.
cudaError_t vgpu_fail(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__ // which does not look into error.c: the result is the first argument
#define vgpu_fail(error, ...) ((vgpu_fail)((error), __VA_ARGS__), (error))
#endif
// The text of the calling thread's last failure, "" if none.
const char *vgpu_last_error_text(void);

// Replaces the calling thread's last error (sticky ones aside) and returns what it was: for driver
// functions, whose failures cudaGetLastError does not show.
cudaError_t vgpu_last_error_exchange(cudaError_t error);

// Writes one line to stderr, whatever VGPU_LOG says: for what the user must see and no return value
// can carry. One write, so lines of several threads stay whole.
void vgpu_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Whether a switch of the environment is on: `value` is what it holds. Not 0 and not 1: says so,
// and it is off.
bool vgpu_switch(const char *name, const char *value);

// Sets the device's sticky error unless it already has one. Device: by ordinal's structure.
struct vgpu_device;
void vgpu_device_fail(struct vgpu_device *device, cudaError_t error);

#endif

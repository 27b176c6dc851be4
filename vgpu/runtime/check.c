// The checking mode's setting; which launches run, and for which rank.
// SPDX-License-Identifier: Apache-2.0
#include "check.h"

#include "error.h"
#include "settings.h"
#include "vgpu/stats.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool vgpu_checking;

__attribute__((constructor)) static void read_setting(void)
{
    const char *value = vgpu_setting(VGPU_SETTING_CHECK); // before any thread
    vgpu_checking = value && strcmp(value, "1") == 0;
    if (value && *value && strcmp(value, "0") != 0 && !vgpu_checking) {
        vgpu_say("VGPU_CHECK is \"%s\"; it may be 0 or 1. Nothing is checked", value);
    }
    vgpu_check_read_seconds();
}

void vgpu_check_say(const char *text)
{
    size_t length = strlen(text);
    const size_t room = length + 8; // for what comes before, the line's end, and the 0
    char *line = malloc(room);
    if (!line) {
        vgpu_say("%s", text);
        return;
    }
    (void)snprintf(line, room, "vgpu: %s", text);
    length += 6;
    if (line[length - 1] != '\n') {
        line[length++] = '\n';
    }
    for (size_t done = 0; done < length;) {
        ssize_t wrote = write(STDERR_FILENO, line + done, length - done);
        if (wrote < 0 && errno != EINTR) {
            break; // nowhere left to say it
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    free(line);
}

// ---- Launches -----------------------------------------------------------------------------------

enum { NAMES_KEPT = 4 }; // of running launches, by device

// What runs on one device.
struct running {
    unsigned count;
    unsigned long long begun;
    const char *name[NAMES_KEPT]; // of kernels, which outlive their launches
    char last[64];                // the kernel that ended last
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards running
static struct running running[VGPU_MAX_DEVICES];

void vgpu_check_launch_begins(const struct vgpu_launch *launch)
{
    struct running *on = &running[launch->operation.device->ordinal];
    if (launch->task) {
        return;
    }
    pthread_mutex_lock(&lock);
    on->count++;
    on->begun++;
    for (int i = 0; i < NAMES_KEPT; i++) {
        if (!on->name[i]) {
            on->name[i] = launch->name;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

void vgpu_check_launch_ends(const struct vgpu_launch *launch)
{
    struct running *on = &running[launch->operation.device->ordinal];
    if (launch->task) {
        return;
    }
    pthread_mutex_lock(&lock);
    on->count--;
    for (int i = 0; i < NAMES_KEPT; i++) {
        if (on->name[i] == launch->name) {
            on->name[i] = NULL;
            break;
        }
    }
    (void)snprintf(on->last, sizeof(on->last), "%s", launch->name);
    pthread_mutex_unlock(&lock);
}

void vgpu_check_describe_device(int device, FILE *out)
{
    pthread_mutex_lock(&lock);
    const struct running *on = &running[device];
    const char *name = NULL;
    for (int i = 0; i < NAMES_KEPT && !name; i++) {
        name = on->name[i];
    }
    if (on->count > 0) {
        (void)fprintf(out, "kernel %s runs on %s", name ? name : "(unnamed)",
                      vgpu_device_name(device).text);
    } else if (on->begun == 0) {
        (void)fprintf(out, "no kernel has been launched on %s", vgpu_device_name(device).text);
    } else {
        (void)fprintf(out, "no kernel runs on %s; the last one there, %s, has ended",
                      vgpu_device_name(device).text, on->last);
    }
    pthread_mutex_unlock(&lock);
}

// ---- Ranks --------------------------------------------------------------------------------------

int vgpu_check_rank_of(const struct vgpu_launch *launch)
{
    const struct vgpu_kernel *kernel = launch->kernel;
    for (int i = 0; kernel && i < kernel->parameter_count; i++) {
        int rank = vgpu_check_rank_in(launch->arguments[i], kernel->parameter_bytes[i]);
        if (rank >= 0) {
            return rank;
        }
    }
    return vgpu_check_rank_on(launch->operation.device->ordinal);
}

// VGPU_STATS: counts from the start of the process, told at its end as text or as JSON.
// SPDX-License-Identifier: Apache-2.0
#include "counts.h"
#include "error.h"
#include "settings.h"
#include "statistics.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char JSON[] = "json:";

static enum { SILENT, TEXT, TO_JSON } wanted; // set once, when the library is loaded
static char json_path[PATH_MAX];

// ---- As text ------------------------------------------------------------------------------------

static void print_text(FILE *out, const struct vgpu_device_stats *stats, int count)
{
    (void)fprintf(out,
                  "device       bytes in      bytes out    bytes local  messages in messages out "
                  "messages local multimem loads multimem stores     barriers  launches\n");
    for (int i = 0; i < count; i++) {
        const struct vgpu_device_stats *s = &stats[i];
        (void)fprintf(out,
                      "%6d %14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %12" PRIu64 " %12" PRIu64
                      " %14" PRIu64 " %14" PRIu64 " %15" PRIu64 " %12" PRIu64 " %9" PRIu64 "\n",
                      i, s->bytes_in, s->bytes_out, s->bytes_local, s->messages_in, s->messages_out,
                      s->messages_local, s->multimem_loads, s->multimem_stores, s->barriers,
                      s->launches);
    }
    bool first = true;
    for (int from = 0; from < count; from++) {
        for (int to = 0; to < count; to++) {
            uint64_t messages = vgpuStatsLinkMessages(from, to);
            if (messages > 0) {
                (void)fprintf(out, "%s%6d -> %-2d %14" PRIu64 " %12" PRIu64 "\n",
                              first ? "link            bytes     messages\n" : "", from, to,
                              vgpuStatsLink(from, to), messages);
                first = false;
            }
        }
    }
}

// ---- As JSON ------------------------------------------------------------------------------------

static void print_json(FILE *out, const struct vgpu_device_stats *stats, int count)
{
    (void)fprintf(out, "{\"process\": %ld,\n \"devices\": [", (long)getpid());
    for (int i = 0; i < count; i++) {
        const struct vgpu_device_stats *s = &stats[i];
        (void)fprintf(out,
                      "%s\n  {\"device\": %d, \"bytes_in\": %" PRIu64 ", \"bytes_out\": %" PRIu64
                      ", \"bytes_local\": %" PRIu64 ", \"messages_in\": %" PRIu64
                      ", \"messages_out\": %" PRIu64 ", \"messages_local\": %" PRIu64
                      ", \"multimem_loads\": %" PRIu64 ", \"multimem_stores\": %" PRIu64
                      ", \"barriers\": %" PRIu64 ", \"launches\": %" PRIu64 "}",
                      i > 0 ? "," : "", i, s->bytes_in, s->bytes_out, s->bytes_local,
                      s->messages_in, s->messages_out, s->messages_local, s->multimem_loads,
                      s->multimem_stores, s->barriers, s->launches);
    }
    (void)fprintf(out, "],\n \"links\": [");
    bool first = true;
    for (int from = 0; from < count; from++) {
        for (int to = 0; to < count; to++) {
            uint64_t messages = vgpuStatsLinkMessages(from, to);
            if (messages > 0) {
                (void)fprintf(out,
                              "%s\n  {\"from\": %d, \"to\": %d, \"bytes\": %" PRIu64
                              ", \"messages\": %" PRIu64 "}",
                              first ? "" : ",", from, to, vgpuStatsLink(from, to), messages);
                first = false;
            }
        }
    }
    (void)fprintf(out, "]}\n");
}

// The file's name with %p replaced by the process id and %% by %. False: another %, or too long.
static bool expand(char *out, size_t bytes, const char *pattern)
{
    size_t used = 0;
    for (const char *c = pattern; *c && used + 1 < bytes; c++) {
        if (*c != '%') {
            out[used++] = *c;
        } else if (*++c == 'p') {
            used += (size_t)snprintf(out + used, bytes - used, "%ld", (long)getpid());
        } else if (*c == '%') {
            out[used++] = '%';
        } else {
            return false;
        }
    }
    out[used < bytes ? used : 0] = '\0';
    return used > 0 && used + 1 < bytes;
}

static void write_json(const struct vgpu_device_stats *stats, int count)
{
    char path[PATH_MAX];
    (void)expand(path, sizeof(path), json_path); // has been tried
    FILE *file = fopen(path, "we");
    if (!file) {
        vgpu_say("VGPU_STATS: cannot write %s: %s", path,
                 strerror(errno)); // NOLINT(concurrency-mt-unsafe)
        return;
    }
    print_json(file, stats, count);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        vgpu_say("VGPU_STATS: cannot write all of %s: %s", path,
                 strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    }
}

// ---- Start and end ------------------------------------------------------------------------------

__attribute__((constructor)) static void start_if_asked(void)
{
    const char *text = vgpu_setting(VGPU_SETTING_STATS);
    char path[PATH_MAX];
    if (!text || !*text || strcmp(text, "0") == 0) {
        return;
    }
    if (strcmp(text, "1") == 0) {
        wanted = TEXT;
    } else if (strncmp(text, JSON, strlen(JSON)) == 0 &&
               expand(path, sizeof(path), text + strlen(JSON)) &&
               strlen(text) < sizeof(json_path)) {
        (void)snprintf(json_path, sizeof(json_path), "%s", text + strlen(JSON));
        wanted = TO_JSON;
    } else {
        vgpu_say("VGPU_STATS is \"%.200s\": must be 0, 1 (tables on stderr at exit) or json:FILE, "
                 "where %%p stands for the process id; nothing is counted",
                 text);
        return;
    }
    vgpuStatsStart();
}

__attribute__((destructor)) static void tell_if_asked(void)
{
    if (wanted == SILENT) {
        return;
    }
    struct vgpu_device_stats stats[VGPU_MAX_DEVICES];
    int count = vgpuStatsRead(stats, VGPU_MAX_DEVICES);
    if (wanted == TEXT) {
        print_text(stderr, stats, count);
        if (atomic_load(&vgpu_counted_kernels) && !atomic_load(&vgpu_counted_code)) {
            vgpu_say("VGPU_STATS: no kernel that ran was compiled with tutticc --count: their "
                     "loads and stores are not counted");
        }
    } else {
        write_json(stats, count);
    }
}

// SPDX-License-Identifier: Apache-2.0
#include "manifest.h"

#include "words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "tutti-gpt-checkpoint 1\n";

enum { RANKS_LIMIT = 1 << 20, LINE_BYTES = 160 };

bool gpt_manifest_file(const char *folder, int rank, char *path, struct gpt_problem *problem)
{
    char name[32];
    (void)snprintf(name, sizeof name, "rank-%05d", rank);
    return gpt_path_join(path, folder, name, problem);
}

// Puts "setting " before each line of settings. Returns the end.
static char *write_settings(char *text, const char *settings)
{
    while (*settings != 0) {
        const char *end = strchrnul(settings, '\n');
        text = stpcpy(text, "setting ");
        text = mempcpy(text, settings, (size_t)(end - settings));
        text = stpcpy(text, "\n");
        settings = *end == 0 ? end : end + 1;
    }
    return text;
}

bool gpt_manifest_write(const char *folder, const struct gpt_manifest *manifest,
                        struct gpt_problem *problem)
{
    // Each setting has at least 2 characters, and gets 8 more.
    size_t room = 5 * sizeof manifest->settings + LINE_BYTES * ((size_t)manifest->file_count + 4);
    char path[GPT_PATH_MAX], checksum[GPT_CHECKSUM_TEXT];
    char *text = malloc(room);
    if (text == NULL) {
        return gpt_fail(problem, GPT_FAILED, "%s: no memory for the manifest", folder);
    }
    char *next = stpcpy(text, first_line);
    next += sprintf(next, "step %" PRIu64 "\n", manifest->step);
    next = write_settings(next, manifest->settings);
    for (int rank = 0; rank < manifest->file_count; rank++) {
        const struct gpt_file_mark *file = &manifest->files[rank];
        if (file->bytes > 0) {
            next += sprintf(next, "file %d %" PRIu64 " %" PRIu64 " %s\n", rank, file->bytes,
                            file->header, file->checksum);
        }
    }
    gpt_checksum(text, (size_t)(next - text), checksum);
    next += sprintf(next, "end %s\n", checksum);
    bool right = gpt_path_join(path, folder, "manifest", problem) &&
                 gpt_write_file(path, text, (size_t)(next - text), problem);
    free(text);
    return right;
}

void gpt_manifest_free(struct gpt_manifest *manifest)
{
    free(manifest->files);
    memset(manifest, 0, sizeof *manifest);
}

// Whether the last line is the checksum of all before it; that line is cut off then.
static bool check_end(char *text, size_t bytes)
{
    char checksum[GPT_CHECKSUM_TEXT];
    size_t last = strlen("end ") + GPT_CHECKSUM_TEXT; // with its line's end
    if (bytes < last || strlen(text) != bytes || text[bytes - 1] != '\n') {
        return false;
    }
    char *end = text + bytes - last;
    if (strncmp(end, "end ", 4) != 0 || (end > text && end[-1] != '\n')) {
        return false;
    }
    gpt_checksum(text, (size_t)(end - text), checksum);
    if (strncmp(end + 4, checksum, GPT_CHECKSUM_TEXT - 1) != 0) {
        return false;
    }
    *end = 0;
    return true;
}

static bool add_file(struct gpt_manifest *manifest, const char *line)
{
    struct gpt_file_mark mark;
    uint64_t number;
    bool right = gpt_read_number(&line, RANKS_LIMIT - 1, &number) && gpt_read_text(&line, " ") &&
                 gpt_read_number(&line, UINT64_MAX, &mark.bytes) && gpt_read_text(&line, " ") &&
                 gpt_read_number(&line, UINT64_MAX, &mark.header) && gpt_read_text(&line, " ") &&
                 gpt_read_word(&line, mark.checksum, sizeof mark.checksum) && *line == 0;
    if (!right || (int)number < manifest->file_count) {
        return false;
    }
    int rank = (int)number;
    struct gpt_file_mark *files = realloc(manifest->files, ((size_t)rank + 1) * sizeof *files);
    if (files == NULL) {
        return false;
    }
    for (; manifest->file_count < rank; manifest->file_count++) {
        memset(&files[manifest->file_count], 0, sizeof *files);
    }
    files[rank] = mark;
    manifest->files = files;
    manifest->file_count = rank + 1;
    return true;
}

static bool add_setting(struct gpt_manifest *manifest, const char *line)
{
    size_t used = strlen(manifest->settings), length = strlen(line);
    if (used + length + 2 > sizeof manifest->settings) {
        return false;
    }
    (void)stpcpy(stpcpy(manifest->settings + used, line), "\n");
    return true;
}

static bool read_line(struct gpt_manifest *manifest, const char *line)
{
    if (gpt_read_text(&line, "setting ")) {
        return add_setting(manifest, line);
    }
    if (gpt_read_text(&line, "file ")) {
        return add_file(manifest, line);
    }
    return gpt_read_text(&line, "step ") && gpt_read_number(&line, UINT64_MAX, &manifest->step) &&
           *line == 0;
}

static bool read_lines(struct gpt_manifest *manifest, char *text)
{
    size_t length = sizeof first_line - 1;
    if (strncmp(text, first_line, length) != 0) {
        return false;
    }
    char *rest = text + length;
    for (char *line; (line = strsep(&rest, "\n")) != NULL && rest != NULL;) {
        if (!read_line(manifest, line)) {
            return false;
        }
    }
    return true;
}

bool gpt_manifest_read(const char *folder, struct gpt_manifest *manifest,
                       struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    memset(manifest, 0, sizeof *manifest);
    if (!gpt_path_join(path, folder, "manifest", problem) ||
        !gpt_read_file(path, &text, &bytes, problem)) {
        return false;
    }
    bool right =
        check_end(text, bytes) ||
        gpt_fail(problem, GPT_FAILED, "%s: is damaged: it does not fit its checksum", path);
    if (right && !read_lines(manifest, text)) {
        right = gpt_fail(problem, GPT_FAILED,
                         "%s: is none of this program's, or of a later version", path);
    }
    free(text);
    if (!right) {
        gpt_manifest_free(manifest);
    }
    return right;
}

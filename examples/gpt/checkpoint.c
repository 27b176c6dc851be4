// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "words.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char temporary_prefix[] = "saving-";
static const char step_prefix[] = "step-";

// A save that goes on.
struct saving {
    const char *folder;
    char temporary[GPT_PATH_MAX], step[GPT_PATH_MAX];
    int lock;           // rank 0: the folder, locked while it saves; else -1
    bool has_temporary; // rank 0: this save has made it
    struct gpt_problem *problem;
};

// Forces the name of a folder that was just made to the disk.
static bool sync_above(const char *path, struct gpt_problem *problem)
{
    char above[GPT_PATH_MAX];
    (void)stpcpy(above, path);
    char *end = strrchr(above, '/');
    if (end == NULL) {
        return gpt_sync_folder(".", problem);
    }
    end[end == above ? 1 : 0] = 0;
    return gpt_sync_folder(above, problem);
}

// Makes the folder and those above it.
static bool make_folders(const char *folder, struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX];
    if (strlen(folder) >= sizeof path) {
        return gpt_fail(problem, GPT_USAGE, "a path is too long: %s", folder);
    }
    (void)stpcpy(path, folder);
    for (char *end = path; end != NULL;) {
        end = strchr(end + 1, '/');
        if (end != NULL) {
            *end = 0;
        }
        gpt_storage_change();
        bool is_new = mkdir(path, 0777) == 0;
        if (!is_new && errno != EEXIST) {
            return gpt_fail_given(problem, path, "cannot be made");
        }
        if (is_new && !sync_above(path, problem)) {
            return false;
        }
        if (end != NULL) {
            *end = '/';
        }
    }
    return true;
}

static bool lock_folder(struct saving *saving)
{
    saving->lock = open(saving->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (saving->lock < 0) {
        return gpt_fail_errno(saving->problem, saving->folder, "cannot be opened");
    }
    if (flock(saving->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return gpt_fail(saving->problem, GPT_FAILED, "%s: another run is saving there",
                        saving->folder);
    }
    return true; // file systems without locks: there may be no other run
}

// Removes what saves that were killed have left.
static bool remove_leftovers(const char *folder, struct gpt_problem *problem)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return gpt_fail_errno(problem, folder, "cannot be opened");
    }
    bool right = true;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): this folder is read by this thread alone
    for (struct dirent *entry; right && (entry = readdir(entries)) != NULL;) {
        char path[GPT_PATH_MAX];
        if (strncmp(entry->d_name, temporary_prefix, sizeof temporary_prefix - 1) == 0) {
            right = gpt_path_join(path, folder, entry->d_name, problem) &&
                    gpt_remove_folder(path, problem);
        }
    }
    closedir(entries);
    return right;
}

// Rank 0: the folder that all write to.
static bool begin(struct saving *saving)
{
    if (!make_folders(saving->folder, saving->problem) || !lock_folder(saving) ||
        !remove_leftovers(saving->folder, saving->problem)) {
        return false;
    }
    gpt_storage_change();
    saving->has_temporary = mkdir(saving->temporary, 0777) == 0;
    return saving->has_temporary ||
           gpt_fail_errno(saving->problem, saving->temporary, "cannot be made");
}

// Replaces the file `latest`.
static bool write_latest(const struct saving *saving)
{
    char path[GPT_PATH_MAX], next[GPT_PATH_MAX], line[GPT_PATH_MAX];
    const char *name = strrchr(saving->step, '/') + 1;
    int length = snprintf(line, sizeof line, "%s\n", name);
    if (!gpt_path_join(path, saving->folder, "latest", saving->problem) ||
        !gpt_path_join(next, saving->folder, "latest-next", saving->problem) ||
        !gpt_write_file(next, line, (size_t)length, saving->problem)) {
        return false;
    }
    gpt_storage_change();
    return (rename(next, path) == 0 ||
            gpt_fail_errno(saving->problem, path, "cannot be replaced")) &&
           gpt_sync_folder(saving->folder, saving->problem);
}

// Rank 0: all pieces are on the disk; the checkpoint gets its manifest and its name.
static bool finish(struct saving *saving, const struct gpt_manifest *manifest)
{
    if (!gpt_manifest_write(saving->temporary, manifest, saving->problem) ||
        !gpt_sync_folder(saving->temporary, saving->problem)) {
        return false;
    }
    saving->has_temporary = false; // from here on it may be the checkpoint, or the older one
    return gpt_publish_folder(saving->temporary, saving->step, saving->folder, saving->problem) &&
           write_latest(saving);
}

static bool name_folders(struct saving *saving, uint64_t step)
{
    char name[48];
    (void)snprintf(name, sizeof name, "%s%06" PRIu64, temporary_prefix, step);
    if (!gpt_path_join(saving->temporary, saving->folder, name, saving->problem)) {
        return false;
    }
    (void)snprintf(name, sizeof name, "%s%06" PRIu64, step_prefix, step);
    return gpt_path_join(saving->step, saving->folder, name, saving->problem);
}

// All ranks write their pieces; rank 0 learns what is in which file.
static bool write_pieces(struct gpt_world *world, const struct saving *saving,
                         const struct gpt_piece *pieces, int count, struct gpt_file_mark *files)
{
    char path[GPT_PATH_MAX];
    struct gpt_file_mark mine;
    memset(&mine, 0, sizeof mine);
    if (count > 0 && gpt_manifest_file(saving->temporary, world->rank, path, saving->problem)) {
        gpt_piece_file_write(path, pieces, count, &mine, saving->problem);
    }
    return gpt_world_agree(world, saving->problem) &&
           gpt_world_gather(world, &mine, sizeof mine, files, saving->problem);
}

static bool save(struct gpt_world *world, struct saving *saving,
                 const struct gpt_manifest *manifest, const struct gpt_piece *pieces, int count)
{
    struct gpt_manifest complete = *manifest;
    complete.file_count = world->size;
    complete.files = calloc((size_t)world->size, sizeof *complete.files);
    if (complete.files == NULL) {
        gpt_fail(saving->problem, GPT_FAILED, "no memory for a manifest");
    }
    if (name_folders(saving, manifest->step) && world->rank == 0 && saving->problem->status == 0) {
        begin(saving);
    }
    bool right = gpt_world_agree(world, saving->problem) &&
                 write_pieces(world, saving, pieces, count, complete.files);
    if (right && world->rank == 0) {
        finish(saving, &complete);
    }
    right = right && gpt_world_agree(world, saving->problem);
    free(complete.files);
    return right;
}

bool gpt_checkpoint_save(struct gpt_world *world, const char *folder,
                         const struct gpt_manifest *manifest, const struct gpt_piece *pieces,
                         int count, struct gpt_problem *problem)
{
    struct saving saving = {.folder = folder, .lock = -1, .problem = problem};
    bool right = save(world, &saving, manifest, pieces, count);
    if (!right && saving.has_temporary) { // a full disk gets its room back
        struct gpt_problem ignored = {0};
        (void)gpt_remove_folder(saving.temporary, &ignored);
    }
    if (saving.lock >= 0) {
        close(saving.lock);
    }
    return right;
}

// Whether a folder has a manifest.
static bool has_manifest(const char *folder)
{
    char path[GPT_PATH_MAX];
    struct gpt_problem problem = {0};
    return gpt_path_join(path, folder, "manifest", &problem) && access(path, F_OK) == 0;
}

// The name that `latest` has; false where there is no such file, or something else is wrong.
static bool read_latest(const char *path, char *name, size_t room, struct gpt_problem *problem)
{
    char file[GPT_PATH_MAX];
    char *text = NULL;
    size_t bytes = 0;
    if (!gpt_path_join(file, path, "latest", problem) ||
        (access(file, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) ||
        !gpt_read_file(file, &text, &bytes, problem)) {
        return false;
    }
    size_t length = strcspn(text, "\n");
    bool right = strncmp(text, step_prefix, sizeof step_prefix - 1) == 0 && length < room &&
                 length + 1 == bytes && memchr(text, '/', length) == NULL;
    if (right) {
        text[length] = 0;
        (void)stpcpy(name, text);
    }
    free(text);
    return right || gpt_fail(problem, GPT_FAILED, "%s: is damaged: it names no step", file);
}

// The highest step in the folder: "" where there is none.
static bool find_highest(const char *path, char *name, size_t room, struct gpt_problem *problem)
{
    uint64_t highest = 0;
    DIR *entries = opendir(path);
    if (entries == NULL) {
        return gpt_fail_given(problem, path, "cannot be opened");
    }
    name[0] = 0;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): this folder is read by this thread alone
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        const char *at = entry->d_name;
        uint64_t step;
        if (gpt_read_text(&at, step_prefix) && gpt_read_number(&at, UINT64_MAX, &step) &&
            *at == 0 && strlen(entry->d_name) < room && (name[0] == 0 || step > highest)) {
            highest = step;
            (void)stpcpy(name, entry->d_name);
        }
    }
    closedir(entries);
    return name[0] != 0 || gpt_fail(problem, GPT_USAGE, "%s: there is no checkpoint in it", path);
}

bool gpt_checkpoint_find(const char *path, char *step, struct gpt_problem *problem)
{
    char name[64];
    if (has_manifest(path)) {
        if (strlen(path) >= GPT_PATH_MAX) {
            return gpt_fail(problem, GPT_USAGE, "a path is too long: %s", path);
        }
        (void)stpcpy(step, path);
        return true;
    }
    if (!read_latest(path, name, sizeof name, problem) &&
        (problem->status != 0 || !find_highest(path, name, sizeof name, problem))) {
        return false;
    }
    return gpt_path_join(step, path, name, problem);
}

// Whether a step's folder is in the folder, by whatever path.
static bool is_step_of(const char *step, const char *folder)
{
    struct stat above, status;
    char path[GPT_PATH_MAX];
    struct gpt_problem ignored = {0};
    return gpt_path_join(path, step, "..", &ignored) && stat(path, &above) == 0 &&
           stat(folder, &status) == 0 && above.st_dev == status.st_dev &&
           above.st_ino == status.st_ino;
}

// A problem where a folder has checkpoints: another training's are not to be replaced.
static bool is_free(const char *folder, struct gpt_problem *problem)
{
    char path[GPT_PATH_MAX], name[64];
    struct gpt_problem nothing = {0};
    bool has_steps = find_highest(folder, name, sizeof name, &nothing);
    if (!gpt_path_join(path, folder, "latest", problem)) {
        return false;
    }
    return (!has_steps && access(path, F_OK) != 0) ||
           gpt_fail(problem, GPT_USAGE,
                    "--checkpoints: %s has checkpoints already (%s): --resume %s goes on with that "
                    "training, another training needs another folder",
                    folder, has_steps ? name : "latest", folder);
}

bool gpt_checkpoint_prepare(const char *folder, const char *step, struct gpt_problem *problem)
{
    struct stat status;
    if (!make_folders(folder, problem)) {
        return false;
    }
    if (stat(folder, &status) == 0 && !S_ISDIR(status.st_mode)) {
        return gpt_fail(problem, GPT_USAGE, "%s: is not a folder", folder);
    }
    if (access(folder, W_OK | X_OK) != 0) {
        return gpt_fail_errno(problem, folder, "cannot be written to");
    }
    return (step != NULL && is_step_of(step, folder)) || is_free(folder, problem);
}

static bool load_files(const char *step, const struct gpt_manifest *manifest,
                       const struct gpt_piece *pieces, size_t *filled, int count,
                       struct gpt_problem *problem)
{
    bool right = true;
    for (int rank = 0; right && rank < manifest->file_count; rank++) {
        char path[GPT_PATH_MAX];
        if (manifest->files[rank].bytes > 0) {
            right =
                gpt_manifest_file(step, rank, path, problem) &&
                gpt_piece_file_read(path, &manifest->files[rank], pieces, filled, count, problem);
        }
    }
    return right;
}

bool gpt_checkpoint_load(const char *step, const struct gpt_manifest *manifest,
                         const struct gpt_piece *pieces, int count, struct gpt_problem *problem)
{
    size_t *filled = calloc((size_t)count + 1, sizeof *filled);
    if (filled == NULL) {
        return gpt_fail(problem, GPT_FAILED, "no memory to load %d pieces", count);
    }
    bool right = load_files(step, manifest, pieces, filled, count, problem);
    for (int i = 0; right && i < count; i++) {
        if (filled[i] != pieces[i].count) {
            right = gpt_fail(
                problem, GPT_FAILED, "%s: has %zu of the %zu elements that are needed of %s of %s",
                step, filled[i], pieces[i].count, gpt_kind_name(pieces[i].kind), pieces[i].name);
        }
    }
    free(filled);
    return right;
}

// SPDX-License-Identifier: Apache-2.0
#include "storage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void (*gpt_storage_hook)(int change);

void gpt_storage_change(void)
{
    static int changes;
    if (gpt_storage_hook != NULL) {
        changes++;
        gpt_storage_hook(changes);
    }
}

bool gpt_fail_errno(struct gpt_problem *problem, const char *path, const char *what)
{
    return gpt_fail(problem, GPT_FAILED, "%s: %s: %s", path, what, strerrordesc_np(errno));
}

bool gpt_fail_given(struct gpt_problem *problem, const char *path, const char *what)
{
    bool wrong = errno == ENOENT || errno == ENOTDIR || errno == EISDIR;
    return gpt_fail(problem, wrong ? GPT_USAGE : GPT_FAILED, "%s: %s: %s", path, what,
                    strerrordesc_np(errno));
}

bool gpt_path_join(char *path, const char *folder, const char *name, struct gpt_problem *problem)
{
    int length = snprintf(path, GPT_PATH_MAX, "%s/%s", folder, name);
    if (length >= GPT_PATH_MAX) {
        return gpt_fail(problem, GPT_USAGE, "a path has %d characters, at most %d are possible: %s",
                        length, GPT_PATH_MAX - 1, folder);
    }
    return true;
}

bool gpt_path_beside_program(char *path, const char *name, struct gpt_problem *problem)
{
    char program[GPT_PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length <= 0) {
        return gpt_fail_errno(problem, "/proc/self/exe", "cannot be read");
    }
    if ((size_t)length == sizeof program - 1) {
        return gpt_fail(problem, GPT_FAILED, "the program's path has more than %d characters",
                        GPT_PATH_MAX - 2);
    }
    program[length] = 0;
    *strrchr(program, '/') = 0;
    return gpt_path_join(path, program, name, problem);
}

bool gpt_write_at(int fd, const void *data, size_t bytes, size_t offset, const char *path,
                  struct gpt_problem *problem)
{
    const char *next = data;
    gpt_storage_change();
    while (bytes > 0) {
        ssize_t written = pwrite(fd, next, bytes, (off_t)offset);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return gpt_fail_errno(problem, path, "cannot be written");
        }
        next += written;
        offset += (size_t)written;
        bytes -= (size_t)written;
    }
    return true;
}

bool gpt_write_file(const char *path, const void *data, size_t bytes, struct gpt_problem *problem)
{
    gpt_storage_change();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return gpt_fail_errno(problem, path, "cannot be made");
    }
    bool right = gpt_write_at(fd, data, bytes, 0, path, problem);
    if (right) {
        gpt_storage_change();
        right = fsync(fd) == 0 || gpt_fail_errno(problem, path, "cannot be forced to the disk");
    }
    if (close(fd) != 0 && right) {
        right = gpt_fail_errno(problem, path, "cannot be written");
    }
    return right;
}

bool gpt_close_file(FILE *file, const char *path, struct gpt_problem *problem)
{
    bool right = ferror(file) == 0;
    errno = EIO; // of an earlier write, unless closing says more
    right = fclose(file) == 0 && right;
    return right || gpt_fail_errno(problem, path, "cannot be written");
}

static bool read_all(int fd, char *text, size_t bytes, const char *path,
                     struct gpt_problem *problem)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = pread(fd, text + done, bytes - done, (off_t)done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return gpt_fail_errno(problem, path, "cannot be read");
        }
        if (n == 0) {
            return gpt_fail(problem, GPT_FAILED, "%s: ends after %zu of %zu bytes", path, done,
                            bytes);
        }
        done += (size_t)n;
    }
    return true;
}

bool gpt_read_file(const char *path, char **text, size_t *bytes, struct gpt_problem *problem)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); // a pipe must not be waited for
    if (fd < 0) {
        return gpt_fail_errno(problem, path, "cannot be opened");
    }
    *text = NULL;
    bool right = fstat(fd, &status) == 0 || gpt_fail_errno(problem, path, "cannot be read");
    if (right && !S_ISREG(status.st_mode)) {
        right = gpt_fail(problem, GPT_FAILED, "%s: is not a file", path);
    }
    if (right) {
        *bytes = (size_t)status.st_size;
        *text = malloc(*bytes + 1);
        if (*text == NULL) {
            close(fd);
            return gpt_fail(problem, GPT_FAILED, "%s: no memory for %zu bytes", path, *bytes);
        }
    }
    if (right && !read_all(fd, *text, *bytes, path, problem)) {
        free(*text);
        *text = NULL;
        right = false;
    }
    if (right) {
        (*text)[*bytes] = 0;
    }
    close(fd);
    return right;
}

bool gpt_sync_folder(const char *path, struct gpt_problem *problem)
{
    gpt_storage_change();
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return gpt_fail_errno(problem, path, "cannot be opened");
    }
    // Some file systems have no fsync for folders: they say EINVAL.
    bool right = fsync(fd) == 0 || errno == EINVAL ||
                 gpt_fail_errno(problem, path, "cannot be forced to the disk");
    close(fd);
    return right;
}

bool gpt_remove_folder(const char *path, struct gpt_problem *problem)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return errno == ENOENT || gpt_fail_errno(problem, path, "cannot be opened");
    }
    bool right = true;
    // NOLINTNEXTLINE(concurrency-mt-unsafe): this folder is read by this thread alone
    for (struct dirent *entry; right && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            gpt_storage_change();
            right = unlinkat(dirfd(folder), entry->d_name, 0) == 0 || errno == ENOENT ||
                    gpt_fail_errno(problem, path, "cannot be emptied");
        }
    }
    closedir(folder);
    if (right) {
        gpt_storage_change();
        right = rmdir(path) == 0 || gpt_fail_errno(problem, path, "cannot be removed");
    }
    return right;
}

bool gpt_publish_folder(const char *temporary, const char *path, const char *above,
                        struct gpt_problem *problem)
{
    struct stat status;
    bool replaces = stat(path, &status) == 0;
    gpt_storage_change();
    int error = replaces ? renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE)
                         : rename(temporary, path);
    if (error != 0) {
        return gpt_fail_errno(problem, path, "cannot be given its name");
    }
    return gpt_sync_folder(above, problem) && (!replaces || gpt_remove_folder(temporary, problem));
}

void gpt_checksum(const void *data, size_t bytes, char *text)
{
    unsigned char hash[(GPT_CHECKSUM_TEXT - 1) / 2];
    bool fast = sodium_init() >= 0; // for this processor; else what works on all
    (void)fast;
    (void)crypto_generichash(hash, sizeof hash, data, bytes, NULL, 0);
    sodium_bin2hex(text, GPT_CHECKSUM_TEXT, hash, sizeof hash);
}

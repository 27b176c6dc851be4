// SPDX-License-Identifier: Apache-2.0
#include "piece_file.h"

#include "words.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char first_line[] = "tutti-gpt-pieces 1 little-endian\n";
static const char last_line[] = "end\n";

enum { LINE_MAX_BYTES = 512, NAME_MAX_BYTES = 128, ALIGNMENT = 64 };

// One piece of a file, as its header says.
struct stored {
    struct gpt_piece piece;
    char name[NAME_MAX_BYTES];
    size_t offset; // of its bytes in the file
    char checksum[GPT_CHECKSUM_TEXT];
};

static size_t piece_bytes(const struct gpt_piece *piece)
{
    return piece->count * gpt_data_type_bytes(piece->type);
}

static size_t round_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// Numbers have 20 digits, so that the length of a line does not depend on them.
static int write_line(char *line, const struct gpt_piece *p, size_t offset, const char *checksum)
{
    return snprintf(line, LINE_MAX_BYTES,
                    "piece %s %s %s %020zu %020zu %020zu %020zu %020zu %020zu %020zu %020zu "
                    "%020zu %s\n",
                    p->name, gpt_kind_name(p->kind), gpt_data_type_name(p->type), p->rows,
                    p->columns, p->first_row, p->row_count, p->first_column, p->column_count,
                    p->first, p->count, offset, checksum);
}

static size_t header_bytes(const struct gpt_piece *pieces, int count)
{
    char line[LINE_MAX_BYTES], checksum[GPT_CHECKSUM_TEXT];
    size_t bytes = sizeof first_line - 1 + sizeof last_line - 1;
    gpt_checksum("", 0, checksum);
    for (int i = 0; i < count; i++) {
        bytes += (size_t)write_line(line, &pieces[i], 0, checksum);
    }
    return bytes;
}

// Writes the pieces' bytes, and their lines to `header`. Returns the file's length; 0: a problem.
static size_t write_pieces(int fd, const char *path, const struct gpt_piece *pieces, int count,
                           struct gpt_file_mark *mark, struct gpt_problem *problem)
{
    size_t offset = round_up(mark->header), end = mark->header;
    char *header = malloc(mark->header + 1), *next = header;
    if (header == NULL) {
        gpt_fail(problem, GPT_FAILED, "%s: no memory for its header", path);
        return 0;
    }
    bool right = true;
    next = stpcpy(next, first_line);
    for (int i = 0; right && i < count; i++) {
        char checksum[GPT_CHECKSUM_TEXT], line[LINE_MAX_BYTES];
        size_t bytes = piece_bytes(&pieces[i]);
        gpt_checksum(pieces[i].data, bytes, checksum);
        (void)write_line(line, &pieces[i], offset, checksum);
        next = stpcpy(next, line);
        right = gpt_write_at(fd, pieces[i].data, bytes, offset, path, problem);
        end = offset + bytes;
        offset = round_up(end);
    }
    (void)stpcpy(next, last_line);
    gpt_checksum(header, mark->header, mark->checksum);
    right = right && gpt_write_at(fd, header, mark->header, 0, path, problem);
    free(header);
    return right ? end : 0;
}

bool gpt_piece_file_write(const char *path, const struct gpt_piece *pieces, int count,
                          struct gpt_file_mark *mark, struct gpt_problem *problem)
{
    mark->header = header_bytes(pieces, count);
    gpt_storage_change();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return gpt_fail_errno(problem, path, "cannot be made");
    }
    mark->bytes = write_pieces(fd, path, pieces, count, mark, problem);
    bool right = mark->bytes > 0;
    gpt_storage_change();
    if (right && fsync(fd) != 0) {
        right = gpt_fail_errno(problem, path, "cannot be forced to the disk");
    }
    if (close(fd) != 0 && right) {
        right = gpt_fail_errno(problem, path, "cannot be written");
    }
    return right;
}

// A word's number among the names that `name_of` gives for 0 to count - 1; -1: none.
static int find_name(const char *word, const char *(*name_of)(int), int count)
{
    for (int i = 0; i < count; i++) {
        const char *name = name_of(i);
        if (name != NULL && strcmp(name, word) == 0) {
            return i;
        }
    }
    return -1;
}

static const char *kind_name(int kind)
{
    return gpt_kind_name((enum gpt_kind)kind);
}

static const char *type_name(int type)
{
    return gpt_data_type_name((ncclDataType_t)type);
}

static bool read_size(const char **at, size_t *size)
{
    uint64_t number;
    bool right = gpt_read_number(at, SIZE_MAX, &number);
    *size = right ? number : 0;
    return right;
}

static bool read_line(const char *line, struct stored *s)
{
    char kind[16], type[16];
    struct gpt_piece *p = &s->piece;
    size_t *const numbers[] = {&p->rows,      &p->columns,      &p->first_row,
                               &p->row_count, &p->first_column, &p->column_count,
                               &p->first,     &p->count,        &s->offset};
    bool right = gpt_read_text(&line, "piece ") && gpt_read_word(&line, s->name, sizeof s->name) &&
                 gpt_read_text(&line, " ") && gpt_read_word(&line, kind, sizeof kind) &&
                 gpt_read_text(&line, " ") && gpt_read_word(&line, type, sizeof type);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        right = right && gpt_read_text(&line, " ") && read_size(&line, numbers[i]);
    }
    if (!right || !gpt_read_text(&line, " ") ||
        !gpt_read_word(&line, s->checksum, sizeof s->checksum) || *line != '\n') {
        return false;
    }
    int k = find_name(kind, kind_name, GPT_KINDS), t = find_name(type, type_name, ncclNumTypes);
    if (k < 0 || t < 0) {
        return false;
    }
    p->name = s->name;
    p->kind = (enum gpt_kind)k;
    p->type = (ncclDataType_t)t;
    return gpt_piece_is_valid(p);
}

// An open file, and what is asked of it.
struct reading {
    int fd;
    const char *path;
    const struct gpt_file_mark *mark;
    const struct gpt_piece *wanted; // [count]
    size_t *filled;                 // [count]
    int count;
    struct gpt_problem *problem;
};

// To be freed, with a 0 at the end; NULL: a problem.
static char *read_bytes(const struct reading *r, size_t offset, size_t bytes)
{
    char *text = malloc(bytes + 1);
    if (text == NULL) {
        gpt_fail(r->problem, GPT_FAILED, "%s: no memory for %zu bytes", r->path, bytes);
        return NULL;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pread(r->fd, text + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            gpt_fail(r->problem, GPT_FAILED, "%s: cannot be read at byte %zu: %s", r->path,
                     offset + done, n < 0 ? strerrordesc_np(errno) : "it ends there");
            free(text);
            return NULL;
        }
        done += (size_t)n;
    }
    text[bytes] = 0;
    return text;
}

// Copies one stored piece to all that want of it.
static bool read_piece(const struct reading *r, struct stored *s)
{
    char *bytes = NULL;
    size_t length = piece_bytes(&s->piece);
    char checksum[GPT_CHECKSUM_TEXT];
    for (int i = 0; i < r->count; i++) {
        const struct gpt_piece *wanted = &r->wanted[i];
        s->piece.data = NULL;
        if (!gpt_piece_same_matrix(&s->piece, wanted)) {
            continue;
        }
        if (s->piece.rows != wanted->rows || s->piece.columns != wanted->columns ||
            s->piece.type != wanted->type) {
            free(bytes);
            return gpt_fail(r->problem, GPT_FAILED,
                            "%s: %s of %s is %zu x %zu %s, should be "
                            "%zu x %zu %s",
                            r->path, gpt_kind_name(wanted->kind), wanted->name, s->piece.rows,
                            s->piece.columns, gpt_data_type_name(s->piece.type), wanted->rows,
                            wanted->columns, gpt_data_type_name(wanted->type));
        }
        if (gpt_piece_copy(&s->piece, wanted) == 0) {
            continue;
        }
        if (bytes == NULL) {
            bytes = read_bytes(r, s->offset, length);
            if (bytes == NULL) {
                return false;
            }
            gpt_checksum(bytes, length, checksum);
            if (strcmp(checksum, s->checksum) != 0) {
                free(bytes);
                return gpt_fail(r->problem, GPT_FAILED,
                                "%s: is damaged: %s of %s does not fit its checksum", r->path,
                                gpt_kind_name(s->piece.kind), s->name);
            }
        }
        s->piece.data = bytes;
        r->filled[i] += gpt_piece_copy(&s->piece, wanted);
    }
    free(bytes);
    return true;
}

static bool read_pieces(const struct reading *r, const char *header)
{
    size_t length = sizeof first_line - 1;
    bool right = strncmp(header, first_line, length) == 0;
    const char *line = header + length;
    while (right && strcmp(line, last_line) != 0) {
        struct stored s;
        memset(&s, 0, sizeof s);
        right = read_line(line, &s) && s.offset <= r->mark->bytes &&
                piece_bytes(&s.piece) <= r->mark->bytes - s.offset;
        if (right && !read_piece(r, &s)) {
            return false;
        }
        const char *end = strchr(line, '\n');
        right = right && end != NULL;
        line = right ? end + 1 : line;
    }
    return right ||
           gpt_fail(r->problem, GPT_FAILED,
                    "%s: its header is none of this program's, or of a later version", r->path);
}

static bool check_and_read(const struct reading *r)
{
    struct stat status;
    char checksum[GPT_CHECKSUM_TEXT];
    if (fstat(r->fd, &status) != 0) {
        return gpt_fail_errno(r->problem, r->path, "cannot be read");
    }
    if ((uint64_t)status.st_size != r->mark->bytes) {
        return gpt_fail(r->problem, GPT_FAILED, "%s: has %llu bytes, should have %llu", r->path,
                        (unsigned long long)status.st_size, (unsigned long long)r->mark->bytes);
    }
    char *header = read_bytes(r, 0, r->mark->header);
    if (header == NULL) {
        return false;
    }
    gpt_checksum(header, r->mark->header, checksum);
    bool right = strcmp(checksum, r->mark->checksum) == 0
                     ? read_pieces(r, header)
                     : gpt_fail(r->problem, GPT_FAILED,
                                "%s: is damaged: its header does not fit its checksum", r->path);
    free(header);
    return right;
}

// NOLINTBEGIN(readability-non-const-parameter): filled is written by way of `reading`
bool gpt_piece_file_read(const char *path, const struct gpt_file_mark *mark,
                         const struct gpt_piece *wanted, size_t *filled, int count,
                         struct gpt_problem *problem)
{
    struct reading reading = {-1, path, mark, wanted, filled, count, problem};
    if (mark->header > mark->bytes) {
        return gpt_fail(problem, GPT_FAILED, "%s: its header is longer than the file", path);
    }
    reading.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (reading.fd < 0) {
        return gpt_fail_errno(problem, path, "cannot be opened");
    }
    bool right = check_and_read(&reading);
    close(reading.fd);
    return right;
}
// NOLINTEND(readability-non-const-parameter)

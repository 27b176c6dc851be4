// See log_settings.h. SPDX-License-Identifier: Apache-2.0
#include "base/log_settings.h"

#include "base/log.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct word {
    const char *name;
    uint64_t bits;
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct word levels[] = {
    {"NONE", 0},           {"VERSION", TT_LOG_VERSION}, {"WARN", TT_LOG_WARN},
    {"INFO", TT_LOG_INFO}, {"ABORT", TT_LOG_ABORT},     {"TRACE", TT_LOG_TRACE},
};

static const struct word stamped[] = {
    {"VERSION", 1 << TT_LOG_VERSION}, {"WARN", 1 << TT_LOG_WARN},   {"INFO", 1 << TT_LOG_INFO},
    {"ABORT", 1 << TT_LOG_ABORT},     {"TRACE", 1 << TT_LOG_TRACE}, {"ALL", UINT64_MAX},
};

// NCCL's bits; no message here is of P2P, SHM, GRAPH, TUNING, CALL, PROXY, PROFILE, RAS or
// ALLOC_HOST.
static const struct word subsystems[] = {
    {"INIT", TT_LOG_INIT},
    {"COLL", TT_LOG_COLL},
    {"P2P", 0x4},
    {"SHM", 0x8},
    {"NET", TT_LOG_NET},
    {"GRAPH", 0x20},
    {"TUNING", 0x40},
    {"ENV", TT_LOG_ENV},
    {"ALLOC", TT_LOG_ALLOC},
    {"CALL", 0x200},
    {"PROXY", 0x400},
    {"NVLS", TT_LOG_NVLS},
    {"BOOTSTRAP", TT_LOG_BOOTSTRAP},
    {"REG", TT_LOG_REG},
    {"PROFILE", TT_LOG_PROFILE},
    {"RAS", 0x8000},
    {"DESTROY", TT_LOG_DESTROY},
    {"ALLOC_HOST", 0x20000},
    {"ALL", UINT64_MAX},
};

static const struct word *find(const struct word *words, size_t count, const char *text,
                               size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(words[i].name) == length && strncasecmp(words[i].name, text, length) == 0) {
            return &words[i];
        }
    }
    return NULL;
}

// The bits of the words in a list; after "^", of all others. *unknown: the first word that is none.
static uint64_t read_list(const char *text, const struct word *words, size_t count,
                          struct tt_log_unknown *unknown)
{
    bool is_inverted = *text == '^';
    uint64_t bits = 0;
    const char *at = text + is_inverted;
    *unknown = (struct tt_log_unknown){"", 0};
    while (true) {
        size_t length = strcspn(at, ",");
        const struct word *word = find(words, count, at, length);
        bits |= word != NULL ? word->bits : 0;
        if (word == NULL && length > 0 && unknown->length == 0) {
            *unknown = (struct tt_log_unknown){at, length > 80 ? 80 : (int)length};
        }
        if (at[length] == 0) {
            return is_inverted ? ~bits : bits;
        }
        at += length + 1;
    }
}

int tt_log_level_of(const char *text, struct tt_log_unknown *unknown)
{
    size_t length = strlen(text);
    const struct word *word = find(levels, COUNT(levels), text, length);
    *unknown = (struct tt_log_unknown){text, word != NULL ? 0 : length > 80 ? 80 : (int)length};
    return word != NULL ? (int)word->bits : 0;
}

uint64_t tt_log_subsystems_of(const char *text, struct tt_log_unknown *unknown)
{
    return read_list(*text != 0 ? text : "INIT,BOOTSTRAP,ENV", subsystems, COUNT(subsystems),
                     unknown);
}

uint64_t tt_log_stamped_of(const char *text, struct tt_log_unknown *unknown)
{
    return read_list(text, stamped, COUNT(stamped), unknown);
}

// ---- Time ---------------------------------------------------------------------------------------

enum { FORMAT_BYTES = 256 };

// `format` for strftime: %Nf replaced by the first N digits of the nanoseconds, underscores by
// spaces. False where it does not fit.
static bool expand(const char *format, long ns, char out[FORMAT_BYTES])
{
    size_t used = 0;
    char digits[16];
    (void)snprintf(digits, sizeof digits, "%09ld", ns);
    for (const char *c = format; *c != 0;) {
        bool is_fraction = c[0] == '%' && c[1] >= '1' && c[1] <= '9' && c[2] == 'f';
        size_t length = is_fraction ? (size_t)(c[1] - '0') : c[0] == '%' && c[1] != 0 ? 2 : 1;
        if (used + length >= FORMAT_BYTES) {
            return false;
        }
        memcpy(out + used, is_fraction ? digits : c, length);
        for (size_t i = used; i < used + length; i++) {
            out[i] = out[i] == '_' ? ' ' : out[i];
        }
        used += length;
        c += is_fraction ? 3 : length;
    }
    out[used] = 0;
    return true;
}

void tt_log_stamp(const char *format, const struct timespec *now, char *out, size_t bytes)
{
    char expanded[FORMAT_BYTES];
    struct tm local;
    out[0] = 0;
    if (localtime_r(&now->tv_sec, &local) == NULL || !expand(format, now->tv_nsec, expanded) ||
        strftime(out, bytes, expanded, &local) == 0) {
        out[0] = 0; // strftime says nothing of what it left
    }
}

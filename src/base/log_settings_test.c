// What the settings of messages mean: levels, lists, formats of the time.
// SPDX-License-Identifier: Apache-2.0
#include "base/log_settings.h"

#include "base/log.h"
#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct tt_log_unknown unknown;

// The word that was refused; "" for none.
static const char *refused(void)
{
    static char text[128];
    snprintf(text, sizeof text, "%.*s", unknown.length, unknown.word);
    return text;
}

static void levels(void)
{
    static const struct {
        const char *text;
        int level;
        const char *refused;
    } rows[] = {
        {"", 0, ""},
        {"NONE", 0, ""},
        {"VERSION", TT_LOG_VERSION, ""},
        {"warn", TT_LOG_WARN, ""},
        {"Info", TT_LOG_INFO, ""},
        {"ABORT", 4, ""},
        {"TRACE", TT_LOG_TRACE, ""},
        {"WARNING", 0, "WARNING"},
        {"WAR", 0, "WAR"},
        {"INFO ", 0, "INFO "},
        {"2", 0, "2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        EXPECT_EQ(tt_log_level_of(rows[i].text, &unknown), rows[i].level);
        EXPECT_STR(refused(), rows[i].refused);
    }
}

static void subsystems(void)
{
    static const struct {
        const char *text;
        uint64_t bits;
        const char *refused;
    } rows[] = {
        {"", 0x1081, ""},
        {"INIT", 0x1, ""},
        {"init,Coll", 0x3, ""},
        {"ALL", UINT64_MAX, ""},
        {"^ALL", 0, ""},
        {"^INIT,COLL", ~0x3ull, ""},
        {"INIT,,COLL", 0x3, ""},
        {"INIT,", 0x1, ""},
        {"P2P,SHM,NET,GRAPH,TUNING,ENV,ALLOC", 0x1fc, ""},
        {"CALL,PROXY,NVLS,BOOTSTRAP,REG,PROFILE,RAS,DESTROY,ALLOC_HOST", 0x3fe00, ""},
        {"INIT,nothing,COLL,more", 0x3, "nothing"},
        {"^nothing", UINT64_MAX, "nothing"},
        {"INIT, COLL", 0x1, " COLL"},
        {"ALLOC_HOS", 0, "ALLOC_HOS"},
        {"INIT,^COLL", 0x1, "^COLL"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!EXPECT(tt_log_subsystems_of(rows[i].text, &unknown) == rows[i].bits)) {
            printf("for %s\n", rows[i].text);
        }
        EXPECT_STR(refused(), rows[i].refused);
    }
}

static void stamped(void)
{
    EXPECT_EQ(tt_log_stamped_of("WARN", &unknown), 1 << TT_LOG_WARN);
    EXPECT_EQ(tt_log_stamped_of("", &unknown), 0);
    EXPECT_EQ(tt_log_stamped_of("warn,INFO,TRACE", &unknown),
              1 << TT_LOG_WARN | 1 << TT_LOG_INFO | 1 << TT_LOG_TRACE);
    EXPECT(tt_log_stamped_of("^TRACE", &unknown) == ~(1ull << TT_LOG_TRACE));
    EXPECT(tt_log_stamped_of("ALL", &unknown) == UINT64_MAX);
    EXPECT_STR(refused(), "");
    EXPECT_EQ(tt_log_stamped_of("LOUD", &unknown), 0);
    EXPECT_STR(refused(), "LOUD");
}

static const char *stamp(const char *format)
{
    static char text[64];
    struct timespec now = {.tv_sec = 86400 + 3600 + 62, .tv_nsec = 4005006};
    tt_log_stamp(format, &now, text, sizeof text);
    return text;
}

static void time_formats(void)
{
    EXPECT_STR(stamp("[%F %T] "), "[1970-01-02 01:01:02] ");
    EXPECT_STR(stamp("[%F_%T.%9f]_"), "[1970-01-02 01:01:02.004005006] ");
    EXPECT_STR(stamp("%1f %3f %4f"), "0 004 0040");
    EXPECT_STR(stamp("%%3f %Y"), "%3f 1970");
    EXPECT_STR(stamp("%0f"), stamp("%0f"));
    EXPECT_STR(stamp(""), "");
    EXPECT_STR(stamp("plain"), "plain");
    EXPECT(strlen(stamp("%")) <= 1);
    char format[400];
    memset(format, 'a', sizeof format - 1);
    format[sizeof format - 1] = 0;
    EXPECT_STR(stamp(format), ""); // does not fit
    format[70] = 0;
    EXPECT_STR(stamp(format), "");
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    RUN(levels);
    RUN(subsystems);
    RUN(stamped);
    RUN(time_formats);
    return expect_result();
}

// A run of a pipeline as an SVG: one panel with the ideal, one with what was measured, in one
// scale. It needs nothing from elsewhere and follows the reader's light or dark scheme. See
// tuttiPipelineDraw. SPDX-License-Identifier: Apache-2.0
#include "fail.h"
#include "schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    LEFT = 96, // of the stages' rows
    RIGHT = 44,
    TOP = 96,  // of the first panel
    HEAD = 34, // of a panel's name
    ROW = 30,  // of a stage
    BOX = 24,  // of an action
    AXIS = 48, // below a panel
    LEAST_WIDTH = 820,
    MOST_WIDTH = 2400,
    ACTION = 24, // wanted width of one
    LETTER = 7,  // width of a digit, about
};

struct picture {
    FILE *file;
    int stages, microBatches;
    int width;   // of the rows
    double span; // seconds that the width stands for
    double unit; // seconds of the axis's unit
    const char *unit_name;
};

struct panel {
    const char *name;
    const struct tuttiPipelineTime *times;
    double bubble; // share
    double top;    // of its rows
};

static double x_of(const struct picture *picture, double time)
{
    return LEFT + (picture->span > 0 ? time / picture->span * picture->width : 0);
}

// ---- Head ---------------------------------------------------------------------------------------

static void put_style(FILE *file)
{
    (void)fputs("<style>\n"
                ".page { fill: #ffffff; } .field { fill: #f6f8fa; stroke: #d0d7de; }\n"
                ".grid { stroke: #d0d7de; } text { fill: #1f2328; }\n"
                ".title { font-size: 20px; font-weight: 600; }\n"
                ".name { font-size: 14px; font-weight: 600; }\n"
                ".tick, .note { font-size: 12px; fill: #59636e; } .key { font-size: 13px; }\n"
                ".number { font-size: 11px; text-anchor: middle; fill: #ffffff; }\n"
                ".forward { fill: #0969da; } .backward { fill: #1a7f37; }\n"
                "@media (prefers-color-scheme: dark) {\n"
                ".page { fill: #0d1117; } .field { fill: #151b23; stroke: #3d444d; }\n"
                ".grid { stroke: #3d444d; } text { fill: #f0f6fc; }\n"
                ".tick, .note { fill: #9198a1; } .number { fill: #0d1117; }\n"
                ".forward { fill: #58a6ff; } .backward { fill: #56d364; }\n"
                "}\n</style>\n",
                file);
}

static void put_head(const struct picture *picture, enum tuttiPipelineSchedule schedule,
                     const struct panel *panel, int panels, int height)
{
    FILE *file = picture->file;
    int width = LEFT + picture->width + RIGHT;
    (void)fprintf(file,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\">\n",
                  width, height, width, height);
    put_style(file);
    (void)fprintf(file,
                  "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n"
                  "<text class=\"title\" x=\"%d\" y=\"38\">%s, %d stage%s, %d micro-batch%s: "
                  "bubble %.1f %%",
                  width, height, LEFT, schedule == tuttiPipelineGPipe ? "GPipe" : "1F1B",
                  picture->stages, picture->stages == 1 ? "" : "s", picture->microBatches,
                  picture->microBatches == 1 ? "" : "es", 100 * panel[panels - 1].bubble);
    if (panels > 1) {
        (void)fprintf(file, " (ideal %.1f %%)", 100 * panel[0].bubble);
    }
    static const char *const keys[][2] = {{"forward", "forward, by micro-batch"},
                                          {"backward", "backward, by micro-batch"},
                                          {"field", "the stage waits"}};
    (void)fputs("</text>\n", file);
    for (int i = 0; i < 3; i++) {
        int x = LEFT + i * 215;
        (void)fprintf(file,
                      "<path class=\"%s\" d=\"M%d,58 h14 v14 h-14 z\"/>"
                      "<text class=\"key\" x=\"%d\" y=\"69.5\">%s</text>\n",
                      keys[i][0], x, x + 21, keys[i][1]);
    }
}

// ---- Panels -------------------------------------------------------------------------------------

// 1, 2 or 5 times a power of ten, so that there are some ten of them.
static double tick_step(double length)
{
    double step = pow(10, floor(log10(length / 8)));
    double times = length / 8 / step;
    return step * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

static void put_axis(const struct picture *picture, double top, double bottom)
{
    double length = picture->span / picture->unit;
    double step = length > 0 ? tick_step(length) : 1;
    for (int i = 0; i * step <= length * (1 + 1e-9); i++) {
        double x = x_of(picture, i * step * picture->unit);
        (void)fprintf(picture->file,
                      "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                      "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.6g"
                      "</text>\n",
                      x, x, top, bottom + 4, x, bottom + 18, i * step);
    }
    (void)fprintf(picture->file,
                  "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">time, %s</text>\n",
                  LEFT + picture->width, bottom + 34, picture->unit_name);
}

static void put_action(const struct picture *picture, const struct tuttiPipelineTime *time,
                       int stage, double y)
{
    static const char *const names[] = {"forward", "backward"};
    char number[16];
    int length = snprintf(number, sizeof number, "%d", time->action.microBatch);
    double x = x_of(picture, time->begin), width = x_of(picture, time->end) - x;
    const char *name = names[time->action.kind];
    (void)fprintf(
        picture->file,
        "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
        "rx=\"2\"><title>stage %d, %s of micro-batch %d: %.6g to %.6g %s</title></rect>\n",
        name, x + 0.4, y, width > 1.4 ? width - 0.8 : 0.6, BOX, stage, name,
        time->action.microBatch, time->begin / picture->unit, time->end / picture->unit,
        picture->unit_name);
    if (width > length * LETTER + 3) {
        (void)fprintf(picture->file, "<text class=\"number\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                      x + width / 2, y + BOX / 2.0 + 4, number);
    }
}

static void put_panel(const struct picture *picture, const struct panel *panel)
{
    size_t actions = 2 * (size_t)picture->microBatches;
    double bottom = panel->top + picture->stages * ROW;
    (void)fprintf(picture->file,
                  "<text class=\"name\" x=\"%d\" y=\"%.1f\">%s: bubble %.1f %%</text>\n"
                  "<path class=\"field\" d=\"M%d,%.1f h%d v%d h-%d z\"/>\n",
                  LEFT, panel->top - 10, panel->name, 100 * panel->bubble, LEFT, panel->top,
                  picture->width, picture->stages * ROW, picture->width);
    put_axis(picture, panel->top, bottom);
    for (int s = 0; s < picture->stages; s++) {
        double y = panel->top + s * ROW + (ROW - BOX) / 2.0;
        (void)fprintf(picture->file,
                      "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">stage %d"
                      "</text>\n",
                      LEFT - 10, y + BOX / 2.0 + 4, s);
        for (size_t k = 0; k < actions; k++) {
            put_action(picture, &panel->times[(size_t)s * actions + k], s, y);
        }
    }
}

// ---- The whole ----------------------------------------------------------------------------------

static double last_end(const struct tuttiPipelineTime *times, size_t count)
{
    double last = 0;
    for (size_t i = 0; i < count; i++) {
        last = fmax(last, times[i].end);
    }
    return last;
}

static void choose_unit(struct picture *picture, bool is_measured)
{
    static const struct {
        double seconds;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "\302\265s"}};
    picture->unit = 1;
    picture->unit_name = "forward passes";
    for (int i = 0; is_measured && i < 3; i++) {
        picture->unit = units[i].seconds;
        picture->unit_name = units[i].name;
        if (picture->span >= 2 * units[i].seconds) {
            return;
        }
    }
}

// The mean time of actions of a kind.
static double mean_of(const struct tuttiPipelineTime *times, size_t count,
                      enum tuttiPipelineKind kind)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += times[i].action.kind == kind ? times[i].end - times[i].begin : 0;
    }
    return sum / ((double)count / 2);
}

static ncclResult_t check_times(const struct picture *picture,
                                const struct tuttiPipelineTime *times)
{
    size_t actions = 2 * (size_t)picture->microBatches;
    for (size_t i = 0; times != NULL && i < (size_t)picture->stages * actions; i++) {
        const struct tuttiPipelineTime *t = &times[i];
        bool is_action =
            (t->action.kind == tuttiPipelineForward || t->action.kind == tuttiPipelineBackward) &&
            t->action.microBatch >= 0 && t->action.microBatch < picture->microBatches;
        if (!is_action || !isfinite(t->end) || !(t->begin >= 0) || !(t->end >= t->begin)) {
            return tuttiFail(ncclInvalidArgument,
                             "tuttiPipelineDraw: action %zu of stage %zu is kind %d of micro-batch "
                             "%d, from %g to %g s, must be as from tuttiPipelineTimes",
                             i % actions, i / actions, (int)t->action.kind, t->action.microBatch,
                             t->begin, t->end);
        }
    }
    return ncclSuccess;
}

static ncclResult_t write_file(struct picture *picture, const char *path,
                               enum tuttiPipelineSchedule schedule, struct panel *panel, int panels)
{
    int wanted = (picture->microBatches + picture->stages - 1) * 2 * ACTION;
    int step = HEAD + picture->stages * ROW + AXIS;
    picture->width = wanted < LEAST_WIDTH ? LEAST_WIDTH : wanted > MOST_WIDTH ? MOST_WIDTH : wanted;
    picture->file = fopen(path, "we");
    if (picture->file == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineDraw: cannot write %s: %m", path);
    }
    put_head(picture, schedule, panel, panels, TOP + panels * step);
    for (int i = 0; i < panels; i++) {
        panel[i].top = TOP + i * step + HEAD - 8;
        put_panel(picture, &panel[i]);
    }
    (void)fputs("</svg>\n", picture->file);
    bool is_bad = ferror(picture->file) != 0;
    return fclose(picture->file) == 0 && !is_bad
               ? ncclSuccess
               : tuttiFail(ncclSystemError, "tuttiPipelineDraw: cannot write all of %s: %m", path);
}

PARALLEL_EXPORT ncclResult_t tuttiPipelineDraw(const char *path,
                                               enum tuttiPipelineSchedule schedule, int stages,
                                               int microBatches,
                                               const struct tuttiPipelineTime *times)
{
    TRY(parallel_schedule_check("tuttiPipelineDraw", schedule, stages, microBatches));
    struct picture picture = {.stages = stages, .microBatches = microBatches};
    TRY(check_times(&picture, times));
    if (path == NULL) {
        return tuttiFail(ncclInvalidArgument, "tuttiPipelineDraw: path is NULL");
    }
    size_t count = (size_t)stages * 2 * (size_t)microBatches;
    struct tuttiPipelineTime *ideal = malloc(count * sizeof *ideal);
    if (ideal == NULL) {
        return tuttiFail(ncclSystemError, "tuttiPipelineDraw: no memory for %zu actions", count);
    }
    double forward = times != NULL ? mean_of(times, count, tuttiPipelineForward) : 1;
    double backward = times != NULL ? mean_of(times, count, tuttiPipelineBackward) : 2;
    struct panel panel[2] = {
        {"ideal: stages that take equally long, messages that take no time", ideal, 0, 0},
        {"measured", times, 0, 0}};
    ncclResult_t result =
        tuttiPipelineIdealTimes(schedule, stages, microBatches, forward, backward, ideal);
    if (result == ncclSuccess) {
        result = tuttiPipelineBubble(stages, microBatches, ideal, &panel[0].bubble);
    }
    if (result == ncclSuccess && times != NULL) {
        result = tuttiPipelineBubble(stages, microBatches, times, &panel[1].bubble);
    }
    if (result == ncclSuccess) {
        picture.span = fmax(last_end(ideal, count), times != NULL ? last_end(times, count) : 0);
        choose_unit(&picture, times != NULL);
        result = write_file(&picture, path, schedule, panel, times != NULL ? 2 : 1);
    }
    free(ideal);
    return result;
}

// The table as a picture: one SVG with two panels, bus bandwidth and time by size, both axes
// logarithmic. It needs nothing from elsewhere and follows the reader's light or dark scheme. One
// type, operator and root: out of place and in place, each with its own colour, and a band from the
// median to the 99th percentile; several: a colour each.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 960,
    PANEL_WIDTH = 820,
    PANEL_HEIGHT = 280,
    LEFT = 96,
    TOP = 130,
    GAP = 84,
    COLOURS = 8,
    MOST_SERIES = 16,
};

struct series {
    int type, op, root, side;
};

struct axis {
    double low, high; // logarithms to base 10
    double from, length;
};

static double place(const struct axis *a, double value)
{
    return a->from + (log10(value) - a->low) / (a->high - a->low) * a->length;
}

static bool belongs(const struct perf_line *line, const struct series *s)
{
    return line->type == s->type && line->op == s->op && line->root == s->root &&
           line->side[s->side].ran && line->bytes > 0;
}

// What a panel shows of a side; 0 is not drawn.
static double value_of(const struct perf_side *side, int panel)
{
    return panel == 0 ? side->bus : side->seconds * 1e6;
}

// Different (type, operator, root), or the two sides where there is one.
static int find_series(const struct perf_report *report, struct series *series)
{
    int n = 0;
    for (size_t i = 0; i < report->count && n < MOST_SERIES; i++) {
        const struct perf_line *l = &report->lines[i];
        bool known = false;
        for (int k = 0; k < n; k++) {
            known = known || (series[k].type == l->type && series[k].op == l->op &&
                              series[k].root == l->root);
        }
        if (!known) {
            series[n++] = (struct series){l->type, l->op, l->root, 0};
        }
    }
    if (n == 1 && report->lines[0].side[1].ran) {
        series[n] = series[0];
        series[n++].side = 1;
    }
    return n;
}

static void widen(struct axis *a, double value)
{
    if (value > 0 && isfinite(value)) {
        double l = log10(value);
        a->low = l < a->low ? l : a->low;
        a->high = l > a->high ? l : a->high;
    }
}

// Whole decades of values; sizes as they are.
static void round_axis(struct axis *a, bool decades)
{
    if (a->low > a->high) {
        a->low = 0, a->high = 1;
    }
    if (decades) {
        a->low = floor(a->low + 1e-9);
        a->high = ceil(a->high - 1e-9);
    }
    if (a->high - a->low < 0.1) {
        a->low -= 0.5, a->high += 0.5;
    }
}

static void size_text(double bytes, char *text, size_t room)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(text, room, "%.4g%s", bytes, units[unit]);
}

// ---- Panels -------------------------------------------------------------------------------------

static void draw_sizes(FILE *to, const struct axis *x, double top, double bottom)
{
    const double two = log10(2);
    int first = (int)ceil(x->low / two - 1e-6), last = (int)floor(x->high / two + 1e-6);
    int step = (last - first) / 10 + 1;
    for (int power = first; power <= last; power++) {
        double at = place(x, ldexp(1, power));
        bool labelled = (power - first) % step == 0;
        (void)fprintf(to, "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                      labelled ? "grid" : "fine", at, at, top, bottom);
        if (labelled) {
            char text[32];
            size_text(ldexp(1, power), text, sizeof text);
            (void)fprintf(to,
                          "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">"
                          "%s</text>\n",
                          at, bottom + 20, text);
        }
    }
}

static void draw_values(FILE *to, const struct axis *y)
{
    const bool few = y->high - y->low <= 2.5; // then 2 and 5 are labelled too
    for (int decade = (int)floor(y->low); decade <= (int)ceil(y->high); decade++) {
        for (int digit = 1; digit < 10; digit++) {
            double value = digit * pow(10, decade), l = log10(value);
            if (l < y->low - 1e-9 || l > y->high + 1e-9) {
                continue;
            }
            bool labelled = digit == 1 || (few && (digit == 2 || digit == 5));
            double at = place(y, value);
            (void)fprintf(to, "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
                          labelled ? "grid" : "fine", LEFT, LEFT + PANEL_WIDTH, at, at);
            if (labelled) {
                (void)fprintf(to,
                              "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">"
                              "%.7g</text>\n",
                              LEFT - 10, at + 4, value);
            }
        }
    }
}

static void draw_series(FILE *to, const struct perf_report *report, const struct series *s,
                        int panel, const struct axis *x, const struct axis *y, int colour)
{
    char size[32];
    (void)fprintf(to, "<polyline class=\"line c%d\" points=\"", colour);
    for (size_t i = 0; i < report->count; i++) {
        const struct perf_line *l = &report->lines[i];
        double value = value_of(&l->side[s->side], panel);
        if (belongs(l, s) && value > 0) {
            (void)fprintf(to, "%.1f,%.1f ", place(x, (double)l->bytes), place(y, value));
        }
    }
    (void)fputs("\"/>\n", to);
    for (size_t i = 0; i < report->count; i++) {
        const struct perf_line *l = &report->lines[i];
        double value = value_of(&l->side[s->side], panel);
        if (belongs(l, s) && value > 0) {
            size_text((double)l->bytes, size, sizeof size);
            (void)fprintf(to,
                          "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.2\"><title>"
                          "%s: %.4g %s</title></circle>\n",
                          colour, place(x, (double)l->bytes), place(y, value), size, value,
                          panel == 0 ? "GB/s" : "us");
        }
    }
}

// Between the 99th percentile, from left to right, and the median, back.
static void draw_band(FILE *to, const struct perf_report *report, const struct series *s,
                      const struct axis *x, const struct axis *y, int colour)
{
    (void)fprintf(to, "<polygon class=\"band c%d\" points=\"", colour);
    for (size_t k = 0; k < 2 * report->count; k++) {
        bool back = k >= report->count;
        const struct perf_line *l = &report->lines[back ? 2 * report->count - 1 - k : k];
        const struct perf_side *side = &l->side[s->side];
        double value = (back ? side->all.p50 : side->all.p99) * 1e6;
        if (belongs(l, s) && side->has_statistics && value > 0) {
            (void)fprintf(to, "%.1f,%.1f ", place(x, (double)l->bytes), place(y, value));
        }
    }
    (void)fputs("\"/>\n", to);
}

static void draw_panel(FILE *to, const struct perf_report *report, const struct series *series,
                       int n, int panel)
{
    const double top = TOP + panel * (PANEL_HEIGHT + GAP), bottom = top + PANEL_HEIGHT;
    struct axis x = {1e9, -1e9, LEFT, PANEL_WIDTH}, y = {1e9, -1e9, bottom, -PANEL_HEIGHT};
    for (size_t i = 0; i < report->count; i++) {
        for (int k = 0; k < n; k++) {
            const struct perf_line *l = &report->lines[i];
            const struct perf_side *side = &l->side[series[k].side];
            if (belongs(l, &series[k])) {
                widen(&x, (double)l->bytes);
                widen(&y, value_of(side, panel));
                widen(&y, panel == 1 ? side->all.p99 * 1e6 : 0);
                widen(&y, panel == 1 ? side->all.p50 * 1e6 : 0);
            }
        }
    }
    round_axis(&x, false);
    round_axis(&y, true);
    (void)fprintf(to, "<text class=\"name\" x=\"%d\" y=\"%.1f\">%s</text>\n", LEFT, top - 12,
                  panel == 0 ? "Bus bandwidth, GB/s" : "Time, \302\265s");
    (void)fprintf(to, "<rect class=\"field\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n",
                  LEFT, top, PANEL_WIDTH, PANEL_HEIGHT);
    draw_sizes(to, &x, top, bottom);
    draw_values(to, &y);
    for (int k = 0; k < n && panel == 1; k++) {
        draw_band(to, report, &series[k], &x, &y, k % COLOURS);
    }
    for (int k = n - 1; k >= 0; k--) {
        draw_series(to, report, &series[k], panel, &x, &y, k % COLOURS);
    }
    (void)fprintf(to,
                  "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">size, bytes"
                  "</text>\n",
                  LEFT + PANEL_WIDTH, bottom + 38);
}

// ---- The whole ----------------------------------------------------------------------------------

static void draw_head(FILE *to, int height)
{
    static const char *const light[] = {"#0969da", "#cf5c00", "#1a7f37", "#8250df",
                                        "#bf3989", "#57606a", "#0e7c86", "#9a6700"};
    static const char *const dark[] = {"#58a6ff", "#f0883e", "#56d364", "#bc8cff",
                                       "#f778ba", "#8b949e", "#39c5cf", "#e3b341"};
    (void)fprintf(to,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\">\n<style>\n"
                  ".page { fill: #ffffff; } .field { fill: #f6f8fa; stroke: #d0d7de; }\n"
                  ".grid { stroke: #d0d7de; } .fine { stroke: #e7ebef; }\n"
                  "text { fill: #1f2328; } .title { font-size: 22px; font-weight: 600; }\n"
                  ".name { font-size: 15px; font-weight: 600; }\n"
                  ".tick, .note { font-size: 12px; fill: #59636e; } .key { font-size: 13px; }\n"
                  ".line { fill: none; stroke-width: 2.2; stroke-linejoin: round; }\n"
                  ".band { stroke: none; fill-opacity: 0.16; }\n",
                  WIDTH, height, WIDTH, height);
    for (int scheme = 0; scheme < 2; scheme++) {
        const char *const *colours = scheme == 0 ? light : dark;
        if (scheme == 1) {
            (void)fputs("@media (prefers-color-scheme: dark) {\n"
                        ".page { fill: #0d1117; } .field { fill: #151b23; stroke: #3d444d; }\n"
                        ".grid { stroke: #3d444d; } .fine { stroke: #242b34; }\n"
                        "text { fill: #f0f6fc; } .tick, .note { fill: #9198a1; }\n",
                        to);
        }
        for (int c = 0; c < COLOURS; c++) {
            (void)fprintf(to, ".line.c%d { stroke: %s; } .dot.c%d, .band.c%d { fill: %s; }\n", c,
                          colours[c], c, c, colours[c]);
        }
    }
    (void)fputs("}\n</style>\n", to);
    (void)fprintf(to, "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", WIDTH,
                  height);
}

// "2 processes x 3 threads": of what there are several.
static void ranks_text(const struct perf_options *o, char *text, size_t bytes)
{
    const struct {
        int count;
        const char *name;
    } parts[] = {{o->processes, "processes"}, {o->threads, "threads"}, {o->gpus, "GPUs"}};
    int used = snprintf(text, bytes, "%s", perf_ranks(o) == 1 ? "1 GPU" : "");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].count > 1) {
            used += snprintf(text + used, bytes - (size_t)used, "%s%d %s", used > 0 ? " x " : "",
                             parts[i].count, parts[i].name);
        }
    }
}

static void draw_title(FILE *to, const struct perf_report *report, const struct series *series,
                       int n)
{
    const struct perf_options *o = report->options;
    char ranks[96];
    ranks_text(o, ranks, sizeof ranks);
    (void)fprintf(to, "<text class=\"title\" x=\"%d\" y=\"40\">%s, %d ranks</text>\n", LEFT,
                  o->operation->name, perf_ranks(o));
    (void)fprintf(
        to,
        "<text class=\"note\" x=\"%d\" y=\"60\">%s; %d iterations%s; %s; line: their mean%s"
        "</text>\n",
        LEFT, ranks, o->iterations, o->graph > 0 ? " in a graph" : "",
        o->checks == 0             ? "not verified"
        : report->wrong_sides == 0 ? "verified bit for bit"
                                   : "WRONG VALUES",
        report->count > 0 && report->lines[0].side[0].has_statistics
            ? "; band: median to 99th percentile of single ones, timed in a second pass"
            : "");
    double at = LEFT;
    for (int k = 0; k < n; k++) {
        char text[96];
        const struct series *s = &series[k];
        int length = snprintf(text, sizeof text, "%s", perf_type_name(s->type));
        if (s->op >= 0) {
            length +=
                snprintf(text + length, sizeof text - (size_t)length, " %s", perf_op_name(s->op));
        }
        if (s->root >= 0) {
            length += snprintf(text + length, sizeof text - (size_t)length, " root %d", s->root);
        }
        if (n == 1 || s->side == 1 || series[n - 1].side == 1) {
            length += snprintf(text + length, sizeof text - (size_t)length, ", %s",
                               s->side == 1 ? "in place" : "out of place");
        }
        (void)fprintf(to,
                      "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"78\" r=\"5\"/>"
                      "<text class=\"key\" x=\"%.1f\" y=\"82.5\">%s</text>\n",
                      k % COLOURS, at + 5, at + 16, text);
        at += 34 + 7.2 * length;
        if (at > LEFT + PANEL_WIDTH - 90) {
            break; // the key is full; the dots' titles tell sizes and values of all
        }
    }
}

bool perf_plot_write(const struct perf_report *report, const char *path)
{
    struct series series[MOST_SERIES + 1];
    const int height = TOP + 2 * PANEL_HEIGHT + GAP + 60;
    struct perf_file file;
    FILE *to = perf_file_open(&file, path);
    if (to != NULL) {
        int n = find_series(report, series);
        draw_head(to, height);
        draw_title(to, report, series, n);
        draw_panel(to, report, series, n, 0);
        draw_panel(to, report, series, n, 1);
        (void)fputs("</svg>\n", to);
    }
    return perf_file_close(&file, "--plot");
}

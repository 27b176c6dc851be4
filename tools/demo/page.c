// The page: results as a table, who did what when, bytes between the GPUs. One file, no scripts,
// nothing loaded from elsewhere.
// SPDX-License-Identifier: Apache-2.0
#include "demo.h"

#include <inttypes.h>
#include <string.h>

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<title>tutti: one fused RMSNorm on virtual GPUs</title>\n<style>\n"
    "body{font:15px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:60em;margin:2em "
    "auto;"
    "padding:0 1em}\n"
    "h1{font-size:1.5em}h2{font-size:1.2em;margin-top:2em}h3{font-size:1em;margin:1em 0 .3em}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:14px}\n"
    "th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e5e5e5}\n"
    "th:first-child,td:first-child,th:nth-child(3),td:nth-child(3){text-align:left}\n"
    "svg{width:100%;height:auto;display:block}svg text{font:9px system-ui,sans-serif;fill:#444}\n"
    ".legend span{margin-right:1.2em;white-space:nowrap;font-size:13px}"
    ".legend "
    "i{display:inline-block;width:.9em;height:.9em;margin-right:.3em;vertical-align:-.1em}\n"
    ".bad{color:#b00;font-weight:bold}\n</style></head><body>\n"
    "<h1>One fused RMSNorm, run by virtual GPUs</h1>\n"
    "<p>Each rank holds a matrix of partial results. One kernel sums it over all ranks, normalises "
    "each row and "
    "gives every rank the result: reduce-scatter, RMSNorm and all-gather without a pass through "
    "memory between "
    "them. It ran here three ways: a kernel that loads and stores the other GPUs' memory (lsa), a "
    "kernel that "
    "lets the switch add and copy (multimem), and the library's own vectorised operation "
    "(native).</p>\n";

static void write_row(FILE *page, const struct demo_run *run, enum demo_way way)
{
    double seconds = 0, absolute = 0, relative = 0;
    uint64_t in = 0, out = 0;
    if (!run->rank[0].outcome[way].ran) {
        (void)fprintf(page, "<tr><td>%s<td>%d<td>%s<td colspan=\"7\">did not run</tr>\n",
                      demo_mode_name(run->mode), run->nranks, demo_way_name(way));
        return;
    }
    for (int r = 0; r < run->nranks; r++) {
        const struct demo_outcome *outcome = &run->rank[r].outcome[way];
        seconds = outcome->seconds > seconds ? outcome->seconds : seconds;
        absolute = outcome->absolute_error > absolute ? outcome->absolute_error : absolute;
        relative = outcome->relative_error > relative ? outcome->relative_error : relative;
        in = run->traffic.in[way][r] > in ? run->traffic.in[way][r] : in;
        out = run->traffic.out[way][r] > out ? run->traffic.out[way][r] : out;
    }
    (void)fprintf(
        page, "<tr><td>%s<td>%d<td>%s<td>%.2f<td>%.1e<td>%.1e<td>%.2f<td>%.2f<td>%.2f<td>%s</tr>\n",
        demo_mode_name(run->mode), run->nranks, demo_way_name(way), seconds * 1e3, absolute,
        relative, (double)in / 1e6, (double)out / 1e6,
        (double)demo_least_bytes(way, run->nranks) / 1e6,
        demo_is_right(run, way) ? "ok" : "<span class=\"bad\">FAILED</span>");
}

static void write_table(FILE *page, const struct demo_run *runs, int count)
{
    (void)fprintf(
        page,
        "<h2>Results</h2>\n<p>%d x %d floats. Every element of every rank is compared "
        "with a reference in "
        "double precision, and all three ways agree in every bit. Largest values over "
        "the ranks; bytes are "
        "counted access by access. Times are the best of three on this machine's cores, which "
        "other programs use too: they say nothing of real GPUs.</p>\n<table><tr><th>ranks "
        "as<th>ranks<th>way<th>ms<th>absolute error"
        "<th>relative error<th>MB in<th>MB out<th>least MB<th></tr>\n",
        DEMO_TOKENS, DEMO_HIDDEN);
    for (int i = 0; i < count; i++) {
        for (int way = 0; way < DEMO_WAYS; way++) {
            write_row(page, &runs[i], (enum demo_way)way);
        }
    }
    (void)fprintf(page, "</table>\n");
}

// One square per pair of GPUs, darker where more bytes went.
static void write_links(FILE *page, const struct demo_run *run, enum demo_way way)
{
    enum { CELL = 34, LEFT = 60, TOP = 34 };
    uint64_t most = 1;
    for (int from = 0; from < run->nranks; from++) {
        for (int to = 0; to < run->nranks; to++) {
            uint64_t bytes = from == to ? 0 : run->traffic.link[way][from][to];
            most = bytes > most ? bytes : most;
        }
    }
    int side = run->nranks * CELL;
    (void)fprintf(
        page,
        "<h3>%s</h3>\n<svg viewBox=\"0 0 960 %d\" role=\"img\" aria-label=\"bytes by link\">\n",
        demo_way_name(way), side + TOP + 4);
    for (int from = 0; from < run->nranks; from++) {
        int y = TOP + from * CELL;
        (void)fprintf(page,
                      "<text x=\"4\" y=\"%d\">from GPU %d</text><text x=\"%d\" y=\"%d\" "
                      "text-anchor=\"middle\">to %d</text>\n",
                      y + CELL / 2 + 3, from, LEFT + from * CELL + CELL / 2, TOP - 6, from);
        for (int to = 0; to < run->nranks; to++) {
            uint64_t bytes = from == to ? 0 : run->traffic.link[way][from][to];
            double shade = (double)bytes / (double)most;
            (void)fprintf(page,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                          "fill=\"rgb(%.0f,%.0f,%.0f)\"><title>%" PRIu64
                          " bytes from GPU %d to GPU %d</title></rect>",
                          LEFT + to * CELL, y, CELL - 2, CELL - 2, 247 - 137 * shade,
                          247 - 77 * shade, 247 - 37 * shade, bytes, from, to);
            if (from != to) {
                (void)fprintf(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%.2f</text>\n",
                              LEFT + to * CELL + CELL / 2 - 1, y + CELL / 2 + 3,
                              (double)bytes / 1e6);
            }
        }
    }
    // In and out of each GPU as bars, in one scale for all ways.
    double widest = 1;
    for (int i = 0; i < run->nranks * DEMO_WAYS; i++) {
        double in = (double)run->traffic.in[i % DEMO_WAYS][i / DEMO_WAYS];
        double out = (double)run->traffic.out[i % DEMO_WAYS][i / DEMO_WAYS];
        widest = in > widest ? in : widest;
        widest = out > widest ? out : widest;
    }
    double x = LEFT + side + 40, room = 960 - x - 90;
    (void)fprintf(page,
                  "<text x=\"%g\" y=\"%d\">MB into (blue) and out of (green) each GPU</text>\n", x,
                  TOP - 6);
    for (int r = 0; r < run->nranks; r++) {
        double in = (double)run->traffic.in[way][r], out = (double)run->traffic.out[way][r];
        int y = TOP + r * CELL;
        (void)fprintf(page,
                      "<rect x=\"%g\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"#4e79a7\"/>"
                      "<text x=\"%.1f\" y=\"%d\">%.2f</text>"
                      "<rect x=\"%g\" y=\"%d\" width=\"%.1f\" height=\"12\" fill=\"#59a14f\"/>"
                      "<text x=\"%.1f\" y=\"%d\">%.2f</text>\n",
                      x, y + 4, room * in / widest, x + room * in / widest + 4, y + 14, in / 1e6, x,
                      y + 18, room * out / widest, x + room * out / widest + 4, y + 28, out / 1e6);
    }
    (void)fprintf(page, "</svg>\n");
}

bool demo_write_page(const char *path, const struct demo_run *runs, int count)
{
    FILE *page = fopen(path, "w");
    if (page == NULL) {
        perror(path);
        return false;
    }
    (void)fputs(head, page);
    write_table(page, runs, count);
    (void)fprintf(page, "<h2>Who did what when</h2>\n");
    bool good = demo_write_timelines(page);
    double part = (double)DEMO_TOKENS * DEMO_HIDDEN * sizeof(float) / DEMO_MAX_RANKS / 1e6;
    (void)fprintf(
        page,
        "<h2>Bytes between the GPUs</h2>\n<p>%d x %d floats, 8 ranks, in MB. With multicast the "
        "switch adds what it takes out of all GPUs before it hands the sum to one, and copies what "
        "one GPU stores to all: so a port takes in less than its links bring.</p>\n"
        "<p>The three matrices are equal, and should be: whatever the way, each rank owns an "
        "eighth of the rows. To every other rank it gives its part of that rank's rows (%.2f MB, "
        "to be summed), and the results of its own (%.2f MB). The ways differ in what passes the "
        "GPUs' ports, which the bars show.</p>\n",
        DEMO_TOKENS, DEMO_HIDDEN, part, part);
    for (int i = 0; i < count; i++) {
        for (int way = 0;
             way < DEMO_WAYS && runs[i].nranks == DEMO_MAX_RANKS && runs[i].mode == DEMO_THREADS;
             way++) {
            write_links(page, &runs[i], (enum demo_way)way);
        }
    }
    (void)fprintf(page, "</body></html>\n");
    if (fclose(page) != 0) {
        perror(path);
        return false;
    }
    return good;
}

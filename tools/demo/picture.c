// A recording as a picture: a line for each block, coloured by what it did, with an axis; and one
// row of one block, enlarged.
// SPDX-License-Identifier: Apache-2.0
#include "demo.h"

#include <stdlib.h>
#include <string.h>

enum kind { WAIT_INPUTS, REDUCE, NORMALISE, GATHER, WAIT_PEERS, KINDS };

// fill: in drawings; css: the same for the legend.
static const struct {
    const char *name, *fill, *css, *what;
} kinds[KINDS] = {
    {"wait for inputs", "#e4e4e4", "#e4e4e4", "waits until every rank's input is there"},
    {"reduce", "#4e79a7", "#4e79a7", "sums one row over all ranks' memory"},
    {"normalise", "#f28e2b", "#f28e2b", "adds the squares up, takes the root"},
    {"gather", "#59a14f", "#59a14f", "stores the row into every rank's memory"},
    {"wait for peers", "url(#peers)",
     "repeating-linear-gradient(135deg,#fff 0 2px,#8a8a8a 2px 3px)",
     "waits until every rank has stored"},
};

static const double width = 960, left = 110, lane = 15;

// The part of a recording that is drawn, in ns; `zero` is where the axis has its 0.
struct view {
    uint64_t begin, end, zero;
    double scale; // units of the drawing per ns
};

// One row of one block: events first .. last of the sorted recording.
struct row {
    size_t first, last;
    uint64_t ns;
};

static enum kind kind_of(const struct vgpu_trace_event *event)
{
    int kind = 0;
    while (kind < KINDS && (event->phase == NULL || strcmp(kinds[kind].name, event->phase) != 0)) {
        kind++;
    }
    return (enum kind)kind;
}

static bool is_work(const struct vgpu_trace_event *event)
{
    enum kind kind = kind_of(event);
    return kind == REDUCE || kind == NORMALISE || kind == GATHER;
}

// When the first work began and the last ended. False where there is none.
static bool work_span(const struct vgpu_trace_event *events, size_t count, uint64_t *begin,
                      uint64_t *end)
{
    *begin = UINT64_MAX;
    *end = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_work(&events[i])) {
            *begin = events[i].begin_ns < *begin ? events[i].begin_ns : *begin;
            *end = events[i].end_ns > *end ? events[i].end_ns : *end;
        }
    }
    return *end > *begin;
}

uint64_t demo_work_ns(const struct vgpu_trace_event *events, size_t count)
{
    uint64_t begin, end;
    return work_span(events, count, &begin, &end) ? end - begin : 0;
}

void demo_draw_legend(FILE *page)
{
    // Drawings further down use the pattern as well.
    (void)fprintf(
        page, "<p class=\"legend\"><svg style=\"width:0;height:0;display:inline\"><defs><pattern "
              "id=\"peers\" width=\"4\" height=\"4\" patternUnits=\"userSpaceOnUse\" "
              "patternTransform=\"rotate(45)\"><rect width=\"4\" height=\"4\" fill=\"#fff\"/>"
              "<rect width=\"1\" height=\"4\" fill=\"#8a8a8a\"/></pattern></defs></svg>\n");
    for (int kind = 0; kind < KINDS; kind++) {
        (void)fprintf(page, "<span><i style=\"background:%s\"></i>%s: %s</span> ", kinds[kind].css,
                      kinds[kind].name, kinds[kind].what);
    }
    (void)fprintf(page, "</p>\n");
}

static int by_block_and_time(const void *one, const void *two)
{
    const struct vgpu_trace_event *a = one, *b = two;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->block != b->block) {
        return a->block < b->block ? -1 : 1;
    }
    return a->begin_ns < b->begin_ns ? -1 : a->begin_ns > b->begin_ns;
}

// The row that took least: nothing came between. events are sorted.
static struct row shortest_row(const struct vgpu_trace_event *events, size_t count)
{
    struct row best = {0, 0, UINT64_MAX};
    size_t first = 0;
    for (size_t i = 1; i < count; i++) {
        enum kind before = kind_of(&events[i - 1]), kind = kind_of(&events[i]);
        if (kind == REDUCE && before != REDUCE) {
            first = i;
        }
        bool ends = kind == GATHER && (i + 1 == count || kind_of(&events[i + 1]) != GATHER);
        uint64_t ns = events[i].end_ns - events[first].begin_ns;
        if (ends && kind_of(&events[first]) == REDUCE && ns < best.ns) {
            best = (struct row){first, i, ns};
        }
    }
    return best;
}

static double place(const struct view *view, uint64_t ns)
{
    ns = ns < view->begin ? view->begin : ns > view->end ? view->end : ns;
    return left + (double)(ns - view->begin) * view->scale;
}

static void draw_event(FILE *page, const struct vgpu_trace_event *event, const struct view *view,
                       double y, double height)
{
    enum kind kind = kind_of(event);
    double from = place(view, event->begin_ns), to = place(view, event->end_ns);
    if (kind == KINDS || to <= from) {
        return;
    }
    (void)fprintf(page,
                  "<rect x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\" fill=\"%s\"><title>%s, "
                  "%.1f &#181;s, on worker %d</title></rect>\n",
                  from, y, to - from, height, kinds[kind].fill, kinds[kind].name,
                  (double)(event->end_ns - event->begin_ns) / 1e3, event->worker);
}

// 1, 2 or 5 times a power of ten: four to ten of it make `length`.
static double tick_step(double length)
{
    double step = 1e-3;
    for (int i = 0; length / step > 10; i++) {
        step *= i % 3 == 1 ? 2.5 : 2;
    }
    return step;
}

static void draw_axis(FILE *page, const struct view *view, double top, double bottom)
{
    double end = (double)(view->end - view->zero) / 1e3, step = tick_step(end);
    for (int i = 0; i * step <= end; i++) {
        double x = place(view, view->zero) + i * step * 1e3 * view->scale;
        bool ms = step >= 1000;
        (void)fprintf(page,
                      "<path d=\"M%.2f %gV%g\" stroke=\"#999\" stroke-width=\".5\"/><text "
                      "x=\"%.2f\" y=\"%g\" text-anchor=\"%s\">%g %s</text>\n",
                      x, top, bottom + 4, x, bottom + 14, x > width - 20 ? "end" : "middle",
                      i * step / (ms ? 1000 : 1), ms ? "ms" : "&#181;s");
    }
}

// Says what of the waits lies beyond the edges of the drawing.
static void draw_cuts(FILE *page, const struct vgpu_trace_event *events, size_t count,
                      const struct view *view, double bottom)
{
    uint64_t begin = view->begin, end = view->end;
    for (size_t i = 0; i < count; i++) {
        begin = events[i].begin_ns < begin ? events[i].begin_ns : begin;
        end = events[i].end_ns > end ? events[i].end_ns : end;
    }
    if (begin < view->begin) {
        (void)fprintf(page,
                      "<path d=\"M%g 0V%g\" stroke=\"#b00\" stroke-dasharray=\"3 3\"/><text "
                      "x=\"4\" y=\"%g\">cut: from &#8722;%.0f &#181;s</text>\n",
                      left, bottom, bottom + 14, (double)(view->zero - begin) / 1e3);
    }
    if (end > view->end) {
        (void)fprintf(page,
                      "<path d=\"M%g 0V%g\" stroke=\"#b00\" stroke-dasharray=\"3 3\"/><text "
                      "x=\"%g\" y=\"%g\" text-anchor=\"end\">cut: to %.0f &#181;s</text>\n",
                      width - 1, bottom, width, bottom + 26, (double)(end - view->zero) / 1e3);
    }
}

static void draw_row(FILE *page, const struct vgpu_trace_event *events, struct row row, double y)
{
    struct view view = {events[row.first].begin_ns, events[row.last].end_ns, 0, 0};
    view.zero = view.begin;
    view.scale = (width - left) / (double)row.ns;
    (void)fprintf(page, "<text x=\"4\" y=\"%g\">one row, enlarged</text>\n", y + 14);
    for (size_t i = row.first; i <= row.last; i++) {
        draw_event(page, &events[i], &view, y, 20);
    }
    draw_axis(page, &view, y + 20, y + 20);
}

// How the work of all blocks is divided among its phases.
static void write_shares(FILE *page, const struct vgpu_trace_event *events, size_t count)
{
    double ns[KINDS + 1] = {0};
    for (size_t i = 0; i < count; i++) {
        ns[kind_of(&events[i])] += (double)(events[i].end_ns - events[i].begin_ns);
    }
    double work = (ns[REDUCE] + ns[NORMALISE] + ns[GATHER]) / 100;
    (void)fprintf(page,
                  "<p class=\"legend\">Of the work: reduce %.0f %%, normalise %.1f %%, gather "
                  "%.0f %%.</p>\n",
                  ns[REDUCE] / work, ns[NORMALISE] / work, ns[GATHER] / work);
}

void demo_draw(FILE *page, const char *title, struct vgpu_trace_event *events, size_t count,
               int blocks)
{
    struct view view;
    uint64_t begin, end;
    if (!work_span(events, count, &begin, &end)) {
        return;
    }
    qsort(events, count, sizeof *events, by_block_and_time);
    // Waits before and after the work may be long where the machine has other things to do.
    view = (struct view){begin - (end - begin) / 20, end + (end - begin) / 20, begin, 0};
    view.scale = (width - left) / (double)(view.end - view.begin);
    double bottom = DEMO_MAX_RANKS * blocks * lane;
    (void)fprintf(page,
                  "<h3>%s</h3>\n<svg viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"phases by "
                  "rank and block\">\n",
                  title, width, bottom + 76);
    for (int r = 0; r < DEMO_MAX_RANKS; r++) {
        double y = r * blocks * lane;
        (void)fprintf(page, "<rect x=\"0\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"/>", y,
                      width, blocks * lane, r % 2 == 0 ? "#f6f8fa" : "#fff");
        for (int b = 0; b < blocks; b++) {
            (void)fprintf(page, "<text x=\"4\" y=\"%g\">rank %d, block %d</text>\n",
                          y + (b + 1) * lane - 4, r, b);
        }
    }
    draw_axis(page, &view, 0, bottom);
    for (size_t i = 0; i < count; i++) {
        const struct vgpu_trace_event *e = &events[i];
        if (e->device < DEMO_MAX_RANKS && e->block < (unsigned)blocks) {
            draw_event(page, e, &view, (double)(e->device * blocks + (int)e->block) * lane + 1,
                       lane - 2);
        }
    }
    draw_cuts(page, events, count, &view, bottom);
    struct row row = shortest_row(events, count);
    if (row.ns != UINT64_MAX) {
        draw_row(page, events, row, bottom + 36);
    }
    (void)fprintf(page, "</svg>\n");
    write_shares(page, events, count);
}

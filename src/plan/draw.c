// Plans as text and SVG. See draw.h.
// SPDX-License-Identifier: Apache-2.0
#include "plan/draw.h"

#include "plan/parts.h"
#include "plan/schedule.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ---- Text ---------------------------------------------------------------------------------------

struct text {
    char *at;
    size_t bytes, used;
};

static void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *text, const char *format, ...)
{
    if (text->used + 1 >= text->bytes) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(text->at + text->used, text->bytes - text->used, format, arguments);
    va_end(arguments);
    text->used += more > 0 ? (size_t)more : 0;
}

static void add_rank(struct text *text, int rank)
{
    if (rank >= 0) {
        add(text, "%d", rank);
    } else {
        add(text, "%s", rank == TT_EVERY ? "of all" : "in switch");
    }
}

static void add_place(struct text *text, const struct tt_problem *problem,
                      const struct tt_place *place, size_t count, bool is_partial)
{
    static const char *const names[] = {"send", "recv", "scratch"};
    size_t width = is_partial ? problem->accumulator : problem->element;
    size_t unit = place->buffer == TT_BUFFER_SCRATCH ? 1 : problem->element;
    add(text, "%s%s ", is_partial ? "partial " : "", names[place->buffer]);
    add_rank(text, place->rank);
    add(text, " [%zu, %zu)%s", place->offset / unit, (place->offset + count * width) / unit,
        unit == 1 && problem->element != 1 ? " bytes" : "");
}

enum { SHOWN_PLACES = 8 };

static void add_places(struct text *text, const struct tt_problem *problem,
                       const struct tt_place *place, uint32_t places, const struct tt_step *step,
                       bool is_in)
{
    for (uint32_t i = 0; i < places; i++) {
        bool is_partial = is_in ? i == 0 && (step->flags & TT_PARTIAL_IN) != 0
                                : (step->flags & TT_PARTIAL_OUT) != 0;
        if (i == SHOWN_PLACES) {
            add(text, "%s...", is_in ? " + " : ", ");
            return;
        }
        add(text, "%s", i == 0 ? "" : is_in ? " + " : ", ");
        add_place(text, problem, &place[i], step->count, is_partial);
    }
}

void tt_step_describe(const struct tt_problem *problem, const struct tt_plan *plan,
                      const struct tt_step *step, char *text, size_t bytes)
{
    struct text out = {.at = text, .bytes = bytes};
    text[0] = 0;
    switch (step->kind) {
    case TT_STEP_REDUCE:
    case TT_STEP_COPY:
        add(&out, "%s %zu elements: ", step->kind == TT_STEP_COPY ? "copy" : "reduce", step->count);
        add_places(&out, problem, plan->place + step->out, step->outs, step, false);
        add(&out, " = ");
        add_places(&out, problem, plan->place + step->in, step->ins, step, true);
        break;
    case TT_STEP_SIGNAL:
        add(&out, step->peer == TT_EVERY ? "signal all ranks" : "signal rank %d", step->peer);
        add(&out, " on channel %u", step->channel);
        break;
    case TT_STEP_WAIT:
        add(&out, "wait for signal %u on channel %u of ", step->number, step->channel);
        add(&out, step->peer == TT_EVERY ? "all ranks" : "rank %d", step->peer);
        break;
    }
}

void tt_plan_print(FILE *file, const struct tt_problem *problem, const struct tt_plan *plan)
{
    (void)fprintf(file, "rank %d: %d lane%s, %u steps, %zu bytes of scratch\n", plan->rank,
                  plan->lanes, plan->lanes == 1 ? "" : "s", plan->steps, plan->scratch);
    for (int lane = 0; lane < plan->lanes; lane++) {
        for (uint32_t i = 0; i < plan->lane[lane].steps; i++) {
            char text[800];
            const struct tt_step *step = plan->step + plan->lane[lane].step + i;
            tt_step_describe(problem, plan, step, text, sizeof text);
            (void)fprintf(file, "  %2d.%-4u %s\n", lane, i, text);
        }
    }
}

// ---- Picture ------------------------------------------------------------------------------------

enum {
    MARGIN = 24,
    LEFT = 96,     // of the lanes
    TOP = 84,      // of the first rank
    ROW = 26,      // of a lane
    BAR = 18,      // of a step
    RANK_GAP = 14, // between ranks
    LEAST_WIDTH = 900,
    MOST_WIDTH = 1600,
    UNIT = 110, // of the largest step
    LETTER = 6, // width of one, about
};

struct picture {
    FILE *file;
    const struct tt_problem *problem;
    struct tt_schedule schedule;
    double scale; // pixels for one of time
    int width, height;
    int *row; // [nranks + 1]: of a rank's first lane; one that has none has a row, too
    int lane; // whose wait the arrows lead to
    double arrow_x;
    bool has_many; // that wait has arrows from all ranks
};

static double x_of(const struct picture *picture, double time)
{
    return LEFT + time * picture->scale;
}

// The middle of the row of a rank's lane, or of its last where it has not so many.
static double y_of_rank(const struct picture *picture, int rank, int index)
{
    int row = picture->row[rank] + index, last = picture->row[rank + 1] - 1;
    return TOP + (row < last ? row : last) * ROW + rank * RANK_GAP + ROW / 2.0;
}

static double y_of(const struct picture *picture, int lane)
{
    const struct tt_walk *walk = &picture->schedule.walk;
    return y_of_rank(picture, walk->lane[lane].rank, walk->lane[lane].index);
}

static void put_head(const struct picture *picture)
{
    static const char style[] =
        "text{font:12px system-ui,sans-serif;fill:#24292f}"
        ".t{font-size:17px;font-weight:600}.d{fill:#57606a}.c{text-anchor:middle;font-size:11px}"
        ".band{fill:#f6f8fa}.line{stroke:#d0d7de}"
        ".reduce{fill:#2f6fde}.partial{fill:#8db4f5}.copy{fill:#2da44e}.signal{fill:#d4760a}"
        ".wait{fill:#e4e7eb;stroke:#c4cbd3;stroke-width:.6}"
        ".on{fill:#fff}.data{stroke:#1a7f37;fill:none;stroke-width:.9;stroke-dasharray:3 "
        "2;opacity:."
        "8}.arrow{stroke:#d4760a;fill:none;stroke-width:1.1;opacity:.7}.many{opacity:."
        "3}";
    char text[120];
    tt_problem_describe(picture->problem, text, sizeof text);
    const struct tt_plan *plan = picture->schedule.walk.plans[0];
    (void)fprintf(picture->file,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                  "viewBox=\"0 0 %d %d\">\n<style>%s</style>\n"
                  "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                  "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
                  "<path d=\"M0,0.5 L8,4 L0,7.5 z\" fill=\"#d4760a\"/></marker>"
                  "<marker id=\"data\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                  "markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">"
                  "<path d=\"M0,0.5 L8,4 L0,7.5 z\" fill=\"#1a7f37\"/></marker></defs>\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                  "<text class=\"t\" x=\"%d\" y=\"38\">%s, %s</text>\n"
                  "<text class=\"d\" x=\"%d\" y=\"58\">%s. Time runs to the right; all ranks have "
                  "entered where it begins%s.</text>\n",
                  picture->width, picture->height, picture->width, picture->height, style,
                  picture->width, picture->height, MARGIN,
                  tt_function_name(picture->problem->function), plan->algorithm->name, MARGIN, text,
                  picture->schedule.is_stuck ? "; some steps never run" : "");
}

static void put_rows(const struct picture *picture)
{
    const struct tt_walk *walk = &picture->schedule.walk;
    for (int rank = 0; rank < walk->nranks; rank++) {
        double y = y_of_rank(picture, rank, 0);
        (void)fprintf(picture->file,
                      "<rect class=\"band\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" "
                      "rx=\"4\"/>\n<text x=\"%d\" y=\"%.1f\">rank %d</text>\n",
                      MARGIN - 8, y - ROW / 2.0 - 3, picture->width - 2 * MARGIN + 16,
                      (picture->row[rank + 1] - picture->row[rank]) * ROW + 6, MARGIN, y + 4, rank);
    }
    for (int lane = 0; lane < walk->lanes; lane++) {
        double y = y_of(picture, lane);
        (void)fprintf(picture->file,
                      "<line class=\"line\" x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n",
                      LEFT, y, x_of(picture, picture->schedule.length), y);
    }
}

static const char *class_of(const struct tt_step *step)
{
    switch (step->kind) {
    case TT_STEP_REDUCE:
        return (step->flags & TT_PARTIAL_OUT) != 0 ? "partial" : "reduce";
    case TT_STEP_COPY:
        return "copy";
    case TT_STEP_SIGNAL:
        return "signal";
    default:
        return "wait";
    }
}

static void put_step(const struct picture *picture, int lane, uint32_t index)
{
    const struct tt_schedule *schedule = &picture->schedule;
    const struct tt_plan *plan = schedule->walk.plans[schedule->walk.lane[lane].rank];
    const struct tt_step *step = tt_walk_steps(&schedule->walk, lane) + index;
    double begin = x_of(picture, schedule->begin[schedule->first[lane] + index]);
    double width = x_of(picture, schedule->end[schedule->first[lane] + index]) - begin;
    bool is_data = step->kind == TT_STEP_REDUCE || step->kind == TT_STEP_COPY;
    int height = is_data ? BAR : BAR - 8;
    double y = y_of(picture, lane);
    char text[800];
    tt_step_describe(picture->problem, plan, step, text, sizeof text);
    (void)fprintf(picture->file,
                  "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
                  "rx=\"2\"><title>rank %d, lane %d, step %u: %s</title></rect>\n",
                  class_of(step), begin + 0.4, y - height / 2.0, width > 1.4 ? width - 0.8 : 0.6,
                  height, plan->rank, schedule->walk.lane[lane].index, index, text);
}

// The ranks of places beside `own`: "2, 3", "2, 3, 4 ...", "all", "switch"; nothing where there are
// none.
static void add_others(struct text *text, const struct tt_place *place, uint32_t places, int own)
{
    enum { SHOWN_RANKS = 3 };
    int shown = 0;
    for (uint32_t i = 0; i < places; i++) {
        int rank = place[i].rank;
        if (rank == own) {
            continue;
        }
        if (shown++ == SHOWN_RANKS) {
            add(text, " ...");
            return;
        }
        add(text,
            rank >= 0          ? "%s%d"
            : rank == TT_EVERY ? "%sall"
                               : "%sswitch",
            shown > 1 ? ", " : "", rank);
    }
}

// "2, 3 <- 1": whose memory the step touches besides the rank's own.
static void describe_others(const struct tt_plan *plan, const struct tt_step *step, char *to,
                            char *from, size_t bytes)
{
    struct text target = {.at = to, .bytes = bytes}, source = {.at = from, .bytes = bytes};
    to[0] = from[0] = 0;
    add_others(&target, plan->place + step->out, step->outs, plan->rank);
    add_others(&source, plan->place + step->in, step->ins, plan->rank);
}

// "copy 1000 from 1 to 2, 3", or as much of it as has room in the box; where its own memory is
// meant, it is left out.
static void put_label(const struct picture *picture, int lane, uint32_t index)
{
    const struct tt_schedule *schedule = &picture->schedule;
    const struct tt_plan *plan = schedule->walk.plans[schedule->walk.lane[lane].rank];
    const struct tt_step *step = tt_walk_steps(&schedule->walk, lane) + index;
    double begin = x_of(picture, schedule->begin[schedule->first[lane] + index]);
    double width = x_of(picture, schedule->end[schedule->first[lane] + index]) - begin;
    bool is_copy = step->kind == TT_STEP_COPY;
    bool is_partial = step->kind == TT_STEP_REDUCE && (step->flags & TT_PARTIAL_OUT) != 0;
    char to[48], from[48], label[3][200];
    if (!is_copy && step->kind != TT_STEP_REDUCE) {
        return;
    }
    describe_others(plan, step, to, from, sizeof to);
    (void)snprintf(label[2], sizeof label[2], "%s%s%s%s%s", from[0] != 0 ? "from " : "", from,
                   from[0] != 0 && to[0] != 0 ? " " : "", to[0] != 0 ? "to " : "", to);
    (void)snprintf(label[1], sizeof label[1], "%zu %.120s", step->count, label[2]);
    (void)snprintf(label[0], sizeof label[0], "%s %.150s", is_copy ? "copy" : "reduce", label[1]);
    for (int i = 0; i < 3; i++) {
        if (label[i][0] != 0 && (double)strlen(label[i]) * LETTER < width) {
            (void)fprintf(picture->file, "<text class=\"c%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                          is_partial ? "" : " on", begin + width / 2, y_of(picture, lane) + 4,
                          label[i]);
            return;
        }
    }
}

// A thin line between the step and the rows of ranks whose buffers it stores to, or loads from.
static void put_data(const struct picture *picture, int lane, uint32_t index, bool is_out)
{
    const struct tt_schedule *schedule = &picture->schedule;
    const struct tt_walk *walk = &schedule->walk;
    const struct tt_plan *plan = walk->plans[walk->lane[lane].rank];
    const struct tt_step *step = tt_walk_steps(walk, lane) + index;
    double begin = x_of(picture, schedule->begin[schedule->first[lane] + index]);
    double end = x_of(picture, schedule->end[schedule->first[lane] + index]);
    double x = is_out ? begin + (end - begin) * 0.75 : begin + (end - begin) * 0.25;
    uint32_t places = is_out ? step->outs : step->ins;
    for (uint32_t i = 0; i < places; i++) {
        int rank = plan->place[(is_out ? step->out : step->in) + i].rank;
        if (rank < 0 || rank == plan->rank) {
            continue; // all ranks' and the switch's are named in the box
        }
        double here = y_of(picture, lane);
        double there = y_of_rank(picture, rank, walk->lane[lane].index);
        double edge = there > here ? BAR / 2.0 : -BAR / 2.0;
        (void)fprintf(
            picture->file,
            "<path class=\"data\" marker-end=\"url(#data)\" d=\"M%.1f,%.1f L%.1f,%.1f\"/>\n", x,
            is_out ? here + edge : there, is_out ? end : begin, is_out ? there : here + edge);
    }
}

static void put_arrow(void *context, struct tt_walk_signal signal)
{
    const struct picture *picture = context;
    const struct tt_schedule *schedule = &picture->schedule;
    double x = x_of(picture, schedule->end[schedule->first[signal.lane] + signal.step]) - 3;
    double y = y_of(picture, signal.lane);
    double to = y_of(picture, picture->lane);
    double edge = to > y ? BAR / 2.0 - 3 : to < y ? -BAR / 2.0 + 3 : 0;
    if (to == y) { // to itself
        return;
    }
    double bend = (picture->arrow_x - x) / 2;
    (void)fprintf(picture->file,
                  "<path class=\"arrow%s\" marker-end=\"url(#tip)\" d=\"M%.1f,%.1f C%.1f,%.1f "
                  "%.1f,%.1f %.1f,%.1f\"/>\n",
                  picture->has_many ? " many" : "", x, y + edge, x + bend * 0.4, y + (to - y) * 0.5,
                  picture->arrow_x - bend * 0.4, to - (to - y) * 0.4, picture->arrow_x, to - edge);
}

static void put_arrows(struct picture *picture, int lane)
{
    struct tt_schedule *schedule = &picture->schedule;
    const struct tt_step *step = tt_walk_steps(&schedule->walk, lane);
    picture->lane = lane;
    for (uint32_t i = 0; i < schedule->walk.lane[lane].at; i++) {
        if (step[i].kind == TT_STEP_WAIT) {
            picture->arrow_x = x_of(picture, schedule->end[schedule->first[lane] + i]);
            picture->has_many = step[i].peer == TT_EVERY && schedule->walk.nranks > 2;
            tt_walk_seen(&schedule->walk, lane, &step[i], put_arrow, picture);
        }
    }
}

static void put_legend(const struct picture *picture)
{
    static const char *const classes[] = {"reduce", "partial", "copy", "signal", "wait"};
    static const char *const names[] = {"reduce to a result", "reduce to a partial result", "copy",
                                        "signal", "wait"};
    static const int widths[] = {150, 190, 70, 76, 60};
    int x = LEFT;
    int y = picture->height - MARGIN;
    for (int i = 0; i < 5; i++) {
        (void)fprintf(picture->file,
                      "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"14\" height=\"12\" rx=\"2\"/>"
                      "<text x=\"%d\" y=\"%d\">%s</text>\n",
                      classes[i], x, y - 10, x + 20, y, names[i]);
        x += widths[i];
    }
    (void)fprintf(picture->file,
                  "<path class=\"data\" marker-end=\"url(#data)\" d=\"M%d,%d h22\"/>"
                  "<text x=\"%d\" y=\"%d\">data, to or from one other rank</text>\n",
                  x, y - 4, x + 28, y);
}

static void put_all(struct picture *picture)
{
    const struct tt_walk *walk = &picture->schedule.walk;
    int wanted = (int)(picture->schedule.length * UNIT);
    int most = MOST_WIDTH - LEFT - MARGIN;
    int least = LEAST_WIDTH - LEFT - MARGIN;
    int wide = wanted > most ? most : wanted < least ? least : wanted;
    picture->scale = picture->schedule.length > 0 ? wide / picture->schedule.length : 1;
    picture->width = LEFT + wide + MARGIN;
    picture->height = TOP + picture->row[walk->nranks] * ROW + walk->nranks * RANK_GAP + 2 * MARGIN;
    put_head(picture);
    put_rows(picture);
    for (int lane = 0; lane < walk->lanes; lane++) {
        for (uint32_t i = 0; i < walk->lane[lane].at; i++) {
            put_step(picture, lane, i);
        }
    }
    for (int lane = 0; lane < walk->lanes; lane++) {
        put_arrows(picture, lane);
        for (uint32_t i = 0; i < walk->lane[lane].at; i++) {
            put_data(picture, lane, i, false);
            put_data(picture, lane, i, true);
        }
    }
    for (int lane = 0; lane < walk->lanes; lane++) {
        for (uint32_t i = 0; i < walk->lane[lane].at; i++) {
            put_label(picture, lane, i);
        }
    }
    put_legend(picture);
    (void)fprintf(picture->file, "</svg>\n");
}

static bool number_rows(struct picture *picture, const struct tt_plan *const *plans)
{
    int nranks = picture->problem->nranks;
    picture->row = calloc((size_t)nranks + 1, sizeof *picture->row);
    for (int rank = 0; picture->row != NULL && rank < nranks; rank++) {
        int lanes = plans[rank]->lanes;
        picture->row[rank + 1] = picture->row[rank] + (lanes > 0 ? lanes : 1);
    }
    return picture->row != NULL;
}

bool tt_plan_draw(FILE *file, const struct tt_problem *problem, const struct tt_plan *const *plans)
{
    struct picture picture = {.file = file, .problem = problem};
    bool made = tt_schedule_make(&picture.schedule, problem, plans) && number_rows(&picture, plans);
    if (made) {
        put_all(&picture);
    }
    free(picture.row);
    tt_schedule_free(&picture.schedule);
    return made && fflush(file) == 0 && ferror(file) == 0;
}

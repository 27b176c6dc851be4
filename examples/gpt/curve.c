// SPDX-License-Identifier: Apache-2.0
#include "curve.h"

#include "storage.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 760, HEIGHT = 420, LEFT = 60, RIGHT = 20, TOP = 40, BOTTOM = 45, MARKS = 5 };

bool gpt_curve_add(struct gpt_curve *curve, int step, double loss, struct gpt_problem *problem)
{
    if (curve->count == curve->room) {
        int room = 2 * curve->room + 64;
        struct gpt_point *points = realloc(curve->points, (size_t)room * sizeof *points);
        if (points == NULL) {
            return gpt_fail(problem, GPT_FAILED, "no memory for %d losses", room);
        }
        curve->points = points;
        curve->room = room;
    }
    curve->points[curve->count++] = (struct gpt_point){step, loss};
    return true;
}

void gpt_curve_free(struct gpt_curve *curve)
{
    free(curve->points);
    memset(curve, 0, sizeof *curve);
}

struct frame {
    double first, last; // steps
    double low, high;   // losses
};

static void include(struct frame *frame, const struct gpt_curve *curve)
{
    for (int i = 0; i < curve->count; i++) {
        const struct gpt_point *p = &curve->points[i];
        frame->first = fmin(frame->first, p->step);
        frame->last = fmax(frame->last, p->step);
        frame->low = fmin(frame->low, p->loss);
        frame->high = fmax(frame->high, p->loss);
    }
}

static double x_of(const struct frame *frame, double step)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (step - frame->first) / (frame->last - frame->first);
}

static double y_of(const struct frame *frame, double loss)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (frame->high - loss) / (frame->high - frame->low);
}

// 1, 2 or 5 times a power of ten: the distance of some MARKS marks in a range.
static double mark_distance(double range)
{
    double power = pow(10, floor(log10(range / MARKS)));
    double times = range / MARKS / power;
    return power * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

// How many multiples of the distance are in a range.
static int marks_in(double low, double high, double distance)
{
    return (int)(floor(high / distance) - ceil(low / distance)) + 1;
}

static void draw_marks(FILE *file, const struct frame *frame)
{
    double distance = mark_distance(frame->high - frame->low);
    for (int i = 0; i < marks_in(frame->low, frame->high, distance); i++) {
        double loss = (ceil(frame->low / distance) + i) * distance;
        double y = y_of(frame, loss);
        (void)fprintf(file,
                      "<path class=\"mark\" d=\"M%d %.1fH%d\"/>"
                      "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                      LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4, loss);
    }
    distance = fmax(1, mark_distance(frame->last - frame->first));
    for (int i = 0; i < marks_in(frame->first, frame->last, distance); i++) {
        double step = (ceil(frame->first / distance) + i) * distance;
        (void)fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                      x_of(frame, step), HEIGHT - BOTTOM + 18, step);
    }
    (void)fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">step</text>\n",
                  (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

static void draw_curve(FILE *file, const struct frame *frame, const struct gpt_curve *curve,
                       const char *name, int number)
{
    if (curve->count == 0) {
        return;
    }
    (void)fprintf(file, "<polyline class=\"%s\" points=\"", name);
    for (int i = 0; i < curve->count; i++) {
        (void)fprintf(file, "%s%.1f,%.1f", i == 0 ? "" : " ", x_of(frame, curve->points[i].step),
                      y_of(frame, curve->points[i].loss));
    }
    (void)fprintf(file, "\"/>\n");
    for (int i = 0; number == 1 && i < curve->count; i++) {
        (void)fprintf(file, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"/>\n", name,
                      x_of(frame, curve->points[i].step), y_of(frame, curve->points[i].loss));
    }
    int x = LEFT + 10 + 210 * number;
    (void)fprintf(file,
                  "<path class=\"%s\" d=\"M%d 22h24\"/><text x=\"%d\" y=\"26\">%s: %.4f</text>\n",
                  name, x, x + 30, name, curve->points[curve->count - 1].loss);
}

static void draw(FILE *file, const struct gpt_curve *training, const struct gpt_curve *validation)
{
    struct frame frame = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    include(&frame, training);
    include(&frame, validation);
    if (!(frame.last > frame.first)) {
        frame.first = isfinite(frame.first) ? frame.first : 0;
        frame.last = frame.first + 1;
    }
    if (!(frame.high > frame.low)) {
        frame.low = isfinite(frame.low) ? frame.low - 0.5 : 0;
        frame.high = frame.low + 1;
    }
    (void)fprintf(file,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n"
                  "<style>text{font:12px sans-serif;fill:#444}polyline,path{fill:none;"
                  "stroke-width:1.5}.mark{stroke:#ddd;stroke-width:1}.training{stroke:#1f6fb4}"
                  ".validation{stroke:#d1661b;fill:none}circle.validation{fill:#d1661b}</style>\n"
                  "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
                  WIDTH, HEIGHT, WIDTH, WIDTH, HEIGHT);
    draw_marks(file, &frame);
    draw_curve(file, &frame, training, "training", 0);
    draw_curve(file, &frame, validation, "validation", 1);
    (void)fprintf(file, "</svg>\n");
}

bool gpt_curve_write(const char *path, const struct gpt_curve *training,
                     const struct gpt_curve *validation, struct gpt_problem *problem)
{
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return gpt_fail_errno(problem, path, "cannot be made");
    }
    draw(file, training, validation);
    bool right = ferror(file) == 0;
    right = fclose(file) == 0 && right;
    return right || gpt_fail_errno(problem, path, "cannot be written");
}

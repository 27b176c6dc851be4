// The picture of skew.c: time by the busiest rank's share of rows. SPDX-License-Identifier: Apache-2.0
#include "skew.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LEFT = 70, TOP = 70, WIDTH = 520, HEIGHT = 300, RIGHT = 30, BOTTOM = 60 };
static const char *const colours[WAYS] = {"#c0392b", "#2471a3", "#1e8449"};

// A step of 1, 2 or 5 times a power of ten that divides `most` into at most 6.
static double nice_step(double most)
{
    double power = pow(10, floor(log10(most / 6)));
    for (int i = 0; i < 3; i++) {
        static const double steps[] = {1, 2, 5};
        if (most / (steps[i] * power) <= 6) {
            return steps[i] * power;
        }
    }
    return 10 * power;
}

struct frame {
    double first, last; // shares
    double most;        // milliseconds
};

static double x_of(const struct frame *f, double share)
{
    double range = f->last > f->first ? f->last - f->first : 1;
    return LEFT + (share - f->first) / range * WIDTH;
}

static double y_of(const struct frame *f, double time)
{
    return TOP + HEIGHT - time / f->most * HEIGHT;
}

static struct frame frame_of(const struct skew_point *points)
{
    struct frame f = {points[0].share, points[0].share, 0};
    for (int i = 0; i < SKEWS; i++) {
        f.first = fmin(f.first, points[i].share);
        f.last = fmax(f.last, points[i].share);
        for (int way = 0; way < WAYS; way++) {
            f.most = fmax(f.most, points[i].time[way]);
        }
    }
    double step = nice_step(f.most);
    f.most = ceil(f.most / step) * step;
    return f;
}

static void draw_axes(FILE *file, const struct frame *f)
{
    double step = nice_step(f->most);
    for (double y = 0; y <= f->most + step / 2; y += step) {
        fprintf(file,
                "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='#ddd'/>"
                "<text x='%d' y='%.1f' text-anchor='end'>%g</text>\n",
                LEFT, LEFT + WIDTH, y_of(f, y), y_of(f, y), LEFT - 8, y_of(f, y) + 4, y);
    }
    fprintf(file,
            "<text x='%d' y='%d' text-anchor='middle'>rows at the busiest of 4 ranks, %% of all "
            "(even: 25)</text>\n<text x='16' y='%d' transform='rotate(-90 16 %d)' "
            "text-anchor='middle'>milliseconds</text>\n",
            LEFT + WIDTH / 2, TOP + HEIGHT + 45, TOP + HEIGHT / 2, TOP + HEIGHT / 2);
}

static void draw_way(FILE *file, const struct frame *f, const struct skew_point *points, int way)
{
    fprintf(file, "<polyline fill='none' stroke-width='2' stroke='%s' points='", colours[way]);
    for (int i = 0; i < SKEWS; i++) {
        fprintf(file, "%.1f,%.1f ", x_of(f, points[i].share), y_of(f, points[i].time[way]));
    }
    fprintf(file, "'/>\n");
    for (int i = 0; i < SKEWS; i++) {
        fprintf(file,
                "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'><title>%s: %.2f ms, %.1f MB"
                "</title></circle>\n",
                x_of(f, points[i].share), y_of(f, points[i].time[way]), colours[way],
                skew_ways[way], points[i].time[way], points[i].bytes[way] / 1e6);
    }
    fprintf(file,
            "<rect x='%d' y='40' width='12' height='12' fill='%s'/><text x='%d' y='51'>%s</text>\n",
            LEFT + 180 * way, colours[way], LEFT + 180 * way + 18, skew_ways[way]);
}

void draw_skews(const struct skew_point *points, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    struct frame f = frame_of(points);
    fprintf(
        file,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='sans-serif' "
        "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n"
        "<text x='%d' y='24' font-size='15'>Tokens to their experts under skewed routing</text>\n",
        LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM, LEFT);
    draw_axes(file, &f);
    for (int i = 0; i < SKEWS; i++) {
        fprintf(file, "<text x='%.1f' y='%d' text-anchor='middle'>%.0f</text>\n",
                x_of(&f, points[i].share), TOP + HEIGHT + 20, points[i].share * 100);
    }
    for (int way = 0; way < WAYS; way++) {
        draw_way(file, &f, points, way);
    }
    fprintf(file, "</svg>\n");
    if (fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

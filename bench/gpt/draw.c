// Compares two training runs: reads the losses of two files (lines "step loss"), prints how far
// apart they are and draws them: above both curves, below the difference of each step. Exit status
// 1 where the difference is above the bar at any step, 2 where the files do not fit together.
// SPDX-License-Identifier: Apache-2.0
#include "../usage.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 100000, LEFT = 80, WIDTH = 820, TOP = 90, CURVES = 300, GAP = 60, BELOW = 130 };

struct runs {
    int steps;
    double *loss[2];
};

// Lines "step loss", steps from 1 on without gaps. Returns the number of steps, -1 for a bad file.
static int read_losses(const char *path, double *losses)
{
    FILE *from = fopen(path, "r");
    if (from == NULL) {
        perror(path);
        return -1;
    }
    int n = 0, step = 0;
    double loss = 0;
    while (n < MOST && fscanf(from, "%d %lf", &step, &loss) == 2 && step == n + 1) {
        losses[n++] = loss;
    }
    bool whole = fgetc(from) == EOF || feof(from) || n == MOST;
    (void)fclose(from);
    if (!whole || n == 0) {
        (void)fprintf(stderr, "bench: %s: line %d is not \"%d LOSS\"\n", path, n + 1, n + 1);
        return -1;
    }
    return n;
}

// NaN where one of them is.
static double difference(const struct runs *r, int step)
{
    return fabs(r->loss[0][step] - r->loss[1][step]);
}

// The step of the largest difference; a NaN is larger than any number.
static int worst_step(const struct runs *r)
{
    int worst = 0;
    for (int i = 0; i < r->steps; i++) {
        double d = difference(r, i);
        if (isnan(d)) {
            return i;
        }
        worst = d > difference(r, worst) ? i : worst;
    }
    return worst;
}

static bool print_table(const struct runs *r, double bar)
{
    double sum = 0;
    for (int i = 0; i < r->steps; i++) {
        sum += difference(r, i);
    }
    printf("%6s  %12s  %12s  %12s\n", "step", "tutti", "PyTorch", "difference");
    for (int i = 0; i < r->steps; i++) {
        if (i == 0 || (i + 1) % 50 == 0 || i == r->steps - 1) {
            printf("%6d  %12.7f  %12.7f  %12.2e\n", i + 1, r->loss[0][i], r->loss[1][i],
                   difference(r, i));
        }
    }
    int worst = worst_step(r);
    bool good = difference(r, worst) <= bar;
    printf("largest difference %.3g at step %d, mean %.3g, bar %g: %s\n", difference(r, worst),
           worst + 1, sum / r->steps, bar, good ? "reached" : "MISSED");
    return good;
}

// ---- The picture --------------------------------------------------------------------------------

// A field of the picture; low, high: the values of its lower and upper edge.
struct field {
    int top, height;
    double low, high;
};

static double x_of(const struct runs *r, int step)
{
    return LEFT + (double)step / (r->steps > 1 ? r->steps - 1 : 1) * WIDTH;
}

static double y_of(const struct field *f, double value)
{
    double inside = fmin(fmax(value, f->low), f->high);
    return f->top + f->height - (inside - f->low) / (f->high - f->low) * f->height;
}

static void draw_line(FILE *to, const struct field *f, double value, const char *kind,
                      const char *text)
{
    double y = y_of(f, value);
    (void)fprintf(to,
                  "<line class=\"%s\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                  "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                  kind, LEFT, LEFT + WIDTH, y, y, LEFT - 8, y + 4, text);
}

static void draw_field(FILE *to, const struct field *f, const char *name)
{
    (void)fprintf(to,
                  "<text class=\"name\" x=\"%d\" y=\"%d\">%s</text>\n"
                  "<rect class=\"field\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                  LEFT, f->top - 10, name, LEFT, f->top, WIDTH, f->height);
}

static void draw_losses(FILE *to, const struct runs *r)
{
    struct field f = {TOP, CURVES, 0, 0};
    for (int i = 0; i < r->steps; i++) {
        f.high = fmax(f.high, ceil(fmax(r->loss[0][i], r->loss[1][i])));
    }
    f.high = fmax(f.high, 1);
    draw_field(to, &f, "loss (nats a byte)");
    for (int value = 0; value <= (int)f.high; value++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", value);
        draw_line(to, &f, value, "grid", text);
    }
    for (int run = 1; run >= 0; run--) { // the wide one first, the narrow one upon it
        (void)fprintf(to, "<polyline class=\"line c%d\" points=\"", run);
        for (int i = 0; i < r->steps; i++) {
            (void)fprintf(to, "%.1f,%.1f ", x_of(r, i), y_of(&f, r->loss[run][i]));
        }
        (void)fputs("\"/>\n", to);
    }
}

// Decades from 1e-8 to 1e-2; what is outside lies on the edge.
static void draw_difference(FILE *to, const struct runs *r, double bar)
{
    const struct field f = {TOP + CURVES + GAP, BELOW, -8, -2};
    draw_field(to, &f, "difference of the two, absolute");
    for (int power = (int)f.low; power <= (int)f.high; power += 2) {
        char text[16];
        (void)snprintf(text, sizeof text, "1e%d", power);
        draw_line(to, &f, power, "grid", text);
    }
    draw_line(to, &f, log10(bar), "bar", "bar");
    (void)fputs("<polyline class=\"line d\" points=\"", to);
    for (int i = 0; i < r->steps; i++) {
        double d = difference(r, i);
        (void)fprintf(to, "%.1f,%.1f ", x_of(r, i),
                      y_of(&f, isnan(d) ? f.high : log10(fmax(d, 1e-9))));
    }
    (void)fputs("\"/>\n", to);
    for (int i = 0; i <= 5; i++) {
        int step = (int)lround((r->steps - 1) * i / 5.0);
        (void)fprintf(to,
                      "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                      x_of(r, step), f.top + BELOW + 18, step + 1);
    }
}

static void draw(FILE *to, const struct runs *r, double bar)
{
    const int width = LEFT + WIDTH + 40, height = TOP + CURVES + GAP + BELOW + 60;
    (void)fprintf(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\">\n<style>\n"
        ".page { fill: #fff; } .field { fill: #f6f8fa; stroke: #d0d7de; }\n"
        ".grid { stroke: #d0d7de; } .bar { stroke: #cf222e; stroke-dasharray: 6 4; }\n"
        "text { fill: #1f2328; } .title { font-size: 20px; font-weight: 600; }\n"
        ".name { font-size: 13px; font-weight: 600; } .tick { font-size: 12px; fill: #59636e; }\n"
        ".key { font-size: 13px; } .line { fill: none; }\n"
        ".c0 { stroke: #0969da; stroke-width: 1.2; } .c1 { stroke: #f0a35e; stroke-width: 4; }\n"
        ".d { stroke: #1a7f37; stroke-width: 1.2; }\n</style>\n"
        "<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n"
        "<text class=\"title\" x=\"%d\" y=\"34\">A GPT trained from the same weights on the same "
        "batches</text>\n",
        width, height, width, height, width, height, LEFT);
    static const char *const names[] = {"tutti (examples/gpt)", "PyTorch, CPU, float"};
    for (int run = 0; run < 2; run++) {
        int x = LEFT + WIDTH - 340 + 180 * run;
        (void)fprintf(to,
                      "<line class=\"line c%d\" x1=\"%d\" x2=\"%d\" y1=\"76\" y2=\"76\"/>"
                      "<text class=\"key\" x=\"%d\" y=\"80\">%s</text>\n",
                      run, x, x + 24, x + 30, names[run]);
    }
    draw_losses(to, r);
    draw_difference(to, r, bar);
    (void)fprintf(to,
                  "<text class=\"tick\" x=\"%d\" y=\"%d\">step; largest difference %.2g at step "
                  "%d</text>\n</svg>\n",
                  LEFT, height - 14, difference(r, worst_step(r)), worst_step(r) + 1);
}

static int compare(char **paths, double bar, double *memory)
{
    struct runs runs = {0, {memory, memory + MOST}};
    int steps[2];
    for (int run = 0; run < 2; run++) {
        steps[run] = read_losses(paths[run], runs.loss[run]);
    }
    if (steps[0] < 0 || steps[1] < 0 || steps[0] != steps[1]) {
        if (steps[0] >= 0 && steps[1] >= 0) {
            (void)fprintf(stderr, "bench: %s has %d steps, %s %d\n", paths[0], steps[0], paths[1],
                          steps[1]);
        }
        return 2;
    }
    runs.steps = steps[0];
    bool good = print_table(&runs, bar);
    FILE *to = fopen(paths[2], "w");
    bool drawn = to != NULL;
    if (drawn) {
        draw(to, &runs, bar);
        drawn = fclose(to) == 0;
    }
    if (!drawn) {
        perror(paths[2]);
        return 2;
    }
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 5 || argv[1][0] == '-') {
        return bench_usage(argc > 5 && argv[1][0] != '-' ? argv[5] : argv[1], // or NULL
                           "draw LOSSES REFERENCE FILE.svg BAR");
    }
    double bar = strtod(argv[4], NULL);
    double *memory = malloc(sizeof(double) * 2 * MOST);
    if (memory == NULL || !(bar > 0)) {
        (void)fprintf(stderr, "bench: the bar is %s, must be above 0\n", argv[4]);
        free(memory);
        return 2;
    }
    int status = compare(argv + 1, bar, memory);
    free(memory);
    return status;
}

// Reads the lines of all_reduce.c from stdin, prints them as a table with the ratios and their
// geometric mean, and draws them: a panel for each number of processes, time by size, both axes
// logarithmic. Exit status 1 where tutti is slower in the mean.
// SPDX-License-Identifier: Apache-2.0
#include "../usage.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

enum { MOST = 64, LEFT = 80, WIDTH = 400, HEIGHT = 300, TOP = 110, GAP = 90, CURVES = 3 };

struct point {
    int ranks;
    double bytes;
    double time[CURVES]; // MPI, tutti, tutti queued; microseconds
};

// MPI counts by its better median: alone, or in turns with tutti.
static int read_points(struct point *points)
{
    int n = 0;
    double alone, mpi;
    while (n < MOST && scanf("%d %lf %lf %lf %lf %lf", &points[n].ranks, &points[n].bytes, &alone,
                             &mpi, &points[n].time[1], &points[n].time[2]) == 6) {
        points[n].time[0] = fmin(alone, mpi);
        n++;
    }
    return n;
}

static const char *size_text(double bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KB", "MB"};
    int unit = bytes >= 1 << 20 ? 2 : bytes >= 1 << 10 ? 1 : 0;
    (void)snprintf(text, room, "%g %s", bytes / pow(1024, unit), units[unit]);
    return text;
}

// The geometric mean of tutti's times (curve 1 or 2) by MPI's.
static double ratio(const struct point *points, int n, int curve)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += log(points[i].time[curve] / points[i].time[0]);
    }
    return exp(sum / n);
}

static void print_table(const struct point *points, int n)
{
    char text[32];
    printf("%9s  %8s  %12s  %12s  %6s  %14s  %6s\n", "processes", "size", "Open MPI, us",
           "tutti, us", "ratio", "tutti queued", "ratio");
    for (int i = 0; i < n; i++) {
        const struct point *p = &points[i];
        printf("%9d  %8s  %12.2f  %12.2f  %6.2f  %14.2f  %6.2f\n", p->ranks,
               size_text(p->bytes, text, sizeof text), p->time[0], p->time[1],
               p->time[1] / p->time[0], p->time[2], p->time[2] / p->time[0]);
    }
}

// ---- The picture --------------------------------------------------------------------------------

struct panel {
    double left, low, high; // decades of time
};

static double x_of(const struct panel *p, double bytes)
{
    return p->left + (log2(bytes) - 3) / (25 - 3) * WIDTH; // 8 B to 32 MB
}

static double y_of(const struct panel *p, double time)
{
    return TOP + HEIGHT - (log10(time) - p->low) / (p->high - p->low) * HEIGHT;
}

static void draw_axes(FILE *to, const struct panel *p, int ranks)
{
    (void)fprintf(to,
                  "<text class=\"name\" x=\"%.0f\" y=\"%d\">%d processes</text>\n"
                  "<rect class=\"field\" x=\"%.0f\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
                  p->left, TOP - 12, ranks, p->left, TOP, WIDTH, HEIGHT);
    for (int power = (int)p->low; power <= (int)p->high; power++) {
        double y = y_of(p, pow(10, power));
        (void)fprintf(
            to,
            "<line class=\"grid\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
            "<text class=\"tick\" x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.7g</text>\n",
            p->left, p->left + WIDTH, y, y, p->left - 8, y + 4, pow(10, power));
    }
}

static void draw_curve(FILE *to, const struct panel *p, const struct point *points, int n,
                       int ranks, int curve)
{
    (void)fprintf(to, "<polyline class=\"line c%d\" points=\"", curve);
    for (int i = 0; i < n; i++) {
        if (points[i].ranks == ranks) {
            (void)fprintf(to, "%.1f,%.1f ", x_of(p, points[i].bytes),
                          y_of(p, points[i].time[curve]));
        }
    }
    (void)fputs("\"/>\n", to);
    for (int i = 0; i < n; i++) {
        char text[32];
        if (points[i].ranks != ranks) {
            continue;
        }
        double x = x_of(p, points[i].bytes), y = y_of(p, points[i].time[curve]);
        (void)fprintf(to,
                      "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%.2f "
                      "us</title></circle>\n",
                      curve, x, y, points[i].time[curve]);
        if (curve == 0) {
            (void)fprintf(
                to,
                "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                "<text class=\"ratio\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.2f"
                "</text>\n",
                x, TOP + HEIGHT + 20, size_text(points[i].bytes, text, sizeof text), x,
                TOP + HEIGHT + 40, points[i].time[1] / points[i].time[0]);
        }
    }
}

static void draw_panel(FILE *to, const struct point *points, int n, int ranks, double left)
{
    struct panel p = {left, 9, -9};
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < CURVES && points[i].ranks == ranks; c++) {
            p.low = fmin(p.low, floor(log10(points[i].time[c])));
            p.high = fmax(p.high, ceil(log10(points[i].time[c])));
        }
    }
    draw_axes(to, &p, ranks);
    for (int c = 0; c < CURVES; c++) {
        draw_curve(to, &p, points, n, ranks, c);
    }
}

static void draw(FILE *to, const struct point *points, int n)
{
    static const char *const names[] = {"Open MPI", "tutti, each call waited for",
                                        "tutti, calls queued in the stream"};
    const int width = LEFT + 2 * WIDTH + GAP + 40, height = TOP + HEIGHT + 80;
    (void)fprintf(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
        "viewBox=\"0 0 %d %d\" font-family=\"system-ui, sans-serif\">\n<style>\n"
        ".page { fill: #fff; } .field { fill: #f6f8fa; stroke: #d0d7de; }\n"
        ".grid { stroke: #d0d7de; } text { fill: #1f2328; }\n"
        ".title { font-size: 20px; font-weight: 600; } .name { font-size: 14px; "
        "font-weight: 600; }\n.tick { font-size: 12px; fill: #59636e; } .key, .ratio { "
        "font-size: 13px; }\n.line { fill: none; stroke-width: 2.2; }\n"
        ".line.c0 { stroke: #57606a; } .dot.c0 { fill: #57606a; }\n"
        ".line.c1 { stroke: #0969da; } .dot.c1 { fill: #0969da; }\n"
        ".line.c2 { stroke: #1a7f37; stroke-dasharray: 5 4; } .dot.c2 { fill: #1a7f37; }\n"
        "</style>\n<rect class=\"page\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n"
        "<text class=\"title\" x=\"%d\" y=\"36\">All-reduce of floats on one host: time a "
        "call, \302\265s</text>\n",
        width, height, width, height, width, height, LEFT);
    for (int c = 0; c < CURVES; c++) {
        (void)fprintf(to,
                      "<circle class=\"dot c%d\" cx=\"%d\" cy=\"62\" r=\"5\"/><text class=\"key\" "
                      "x=\"%d\" y=\"66.5\">%s</text>\n",
                      c, LEFT + 5 + (c > 0 ? 110 : 0) + (c > 1 ? 220 : 0),
                      LEFT + 16 + (c > 0 ? 110 : 0) + (c > 1 ? 220 : 0), names[c]);
    }
    draw_panel(to, points, n, 2, LEFT);
    draw_panel(to, points, n, 4, LEFT + WIDTH + GAP);
    (void)fprintf(to,
                  "<text class=\"tick\" x=\"%d\" y=\"%d\">below each size: tutti, each call "
                  "waited for, by Open MPI; geometric mean %.2f</text>\n</svg>\n",
                  LEFT, height - 14, ratio(points, n, 1));
}

int main(int argc, char **argv)
{
    struct point points[MOST];
    if (argc != 2 || argv[1][0] == '-') {
        return bench_usage(argc > 2 && argv[1][0] != '-' ? argv[2] : argv[1], // or NULL
                           "mpi_draw FILE.svg < lines of mpi_all_reduce");
    }
    int n = read_points(points);
    if (n == 0) {
        (void)fprintf(stderr, "bench: standard input has no line of mpi_all_reduce\n");
        return 2;
    }
    print_table(points, n);
    FILE *to = fopen(argv[1], "w");
    bool good = to != NULL;
    if (good) {
        draw(to, points, n);
        good = fclose(to) == 0;
    }
    if (!good) {
        perror(argv[1]);
        return 2;
    }
    double waited = ratio(points, n, 1);
    printf("drawn: %s\n", argv[1]);
    printf("geometric mean of the ratios tutti / Open MPI, calls queued in the stream: %.2f\n",
           ratio(points, n, 2));
    printf("%s geometric mean of the ratios tutti / Open MPI, each call waited for, at most 1: "
           "%.2f\n",
           waited <= 1 ? "met   " : "MISSED", waited);
    return waited <= 1 ? 0 : 1;
}

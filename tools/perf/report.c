// The table on stdout: lines and columns of nccl-tests 2.19, so that whatever reads those reads
// these; with -P four columns more a side.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef PERF_VERSION
#define PERF_VERSION "0"
#endif

void perf_format(double value, int width, char *text)
{
    for (int digits = 2; digits >= 0; digits--) {
        if (snprintf(text, (size_t)width + 1, "%*.*f", width, digits, value) <= width) {
            return;
        }
    }
    (void)snprintf(text, (size_t)width + 1, "%*.*e", width, width >= 7 ? 1 : 0, value);
}

void perf_time_text(char *text, size_t bytes)
{
    time_t now = time(NULL);
    struct tm parts;
    if (localtime_r(&now, &parts) == NULL ||
        strftime(text, bytes, "%Y-%m-%d %H:%M:%S", &parts) == 0) {
        text[0] = '\0';
    }
}

static void print_options(const struct perf_options *o)
{
    bool by_factor = o->factor > 1;
    printf("# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: "
           "%d agg iters: %d validation: %d graph: %d unalign: %d processes: %d\n",
           o->threads, o->gpus, o->min_bytes, o->max_bytes,
           by_factor ? (size_t)o->factor : o->step_bytes, by_factor ? "factor" : "bytes", o->warmup,
           o->iterations, o->aggregated, o->checks, o->graph, o->unalign, o->processes);
    static const char *const waits[] = {
        NULL, "each call is waited for, then all ranks meet", "each call is waited for",
        "each iteration is waited for, then all ranks meet, untimed"};
    if (o->blocking != 0) {
        printf("# Blocking %d: %s\n", o->blocking, waits[o->blocking]);
    }
    if (o->operation->kind >= PERF_REDUCE_SCATTER_V) {
        static const char *const patterns[] = {"ramp: rank r has r + 1 shares",
                                               "split: as even as possible",
                                               "holes: every second rank has nothing"};
        printf("# Uneven counts, %s; size and count are of all parts\n", patterns[o->uneven]);
    }
}

// `text` in the middle of `width` characters.
static void print_centred(const char *text, int width)
{
    int before = (width + (int)strlen(text)) / 2;
    printf("%*s%*s", before, text, width - before, "");
}

// The columns of both sides: the four of every table, then those that were asked for.
static void print_names(const struct perf_options *o, const char *const *names)
{
    for (int side = 0; side < 2; side++) {
        printf("  %7s  %6s  %6s  %6s", names[0], names[1], names[2], names[3]);
        for (int k = 4; k < 8 && o->per_iteration; k++) {
            printf("  %7s", names[k]);
        }
        for (int k = 8; k < 12 && o->percentiles; k++) {
            printf("  %7s", names[k]);
        }
    }
}

static void print_columns(const struct perf_options *o)
{
    const char *const names[] = {o->cpu_time ? "cputime" : "time",
                                 "algbw",
                                 "busbw",
                                 "#wrong",
                                 "i_min",
                                 "i_max",
                                 "i_p99",
                                 "i_cv%",
                                 "p50",
                                 "p90",
                                 "p99",
                                 "max"};
    static const char *const units[] = {"(us)", "(GB/s)", "(GB/s)", "",     "(us)", "(us)",
                                        "(us)", "(%)",    "(us)",   "(us)", "(us)", "(us)"};
    const int width = 31 + (o->per_iteration ? 36 : 0) + (o->percentiles ? 36 : 0);
    printf("#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    print_centred("out-of-place", width);
    print_centred("in-place", width);
    printf("\n# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    print_names(o, names);
    printf("%s\n# %10s  %12s  %8s  %6s  %6s", o->timestamps ? "            timestamp" : "", "(B)",
           "(elements)", "", "", "");
    print_names(o, units);
    printf("%s\n", o->timestamps ? "    %Y-%m-%d %H:%M:%S" : "");
}

// Steps of the progress bar, as worker.c counts them.
static double steps_of(const struct perf_options *o, int nranks)
{
    double one = 0, lines = o->type == PERF_ALL ? ncclNumTypes : 1;
    for (size_t bytes = o->min_bytes, more = 1; more; more = bytes != 0) {
        one += 2 * ((double)bytes + 65536);
        bytes = perf_next_size(o, bytes);
    }
    if (o->operation->reduces && o->op == PERF_ALL) {
        lines *= PERF_OPERATORS;
    }
    if (o->operation->rooted && o->root == PERF_ALL) {
        lines *= nranks;
    }
    return one * lines * o->cycles;
}

void perf_report_begin(struct perf_report *report, const struct perf_team *team)
{
    const struct perf_options *o = report->options;
    report->all = steps_of(o, team->ranks);
    perf_time_text(report->started, sizeof report->started);
    (void)ncclGetVersion(&report->library);
    printf("# tutti-perf version %s nccl-headers=%d nccl-library=%d\n", PERF_VERSION,
           NCCL_VERSION_CODE, report->library);
    printf("# Collective test starting: %s\n", o->operation->name);
    print_options(o);
    printf("#\n# Using devices\n");
    for (int r = 0; r < team->ranks; r++) {
        const struct perf_rank_info *i = &team->info[r];
        printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%04x:%02x:%02x] %s\n", r, 0,
               i->pid, i->host, i->device, i->domain, i->bus, i->slot, i->name);
    }
    print_columns(o);
}

static void print_us(double seconds, int width)
{
    char text[16];
    perf_format(seconds * 1e6, width, text);
    printf("  %s", text);
}

static void print_side(const struct perf_options *o, const struct perf_side *side)
{
    if (!side->ran) {
        printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
    } else {
        char algorithm[16], bus[16];
        perf_format(side->algorithm, 6, algorithm);
        perf_format(side->bus, 6, bus);
        print_us(o->cpu_time ? side->cpu_seconds : side->seconds, 7);
        printf("  %s  %s", algorithm, bus);
        printf(side->checked ? "  %6g" : "     N/A", side->wrong);
    }
    const struct perf_statistics *s = &side->slowest, *a = &side->all;
    if (o->per_iteration && side->ran) {
        char variation[16];
        perf_format(s->variation, 7, variation);
        print_us(s->min, 7), print_us(s->max, 7), print_us(s->p99, 7);
        printf("  %s", variation);
    } else if (o->per_iteration) {
        printf("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
    }
    if (o->percentiles && side->ran) {
        print_us(a->p50, 7), print_us(a->p90, 7), print_us(a->p99, 7), print_us(a->max, 7);
    } else if (o->percentiles) {
        printf("  %7s  %7s  %7s  %7s", "N/A", "N/A", "N/A", "N/A");
    }
}

bool perf_report_line(struct perf_report *report, const struct perf_line *line)
{
    const struct perf_options *o = report->options;
    perf_progress_clear(report);
    printf("%12zu  %12zu  %8s  %6s  %6d", line->bytes, line->count, perf_type_name(line->type),
           perf_op_name(line->op), line->root);
    for (int side = 0; side < 2; side++) {
        const struct perf_side *s = &line->side[side];
        print_side(o, s);
        report->bus_sum += s->ran ? s->bus : 0;
        report->bus_count += s->ran;
        report->wrong_sides += s->wrong > 0;
    }
    if (o->timestamps) {
        char now[32];
        perf_time_text(now, sizeof now);
        printf("%21s", now);
    }
    printf("\n");
    if (o->cycles == 0 && o->json == NULL && o->plot == NULL) {
        return true; // without end: nothing is kept that nobody wants
    }
    if (report->count == report->room) {
        size_t room = report->room > 0 ? 2 * report->room : 64;
        struct perf_line *lines = realloc(report->lines, room * sizeof *lines);
        if (lines == NULL) {
            return false;
        }
        report->lines = lines;
        report->room = room;
    }
    report->lines[report->count++] = *line;
    return true;
}

static void print_memory(const struct perf_team *team)
{
    static const char *const what[] = {"Initialization", "User-Allocated", "Collective"};
    double all = 0;
    printf("# %-20s :", "GPU memory usage");
    for (int i = 0; i < 3; i++) {
        printf(" %s %.2f MB |", what[i], team->memory[i] / 1048576);
        all += team->memory[i];
    }
    printf(" Total %.2f MB\n", all / 1048576);
}

int perf_report_end(struct perf_report *report, const struct perf_team *team)
{
    const struct perf_options *o = report->options;
    const char *limit_text = getenv("NCCL_TESTS_MIN_BW");
    double limit = limit_text != NULL ? strtod(limit_text, NULL) : -1;
    double mean = report->bus_count > 0 ? report->bus_sum / (double)report->bus_count : 0;
    bool fast = limit < 0 || mean >= limit * 0.9; // nccl-tests' tenth of grace
    perf_progress_clear(report);
    printf("# %-20s : %zu %s\n", "Out of bounds values", report->wrong_sides,
           report->wrong_sides > 0 ? "FAILED" : "OK");
    printf("# %-20s : %g %s\n#\n", "Avg bus bandwidth", mean,
           limit < 0 ? ""
           : fast    ? "OK"
                     : "FAILED");
    printf("# Collective test concluded: %s\n", o->operation->name);
    if (o->memory) {
        print_memory(team);
    }
    printf("#\n");
    bool written = (o->json == NULL || perf_json_write(report, team, o->json)) &&
                   (o->plot == NULL || perf_plot_write(report, o->plot));
    return report->wrong_sides > 0 || !fast ? PERF_WRONG : written ? PERF_OK : PERF_INTERNAL;
}

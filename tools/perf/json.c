// Everything as JSON. Names are those of nccl-tests 2.19 where it has them ("size", "alg_bw",
// "out_of_place", "out_of_bounds" ...); what cannot be told is null.
// SPDX-License-Identifier: Apache-2.0
#include "perf.h"

#include <math.h>
#include <string.h>

void perf_json_string(FILE *to, const char *text)
{
    (void)fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            (void)fprintf(to, "\\%c", *c);
        } else if (*c < 0x20) {
            (void)fprintf(to, "\\u%04x", *c);
        } else {
            (void)fputc(*c, to);
        }
    }
    (void)fputc('"', to);
}

static void number(FILE *to, const char *name, double value, const char *end)
{
    if (isfinite(value)) {
        (void)fprintf(to, "\"%s\": %.9g%s", name, value, end);
    } else {
        (void)fprintf(to, "\"%s\": null%s", name, end);
    }
}

static const char *truth(bool value)
{
    return value ? "true" : "false";
}

static void write_config(FILE *to, const struct perf_report *report)
{
    const struct perf_options *o = report->options;
    static const char *const patterns[] = {"ramp", "split", "holes"};
    static const char *const kinds[] = {"contract", "exact"};
    (void)fprintf(to,
                  "  \"config\": {\"operation\": \"%s\", \"processes\": %d, \"nthreads\": %d, "
                  "\"ngpus\": %d, \"minimum_bytes\": %zu, \"maximum_bytes\": %zu, ",
                  o->operation->name, o->processes, o->threads, o->gpus, o->min_bytes,
                  o->max_bytes);
    if (o->factor > 1) {
        (void)fprintf(to, "\"step_factor\": %d, ", o->factor);
    } else {
        (void)fprintf(to, "\"step_bytes\": %zu, ", o->step_bytes);
    }
    (void)fprintf(to,
                  "\"warmup_iters\": %d, \"iterations\": %d, \"aggregated_iterations\": %d, "
                  "\"validation\": %d, \"graph\": %d, \"blocking_collectives\": %d, "
                  "\"registration\": %d, \"unalign\": %d, \"parallel_init\": %s, "
                  "\"per_iter_skip\": %d, \"align\": %d, \"uneven\": \"%s\", \"data\": \"%s\"},\n",
                  o->warmup, o->iterations, o->aggregated, o->checks, o->graph, o->blocking,
                  o->registration, o->unalign, truth(o->parallel_init), o->skipped, o->align,
                  patterns[o->uneven], kinds[report->data]);
}

static void write_devices(FILE *to, const struct perf_team *team)
{
    (void)fprintf(to, "  \"devices\": [");
    for (int r = 0; r < team->ranks; r++) {
        const struct perf_rank_info *i = &team->info[r];
        (void)fprintf(to, "%s\n    {\"rank\": %d, \"group\": 0, \"pid\": %d, \"hostname\": ",
                      r > 0 ? "," : "", r, i->pid);
        perf_json_string(to, i->host);
        (void)fprintf(to, ", \"device\": %d, \"device_hex\": \"%04x:%02x:%02x\", \"device_info\": ",
                      i->device, i->domain, i->bus, i->slot);
        perf_json_string(to, i->name);
        (void)fputc('}', to);
    }
    (void)fprintf(to, "\n  ],\n");
}

static void write_statistics(FILE *to, const char *name, const struct perf_statistics *s)
{
    (void)fprintf(to, ", \"%s\": {", name);
    number(to, "min_us", s->min * 1e6, ", ");
    number(to, "p50_us", s->p50 * 1e6, ", ");
    number(to, "p90_us", s->p90 * 1e6, ", ");
    number(to, "p99_us", s->p99 * 1e6, ", ");
    number(to, "max_us", s->max * 1e6, ", ");
    number(to, "avg_us", s->mean * 1e6, ", ");
    number(to, "cv_pct", s->variation, "}");
}

static void write_side(FILE *to, const char *name, const struct perf_side *s)
{
    if (!s->ran) {
        (void)fprintf(to, ",\n     \"%s\": null", name);
        return;
    }
    (void)fprintf(to, ",\n     \"%s\": {", name);
    number(to, "time", s->seconds * 1e6, ", ");
    number(to, "cpu_time", s->cpu_seconds * 1e6, ", ");
    number(to, "alg_bw", s->algorithm, ", ");
    number(to, "bus_bw", s->bus, ", ");
    number(to, "nwrong", s->checked ? s->wrong : NAN, "");
    if (s->has_statistics) {
        write_statistics(to, "percentiles", &s->all);
        write_statistics(to, "slowest_rank", &s->slowest);
    }
    (void)fputc('}', to);
}

static void write_results(FILE *to, const struct perf_report *report)
{
    (void)fprintf(to, "  \"results\": [");
    for (size_t i = 0; i < report->count; i++) {
        const struct perf_line *l = &report->lines[i];
        (void)fprintf(to,
                      "%s\n    {\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": "
                      "\"%s\", \"root\": %d",
                      i > 0 ? "," : "", l->bytes, l->count, perf_type_name(l->type),
                      perf_op_name(l->op), l->root);
        write_side(to, "out_of_place", &l->side[0]);
        write_side(to, "in_place", &l->side[1]);
        (void)fputc('}', to);
    }
    (void)fprintf(to, "\n  ],\n");
}

static void write_all(FILE *to, const struct perf_report *report, const struct perf_team *team)
{
    char now[32];
    perf_time_text(now, sizeof now);
    (void)fprintf(to,
                  "{\n  \"version\": 3,\n  \"program\": \"tutti-perf\",\n  \"start_time\": "
                  "\"%s\",\n  \"args\": [",
                  report->started);
    for (char **word = report->argv; *word != NULL; word++) {
        if (strncmp(*word, "--child=", 8) != 0) {
            (void)fputs(word == report->argv ? "" : ", ", to);
            perf_json_string(to, *word);
        }
    }
    (void)fprintf(to, "],\n  \"nccl_version\": %d,\n", report->library);
    write_config(to, report);
    write_devices(to, team);
    write_results(to, report);
    (void)fprintf(to, "  \"out_of_bounds\": {\"count\": %zu, \"okay\": %s},\n", report->wrong_sides,
                  truth(report->wrong_sides == 0));
    (void)fprintf(to, "  \"average_bus_bandwidth\": {");
    number(to, "bandwidth", report->bus_count > 0 ? report->bus_sum / (double)report->bus_count : 0,
           "},\n");
    (void)fprintf(to, "  \"end_time\": \"%s\"\n}\n", now);
}

bool perf_json_write(const struct perf_report *report, const struct perf_team *team,
                     const char *path)
{
    struct perf_file file;
    FILE *to = perf_file_open(&file, path);
    if (to != NULL) {
        write_all(to, report, team);
    }
    return perf_file_close(&file, "-J, --output_file");
}

// The parts of tutti-perf that need no ranks: counts, bandwidths, uneven counts, data and
// reference, percentiles, files.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "perf.h"
#include "reduce/fp8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- Counts and bandwidths ----------------------------------------------------------------------

static struct perf_options ranks_of(const char *name, int ranks)
{
    struct perf_options o = {.processes = 1, .threads = ranks, .gpus = 1, .align = 16};
    o.operation = perf_operation_find(name);
    EXPECT(o.operation != NULL);
    return o;
}

static void counts_of_nccl_tests(void)
{
    // 1000 bytes of float over 3 ranks: 250 elements; parts of 83, down to 80 by 16 bytes.
    static const struct {
        const char *name;
        size_t count, bytes, send, receive, send_start, receive_start; // of rank 1
    } want[] = {{"all_reduce", 250, 1000, 250, 250, 0, 0},
                {"broadcast", 250, 1000, 250, 250, 0, 0},
                {"reduce", 250, 1000, 250, 250, 0, 0},
                {"sendrecv", 250, 1000, 250, 250, 0, 0},
                {"put", 250, 1000, 250, 250, 0, 0},
                {"all_gather", 80, 960, 80, 240, 80, 0},
                {"gather", 80, 960, 80, 240, 80, 0},
                {"reduce_scatter", 80, 960, 240, 80, 0, 80},
                {"scatter", 80, 960, 240, 80, 0, 80},
                {"alltoall", 80, 960, 240, 240, 0, 0},
                // ramp of 250: 41, 84, 125
                {"all_gather_v", 250, 1000, 84, 250, 41, 0},
                {"gather_v", 250, 1000, 84, 250, 41, 0},
                {"reduce_scatter_v", 250, 1000, 250, 84, 0, 41},
                {"scatter_v", 250, 1000, 250, 84, 0, 41}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct perf_options o = ranks_of(want[i].name, 3);
        struct perf_shape s;
        EXPECT(perf_shape_make(&s, &o, ncclFloat32, 0, 1000));
        if (!(EXPECT_EQ(s.count, want[i].count) & EXPECT_EQ(s.bytes, want[i].bytes) &
              EXPECT_EQ(perf_send_count(&s, 1), want[i].send) &
              EXPECT_EQ(perf_receive_count(&s, 1), want[i].receive) &
              EXPECT_EQ(perf_send_start(&s, 1), want[i].send_start) &
              EXPECT_EQ(perf_receive_start(&s, 1), want[i].receive_start))) {
            (void)fprintf(stderr, "of %s\n", want[i].name);
        }
        perf_shape_free(&s);
    }
    struct perf_options o = ranks_of("all_gather", 3);
    struct perf_shape s;
    o.align = 1;
    EXPECT(perf_shape_make(&s, &o, ncclFloat32, 0, 1000));
    EXPECT_EQ(s.count, 83);
}

static void bandwidths(void)
{
    static const struct {
        const char *name;
        double algorithm, factor; // of 10^9 bytes a second that were asked for, 4 ranks
    } want[] = {{"all_reduce", 1, 1.5},
                {"broadcast", 1, 1},
                {"reduce", 1, 1},
                {"sendrecv", 1, 1},
                {"put", 1, 1},
                {"all_gather", 1, 0.75},
                {"reduce_scatter", 1, .75},
                {"alltoall", 1, 0.75},
                {"gather", 1, 0.75},
                {"scatter", 1, 0.75},
                {"all_gather_v", 1, 0.9},
                {"reduce_scatter_v", 1, 0.9},
                {"gather_v", 1, 0.7},
                {"scatter_v", 1, 0.7},
                {"all_to_all_v", 1, 0.75}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct perf_options o = ranks_of(want[i].name, 4);
        struct perf_shape s;
        double algorithm, bus;
        // Root 2 of the ramp has 3 of 10 shares; the smallest part is 1 of 10.
        EXPECT(perf_shape_make(&s, &o, ncclFloat32, 2, 1600));
        perf_bandwidth(&s, 1.6e-6, &algorithm, &bus);
        if (!(EXPECT_NEAR(algorithm, want[i].algorithm, 1e-9) &
              EXPECT_NEAR(bus, want[i].algorithm * want[i].factor, 1e-9))) {
            (void)fprintf(stderr, "of %s\n", want[i].name);
        }
        perf_shape_free(&s);
    }
}

static void uneven_counts(void)
{
    size_t parts[64];
    perf_share(PERF_UNEVEN_SPLIT, 100, 3, 0, parts);
    EXPECT_EQ(parts[0] * 10000 + parts[1] * 100 + parts[2], 343333);
    for (int pattern = PERF_UNEVEN_RAMP; pattern <= PERF_UNEVEN_HOLES; pattern++) {
        for (int n = 1; n <= 64; n++) {
            static const size_t totals[] = {0, 1, 7, 1000, ((size_t)1 << 62) - 1};
            for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
                size_t sum = 0;
                perf_share((enum perf_uneven)pattern, totals[t], n, n / 2, parts);
                for (int r = 0; r < n; r++) {
                    sum += parts[r];
                }
                EXPECT_EQ(sum, totals[t]);
            }
        }
    }
    perf_share(PERF_UNEVEN_HOLES, 12, 5, 1, parts); // turned by one: ranks 2 and 4
    EXPECT_EQ(parts[0] + parts[1] + parts[3], 0);
    EXPECT_EQ(parts[2] + parts[4], 12);
}

// Every element of a receive buffer is wanted once, and what is sent is wanted somewhere.
static void expectations_cover_buffers(void)
{
    for (int kind = 0; kind < PERF_KINDS; kind++) {
        for (int n = 1; n <= 9; n += 4) {
            struct perf_options o = ranks_of(perf_operations[kind].name, n);
            struct perf_shape s;
            struct perf_segment segments[9];
            o.align = 1;
            EXPECT(perf_shape_make(&s, &o, ncclInt32, n - 1, 401));
            for (int r = 0; r < n; r++) {
                size_t covered = 0;
                int parts = perf_expect(&s, r, segments);
                for (int i = 0; i < parts; i++) {
                    EXPECT_EQ(segments[i].start, covered); // one after the other
                    covered += segments[i].count;
                    EXPECT(segments[i].source == PERF_FROM_ALL ||
                           segments[i].first + segments[i].count <=
                               perf_send_count(&s, segments[i].rank));
                }
                bool nothing = s.operation->rooted && kind != PERF_BROADCAST &&
                               kind != PERF_SCATTER && kind != PERF_SCATTER_V && r != s.root;
                EXPECT_EQ(covered, nothing ? 0 : perf_receive_count(&s, r));
            }
            perf_shape_free(&s);
        }
    }
}

// ---- Data ---------------------------------------------------------------------------------------

static double value_at(int type, const void *data, size_t i)
{
    const unsigned char *at = (const unsigned char *)data + i * perf_type_bytes(type);
    uint64_t bits = 0;
    double number;
    memcpy(&bits, at, perf_type_bytes(type));
    memcpy(&number, &bits, sizeof number);
    switch (type) {
    case ncclFloat16:
        return tt_float_from_half((uint16_t)bits);
    case ncclBfloat16:
        return tt_float_from_bfloat16((uint16_t)bits);
    case ncclFloat8e4m3:
        return tt_float_from_e4m3((uint8_t)bits);
    case ncclFloat8e5m2:
        return tt_float_from_e5m2((uint8_t)bits);
    case ncclFloat32:
        return tt_float_from_bits((uint32_t)bits);
    default:
        return number;
    }
}

static bool is_float(int type)
{
    return type >= ncclFloat16;
}

static void inputs_repeat_and_differ(void)
{
    static uint64_t a[300], b[300];
    for (int type = 0; type < ncclNumTypes; type++) {
        for (int data = PERF_DATA_CONTRACT; data <= PERF_DATA_EXACT; data++) {
            struct perf_input in = {type, ncclSum, 5, (enum perf_data)data, 3};
            const size_t bytes = perf_type_bytes(type);
            perf_fill(&in, 2, 1000, 300, a);
            for (size_t i = 0; i < 300; i += 7) { // piecewise the same, at any alignment
                size_t n = 300 - i < 7 ? 300 - i : 7;
                perf_fill(&in, 2, 1000 + i, n, (char *)b + i * bytes);
            }
            EXPECT(memcmp(a, b, 300 * bytes) == 0);
            perf_fill(&in, 3, 1000, 300, b);
            EXPECT(perf_differences(&in, a, b, 300) > 100);
            in.seed = 4;
            perf_fill(&in, 2, 1000, 300, b);
            EXPECT(perf_differences(&in, a, b, 300) > 100);
            for (size_t i = 0; i < 300 && is_float(type); i++) {
                EXPECT(isfinite(value_at(type, a, i)));
            }
        }
    }
}

// The reference against arithmetic written out here: float and double sums and products in rank
// order; what small floats round to.
static void reference_is_in_rank_order(void)
{
    enum { N = 64 };
    static const int ops[] = {ncclSum, ncclProd, ncclMin, ncclMax, ncclAvg, PERF_MULSUM};
    static uint64_t scratch[7 * PERF_BLOCK], inputs[7][N], out[N];
    for (int type = ncclFloat16; type < ncclNumTypes; type++) {
        for (size_t k = 0; k < 6; k++) {
            const struct perf_input in = {type, ops[k], 7, PERF_DATA_CONTRACT, 9};
            for (int r = 0; r < 7; r++) {
                perf_fill(&in, r, 5, N, inputs[r]);
            }
            perf_reduce(&in, 5, N, scratch, out);
            for (size_t i = 0; i < N; i++) {
                double d = 0;
                float f = 0;
                for (int r = 0; r < 7; r++) {
                    uint64_t factor;
                    perf_factor(&in, r, &factor);
                    double x = value_at(type, inputs[r], i);
                    double s = ops[k] == PERF_MULSUM ? value_at(type, &factor, 0) : 1;
                    float xf = (float)x * (float)s;
                    x *= s;
                    bool first = r == 0;
                    d = first                ? x
                        : ops[k] == ncclProd ? d * x
                        : ops[k] == ncclMin  ? fmin(d, x)
                        : ops[k] == ncclMax  ? fmax(d, x)
                                             : d + x;
                    f = first                ? xf
                        : ops[k] == ncclProd ? f * xf
                        : ops[k] == ncclMin  ? fminf(f, xf)
                        : ops[k] == ncclMax  ? fmaxf(f, xf)
                                             : f + xf;
                }
                d = ops[k] == ncclAvg ? d / 7 : d;
                f = ops[k] == ncclAvg ? f / 7 : f;
                uint16_t half = tt_half_from_float(f), bf16 = tt_bfloat16_from_float(f);
                uint8_t e4m3 = tt_e4m3_from_float(f), e5m2 = tt_e5m2_from_float(f);
                const void *want = type == ncclFloat64      ? (void *)&d
                                   : type == ncclFloat32    ? (void *)&f
                                   : type == ncclFloat16    ? (void *)&half
                                   : type == ncclBfloat16   ? (void *)&bf16
                                   : type == ncclFloat8e4m3 ? (void *)&e4m3
                                                            : (void *)&e5m2;
                EXPECT(perf_differences(&in, (char *)out + i * perf_type_bytes(type), want, 1) ==
                       0);
            }
        }
    }
}

static void contract_data_tells_the_order(void)
{
    enum { N = 512 };
    static float in[4][N], forward[N], backward[N];
    const struct perf_input input = {ncclFloat32, ncclSum, 4, PERF_DATA_CONTRACT, 1};
    for (int r = 0; r < 4; r++) {
        perf_fill(&input, r, 0, N, in[r]);
    }
    for (int i = 0; i < N; i++) {
        forward[i] = ((in[0][i] + in[1][i]) + in[2][i]) + in[3][i];
        backward[i] = ((in[3][i] + in[2][i]) + in[1][i]) + in[0][i];
    }
    EXPECT(perf_differences(&input, forward, backward, N) > N / 8);
}

// Whatever the order and wherever it rounds: half and the 8-bit floats after every addition.
static void exact_data_is_the_same_in_any_order(void)
{
    enum { N = 256, RANKS = 9 };
    static uint8_t in[RANKS][N];
    static uint64_t scratch[RANKS * PERF_BLOCK], out[N];
    for (int product = 0; product < 2; product++) {
        const struct perf_input input = {ncclFloat8e5m2, product ? ncclProd : ncclSum, RANKS,
                                         PERF_DATA_EXACT, 1};
        for (int r = 0; r < RANKS; r++) {
            perf_fill(&input, r, 0, N, in[r]);
        }
        perf_reduce(&input, 0, N, scratch, out);
        for (size_t i = 0; i < N; i++) {
            uint8_t sum = in[RANKS - 1][i];
            for (int r = RANKS - 2; r >= 0; r--) {
                float a = tt_float_from_e5m2(sum), b = tt_float_from_e5m2(in[r][i]);
                sum = tt_e5m2_from_float(product ? a * b : a + b);
            }
            EXPECT_EQ(sum, ((uint8_t *)out)[i]);
        }
    }
}

static void differences_are_counted(void)
{
    float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 4};
    struct perf_input in = {ncclFloat32, ncclAvg, 2, PERF_DATA_CONTRACT, 1};
    EXPECT_EQ(perf_differences(&in, a, b, 4), 0);
    b[1] = nextafterf(2, 3), b[3] = -4;
    EXPECT_EQ(perf_differences(&in, a, b, 4), 2);
    in.data = PERF_DATA_EXACT; // averages of another library may be two units off
    EXPECT_EQ(perf_differences(&in, a, b, 4), 1);
}

// ---- Statistics, text, files --------------------------------------------------------------------

static void percentiles_by_nearest_rank(void)
{
    double hundred[100], few[] = {3, 1, 2};
    for (int i = 0; i < 100; i++) {
        hundred[i] = 100 - i;
    }
    struct perf_statistics s = perf_statistics_of(hundred, 100);
    EXPECT_NEAR(s.min, 1, 0);
    EXPECT_NEAR(s.p50, 50, 0);
    EXPECT_NEAR(s.p90, 90, 0);
    EXPECT_NEAR(s.p99, 99, 0);
    EXPECT_NEAR(s.max, 100, 0);
    EXPECT_NEAR(s.mean, 50.5, 1e-12);
    s = perf_statistics_of(few, 3);
    EXPECT_NEAR(s.p50, 2, 0);
    EXPECT_NEAR(s.p99, 3, 0);
    EXPECT_NEAR(s.variation, sqrt(2.0 / 3) / 2 * 100, 1e-9);
    EXPECT_NEAR(perf_statistics_of(NULL, 0).max, 0, 0);
}

static void numbers_keep_their_width(void)
{
    char text[16];
    perf_format(3.14159, 6, text);
    EXPECT_STR(text, "  3.14");
    perf_format(12345.6, 7, text);
    EXPECT_STR(text, "12345.6");
    perf_format(1234567, 7, text);
    EXPECT_STR(text, "1234567");
    perf_format(123456789, 7, text);
    EXPECT_STR(text, "1.2e+08");
}

static void read_file(const char *path, char *text, size_t room)
{
    FILE *from = fopen(path, "r");
    size_t got = from != NULL ? fread(text, 1, room - 1, from) : 0;
    text[got] = '\0';
    if (EXPECT(from != NULL)) {
        (void)fclose(from);
    }
}

// Brackets outside of strings close in order.
static bool is_balanced(const char *text)
{
    char open[64];
    int depth = 0;
    for (bool inside = false; *text != '\0'; text++) {
        if (*text == '"' && text[-1] != '\\') {
            inside = !inside;
        } else if (!inside && (*text == '{' || *text == '[') && depth < 63) {
            open[depth++] = *text == '{' ? '}' : ']';
        } else if (!inside && (*text == '}' || *text == ']') &&
                   (depth == 0 || open[--depth] != *text)) {
            return false;
        }
    }
    return depth == 0;
}

static void json_and_plot(void)
{
    static char text[1 << 16];
    char json[] = "/tmp/tutti-perf-test-XXXXXX", plot[64];
    char *words[] = {(char *)"tutti-perf", (char *)"a \"word\"", (char *)"--child=1:3", NULL};
    struct perf_options o = ranks_of("all_reduce", 2);
    struct perf_team *team = calloc(1, sizeof *team);
    struct perf_line lines[3] = {{.bytes = 8, .count = 2, .type = ncclFloat32, .root = -1},
                                 {.bytes = 1024, .count = 256, .type = ncclFloat32, .root = -1},
                                 {.bytes = 65536, .count = 16384, .type = ncclFloat32, .root = -1}};
    close(mkstemp(json));
    (void)snprintf(plot, sizeof plot, "%s.svg", json);
    for (int i = 0; i < 3; i++) {
        struct perf_side side = {.ran = true,
                                 .checked = true,
                                 .seconds = 1e-6 * (1 + 10 * i),
                                 .algorithm = 1 + i,
                                 .bus = 1 + i,
                                 .has_statistics = true,
                                 .all = {.p50 = 1e-6 * (1 + 10 * i), .p99 = 5e-6 * (1 + 10 * i)}};
        lines[i].side[0] = lines[i].side[1] = side;
    }
    lines[2].side[1].ran = false;
    struct perf_report report = {
        .options = &o, .argv = words, .lines = lines, .count = 3, .bus_sum = 9, .bus_count = 5};
    team->ranks = 2;
    EXPECT(perf_json_write(&report, team, json));
    read_file(json, text, sizeof text);
    EXPECT(is_balanced(text));
    EXPECT_CONTAINS(text, "\"a \\\"word\\\"\"]");
    EXPECT_CONTAINS(text, "\"size\": 65536, \"count\": 16384, \"type\": \"float\"");
    EXPECT_CONTAINS(text, "\"in_place\": null");
    EXPECT_CONTAINS(text, "\"p99_us\": 55");
    EXPECT_CONTAINS(text, "\"bandwidth\": 1.8}");
    EXPECT(perf_plot_write(&report, plot));
    read_file(plot, text, sizeof text);
    EXPECT_CONTAINS(text, "</svg>");
    EXPECT_CONTAINS(text, "all_reduce, 2 ranks");
    EXPECT_CONTAINS(text, "in place");
    EXPECT(strstr(text, "nan") == NULL && strstr(text, "inf") == NULL);
    EXPECT(strstr(text, "href") == NULL && strstr(text, "url(") == NULL);
    unlink(json), unlink(plot);
    EXPECT(!perf_plot_write(&report, "/nonexistent/plot.svg"));
    free(team);
}

int main(void)
{
    RUN(counts_of_nccl_tests);
    RUN(bandwidths);
    RUN(uneven_counts);
    RUN(expectations_cover_buffers);
    RUN(inputs_repeat_and_differ);
    RUN(reference_is_in_rank_order);
    RUN(contract_data_tells_the_order);
    RUN(exact_data_is_the_same_in_any_order);
    RUN(differences_are_counted);
    RUN(percentiles_by_nearest_rank);
    RUN(numbers_keep_their_width);
    RUN(json_and_plot);
    return expect_result();
}

// The contract on bits, as hashes: all functions, types, operators, even and uneven, messages and
// the fused RMSNorm, are run on the same inputs under many settings, and give one hash: on every
// rank, in every run, as threads and as processes, with any number of lanes, at any offset and
// alignment, by every algorithm, the emulated switch included. Prints the table.
//
// Each rank hashes what it received; a rank's hashes under all settings are compared, those of
// results that all ranks have, between ranks too.
// SPDX-License-Identifier: Apache-2.0
#include "collectives.h"

#include <stdio.h>
#include <string.h>
#include <tutti.h>

enum { RANKS = 4, AREA = 96 << 20, HALF = AREA / 2, MOST_RESULTS = 256, GROUPS = 6 };

// Groups of results, a hash each.
static const char *const group_names[GROUPS] = {"reductions", "own factors", "moves",
                                                "uneven",     "messages",    "fused"};

struct result {
    const char *place;
    size_t bytes;
    int group;
    bool is_common; // every rank has the same
};

struct state {
    struct member m;
    char *memory; // AREA bytes: inputs, then outputs
    char *host;   // HALF
    bool in_window;
    unsigned shift;        // of this setting, in elements; differs between ranks where it may
    uint64_t hash[GROUPS]; // of this rank's results
    uint64_t common;       // of results that every rank has
    // What was enqueued since the last look, and where the next output goes.
    struct result result[MOST_RESULTS];
    int results;
    size_t used;
};

static void add_to(uint64_t *hash, const void *data, size_t bytes)
{
    *hash = mix_bits(*hash ^ hash_of(data, bytes));
}

// Where buffers begin: the switch needs the same place on all ranks.
static size_t shift_of(const struct state *s, size_t element, int which)
{
    unsigned own = s->in_window ? 0 : (unsigned)s->m.rank * 3;
    return (s->shift * (unsigned)(which + 1) + own) % 17 * element;
}

// The inputs of a type, for all that follows: at an offset of its own.
static char *put_inputs(struct state *s, ncclDataType_t type, size_t count, unsigned seed)
{
    size_t element = bytes_of_type(type);
    char *send = s->memory + shift_of(s, element, 0);
    EXPECT(count * element + 1024 < HALF);
    for (size_t i = 0; i < count; i++) {
        put_input(s->host + i * element, type, s->m.rank, i, seed);
    }
    EXPECT_CUDA(cudaMemcpy(send, s->host, count * element, cudaMemcpyDefault));
    return send;
}

// The next place for an output, of which this rank receives `count` elements and others at most
// `most`.
static char *next_output(struct state *s, int group, ncclDataType_t type, size_t count, size_t most,
                         bool is_common)
{
    size_t element = bytes_of_type(type);
    char *recv = s->memory + HALF + s->used + shift_of(s, element, 1 + s->results % 5);
    s->used += (most * element + 255) / 256 * 256 + 1024;
    if (!EXPECT(s->used <= HALF) || !EXPECT(s->results < MOST_RESULTS)) {
        s->used = 0;
        s->results = 0;
    }
    s->result[s->results++] = (struct result){recv, count * element, group, is_common};
    return recv;
}

// Waits for what was enqueued, and hashes it.
static void look(struct state *s)
{
    EXPECT_CUDA(cudaStreamSynchronize(s->m.stream));
    EXPECT_OK(member_state(&s->m));
    for (int i = 0; i < s->results; i++) {
        const struct result *result = &s->result[i];
        EXPECT_CUDA(cudaMemcpy(s->host, result->place, result->bytes, cudaMemcpyDefault));
        add_to(&s->hash[result->group], s->host, result->bytes);
        if (result->is_common) {
            add_to(&s->common, s->host, result->bytes);
        }
    }
    s->results = 0;
    s->used = 0;
    ranks_barrier(); // outputs may be written again
}

static void run_form(struct state *s, const struct form *form, char *send, int group)
{
    struct member *m = &s->m;
    enum function f = form->function;
    bool is_common = f == ALL_REDUCE || f == BROADCAST || f == BCAST || f == ALL_GATHER;
    size_t received = recv_elements(form, m);
    char *recv =
        next_output(s, group, form->type, received, form->count * (size_t)m->size, is_common);
    if (f == BCAST && m->rank == form->root) {
        EXPECT_CUDA(cudaMemcpyAsync(recv, send, form->count * bytes_of_type(form->type),
                                    cudaMemcpyDefault, m->stream));
    }
    EXPECT_OK(call_form(form, send, recv, m));
}

// Small ones travel in entries, others by plans, large ones in several lanes and chunks.
static void run_type(struct state *s, ncclDataType_t type)
{
    static const size_t counts[] = {3, 1001, 30011};
    char *send = put_inputs(s, type, RANKS * counts[2], (unsigned)type);
    for (int f = 0; f < FUNCTIONS; f++) {
        bool adds = reduces((enum function)f);
        for (int op = 0; op < (adds ? ncclNumOps : 1); op++) {
            for (int i = 0; i < 3; i++) {
                struct form form = {.function = (enum function)f,
                                    .type = type,
                                    .op = (ncclRedOp_t)op,
                                    .count = counts[i],
                                    .root = ((int)type + op) % RANKS};
                // The small one of every second, the large one of some.
                int which = (int)type + op + f;
                bool is_run = i == 0 ? is_full() || which % 2 == 0
                                     : i == 1 || which % (is_full() ? 2 : 9) == 0;
                if (is_run) {
                    run_form(s, &form, send, adds ? 0 : 2);
                }
            }
        }
    }
    look(s);
}

static void run_forms(struct state *s)
{
    for (int type = 0; type < ncclNumTypes; type++) {
        run_type(s, (ncclDataType_t)type);
    }
    struct form large = {.type = ncclFloat32, .count = is_full() ? 800007 : 200003};
    run_form(s, &large, put_inputs(s, ncclFloat32, large.count, 99), 0);
    look(s);
}

static void run_factors(struct state *s)
{
    static const ncclDataType_t types[] = {ncclFloat16, ncclFloat32, ncclInt32, ncclBfloat16};
    static const size_t counts[] = {2, 5003};
    for (int t = 0; t < 4; t++) {
        char factor[8] = {0}, *send = put_inputs(s, types[t], RANKS * counts[1], 7);
        ncclRedOp_t op;
        put_number(factor, types[t], 1 + s->m.rank * (types[t] == ncclInt32 ? 1 : 0.37));
        EXPECT_OK(
            ncclRedOpCreatePreMulSum(&op, factor, types[t], ncclScalarHostImmediate, s->m.comm));
        for (int f = 0; f < FUNCTIONS; f++) {
            for (int i = 0; i < 2 && reduces((enum function)f); i++) {
                struct form form = {
                    .function = (enum function)f, .type = types[t], .op = op, .count = counts[i]};
                run_form(s, &form, send, 1);
            }
        }
        look(s);
        EXPECT_OK(ncclRedOpDestroy(op, s->m.comm));
    }
}

// Zeros among the counts; parts one behind the other.
static void run_uneven(struct state *s, ncclDataType_t type, size_t scale)
{
    size_t counts[RANKS] = {3 * scale, 0, 7 * scale + 1, scale}, pairs[RANKS], expected = 0;
    size_t total = 11 * scale + 1;
    struct member *m = &s->m;
    int r = m->rank;
    char *send = put_inputs(s, type, RANKS * total, (unsigned)scale);
    char *recv = next_output(s, 3, type, total, total, true);
    EXPECT_OK(tuttiAllGatherV(send, counts[r], recv, counts, NULL, type, m->comm, m->stream));
    for (int op = 0; op < ncclNumOps; op++) {
        recv = next_output(s, 3, type, counts[r], total, false);
        EXPECT_OK(
            tuttiReduceScatterV(send, recv, counts, type, (ncclRedOp_t)op, m->comm, m->stream));
    }
    for (int q = 0; q < RANKS; q++) {
        pairs[q] = counts[(r + q) % RANKS]; // as many from r to q as from q to r
        expected += pairs[q];
    }
    recv = next_output(s, 3, type, expected, total, false);
    EXPECT_OK(tuttiAllToAllV(send, pairs, NULL, recv, pairs, NULL, type, m->comm, m->stream));
    recv = next_output(s, 3, type, r == 2 ? total : 0, total, false);
    EXPECT_OK(tuttiGatherV(send, counts[r], recv, counts, NULL, type, 2, m->comm, m->stream));
    recv = next_output(s, 3, type, counts[r], total, false);
    EXPECT_OK(tuttiScatterV(send, counts, NULL, recv, counts[r], type, 1, m->comm, m->stream));
    look(s);
}

static void run_messages(struct state *s)
{
    static const size_t counts[] = {1, 5001, 200003};
    struct member *m = &s->m;
    char *send = put_inputs(s, ncclFloat16, counts[2], 3);
    for (int i = 0; i < 3; i++) {
        char *recv = next_output(s, 4, ncclFloat16, counts[i], counts[i], false);
        EXPECT_OK(ncclGroupStart());
        EXPECT_OK(
            ncclSend(send, counts[i], ncclFloat16, (m->rank + 1) % RANKS, m->comm, m->stream));
        EXPECT_OK(ncclRecv(recv, counts[i], ncclFloat16, (m->rank + RANKS - 1) % RANKS, m->comm,
                           m->stream));
        EXPECT_OK(ncclGroupEnd());
    }
    look(s);
}

// Where there is a window: buffers begin at the same place on all ranks.
static void run_fused(struct state *s)
{
    static const ncclDataType_t types[] = {ncclFloat32, ncclFloat16, ncclBfloat16};
    enum { TOKENS = 13, HIDDEN = 1021, ALL = TOKENS * HIDDEN };
    for (int t = 0; t < 3; t++) {
        char *send = put_inputs(s, types[t], ALL, (unsigned)t);
        char *recv = next_output(s, 5, types[t], ALL, ALL, true);
        EXPECT_OK(tuttiAllReduceRMSNorm(send, recv, TOKENS, HIDDEN, NULL, types[t], s->m.comm,
                                        s->m.stream));
        look(s);
    }
}

static void run_all(struct state *s)
{
    run_forms(s);
    run_factors(s);
    run_uneven(s, ncclInt32, 1);
    run_uneven(s, ncclFloat16, 500);
    run_uneven(s, ncclFloat8e4m3, 4000);
    run_messages(s);
    if (s->in_window) {
        run_fused(s);
    }
}

// ---- Comparing ----------------------------------------------------------------------------------

// The hashes of earlier settings are in the environment: rank by rank, group by group.
static const char *earlier_name(int group)
{
    static _Thread_local char name[32];
    (void)snprintf(name, sizeof name, "TUTTI_TEST_HASH_%d", group);
    return name;
}

// A setting's number in its table; the same on all ranks.
static unsigned setting_number(void)
{
    const char *text = getenv("TUTTI_TEST_SETTING");
    return text == NULL ? 0 : (unsigned)strtoul(text, NULL, 10);
}

static void compare(struct state *s)
{
    uint64_t all[RANKS], total[GROUPS];
    ranks_gather(&s->common, all, sizeof s->common);
    for (int r = 0; r < RANKS; r++) {
        EXPECT(all[r] == s->common);
    }
    for (int g = 0; g < GROUPS; g++) {
        ranks_gather(&s->hash[g], all, sizeof s->hash[g]);
        total[g] = hash_of(all, sizeof all);
        const char *earlier = getenv(earlier_name(g));
        bool is_same =
            earlier == NULL || s->hash[g] == 0 || strtoull(earlier, NULL, 16) == total[g];
        if (!EXPECT(is_same) && s->m.rank == 0) {
            fprintf(stderr, "  (%s: %016llx, must be %s)\n", group_names[g],
                    (unsigned long long)total[g], earlier);
        }
    }
    ranks_barrier();
    if (s->m.rank == 0) {
        for (int g = 0; g < GROUPS; g++) {
            char text[32];
            (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)total[g]);
            printf(" %s", s->hash[g] == 0 ? "               -" : text);
            if (s->hash[g] != 0 && getenv(earlier_name(g)) == NULL) {
                (void)setenv(earlier_name(g), text, 1); // threads: for the processes to come
            }
        }
        printf("\n");
        (void)fflush(stdout);
    }
}

static void hash_all(int rank, int size)
{
    struct state s = {.in_window = getenv("TUTTI_TEST_WINDOW") != NULL, .shift = setting_number()};
    EXPECT_EQ(size, RANKS);
    if (!member_join(&s.m, rank, size)) {
        return;
    }
    if (s.in_window ? !member_open_window(&s.m, AREA)
                    : !EXPECT_CUDA(cudaMalloc((void **)&s.memory, AREA))) {
        return;
    }
    s.memory = s.in_window ? s.m.memory : s.memory;
    s.host = malloc(HALF);
    run_all(&s);
    compare(&s);
    free(s.host);
    ranks_barrier();
    if (!s.in_window) {
        EXPECT_CUDA(cudaFree(s.memory));
    }
    member_leave(&s.m);
}

// ---- Settings -----------------------------------------------------------------------------------

struct setting {
    const char *title, *name, *value; // NULL: none
    bool in_window, as_threads;
    bool is_extra; // in the long form alone
};

// Threads come first: their hashes, a group's first, are those that all others must have.
static const struct setting settings[] = {
    {"threads", NULL, NULL, false, true, false},
    {"threads, again", NULL, NULL, false, true, false},
    {"threads, in a window", NULL, NULL, true, true, false},
    {"processes", NULL, NULL, false, false, false},
    {"processes, again", NULL, NULL, false, false, false},
    {"1 worker", "VGPU_WORKERS", "1", false, false, false},
    {"8 workers: 2 lanes", "VGPU_WORKERS", "8", false, false, true},
    {"20 workers: 5 lanes", "VGPU_WORKERS", "20", false, false, false},
    {"direct", "NCCL_ALGO", "direct", true, false, false},
    {"ring", "NCCL_ALGO", "Ring", false, false, false},
    {"tree where there is one", "NCCL_ALGO", "Ring;AllReduce:Tree;Broadcast:Tree", false, false,
     false},
    {"staged", "NCCL_ALGO", "staged", false, false, false},
    {"NVLS", "NCCL_ALGO", "NVLS,direct", true, false, false},
    {"no NVLS", "NCCL_NVLS_ENABLE", "0", true, false, true},
    {"no peer access", "VGPU_MACHINE", "pcie-4", false, false, true},
    {"two hosts", "TUTTI_FAKE_HOSTS", "1,3", false, false, true},
};

enum { SETTINGS = sizeof settings / sizeof settings[0] };

static void run_setting(const struct setting *setting, int number)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    (void)setenv("TUTTI_TEST_SETTING", text, 1);
    if (setting->name != NULL) {
        (void)setenv(setting->name, setting->value, 1);
    }
    if (setting->in_window) {
        (void)setenv("TUTTI_TEST_WINDOW", "1", 1);
    }
    printf("%-24s", setting->title);
    (void)fflush(stdout);
    int before = expect_failures();
    if (setting->as_threads) {
        run_thread_ranks(RANKS, hash_all, 120);
    } else if (process_size_count() > 0) {
        run_ranks(RANKS, hash_all, 120);
    } else {
        printf(" (no processes here)\n");
    }
    if (expect_failures() > before) {
        fprintf(stderr, "  (with %s)\n", setting->title);
    }
    (void)unsetenv("TUTTI_TEST_WINDOW");
    if (setting->name != NULL) {
        (void)unsetenv(setting->name);
    }
}

static void all_settings(void)
{
    printf("%-24s", "setting");
    for (int g = 0; g < GROUPS; g++) {
        printf(" %16s", group_names[g]);
        (void)unsetenv(earlier_name(g));
    }
    printf("\n");
    for (int i = 0; i < SETTINGS; i++) {
        if (is_full() || !settings[i].is_extra) {
            run_setting(&settings[i], i);
        }
    }
}

int main(void)
{
    RUN(all_settings);
    return expect_result();
}

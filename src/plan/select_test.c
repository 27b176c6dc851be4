// NCCL_ALGO's grammar, and which algorithm it leaves. SPDX-License-Identifier: Apache-2.0
#include "plan/select.h"

#include "base/log.h"
#include "expect.h"

#include <string.h>

static struct tt_problem problem_of(enum tt_function function)
{
    return (struct tt_problem){.function = function,
                               .nranks = 4,
                               .count = 1000,
                               .element = 4,
                               .accumulator = 4,
                               .lanes = 1};
}

// The name of the algorithm that a text leaves; "none" and the text of the failure else.
static const char *chosen(const char *text, enum tt_function function, struct tt_means means)
{
    struct tt_choice choice;
    const struct tt_algorithm *algorithm = NULL;
    struct tt_problem problem = problem_of(function);
    if (!EXPECT_OK(tt_choice_parse(text, &choice))) {
        return "no choice";
    }
    ncclResult_t result = tt_select(&choice, &problem, means, &algorithm);
    EXPECT(result == ncclSuccess || result == ncclInvalidUsage);
    return result == ncclSuccess ? algorithm->name : "none";
}

static const struct tt_means plain = {.is_mapped = true};
static const struct tt_means multicast = {.is_mapped = true, .has_multicast = true};
static const struct tt_means unmapped = {.is_mapped = false};

static void without_a_choice(void)
{
    EXPECT_STR(chosen("", TT_ALL_REDUCE, plain), "direct");
    EXPECT_STR(chosen("", TT_ALL_REDUCE, multicast), "switch");
    EXPECT_STR(chosen("", TT_ALL_TO_ALL, multicast), "direct");
    for (int function = 0; function < TT_FUSED_RMSNORM; function++) {
        EXPECT_STR(chosen("", (enum tt_function)function, unmapped), "staged");
    }
}

static void lists(void)
{
    EXPECT_STR(chosen("ring", TT_ALL_REDUCE, multicast), "ring");
    EXPECT_STR(chosen("RING", TT_BROADCAST, plain), "ring");
    EXPECT_STR(chosen("Tree", TT_BROADCAST, plain), "tree");
    EXPECT_STR(chosen("tree,ring", TT_REDUCE_SCATTER, plain), "ring");
    EXPECT_STR(chosen("NVLS", TT_ALL_REDUCE, multicast), "switch");
    EXPECT_STR(chosen("nvls,ring", TT_ALL_REDUCE, plain), "ring");
    EXPECT_STR(chosen("direct", TT_ALL_REDUCE, multicast), "direct");
    EXPECT_STR(chosen("staged", TT_ALL_REDUCE, multicast), "staged");
    EXPECT_STR(chosen("^nvls", TT_ALL_REDUCE, multicast), "direct");
    EXPECT_STR(chosen("^NVLS,direct", TT_ALL_REDUCE, multicast), "ring");
    EXPECT_STR(chosen("ring;allreduce:tree", TT_ALL_REDUCE, plain), "tree");
    EXPECT_STR(chosen("ring;allreduce:tree", TT_BROADCAST, plain), "ring");
    EXPECT_STR(chosen("allreduce:tree;Broadcast:^direct", TT_BROADCAST, plain), "ring");
    EXPECT_STR(chosen("allreduce:tree", TT_REDUCE, plain), "direct");
    EXPECT_STR(chosen("ring", TT_ALL_TO_ALL, plain), "direct"); // not chosen for
    EXPECT_STR(chosen("pat,ring", TT_ALL_GATHER, plain), "ring");
    EXPECT_STR(chosen("ring;", TT_ALL_GATHER, plain), "ring");
}

static void memory_that_is_not_mapped(void)
{
    EXPECT_STR(chosen("ring", TT_ALL_REDUCE, unmapped), "staged");
    EXPECT_STR(chosen("^staged", TT_ALL_REDUCE, unmapped), "none");
    EXPECT_CONTAINS(tt_last_error(), "staged: not allowed");
    EXPECT_CONTAINS(tt_last_error(), "direct: needs buffers that all ranks can map");
}

// Buffers far from the switch: through scratch, where nothing else is allowed.
static void far_from_the_switch(void)
{
    static const struct tt_means far = {.is_mapped = true, .switch_scratch = true};
    static const struct tt_means farther = {.is_mapped = false, .switch_scratch = true};
    static const struct tt_means near = {
        .is_mapped = true, .switch_scratch = true, .has_multicast = true};
    EXPECT_STR(chosen("NVLS", TT_ALL_REDUCE, far), "far_switch");
    EXPECT_STR(chosen("NVLS", TT_BROADCAST, farther), "far_switch");
    EXPECT_STR(chosen("nvls", TT_REDUCE, near), "switch");
    EXPECT_STR(chosen("nvls", TT_ALL_TO_ALL, far), "direct"); // not chosen for
    EXPECT_STR(chosen("far_switch", TT_ALL_GATHER, near), "far_switch");
    EXPECT_STR(chosen("", TT_ALL_REDUCE, far), "direct");
    EXPECT_STR(chosen("", TT_ALL_REDUCE, farther), "staged");
    EXPECT_STR(chosen("ring", TT_ALL_REDUCE, farther), "staged");
    EXPECT_STR(chosen("NVLS,ring", TT_REDUCE_SCATTER, far), "ring");
    EXPECT_STR(chosen("NVLS,tree", TT_REDUCE_SCATTER, far), "far_switch");
    EXPECT_STR(chosen("switch", TT_ALL_REDUCE, far), "none");
    EXPECT_STR(chosen("^nvls,direct,ring,tree", TT_ALL_REDUCE, far), "staged");
}

static bool wants_scratch(const char *text)
{
    struct tt_choice choice;
    EXPECT_OK(tt_choice_parse(text, &choice));
    return tt_choice_wants_scratch(&choice, 4);
}

static void scratch(void)
{
    EXPECT(wants_scratch("NVLS"));
    EXPECT(wants_scratch("ring;allgather:nvls"));
    EXPECT(wants_scratch("NVLS,Tree"));
    EXPECT(!wants_scratch(""));
    EXPECT(!wants_scratch("NVLS,Ring"));
    EXPECT(!wants_scratch("^direct"));
    EXPECT(!wants_scratch("switch"));
    EXPECT(!wants_scratch("tree"));
}

static void nothing_left(void)
{
    EXPECT_STR(chosen("tree", TT_REDUCE_SCATTER, plain), "none");
    EXPECT_CONTAINS(tt_last_error(), "ReduceScatter of 1000 elements");
    EXPECT_CONTAINS(tt_last_error(), "NCCL_ALGO=tree");
    EXPECT_CONTAINS(tt_last_error(), "tree: cannot do it");
    EXPECT_STR(chosen("nvls", TT_ALL_REDUCE, plain), "none");
    EXPECT_CONTAINS(tt_last_error(), "switch: needs buffers with multicast");
    EXPECT_STR(chosen("collnetdirect", TT_ALL_REDUCE, plain), "none");
    EXPECT_STR(chosen("NVLSTree,CollNetChain,PAT", TT_ALL_REDUCE, multicast), "none");
    struct tt_choice choice;
    const struct tt_algorithm *algorithm = NULL;
    struct tt_problem problem = problem_of(TT_ALL_TO_ALL);
    problem.in_place = true;
    EXPECT_OK(tt_choice_parse("", &choice));
    EXPECT_EQ(tt_select(&choice, &problem, plain, &algorithm), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "no in-place form");
}

static void refused(const char *text, const char *why)
{
    struct tt_choice choice;
    EXPECT_EQ(tt_choice_parse(text, &choice), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), why);
    EXPECT_CONTAINS(tt_last_error(), text);
}

static void wrong_texts(void)
{
    refused("rings", "\"rings\" is no algorithm; there are NVLS, Ring, Tree");
    refused("ring, tree", "\" tree\" is no algorithm");
    refused("LL", "\"LL\" is no algorithm");
    refused("ring;tree", "\"tree\" names no function");
    refused("alltoall:ring", "\"alltoall\" is no function");
    refused("allreduce:ring:tree", "\"ring:tree\" is no algorithm");
    refused("^ring,^tree", "\"^tree\" is no algorithm");
}

// As NCCL reads lists: nothing between commas is no name.
static void empty_names(void)
{
    EXPECT_STR(chosen("ring,", TT_ALL_REDUCE, plain), "ring");
    EXPECT_STR(chosen(",,ring,,tree", TT_BROADCAST, plain), "ring");
    EXPECT_STR(chosen("^", TT_ALL_REDUCE, plain), "direct");
    EXPECT_STR(chosen("allreduce:", TT_ALL_REDUCE, plain), "none");
}

static uint32_t bit(enum tt_function function)
{
    return 1u << function;
}

// Protocols change nothing, but their list is read, and may leave none.
static void protocols(void)
{
    uint32_t none = bit(TT_ALL_REDUCE);
    EXPECT_OK(tt_protocols_parse("", &none));
    EXPECT_EQ(none, 0);
    EXPECT_OK(tt_protocols_parse("simple", &none));
    EXPECT_EQ(none, 0);
    EXPECT_OK(tt_protocols_parse("^LL128;allreduce:LL128", &none));
    EXPECT_EQ(none, 0);
    EXPECT_OK(tt_protocols_parse("LL,Simple;AllReduce:^LL,LL128,Simple", &none));
    EXPECT_EQ(none, bit(TT_ALL_REDUCE));
    EXPECT_EQ(tt_protocols_parse("LL,Ring", &none), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(),
               "NCCL_PROTO=LL,Ring: \"Ring\" is no protocol; there are LL, LL128, Simple");
    EXPECT_EQ(tt_protocols_parse("LL;Simple", &none), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "as in Simple;AllReduce:LL");
}

static uint32_t ruled_out(const char *text, int nranks, bool has_multicast)
{
    struct tt_choice choice;
    EXPECT_OK(tt_choice_parse(text, &choice));
    return tt_choice_rules_out(&choice, nranks, has_multicast);
}

// What no buffers could help is known before there are any.
static void what_is_ruled_out(void)
{
    uint32_t five = bit(TT_BROADCAST) | bit(TT_REDUCE) | bit(TT_ALL_GATHER) |
                    bit(TT_REDUCE_SCATTER) | bit(TT_ALL_REDUCE);
    EXPECT_EQ(ruled_out("", 4, true), 0);
    EXPECT_EQ(ruled_out("Ring", 4, false), 0);
    EXPECT_EQ(ruled_out("Tree", 4, true), five & ~bit(TT_BROADCAST) & ~bit(TT_ALL_REDUCE));
    EXPECT_EQ(ruled_out("Tree;reduce:ring", 4, true), bit(TT_ALL_GATHER) | bit(TT_REDUCE_SCATTER));
    EXPECT_EQ(ruled_out("NVLS", 4, true), 0);
    EXPECT_EQ(ruled_out("NVLS", 4, false), five);
    EXPECT_EQ(ruled_out("NVLS", 1, false), 0); // a rank alone needs no algorithm
    EXPECT_EQ(ruled_out("PAT;allgather:ring", 4, true), five & ~bit(TT_ALL_GATHER));
    struct tt_settings set = {"Tree", "", 4, false, true};
    EXPECT_EQ(tt_choice_refuse("ncclReduce", 2, TT_REDUCE, set), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(),
               "ncclReduce: rank 2: NCCL_ALGO=Tree leaves no algorithm for Reduce on 4 ranks; "
               "these can do it: NVLS, direct, Ring, staged");
    set = (struct tt_settings){"NVLS", "Simple;Reduce:^LL,LL128,Simple", 8, false, false};
    EXPECT_EQ(tt_choice_refuse("ncclBcast", 0, TT_BROADCAST, set), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(),
               "ncclBcast: rank 0: NCCL_ALGO=NVLS leaves no algorithm for Broadcast on 8 ranks, "
               "without multicast; these can do it: direct, Ring, Tree, staged");
    set.is_uneven = set.has_multicast = true;
    EXPECT_EQ(tt_choice_refuse("tuttiAllGatherV", 1, TT_ALL_GATHER, set), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(),
               "tuttiAllGatherV: rank 1: NCCL_ALGO=NVLS leaves no algorithm for AllGatherV on 8 "
               "ranks, and the switch does no uneven sizes; these can do it: direct, Ring, staged");
    EXPECT_EQ(tt_choice_refuse("ncclReduce", 0, TT_REDUCE, set), ncclInvalidUsage);
    EXPECT_STR(tt_last_error(), "ncclReduce: rank 0: NCCL_PROTO=Simple;Reduce:^LL,LL128,Simple "
                                "leaves no protocol for Reduce; there are LL, LL128, Simple");
}

// What would be right is said however long the text is.
static void long_texts(void)
{
    char text[5001];
    struct tt_choice choice;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_EQ(tt_choice_parse(text, &choice), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "NCCL_ALGO=aaaaaaaa");
    EXPECT_CONTAINS(tt_last_error(), "aaaa...: \"aaaa");
    EXPECT_CONTAINS(tt_last_error(), "aaaa...\" is no algorithm; there are ");
    memcpy(text, "allreduce:ring;", 15);
    EXPECT_EQ(tt_choice_parse(text, &choice), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "as in ring;AllReduce:tree");
    memcpy(text, "\"\xc3\xa4\xc3\xa4", 5); // quoted in whole characters
    for (int i = 1; i + 1 < 5000; i += 2) {
        memcpy(text + i, "\xc3\xa4", 2);
    }
    EXPECT_EQ(tt_choice_parse(text, &choice), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_last_error(), "\xc3\xa4...: ");
}

int main(void)
{
    RUN(long_texts);
    RUN(without_a_choice);
    RUN(lists);
    RUN(memory_that_is_not_mapped);
    RUN(far_from_the_switch);
    RUN(scratch);
    RUN(nothing_left);
    RUN(wrong_texts);
    RUN(empty_names);
    RUN(protocols);
    RUN(what_is_ruled_out);
    return expect_result();
}

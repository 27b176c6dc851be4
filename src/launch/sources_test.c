// The table of launchers against environments as they leave them, right, contradictory and cut
// short. SPDX-License-Identifier: Apache-2.0
#include "launch/numbers.h"
#include "launch/sources.h"

#include "base/log.h"
#include "base/quote.h"
#include "expect.h"

#include <stdio.h>
#include <string.h>

// An environment: "NAME=value" words, and what a PMIx server would say.
struct fake {
    const char *const *words;
    const char *pmix; // why it does not answer; NULL: it does, as rank 1 of 2
};

static const char *get(void *context, const char *name)
{
    const struct fake *fake = context;
    size_t length = strlen(name);
    for (const char *const *word = fake->words; *word != NULL; word++) {
        if (strncmp(*word, name, length) == 0 && (*word)[length] == '=') {
            return *word + length + 1;
        }
    }
    return NULL;
}

static bool ask_pmix(void *context, struct tt_place *place, const char **why_out)
{
    const struct fake *fake = context;
    *why_out = fake->pmix;
    place->rank = 1;
    place->size = place->local_size = 2;
    place->local_rank = 1;
    return fake->pmix == NULL;
}

static bool name_peer(void *context, int fd, char *text, int bytes)
{
    (void)context;
    (void)snprintf(text, (size_t)bytes, "peer of %d", fd);
    return fd == 9;
}

static ncclResult_t find(const char *only, const char *pmix, const char *const *words,
                         struct tt_place *place)
{
    struct fake fake = {words, pmix};
    struct tt_environment environment = {get, ask_pmix, name_peer, &fake};
    return tt_sources_find(&environment, only, place);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define FOUND(place_, source_, rank_, size_, local_rank_, local_size_)                             \
    (EXPECT_STR((place_).source, source_), EXPECT_EQ((place_).rank, rank_),                        \
     EXPECT_EQ((place_).size, size_), EXPECT_EQ((place_).local_rank, local_rank_),                 \
     EXPECT_EQ((place_).local_size, local_size_))
#define REFUSES(text, ...)                                                                         \
    (EXPECT_EQ(find("", "no server", WORDS(__VA_ARGS__), &place), ncclInvalidUsage),               \
     EXPECT_CONTAINS(tt_thread_error(), text))

static void each_launcher(void)
{
    struct tt_place place;
    EXPECT_OK(find("", NULL,
                   WORDS("TUTTI_RANK=3", "TUTTI_SIZE=8", "TUTTI_LOCAL_RANK=1", "TUTTI_LOCAL_SIZE=4",
                         "RANK=0", "WORLD_SIZE=1"),
                   &place));
    FOUND(place, "tutti", 3, 8, 1, 4);
    EXPECT_OK(find("", NULL,
                   WORDS("TORCHELASTIC_RUN_ID=none", "RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=2",
                         "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=gpu1", "MASTER_PORT=29500",
                         "PMIX_NAMESPACE=of-srun"),
                   &place));
    FOUND(place, "torchrun", 5, 6, 2, 3);
    EXPECT_STR(place.meeting, "gpu1:29501");
    EXPECT_OK(
        find("", NULL, WORDS("PMIX_NAMESPACE=x", "SLURM_PROCID=0", "SLURM_NTASKS=4"), &place));
    FOUND(place, "pmix", 1, 2, 1, 2);
    EXPECT_OK(find("", "no server",
                   WORDS("PMIX_NAMESPACE=x", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4",
                         "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"),
                   &place));
    FOUND(place, "openmpi", 1, 4, 1, 2);
    EXPECT_OK(find("", NULL,
                   WORDS("PMI_RANK=2", "PMI_SIZE=4", "MPI_LOCALRANKID=2", "MPI_LOCALNRANKS=4",
                         "PMI_FD=9", "SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_NTASKS=1"),
                   &place));
    FOUND(place, "mpich", 2, 4, 2, 4);
    EXPECT_STR(place.job, "peer of 9");
    EXPECT_OK(find("", NULL,
                   WORDS("RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"),
                   &place));
    FOUND(place, "variables", 1, 2, 1, 2); // all on the loopback's host
}

// A name of any length hides nothing that tells two jobs apart.
static void long_names(void)
{
    struct tt_place place, other;
    char name[400] = "TORCHELASTIC_RUN_ID=";
    memset(name + strlen(name), 'x', 300);
    EXPECT_OK(find("", NULL,
                   WORDS(name, "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
                         "TORCHELASTIC_RESTART_COUNT=0", "MASTER_ADDR=gpu1", "MASTER_PORT=29500"),
                   &place));
    EXPECT_OK(find("", NULL,
                   WORDS(name, "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
                         "TORCHELASTIC_RESTART_COUNT=1", "MASTER_ADDR=gpu1", "MASTER_PORT=29500"),
                   &other));
    EXPECT(strcmp(place.job, other.job) != 0);
}

static void slurm(void)
{
    struct tt_place place;
    EXPECT_OK(find("", NULL,
                   WORDS("SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=7",
                         "SLURM_LOCALID=1", "SLURM_NODEID=1", "SLURM_STEP_TASKS_PER_NODE=4,3",
                         "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=gpu[07-08]"),
                   &place));
    FOUND(place, "slurm", 5, 7, 1, 3);
    EXPECT(strncmp(place.meeting, "gpu07:2", 7) == 0);
    EXPECT_OK(find("", NULL, // a step of 2 in a job of 8, by srun --preserve-env
                   WORDS("SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
                         "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_NUM_NODES=1"),
                   &place));
    FOUND(place, "slurm", 1, 2, 1, 2);
    EXPECT_OK(find("", NULL,
                   WORDS("SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1",
                         "SLURM_STEP_NUM_NODES=1"),
                   &place));
    FOUND(place, "slurm", 1, 2, 1, 2);
    REFUSES("SLURM_STEP_TASKS_PER_NODE=2(x2", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2",
            "SLURM_LOCALID=1", "SLURM_NODEID=5", "SLURM_STEP_TASKS_PER_NODE=2(x2");
    REFUSES("SLURM_LOCALID", "SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_NTASKS=2");
}

static void nobody(void)
{
    struct tt_place place;
    EXPECT_OK(find("", NULL, WORDS("HOME=/"), &place));
    FOUND(place, "none", 0, 1, 0, 1);
    EXPECT_OK(find("", NULL, WORDS("SLURM_NTASKS=1"), &place));
    FOUND(place, "none", 0, 1, 0, 1);
    EXPECT_OK(find("none", NULL, WORDS("SLURM_NTASKS=4", "PMIX_NAMESPACE=x"), &place));
    FOUND(place, "none", 0, 1, 0, 1);
    // A batch script itself, and mpirun's variables without a rank.
    REFUSES("4 tasks are announced (SLURM_NTASKS)", "SLURM_NTASKS=4", "SLURM_PROCID=0");
    REFUSES("3 tasks are announced (PMI_SIZE)", "PMI_SIZE=3");
    REFUSES("2 tasks are announced (WORLD_SIZE)", "WORLD_SIZE=2");
    REFUSES("no server", "PMIX_NAMESPACE=x");
}

// Half of what a launcher sets, or what cannot be read: no jobs of one.
static void half_set(void)
{
    struct tt_place place;
    REFUSES("TUTTI_RANK=1, but TUTTI_SIZE is not set: start it with tutti-run; TUTTI_LAUNCH=none",
            "TUTTI_RANK=1");
    REFUSES("TUTTI_RANK=0, but TUTTI_SIZE is not set", "TUTTI_RANK=0", "TUTTI_SIZE=");
    REFUSES("TUTTI_RANK=x, but TUTTI_SIZE is not set", "TUTTI_RANK=x");
    REFUSES("TUTTI_SIZE=abc: must be a number from 1 to 262144", "TUTTI_SIZE=abc");
    REFUSES("RANK=1, but WORLD_SIZE is not set: start it with torchrun, or set", "RANK=1");
    REFUSES("RANK=3, but WORLD_SIZE is not set", "RANK=3", "WORLD_SIZE=");
    REFUSES("WORLD_SIZE=99999999999999: must be a number from 1", "WORLD_SIZE=99999999999999");
    REFUSES("SLURM_NTASKS=99999999999999: must be", "SLURM_NTASKS=99999999999999");
    REFUSES("SLURM_PROCID=2, but SLURM_NTASKS is not set", "SLURM_PROCID=2");
    REFUSES("OMPI_COMM_WORLD_RANK=1, but", "OMPI_COMM_WORLD_RANK=1");
    REFUSES("PMI_RANK=1, but PMI_SIZE is not set", "PMI_RANK=1");
    EXPECT_OK(find("", NULL, WORDS("RANK=0", "SLURM_PROCID=0", "PMI_SIZE=1"), &place));
    FOUND(place, "none", 0, 1, 0, 1); // may be of something else
    EXPECT_OK(find("", NULL, WORDS("RANK=captain"), &place));
    EXPECT_OK(find("none", NULL, WORDS("TUTTI_RANK=1", "WORLD_SIZE=abc"), &place));
}

// MASTER_ADDR is used as it is, or refused.
static void masters(void)
{
    struct tt_place place;
    char name[1100] = "MASTER_ADDR=";
#define BY(address) address, "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "MASTER_PORT=29500"
    memset(name + strlen(name), 'x', 240);
    EXPECT_OK(find("", NULL, WORDS(BY(name)), &place));
    EXPECT_EQ(strlen(place.meeting), 240 + strlen(":29501"));
    EXPECT_OK(find("", NULL, WORDS(BY("MASTER_ADDR=fe80::1")), &place));
    EXPECT_STR(place.meeting, "[fe80::1]:29501");
    memset(name + strlen("MASTER_ADDR="), 'x', 1000);
    REFUSES("x... (1000 characters): must be the name of rank 0's host", BY(name));
    REFUSES("MASTER_ADDR=a\\x0ab\\x1b[31m (8 characters): must be", BY("MASTER_ADDR=a\nb\x1b[31m"));
    REFUSES("MASTER_ADDR=[::1] (5 characters): must be", BY("MASTER_ADDR=[::1]"));
#undef BY
}

static void quotes(void)
{
    char text[100] = "";
    EXPECT_STR(tt_quote("a\tb\x7f").text, "a\\x09b\\x7f");
    EXPECT_STR(tt_quote_part("abc", 2).text, "ab");
    memset(text, 'y', 80);
    EXPECT_STR(tt_quote(text).text, text);
    memcpy(text + 78, "\n", sizeof "\n"); // has no room
    text[79] = 'z';
    EXPECT_EQ(strlen(tt_quote(text).text), 78 + strlen("..."));
    memcpy(text + 78, "\xe2\x82\xac", 4);
    EXPECT_EQ(strlen(tt_quote(text).text), 78 + strlen("..."));
}

static void contradictions(void)
{
    struct tt_place place;
    REFUSES("RANK=2: must be less than WORLD_SIZE, 2", "RANK=2", "WORLD_SIZE=2");
    REFUSES("WORLD_SIZE=0: must be a number from 1", "RANK=0", "WORLD_SIZE=0");
    REFUSES("RANK=262144: must be a number from 0 to 262143", "RANK=262144", "WORLD_SIZE=2");
    REFUSES("WORLD_SIZE=-1: must be", "RANK=0", "WORLD_SIZE=-1");
    REFUSES("RANK=1x: must be", "RANK=1x", "WORLD_SIZE=2");
    REFUSES("WORLD_SIZE=99999999999: must be", "RANK=1", "WORLD_SIZE=99999999999");
    REFUSES("LOCAL_RANK=3: must be a number from 0 to 1", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=3");
    REFUSES("LOCAL_WORLD_SIZE=9: must be", "RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=9");
    REFUSES("number 1 (LOCAL_RANK) of 1", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1",
            "LOCAL_WORLD_SIZE=1");
    REFUSES("LOCAL_RANK is not set", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=gpu1",
            "MASTER_PORT=29500");
    REFUSES("MASTER_PORT=70000: must be", "RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=gpu1",
            "MASTER_PORT=70000");
    EXPECT_EQ(find("typo", NULL, WORDS("RANK=1"), &place), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_thread_error(), "tutti, torchrun, pmix, openmpi, mpich, variables, slurm");
    EXPECT_EQ(find("slurm", NULL, WORDS("RANK=1", "WORLD_SIZE=2"), &place), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_thread_error(), "SLURM_STEP_ID is not set: start it with srun");
    EXPECT_EQ(find("pmix", "no server", WORDS("PMIX_NAMESPACE=x"), &place), ncclInvalidUsage);
    EXPECT_CONTAINS(tt_thread_error(), "TUTTI_LAUNCH=pmix: no server");
}

static void numbers(void)
{
    int value = 0;
    char host[16];
    EXPECT(tt_read_number("0", 0, &value) && value == 0);
    EXPECT(tt_read_number("2147483647", 2147483647, &value) && value == 2147483647);
    EXPECT(!tt_read_number("", 9, &value) && !tt_read_number("1 ", 9, &value));
    EXPECT(!tt_read_number("10", 9, &value) && !tt_read_number("+1", 9, &value));
    EXPECT(tt_read_tasks_per_node("4(x2),3", 1, &value) && value == 4);
    EXPECT(tt_read_tasks_per_node("4(x2),3", 2, &value) && value == 3);
    EXPECT(!tt_read_tasks_per_node("4(x2),3", 3, &value));
    EXPECT(!tt_read_tasks_per_node("4(x2", 0, &value) && !tt_read_tasks_per_node("", 0, &value));
    EXPECT(tt_read_tasks_per_node("1(x2147483647),5(x2),1", 2147483647, &value) && value == 5);
    EXPECT(tt_read_first_host("n[03-05,9],m", host, sizeof host));
    EXPECT_STR(host, "n03");
    EXPECT(tt_read_first_host("r[1,2]n[7]x,m", host, sizeof host));
    EXPECT_STR(host, "r1n7x");
    EXPECT(!tt_read_first_host("n[3", host, sizeof host) && !tt_read_first_host("", host, 16));
    EXPECT(!tt_read_first_host("a-very-long-name-of-a-host", host, sizeof host));
}

static void addresses(void)
{
    int port = 0;
    char host[16];
    EXPECT(tt_read_host_port("gpu1:29500", host, sizeof host, &port) && port == 29500);
    EXPECT_STR(host, "gpu1");
    EXPECT(tt_read_host_port("[::1]:7", host, sizeof host, &port) && port == 7);
    EXPECT_STR(host, "::1");
    const char *const wrong[] = {"",        "gpu1",  "gpu1:", ":7",     "gpu1:0",
                                 "g:65536", "::1:7", "[]:7",  "[::1]7", "a-name-of-16-bytes:7"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        EXPECT(!tt_read_host_port(wrong[i], host, sizeof host, &port));
    }
}

int main(void)
{
    RUN(each_launcher);
    RUN(long_names);
    RUN(slurm);
    RUN(nobody);
    RUN(half_set);
    RUN(masters);
    RUN(quotes);
    RUN(contradictions);
    RUN(numbers);
    RUN(addresses);
    return expect_result();
}

// Checkpoints of small made-up matrices: saved by some ranks, read by others that share them out in
// another way; damaged in every way; killed at every step of a save.
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint.h"

#include "fake_pieces.h"
#include "member.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[128]; // of this run, known to rank processes by the environment

static void make_folder(void)
{
    char name[] = "/tmp/gpt_checkpoint_test.XXXXXX";
    EXPECT(mkdtemp(name) != NULL);
    (void)snprintf(folder, sizeof folder, "%s/below/checkpoints", name);
    (void)setenv("GPT_TEST_FOLDER", folder, 1);
}

static void remove_folders(void)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf '%.*s'",
                   (int)(strlen(folder) - strlen("/below/checkpoints")), folder);
    EXPECT_EQ(system(command), 0);
}

static int environment(const char *name)
{
    const char *text = getenv(name);
    return text == NULL ? 0 : atoi(text);
}

static void set_environment(const char *name, int value)
{
    char text[16];
    (void)snprintf(text, sizeof text, "%d", value);
    (void)setenv(name, text, 1);
}

// One rank of a save of a generation, whose number is the step too unless `step` says otherwise.
static bool save(struct gpt_world *world, enum fake_split split, int generation, int step,
                 struct gpt_problem *problem)
{
    struct gpt_manifest manifest = {.step = (uint64_t)step};
    struct gpt_piece pieces[FAKE_PIECES];
    (void)strcpy(manifest.settings, "layers 4\nrate 0.001\n");
    fake_make(pieces, split, world->rank, world->size, generation);
    bool right = gpt_checkpoint_save(world, getenv("GPT_TEST_FOLDER"), &manifest, pieces,
                                     FAKE_PIECES, problem);
    fake_free(pieces);
    return right;
}

// What the folder has, read as rank `rank` of `size` with another split: the generation; 0 and a
// problem where it cannot be read; -1: mixed or wrong elements.
static int load(enum fake_split split, int rank, int size, struct gpt_problem *problem)
{
    char step[GPT_PATH_MAX];
    struct gpt_manifest manifest;
    struct gpt_piece pieces[FAKE_PIECES];
    int generation = -1;
    if (!gpt_checkpoint_find(folder, step, problem) ||
        !gpt_manifest_read(step, &manifest, problem)) {
        return 0;
    }
    fake_make(pieces, split, rank, size, 0);
    if (gpt_checkpoint_load(step, &manifest, pieces, FAKE_PIECES, problem)) {
        for (int g = 1; g < 10; g++) {
            generation = fake_check(pieces, g) ? g : generation;
        }
    } else {
        generation = 0;
    }
    fake_free(pieces);
    gpt_manifest_free(&manifest);
    return generation;
}

static void save_rank(int rank, int size)
{
    struct member m;
    struct gpt_world world;
    struct gpt_problem problem = {0};
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT(gpt_world_open(&world, m.comm, &problem));
    EXPECT(save(&world, (enum fake_split)environment("GPT_TEST_SPLIT"),
                environment("GPT_TEST_GENERATION"), environment("GPT_TEST_GENERATION"), &problem));
    EXPECT_STR(problem.text, "");
    gpt_world_close(&world);
    member_leave(&m);
}

// Saved by 1 to 5 ranks in each way, read by 1 to 6 in each way.
static void reshard(void)
{
    make_folder();
    for (int split = 0; split < FAKE_SPLITS; split++) {
        int ranks = split + 1 + split % 2;
        set_environment("GPT_TEST_SPLIT", split);
        set_environment("GPT_TEST_GENERATION", split + 1);
        EXPECT(run_ranks(ranks, save_rank, 30));
        for (int size = 1; size <= 6; size++) {
            for (int rank = 0; rank < size; rank++) {
                struct gpt_problem problem = {0};
                int other = (split + size) % FAKE_SPLITS;
                EXPECT_EQ(load((enum fake_split)other, rank, size, &problem), split + 1);
                EXPECT_STR(problem.text, "");
            }
        }
    }
    remove_folders();
}

// ---- Damage -------------------------------------------------------------------------------------

static void step_file(const char *name, char *path)
{
    (void)snprintf(path, 256, "%s/step-000001/%s", folder, name);
}

// Writes the file with the bits of one byte turned (way 0), or cut at it.
static bool damage(const char *path, const char *text, size_t bytes, size_t at, int way)
{
    FILE *file = fopen(path, "we");
    if (!EXPECT(file != NULL)) {
        return false;
    }
    (void)fwrite(text, 1, at, file);
    if (way == 0) {
        (void)fputc(~text[at], file);
        (void)fwrite(text + at + 1, 1, bytes - at - 1, file);
    }
    return fclose(file) == 0;
}

// Every damage is found, or has hit bytes that mean nothing.
static void damage_file(const char *name, size_t distance, bool may_be_unused)
{
    char path[256], *text;
    size_t bytes, found = 0, tried = 0;
    struct gpt_problem problem = {0};
    step_file(name, path);
    if (!EXPECT(gpt_read_file(path, &text, &bytes, &problem))) {
        return;
    }
    for (int way = 0; way < 2; way++) {
        for (size_t at = 0; at < bytes; at += distance) {
            struct gpt_problem what = {0};
            EXPECT(damage(path, text, bytes, at, way));
            int generation = load(FAKE_ROWS, 0, 1, &what);
            EXPECT(generation == 0 || (generation == 1 && way == 0 && may_be_unused));
            if (generation == 0) {
                EXPECT_CONTAINS(what.text, name);
                EXPECT_EQ(what.status, GPT_FAILED);
            }
            tried++;
            found += generation == 0 ? 1 : 0;
        }
    }
    EXPECT(found * 4 > tried * 3);
    EXPECT(gpt_write_file(path, text, bytes, &problem));
    free(text);
    EXPECT_EQ(load(FAKE_ROWS, 0, 1, &problem), 1);
    EXPECT_EQ(unlink(path), 0);
    EXPECT_EQ(load(FAKE_ROWS, 0, 1, &problem), 0);
    EXPECT_CONTAINS(problem.text, strcmp(name, "manifest") == 0 ? "manifest" : name);
}

static void damaged(void)
{
    static const char *const names[] = {"rank-00001", "rank-00000", "manifest"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        make_folder();
        set_environment("GPT_TEST_SPLIT", FAKE_RANGES);
        set_environment("GPT_TEST_GENERATION", 1);
        EXPECT(run_ranks(2, save_rank, 30));
        damage_file(names[i], i == 2 ? 1 : 23, i < 2);
        remove_folders();
    }
}

// Another matrix than was saved: another shape, another type, a name that is not there.
static void other_matrices(void)
{
    static const char *const texts[] = {"is 7 x 33 bfloat16, should be 8 x 33 bfloat16",
                                        "is 7 x 33 bfloat16, should be 7 x 33 float32",
                                        "has 0 of the 231 elements that are needed of weight of"};
    make_folder();
    set_environment("GPT_TEST_SPLIT", FAKE_COLUMNS);
    set_environment("GPT_TEST_GENERATION", 1);
    EXPECT(run_ranks(2, save_rank, 30));
    for (int i = 0; i < 3; i++) {
        char step[GPT_PATH_MAX];
        struct gpt_problem problem = {0};
        struct gpt_manifest manifest;
        struct gpt_piece pieces[FAKE_PIECES];
        EXPECT(gpt_checkpoint_find(folder, step, &problem));
        EXPECT(gpt_manifest_read(step, &manifest, &problem));
        EXPECT_STR(manifest.settings, "layers 4\nrate 0.001\n");
        fake_make(pieces, FAKE_ROWS, 0, 1, 0);
        pieces[0].rows += i == 0 ? 1 : 0;
        pieces[0].type = i == 1 ? ncclFloat32 : pieces[0].type;
        pieces[0].name = i == 2 ? "absent" : pieces[0].name;
        EXPECT(!gpt_checkpoint_load(step, &manifest, pieces, FAKE_PIECES, &problem));
        EXPECT_CONTAINS(problem.text, texts[i]);
        fake_free(pieces);
        gpt_manifest_free(&manifest);
    }
    remove_folders();
}

static void nothing_there(void)
{
    struct gpt_problem problem = {0};
    make_folder();
    EXPECT_EQ(load(FAKE_ROWS, 0, 1, &problem), 0);
    EXPECT_CONTAINS(problem.text, "checkpoints: cannot be opened");
    memset(&problem, 0, sizeof problem);
    char command[512];
    // Folders with other names are the user's own.
    (void)snprintf(
        command, sizeof command,
        "mkdir -p '%s' && cd '%s' && mkdir step-000099-old step-99999999999999999999 step-", folder,
        folder);
    EXPECT_EQ(system(command), 0);
    EXPECT_EQ(load(FAKE_ROWS, 0, 1, &problem), 0);
    EXPECT_CONTAINS(problem.text, "there is no checkpoint in it");
    remove_folders();
}

// Without `latest` the highest step counts, and nothing else that begins like one.
static void highest_step(void)
{
    static const char *const others[] = {"step-000009.old", "step-9 (copy)", "step-x", "step-"};
    char path[256];
    struct gpt_problem problem = {0};
    make_folder();
    set_environment("GPT_TEST_SPLIT", FAKE_ROWS);
    set_environment("GPT_TEST_GENERATION", 1);
    EXPECT(run_ranks(1, save_rank, 30));
    (void)snprintf(path, sizeof path, "%s/latest", folder);
    EXPECT_EQ(unlink(path), 0);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, others[i]);
        EXPECT_EQ(mkdir(path, 0777), 0);
    }
    EXPECT_EQ(load(FAKE_ROWS, 0, 1, &problem), 1);
    EXPECT_STR(problem.text, "");
    remove_folders();
}

// ---- Kills --------------------------------------------------------------------------------------

static int last_change; // at which this process is killed

static void kill_at(int change)
{
    if (change == last_change) {
        (void)raise(SIGKILL);
    }
}

// Saves generation 1; then generation 2, in which one rank is killed at one change of files.
static void killed_rank(int rank, int size)
{
    struct member m;
    struct gpt_world world;
    struct gpt_problem problem = {0};
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT(gpt_world_open(&world, m.comm, &problem));
    EXPECT(save(&world, FAKE_RANGES, 1, 1, &problem));
    ranks_barrier();
    if (rank == environment("GPT_TEST_KILLED")) {
        last_change = environment("GPT_TEST_CHANGE");
        gpt_storage_hook = kill_at;
    }
    if (!save(&world, FAKE_ROWS, 2, environment("GPT_TEST_STEP"), &problem)) {
        _exit(1);
    }
    gpt_world_close(&world);
    member_leave(&m);
}

static int count_leftovers(void)
{
    int count = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        count += strncmp(entry->d_name, "saving-", 7) == 0 ? 1 : 0;
    }
    if (entries != NULL) {
        closedir(entries);
    }
    return count;
}

// Kills rank `killed` of `ranks` at every change, until a save ends well. step: of the second save.
static void kill_everywhere(int ranks, int killed, int step)
{
    int left = 0, old = 0;
    bool done = false;
    set_environment("GPT_TEST_KILLED", killed);
    set_environment("GPT_TEST_STEP", step);
    for (int change = 1; !done && change < 60; change++) {
        int statuses[8];
        struct gpt_problem problem = {0};
        make_folder();
        set_environment("GPT_TEST_CHANGE", change);
        if (!EXPECT(run_ranks_status(ranks, killed_rank, 30, statuses))) {
            remove_folders();
            return;
        }
        done = !WIFSIGNALED(statuses[killed]);
        int generation = load(FAKE_COLUMNS, 0, 1, &problem);
        EXPECT(generation == 1 || generation == 2);
        EXPECT_STR(problem.text, "");
        EXPECT(!done || generation == 2);
        old += generation == 1 ? 1 : 0;
        if (count_leftovers() > 0 && left++ % 4 == 0) { // they are gone after the next save
            set_environment("GPT_TEST_GENERATION", 3);
            set_environment("GPT_TEST_SPLIT", FAKE_COLUMNS);
            EXPECT(run_ranks(1, save_rank, 30));
            EXPECT_EQ(count_leftovers(), 0);
            EXPECT_EQ(load(FAKE_ROWS, 0, 2, &problem), 3);
        }
        remove_folders();
    }
    EXPECT(done);
    EXPECT(old > 3);
}

// Generation 1 is saved; of generation 2 rank 1 can write no more than 1000 bytes.
static void full_rank(int rank, int size)
{
    struct member m;
    struct gpt_world world;
    struct gpt_problem problem = {0};
    const struct rlimit limit = {1000, 1000};
    if (!member_join(&m, rank, size)) {
        return;
    }
    EXPECT(gpt_world_open(&world, m.comm, &problem));
    EXPECT(save(&world, FAKE_RANGES, 1, 1, &problem));
    if (rank == 1) {
        (void)signal(SIGXFSZ, SIG_IGN);
        EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    EXPECT(!save(&world, FAKE_ROWS, 2, 2, &problem));
    EXPECT_EQ(problem.status, GPT_FAILED);
    EXPECT_EQ(problem.teller, 1); // on both ranks
    EXPECT(rank == 0 || strstr(problem.text, "rank-00001: cannot be written: ") != NULL);
    gpt_world_close(&world);
    member_leave(&m);
}

static void full_disk(void)
{
    struct gpt_problem problem = {0};
    make_folder();
    EXPECT(run_ranks(2, full_rank, 30));
    EXPECT_EQ(load(FAKE_COLUMNS, 0, 1, &problem), 1);
    EXPECT_EQ(count_leftovers(), 0);
    remove_folders();
}

static void killed_first(void)
{
    kill_everywhere(2, 0, 2);
}

static void killed_other(void)
{
    kill_everywhere(2, 1, 2);
}

// The second save replaces the first: a folder of the same name.
static void killed_replacing(void)
{
    kill_everywhere(1, 0, 1);
}

int main(void)
{
    (void)snprintf(folder, sizeof folder, "%s",
                   getenv("GPT_TEST_FOLDER") != NULL ? getenv("GPT_TEST_FOLDER") : "");
    (void)setenv("NCCL_DEBUG", "NONE", 1); // of ranks that are killed
    RUN(reshard);
    RUN(damaged);
    RUN(other_matrices);
    RUN(nothing_there);
    RUN(highest_step);
    RUN(full_disk);
    RUN(killed_first);
    RUN(killed_other);
    RUN(killed_replacing);
    return expect_result();
}

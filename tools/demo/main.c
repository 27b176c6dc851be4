// The demonstration behind `./dev demo`: the fused RMSNorm on 1, 2, 3 and 8 virtual GPUs, as
// threads and as processes, by both kernels and the native operation; every element checked, every
// byte counted; a page with a picture of it.
// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE
#include "demo.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const int rank_counts[] = {1, 2, 3, 8};
enum { COUNTS = sizeof rank_counts / sizeof rank_counts[0], RUNS = COUNTS * DEMO_MODES };

const char *demo_way_name(enum demo_way way)
{
    static const char *const names[] = {"lsa", "multimem", "native"};
    return names[way];
}

const char *demo_mode_name(enum demo_mode mode)
{
    return mode == DEMO_THREADS ? "threads" : "processes";
}

// Each rank's rows: the sum needs the other ranks' parts, the result goes to the others. A switch
// that adds and copies brings and takes each part once.
uint64_t demo_least_bytes(enum demo_way way, int nranks)
{
    uint64_t all = (uint64_t)DEMO_TOKENS * DEMO_HIDDEN * sizeof(float), ranks = (uint64_t)nranks;
    if (way == DEMO_MULTIMEM) {
        return all + all / ranks;
    }
    return 2 * (all - all / ranks);
}

bool demo_is_right(const struct demo_run *run, enum demo_way way)
{
    for (int r = 0; r < run->nranks; r++) {
        const struct demo_rank *rank = &run->rank[r];
        const struct demo_outcome *outcome = &rank->outcome[way];
        if (rank->text[0] != '\0' || !outcome->ran || outcome->wrong != 0 ||
            outcome->hash != run->rank[0].outcome[DEMO_LSA].hash) {
            return false;
        }
    }
    return run->started;
}

// One line; returns whether it is a success. A machine without multicast skips that kernel.
static bool print_way(const struct demo_run *run, enum demo_way way)
{
    double seconds = 0, absolute = 0, relative = 0;
    uint64_t in = 0, out = 0, wrong = 0;
    for (int r = 0; r < run->nranks; r++) {
        const struct demo_outcome *outcome = &run->rank[r].outcome[way];
        seconds = outcome->seconds > seconds ? outcome->seconds : seconds;
        absolute = outcome->absolute_error > absolute ? outcome->absolute_error : absolute;
        relative = outcome->relative_error > relative ? outcome->relative_error : relative;
        in = run->traffic.in[way][r] > in ? run->traffic.in[way][r] : in;
        out = run->traffic.out[way][r] > out ? run->traffic.out[way][r] : out;
        wrong += outcome->wrong;
    }
    bool skipped =
        way == DEMO_MULTIMEM && run->rank[0].text[0] == '\0' && !run->rank[0].outcome[way].ran;
    if (skipped) {
        (void)printf("%-9s %5d  %-8s  skipped: this virtual machine has no multicast\n",
                     demo_mode_name(run->mode), run->nranks, demo_way_name(way));
        return true;
    }
    bool right = demo_is_right(run, way);
    (void)printf("%-9s %5d  %-8s %8.2f  %8.1e  %8.1e  %8.2f  %8.2f  %8.2f  %s\n",
                 demo_mode_name(run->mode), run->nranks, demo_way_name(way), seconds * 1e3,
                 absolute, relative, (double)in / 1e6, (double)out / 1e6,
                 (double)demo_least_bytes(way, run->nranks) / 1e6, right ? "ok" : "FAILED");
    for (int r = 0; r < run->nranks && !right; r++) {
        if (run->rank[r].text[0] != '\0') {
            (void)printf("    rank %d: %s\n", r, run->rank[r].text);
        }
    }
    if (wrong != 0) {
        (void)printf("    %llu elements are wrong\n", (unsigned long long)wrong);
    }
    (void)fflush(stdout);
    return right;
}

// A file without a name for `wanted`, mapped.
static double *map_wanted(int *fd_out)
{
    size_t bytes = (size_t)DEMO_TOKENS * DEMO_HIDDEN * sizeof(double);
    int low = memfd_create("wanted", MFD_CLOEXEC);
    int fd = fcntl(low, F_DUPFD_CLOEXEC, 16); // children get descriptors 3 to 5 of their own
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
        perror("demo: memfd_create");
        exit(1);
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        perror("demo: mmap");
        exit(1);
    }
    close(low);
    *fd_out = fd;
    return memory;
}

static bool run_all(struct demo_run *runs)
{
    int wanted_fd;
    double *wanted = map_wanted(&wanted_fd);
    double *sums = calloc((size_t)DEMO_TOKENS * DEMO_HIDDEN, sizeof *sums);
    if (sums == NULL) {
        perror("demo");
        exit(1);
    }
    (void)printf(
        "RMSNorm of %d x %d floats, summed over the ranks; every element of every rank is "
        "checked.\n"
        "Largest values over the ranks; MB in and out of a GPU are counted, not computed.\n\n"
        "%-9s %5s  %-8s %8s  %8s  %8s  %8s  %8s  %8s\n",
        DEMO_TOKENS, DEMO_HIDDEN, "mode", "ranks", "way", "ms", "abs err", "rel err", "MB in",
        "MB out", "least MB");
    bool good = true;
    for (int c = 0, done = 0; c < COUNTS; c++) {
        demo_add_inputs(sums, done, rank_counts[c]);
        done = rank_counts[c];
        demo_normalise(wanted, sums, 1e-6);
        for (int mode = 0; mode < DEMO_MODES; mode++) {
            struct demo_run *run = &runs[c * DEMO_MODES + mode];
            run->mode = (enum demo_mode)mode;
            run->nranks = rank_counts[c];
            if (mode == DEMO_THREADS) {
                demo_run_threads(run, wanted, false);
            } else {
                demo_run_processes(run, wanted_fd, false);
            }
            if (!demo_count(run)) {
                (void)printf("FAILED: the bytes of %d ranks as %s could not be counted\n",
                             run->nranks, demo_mode_name(run->mode));
                good = false;
            }
            for (int way = 0; way < DEMO_WAYS; way++) {
                good = print_way(run, (enum demo_way)way) && good;
            }
        }
    }
    free(sums);
    return good;
}

// Where the page goes unless the caller says: beside bin/, or here where that is not ours to write.
static void choose_page(char *path, size_t bytes)
{
    char self[3072];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length < 0 ? 0 : length] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL) {
        *slash = '\0';
        slash = strrchr(self, '/');
    }
    if (slash != NULL) {
        *slash = '\0';
    }
    bool writable = slash != NULL && self[0] != '\0' && access(self, W_OK) == 0;
    (void)snprintf(path, bytes, "%s/tutti-demo.html", writable ? self : ".");
}

// What the counting twin does for one configuration.
static int count_main(const char *mode, int nranks)
{
    static struct demo_run run;
    run.nranks = nranks;
    if (strcmp(mode, demo_mode_name(DEMO_THREADS)) == 0) {
        demo_run_threads(&run, NULL, true);
    } else {
        demo_run_processes(&run, -1, true);
    }
    for (int r = 0; r < nranks; r++) {
        if (run.rank[r].text[0] != '\0') {
            (void)fprintf(stderr, "demo: counting: rank %d: %s\n", r, run.rank[r].text);
            return 1;
        }
    }
    enum { RESULT = 4 };
    return run.started &&
                   write(RESULT, &run.traffic, sizeof run.traffic) == (ssize_t)sizeof run.traffic
               ? 0
               : 1;
}

static int usage(const char *argument)
{
    (void)fprintf(
        argument == NULL ? stdout : stderr,
        "%s%susage: tutti-demo [--html FILE]\n"
        "Runs the fused RMSNorm on 1, 2, 3 and 8 virtual GPUs, checks it, and draws a page.\n",
        argument == NULL ? "" : argument, argument == NULL ? "" : ": what is that?\n");
    return argument == NULL ? 0 : 2;
}

static int rank_number(const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*end != '\0' || number < 0 || number > DEMO_MAX_RANKS) {
        (void)fprintf(stderr, "demo: %s is not a number of ranks\n", text);
        exit(2);
    }
    return (int)number;
}

int main(int argc, char **argv)
{
    static struct demo_run runs[RUNS];
    char page[4096];
    (void)signal(SIGPIPE, SIG_IGN); // a rank that died is a message, not our end
    if (argc >= 4 && strcmp(argv[1], "--child") == 0) {
        return demo_child_main(rank_number(argv[2]), rank_number(argv[3]), argc > 4);
    }
    if (argc == 4 && strcmp(argv[1], "--count") == 0) {
        return count_main(argv[2], rank_number(argv[3]));
    }
    choose_page(page, sizeof page);
    if (argc == 3 && strcmp(argv[1], "--html") == 0) {
        (void)snprintf(page, sizeof page, "%s", argv[2]);
    } else if (argc > 1) {
        return usage(strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? NULL : argv[1]);
    }
    bool good = run_all(runs);
    good = demo_write_page(page, runs, RUNS) && good;
    (void)printf("\nThe run as a picture: %s\ndemo: %s\n", page, good ? "OK" : "FAILED");
    return good ? 0 : 1;
}

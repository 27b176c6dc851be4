// Tests of architectures: nvcc's spellings, and which target is chosen for which machine.
// SPDX-License-Identifier: Apache-2.0
#include "targets.h"

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The chosen target for `device` among -gencode values (separated by spaces), as "virtual
// code[p][a]"; "none".
static char *chosen(const char *gencodes, int device)
{
    struct targets targets = {0};
    char copy[512];
    snprintf(copy, sizeof(copy), "%s", gencodes);
    char *rest = NULL;
    for (char *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *error = targets_add_gencode(&targets, one);
        EXPECT_STR(error, NULL);
        free(error);
    }
    int i = targets_choose(&targets, device);
    char *result = format_string("none");
    if (i >= 0) {
        free(result);
        const struct target *t = &targets.item[i];
        result = format_string("%d %d%s%.1s", t->virtual_arch, t->arch, t->ptx ? "p" : "",
                               (const char[]){t->suffix, '\0'});
    }
    targets_free(&targets);
    return result;
}

static void expect_chosen(const char *gencodes, int device, const char *expected)
{
    char *result = chosen(gencodes, device);
    if (!EXPECT_STR(result, expected)) {
        printf("  of %s for sm_%d\n", gencodes, device);
    }
    free(result);
}

static void the_best_fitting_target_is_chosen(void)
{
    static const char BOTH[] = "arch=compute_80,code=sm_80 arch=compute_90,code=sm_90";
    expect_chosen(BOTH, 90, "90 90");
    expect_chosen(BOTH, 80, "80 80");
    expect_chosen(BOTH, 86, "80 80"); // a lower minor version of the same major one
    expect_chosen(BOTH, 100, "none"); // machine code does not go beyond its major version
    expect_chosen(BOTH, 75, "none");
    expect_chosen("arch=compute_80,code=compute_80", 90, "80 80p"); // PTX does
    expect_chosen("arch=compute_80,code=[sm_80,compute_80] arch=compute_86,code=sm_86", 89,
                  "86 86");
    expect_chosen("arch=compute_90,code=compute_90 arch=compute_90,code=sm_90", 90, "90 90");
    expect_chosen("arch=compute_80,code=sm_86", 86, "80 86");
    expect_chosen("arch=compute_90a,code=sm_90a arch=compute_90,code=sm_90", 90, "90 90a");
    expect_chosen("arch=compute_90a,code=sm_90a", 100, "none");
    expect_chosen("arch=compute_90a,code=compute_90a", 100, "none");
    expect_chosen("arch=compute_100f,code=sm_100f", 103, "100 100f");
    expect_chosen(
        "arch=compute_75,code=sm_75 arch=compute_80,code=sm_80 arch=compute_90,code=sm_90 "
        "arch=compute_120,code=sm_120 arch=compute_120,code=compute_120",
        90, "90 90");
}

static void arch_is_shorthand(void)
{
    struct targets targets = {0};
    EXPECT_STR(targets_add_arch(&targets, "sm_90", NULL, 80), NULL);
    EXPECT_EQ(targets.count, 2);
    EXPECT(!targets.item[0].ptx && targets.item[1].ptx && targets.item[1].arch == 90);
    targets_free(&targets);
    EXPECT_STR(targets_add_arch(&targets, "native", NULL, 80), NULL);
    EXPECT_EQ(targets.item[0].arch, 80);
    targets_free(&targets);
    EXPECT_STR(targets_add_arch(&targets, "compute_80", "sm_80,sm_86", 80), NULL);
    EXPECT_EQ(targets.count, 2);
    EXPECT_EQ(targets.item[1].arch, 86);
    targets_free(&targets);
    EXPECT_STR(targets_add_arch(&targets, "all-major", NULL, 80), NULL);
    EXPECT_EQ(targets.item[targets_highest(&targets)].arch, 120);
    EXPECT(targets_choose(&targets, 90) >= 0);
    targets_free(&targets);
    EXPECT_STR(targets_add_arch(&targets, "all", NULL, 80), NULL);
    EXPECT(targets_choose(&targets, 86) >= 0 &&
           targets.item[targets_choose(&targets, 86)].arch == 86);
    targets_free(&targets);
}

static void expect_error(char *error, const char *part)
{
    EXPECT(error != NULL);
    if (error) {
        EXPECT_CONTAINS(error, part);
    }
    free(error);
}

static void bad_architectures_are_named(void)
{
    struct targets targets = {0};
    expect_error(targets_add_arch(&targets, "sm_9x", NULL, 90), "'sm_9x'");
    expect_error(targets_add_arch(&targets, "90", NULL, 90), "'90'");
    expect_error(targets_add_arch(&targets, "sm_", NULL, 90), "'sm_'");
    expect_error(targets_add_arch(&targets, "sm_99999999999999999999", NULL, 90),
                 "no GPU architecture");
    expect_error(
        targets_add_arch(&targets, "sm_70", NULL, 90),
        "'sm_70' is no GPU architecture of CUDA 13: write sm_ or compute_ and one of 75, ");
    expect_error(targets_add_arch(&targets, "compute_90", "sm_91", 90), "'sm_91'");
    expect_error(targets_add_gencode(&targets, "arch=compute_70,code=sm_75"), "one of 75, 80, 86");
    expect_error(targets_add_gencode(&targets, "arch=compute_75,code=sm_70"), "one of 75, 80, 86");
    expect_error(targets_add_gencode(&targets, "code=sm_90"), "arch=compute_..");
    expect_error(targets_add_gencode(&targets, "arch=sm_90,code=sm_90"), "virtual architecture");
    expect_error(targets_add_gencode(&targets, "arch=compute_90,code=[sm_90"), "no ']'");
    expect_error(targets_add_gencode(&targets, "arch=compute_90,code=sm_80"), "cannot be made");
    EXPECT_EQ(targets.count, 0);
    targets_free(&targets);
}

static void machines_have_a_capability(void)
{
    int arch = 0;
    EXPECT_STR(machine_arch(NULL, &arch), NULL);
    EXPECT_EQ(arch, 90);
    EXPECT_STR(machine_arch("hgx-a100", &arch), NULL);
    EXPECT_EQ(arch, 80);
    expect_error(machine_arch("no-such-machine", &arch), "no-such-machine");

    char path[] = "/tmp/targets_test_XXXXXX";
    int file = mkstemp(path);
    static const char XML[] =
        "<system><!-- <gpu sm=\"50\"> --><cpu><gpu dev=\"0\" sm=\"86\" rank=\"0\"/></cpu></system>";
    EXPECT(file >= 0 && write(file, XML, sizeof(XML) - 1) == sizeof(XML) - 1);
    EXPECT_STR(machine_arch(path, &arch), NULL);
    EXPECT_EQ(arch, 86);
    EXPECT_EQ(ftruncate(file, 20), 0);
    expect_error(machine_arch(path, &arch), "no <gpu");
    close(file);
    unlink(path);
}

int main(void)
{
    RUN(the_best_fitting_target_is_chosen);
    RUN(arch_is_shorthand);
    RUN(bad_architectures_are_named);
    RUN(machines_have_a_capability);
    return expect_result();
}

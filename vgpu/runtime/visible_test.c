// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER as CUDA takes them, the limits of a task, and numbers
// in messages.
// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "driver_types.h"
#include "expect.h"
#include "ranks.h"
#include "vgpu/limit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vgpu_machine machine;

static const unsigned char uuids[2][16] = {
    {0x03, 0x70, 0xdf, 0xe9, 0xca, 0xa1, 0x32, 0x79, 0x2e, 0xbb, 0xc3, 0x43, 0xfa, 0x2d, 0x44,
     0xfa},
    {0x5a, 0x3a, 0x5f, 0xb5, 0x46, 0x12, 0xcb, 0xe1, 0x12, 0xcd, 0xa2, 0x99, 0xa7, 0xbb, 0x15,
     0x9b},
};
#define A "0370dfe9-caa1-3279-2ebb-c343fa2d44fa"
#define B "5a3a5fb5-4612-cbe1-12cd-a299a7bb159b"

// What CUDA 13.0 (driver 580) made of it with two H200s: the GPUs that it shows, in order; "": none
// (cudaErrorNoDevice); "!": cudaErrorInvalidDevice.
static const struct {
    const char *visible;
    const char *shown;
} answers[] = {
    {NULL, "01"},
    {"", ""},
    {" ", ""},
    {"0", "0"},
    {"1", "1"},
    {"1,0", "10"},
    {"0,0", "!"},
    {"1,1", "!"},
    {"0,1,0", "!"},
    {"0,1,1,0", "!"},
    {"0,1,0,5", "!"},
    {"0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1", "!"},
    {"0,5,0", "0"},
    {"0,2,1", "0"},
    {"0,1,2,0", "01"},
    {"0,1,-1,0", "01"},
    {"2,0", ""},
    {"-1", ""},
    {"-1,0", ""},
    {"0,-1,1", "0"},
    // Spaces, signs, what strtoul passes over and what it does not.
    {"-0", "0"},
    {"+1", "1"},
    {"- 1", ""},
    {"--1", ""},
    {"+-1", ""},
    {" 1", "1"},
    {"1 ", "1"},
    {" 1 , 0 ", "10"},
    {"0, 1", "01"},
    {"0,\t1", "01"},
    {" \t1", "1"},
    {"\n1", "1"},
    {"\v1", "1"},
    {"0 ,0", "!"},
    {"0,,1", "0"},
    {",0", ""},
    {"0,", "0"},
    {"1,0,", "10"},
    {"0;1", "0"},
    {"1gpu2", "1"},
    {"1gpu2,0b", "10"},
    {"0x1", "0"},
    {"0X1,1", "01"},
    {"01", "1"},
    {"010", ""},
    {"000000000000000000000000000000000001", "1"},
    {"1.5", "1"},
    {"1 0", "1"},
    {"1e0", "1"},
    {"0/0", "0"},
    {"0:1", "0"},
    {"0-1", "0"},
    {"1+", "1"},
    {"one,0", ""},
    {"1,one,0", "1"},
    {"NoDevFiles", ""},
    {"all", ""},
    {"none", ""},
    {"void", ""},
    // Numbers are cut to 32 bits.
    {"2147483648", ""},
    {"-2147483648", ""},
    {"4294967295", ""},
    {"4294967296", "0"},
    {"4294967297", "1"},
    {"-4294967295", "1"},
    {"9223372036854775808", "0"},
    {"-9223372036854775808", "0"},
    {"-9223372036854775809", ""},
    {"18446744073709551615", ""},
    {"18446744073709551616", ""},
    {"18446744073709551617", ""},
    {"99999999999999999999", ""},
    // Uuids: beginnings, hyphens, letters, what follows.
    {"GPU-" A, "0"},
    {"GPU-" B ",GPU-" A, "10"},
    {"GPU-0370dfe9", "0"},
    {"GPU-5a3a5fb5,GPU-0370dfe9", "10"},
    {"GPU-0", "0"},
    {"GPU-03", "0"},
    {"GPU-0370dfe9-", "0"},
    {"GPU-0370dfe9-c", "0"},
    {"GPU-0370dfe9caa1", "0"},
    {"GPU-0370-", "0"},
    {"GPU-0-370", "0"},
    {"GPU-0370DFE9-CAA1-3279-2EBB-C343FA2D44FA", "0"},
    {"gpu-" A, ""},
    {"Gpu-" A, ""},
    {A, ""},
    {"GPU-", ""},
    {"GPU", ""},
    {"G", ""},
    {"GPU-x", ""},
    {"GPU-03x", ""},
    {"GPU-03.", ""},
    {"GPU-0370dfe9x", ""},
    {"GPU-0370dfe9 ", ""},
    {"GPU-0370dfe9 ,GPU-" B, ""},
    {"GPU-0370dfe9z,GPU-" B, ""},
    {"GPU-0370dfe9-caa1q", ""},
    {"GPU-5a3a5fb5-4612-cbe1-12cd-a299a7bb159", "1"},
    {"GPU-5a3a5fb5-4612-cbe1-12cd-a299a7bb159z", ""},
    {"GPU-" B "z", "1"},
    {"GPU-" A "0", "0"},
    {"GPU-" A "x", "0"},
    {"GPU-" A " ,GPU-" B, "01"},
    {"GPU-" A ", GPU-" B, "0"},
    {" GPU-" A, ""},
    {"GPU-" A ",,GPU-" B, "0"},
    {"GPU-" A "GPU-" B, "0"},
    {"GPU-" A ";GPU-" B, "0"},
    {"GPU-" A "/0", "0"},
    {"GPU0370dfe9caa132792ebbc343fa2d44fa", ""},
    {"GPU-03,GPU-", "0"},
    {"GPU-03,GPU-zz,GPU-03", "0"},
    {"GPU-03,GPU-03,GPU-zz", "!"},
    {"GPU-" A ",GPU-x,GPU-" B, "0"},
    {"GPU-" A ",GPU-" A, "!"},
    {"GPU-" A ",GPU-0370dfe9", "!"},
    {"GPU-0370dfe9,GPU-" A, "!"},
    {"GPU-5,GPU-5a", "!"},
    // The first entry says whether the list has numbers or uuids.
    {"GPU-" A ",1", "0"},
    {"1,GPU-" A, "1"},
    {"0,GPU-" B, "0"},
    {"GPU-" B ",0", "1"},
    // MIG before the uuid of a whole GPU; GPUs that are not divided have no MIG ids of the old
    // form.
    {"MIG-GPU-" A "/0/0", ""},
    {"MIG-GPU-" A, ""},
    {"MIG-" A, "0"},
    {"MIG-" A "/0/0", "0"},
    {"MIG-0370", "0"},
    {"mig-0370", ""},
    {"MIG-", ""},
    {"MIG-0370DFE9-CAA1-3279-2EBB-C343FA2D44FA", "0"},
    {"MIG-0370,GPU-5a", "01"},
    {"GPU-03,MIG-5a", "01"},
    {"MIG-5a,0", "1"},
    {"GPU-" A ",MIG-" A, "!"},
    {"0,MIG-" A, "0"},
};

static void two_devices(void)
{
    vgpu_machine_builtin(&machine, "dgx-h100");
    machine.device_count = 2;
    memcpy(machine.device[0].uuid, uuids[0], 16);
    memcpy(machine.device[1].uuid, uuids[1], 16);
}

static void visible_devices(void)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        char shown[8] = "!";
        two_devices();
        vgpu_machine_filter(&machine, answers[i].visible);
        if (machine.error[0]) {
            EXPECT_EQ(machine.error_code, cudaErrorInvalidDevice);
            EXPECT_CONTAINS(machine.error, "CUDA_VISIBLE_DEVICES is \"");
            EXPECT_EQ(machine.device_count, 0);
        } else {
            shown[0] = '\0';
            for (int d = 0; d < machine.device_count; d++) {
                snprintf(shown + d, 2, "%d", machine.device[d].physical);
            }
        }
        if (!EXPECT_STR(shown, answers[i].shown)) {
            printf("for CUDA_VISIBLE_DEVICES=%s\n", answers[i].visible);
        }
        EXPECT_EQ(machine.hidden[0] != '\0', answers[i].shown[0] == '\0');
    }
}

// With one GPU there is no other that a beginning could fit as well. As one H200 answered.
static void one_device(void)
{
    static const struct {
        const char *visible;
        int count;
    } rows[] = {{"GPU-", 0}, {"MIG-", 0}, {"GPU-,", 0}, {"GPU-,GPU-", 0}, {"GPU--", 1}, {"0", 1}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        two_devices();
        machine.device_count = 1;
        vgpu_machine_filter(&machine, rows[i].visible);
        EXPECT_EQ(machine.device_count, rows[i].count);
    }
}

// The same on a machine of 8: more numbers, and beginnings that fit one of eight.
static void larger_machine(void)
{
    vgpu_machine_builtin(&machine, "dgx-h100");
    vgpu_machine_filter(&machine, "3,1,7");
    EXPECT_EQ(machine.device_count, 3);
    EXPECT_EQ(machine.device[0].physical, 3);
    EXPECT_EQ(machine.device[2].physical, 7);
    char prefix[16];
    vgpu_machine_builtin(&machine, "dgx-h100");
    const unsigned char *uuid = machine.device[6].uuid;
    snprintf(prefix, sizeof(prefix), "GPU-%02x%02x%02x%02x", uuid[0], uuid[1], uuid[2], uuid[3]);
    vgpu_machine_filter(&machine, prefix);
    EXPECT_EQ(machine.device_count, 1);
    EXPECT_EQ(machine.device[0].physical, 6);
}

#define GPU(dev, bus, sm, more)                                                                    \
    "<pci busid='0000:" bus ":00.0'><gpu dev='" dev "' sm='" sm "'" more "/></pci>"

static void order(void)
{
    static const char text[] = "<system>" GPU("0", "90", "80", "") GPU("1", "20", "90", "")
        GPU("2", "10", "90", "") GPU("3", "30", "90", " multiprocessors='200'") "</system>";
    static const struct {
        const char *order;
        const char *physical;
    } rows[] = {{NULL, "3120"},
                {"FASTEST_FIRST", "3120"},
                {"PCI_BUS_ID", "2130"},
                {"pci_bus_id", ""},
                {"", ""},
                {"X", ""}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char found[8] = "";
        EXPECT(vgpu_machine_parse(&machine, text, strlen(text), "mixed.xml"));
        vgpu_machine_order(&machine, rows[i].order);
        for (int d = 0; d < machine.device_count; d++) {
            snprintf(found + d, 2, "%d", machine.device[d].physical);
        }
        EXPECT_STR(found, rows[i].physical);
        if (rows[i].physical[0] == '\0') {
            EXPECT_EQ(machine.error_code, cudaErrorInvalidDevice);
            EXPECT_CONTAINS(machine.error, "it must be FASTEST_FIRST or PCI_BUS_ID");
        }
    }
}

// ---- A task's limit ----------------------------------------------------------------------------

// The machine's numbers that are left, as a text.
static const char *left(const char *devices)
{
    static char text[32];
    text[0] = '\0';
    vgpu_machine_builtin(&machine, "dgx-h100");
    vgpu_machine_restrict(&machine, devices);
    for (int d = 0; d < machine.device_count; d++) {
        snprintf(text + d, 2, "%d", machine.device[d].physical);
    }
    return text;
}

static void variable(void)
{
    EXPECT_STR(left(NULL), "01234567");
    EXPECT_STR(left("5,3"), "35"); // a set, in the machine's order
    EXPECT_STR(left("3,3"), "3");
    EXPECT_STR(left("GPU-cf84fa25,7"), "07");
    EXPECT_STR(left(""), "");
    EXPECT_CONTAINS(machine.hidden, "leaves none of the machine's 8 GPUs");
    static const char *const bad[] = {"8", "x", "-1", "0x1", "1 ", "0,,1", "GPU-zz", "GPU-", "+1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        EXPECT_STR(left(bad[i]), "");
        EXPECT_CONTAINS(machine.error, "names none of the 8 GPUs of dgx-h100");
    }
    EXPECT_STR(left("1,2x,3"), "");
    EXPECT_CONTAINS(machine.error, "VGPU_DEVICES is \"1,2x,3\": \"2x\" names none");
    // Visible numbers count inside the set.
    EXPECT_STR(left("2,4,6"), "246");
    vgpu_machine_filter(&machine, "2,0");
    EXPECT_EQ(machine.device_count, 2);
    EXPECT_EQ(machine.device[0].physical, 6);
    EXPECT_EQ(machine.device[1].physical, 2);
}

static void in_limited_task(int rank, int size)
{
    (void)rank;
    (void)size;
    int error = vgpuLimitDevices(1u << 2 | 1u << 3 | 1u << 5);
    if (!EXPECT_EQ(error, 0)) {
        return;
    }
    EXPECT_STR(left(NULL), "235");
    EXPECT_STR(left("0,1,2,3,4,5,6,7"), "235"); // the variable does not widen it
    EXPECT_STR(left("3,4"), "3");
    EXPECT_EQ(vgpuLimitDevices(1u << 0 | 1u << 3), 0); // nor does another limit
    EXPECT_STR(left(NULL), "3");
    EXPECT_EQ(vgpuLimitDevices(UINT64_MAX), 0);
    EXPECT_STR(left(NULL), "3");
    // Nothing else is touched.
    char name[16] = "";
    EXPECT_EQ(prctl(PR_SET_NAME, "limited"), 0);
    EXPECT_EQ(prctl(PR_GET_NAME, name), 0);
    EXPECT_STR(name, "limited");
    // A program that it starts has the limit too, whatever its environment.
    EXPECT_EQ(setenv("VISIBLE_TEST_CHILD", "3", 1), 0);
    EXPECT_EQ(system("exec \"$VISIBLE_TEST_PROGRAM\""), 0);
    EXPECT_EQ(vgpuLimitDevices(0), 0);
    EXPECT_STR(left(NULL), "");
    EXPECT_CONTAINS(machine.hidden, "its launcher leaves none");
}

static void limit(void)
{
    run_ranks(1, in_limited_task, 30);
    EXPECT_STR(left(NULL), "01234567"); // here there is none
}

int main(int count, char **arguments)
{
    const char *expected = getenv("VISIBLE_TEST_CHILD");
    if (expected) {
        return strcmp(left(NULL), expected) == 0 ? 0 : 1;
    }
    EXPECT(count > 0 && setenv("VISIBLE_TEST_PROGRAM", arguments[0], 1) == 0);
    RUN(visible_devices);
    RUN(one_device);
    RUN(larger_machine);
    RUN(order);
    RUN(variable);
    RUN(limit);
    return expect_result();
}

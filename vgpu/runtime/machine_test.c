// Machines: the built-in ones, topology files good and bad, PCI addresses.
// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include "expect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vgpu_machine machine;

static bool parse(const char *text)
{
    return vgpu_machine_parse(&machine, text, strlen(text), "box.xml");
}

static void builtin_machines(void)
{
    EXPECT(vgpu_machine_builtin(&machine, "dgx-h100"));
    EXPECT_EQ(machine.device_count, 8);
    for (int i = 0; i < 8; i++) {
        EXPECT_EQ(machine.device[i].major, 9);
        EXPECT_EQ(machine.device[i].multiprocessors, 132);
        EXPECT(machine.device[i].multicast && machine.device[i].nvlink);
        EXPECT_EQ(machine.linked[i], 0xff & ~(1 << i));
        for (int j = 0; j < i; j++) {
            EXPECT(memcmp(machine.device[i].uuid, machine.device[j].uuid, 16) != 0);
            EXPECT(machine.device[i].pci_bus != machine.device[j].pci_bus);
        }
    }
    EXPECT(vgpu_machine_builtin(&machine, "hgx-a100"));
    EXPECT(machine.device[7].major == 8 && !machine.device[7].multicast &&
           machine.device[7].nvlink);
    EXPECT(vgpu_machine_builtin(&machine, "pcie-4"));
    EXPECT_EQ(machine.device_count, 4);
    EXPECT_EQ(machine.linked[0], 0);
    EXPECT(vgpu_machine_builtin(&machine, "none"));
    EXPECT_EQ(machine.device_count, 0);
    EXPECT(!vgpu_machine_builtin(&machine, "dgx-z100"));
}

static void uuids_are_stable(void)
{
    // Written down once: other processes, builds and days must see the same.
    unsigned char uuid[16];
    vgpu_machine_uuid(uuid, "dgx-h100", 0);
    static const unsigned char expected[16] = {0xcf, 0x84, 0xfa, 0x25, 0x48, 0x8c, 0x4c, 0x2b,
                                               0x9b, 0xc4, 0x10, 0xf0, 0xc5, 0xde, 0x27, 0x62};
    EXPECT(memcmp(uuid, expected, 16) == 0);
    unsigned char again[16];
    vgpu_machine_uuid(again, "dgx-h100", 1);
    EXPECT(memcmp(uuid, again, 16) != 0);
    EXPECT_EQ(uuid[6] >> 4, 4);
    EXPECT_EQ(uuid[8] >> 6, 2);
}

#define TWO_GPUS                                                                                   \
    "<?xml version=\"1.0\"?>\n<!-- two & more -->\n<system version=\"1\">\n"                       \
    " <cpu numaid=\"0\" affinity=\"ff\" arch='x86_64'>\n"                                          \
    "  <pci busid=\"0000:1b:00.0\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\">\n"            \
    "   <gpu dev=\"1\" sm=\"90\" rank=\"1\" name=\"left &amp; big\" memory=\"4G\""                 \
    " multiprocessors=\"7\" gdr=\"1\">\n"                                                          \
    "    <nvlink target=\"0000:c1:00.0\" count=\"18\" tclass=\"0x068000\"/>\n   </gpu>\n  "        \
    "</pci>\n"                                                                                     \
    "  <pci busid=\"0001:43:00.0\">\n   <gpu dev=\"0\" sm=\"80\" multicast=\"1\">\n"               \
    "    <nvlink target=\"0000:c1:00.0\" count=\"12\" tclass=\"0x068000\"/></gpu></pci>\n"         \
    "  <nic><net name=\"mlx5_0\" dev=\"0\"/></nic></cpu></system>\n"

static void topology_file(void)
{
    if (!EXPECT(parse(TWO_GPUS))) {
        printf("%s\n", machine.error);
        return;
    }
    EXPECT_EQ(machine.device_count, 2);
    const struct vgpu_device_info *first = &machine.device[0]; // dev 0 comes second in the file
    const struct vgpu_device_info *second = &machine.device[1];
    EXPECT_EQ(first->pci_domain, 1);
    EXPECT_EQ(first->pci_bus, 0x43);
    EXPECT_EQ(first->major, 8);
    EXPECT(first->multicast); // as given
    EXPECT_EQ(first->multiprocessors, 108);
    EXPECT_STR(second->name, "left & big");
    EXPECT_EQ(second->memory_bytes, 4ull << 30);
    EXPECT_EQ(second->multiprocessors, 7);
    EXPECT(second->multicast); // by the switch
    EXPECT_EQ(machine.linked[0], 2);
    EXPECT_EQ(machine.linked[1], 1);
    EXPECT(first->nvlink && second->nvlink);
}

static void links_between_pairs(void)
{
    EXPECT(parse("<system><cpu>"
                 "<pci busid='0000:01:00.0'><gpu dev='0' sm='70'>"
                 "<nvlink target='0000:02:00.0' count='2' tclass='0x030200'/></gpu></pci>"
                 "<pci busid='0000:02:00.0'><gpu dev='1' sm='70'/></pci>"
                 "<pci busid='0000:03:00.0'><gpu dev='2' sm='70'/></pci></cpu></system>"));
    EXPECT_EQ(machine.linked[0], 2);
    EXPECT_EQ(machine.linked[1], 1);
    EXPECT_EQ(machine.linked[2], 0);
    EXPECT(!machine.device[0].nvlink && !machine.device[0].multicast);
}

// What is wrong, and what the message must say, its line included.
static const struct {
    const char *text;
    const char *message;
} mistakes[] = {
    {"", "box.xml:1: no <system>"},
    {"hello", "text between elements"},
    {"<graph/>", "must be <system>"},
    {"<system>\n<cpu>\n</system>", "box.xml:3: </system> where </cpu> must come"},
    {"<system>\n", "box.xml:2: the file ends inside <system>"},
    {"</system>", "without a beginning"},
    {"<system a=1/>", "not in quotes"},
    {"<system a/>", "has no value"},
    {"<system a='1' a='2'/>", "two attributes a"},
    {"<system a='1", "does not end"},
    {"<system a='&nbsp;'/>", "unknown entity"},
    {"<system a='<'/>", "inside an attribute"},
    {"<system/><system/>", "a second outermost element"},
    {"<system><!-- x</system>", "a comment does not end"},
    {"<?xml", "a declaration does not end"},
    {"<system>\n\n<gpu dev='0' sm='90'/></system>", "box.xml:3: <gpu> is not directly inside"},
    {"<system><pci/></system>", "<pci> has no busid"},
    {"<system><pci busid='1b:0'/></system>", "not a PCI address"},
    {"<system><pci busid='0000:1b:00.0'><gpu sm='90'/></pci></system>", "<gpu> has no dev"},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='0'/></pci></system>", "<gpu> has no sm"},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='x' sm='90'/></pci></system>", "dev is \"x\""},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='3' sm='90'/></pci></system>", "dev is 3 with 1"},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='0' sm='90' memory='9Q'/></pci></system>",
     "memory is \"9Q\""},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='0' sm='90'><nvlink/></gpu></pci></system>",
     "<nvlink> has no target"},
    {"<system><pci busid='0000:1b:00.0'><gpu dev='0' sm='90'/><gpu dev='0' "
     "sm='90'/></pci></system>",
     "a second GPU with this dev"},
};

static void mistakes_in_files(void)
{
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        EXPECT(!parse(mistakes[i].text));
        EXPECT_EQ(machine.device_count, 0);
        EXPECT_CONTAINS(machine.error, mistakes[i].message);
    }
}

// Every beginning of a good file, and every file with one byte changed, is parsed or refused with a
// message; nothing is read beyond the end (sanitizers look).
static void damaged_files(void)
{
    size_t length = strlen(TWO_GPUS);
    static const char bytes[] = {'<', '>', '"', '\'', '&', '/', '\0', '\xff', ' ', '9'};
    for (size_t cut = 0; cut < length; cut++) {
        char *text = malloc(cut ? cut : 1);
        memcpy(text, TWO_GPUS, cut);
        bool good = vgpu_machine_parse(&machine, text, cut, "cut.xml");
        EXPECT(good == (machine.error[0] == '\0'));
        free(text);
    }
    char *text = malloc(length);
    for (size_t at = 0; at < length; at++) {
        for (size_t b = 0; b < sizeof(bytes); b++) {
            memcpy(text, TWO_GPUS, length);
            text[at] = bytes[b];
            bool good = vgpu_machine_parse(&machine, text, length, "changed.xml");
            EXPECT(good == (machine.error[0] == '\0'));
        }
    }
    free(text);
}

static void addresses(void)
{
    static const struct {
        const char *text;
        long value; // -1: refused
    } rows[] = {
        // As CUDA 13.0 answers.
        {"0000:1b:00.0", 0x1b00},
        {"1b:00.0", 0x1b00},
        {"1b:0.0", 0x1b00},
        {"0000:1b:00", 0x1b00},
        {"00000001:1B:02.0", 0x11b10},
        {" 0000:1b:00.0", 0x1b00},
        {"0000:1b:00.1", 0x1b01},
        {"1b:00", -1},
        {"0000:1b:00.", -1},
        {"0000:1b:00.0 ", -1},
        {"1b.0", -1},
        {"", -1},
        {"x", -1},
        {"0000-1b-00.0", -1},
        {"0000:1b:00.8", -1},
        {"10000:1b:00.0", -1},
        {"0:100:0.0", -1},
        {"0:0:20.0", -1},
        {":1b:00.0", -1},
        {"0:1b:00:0", -1},
        {"000000001:1b:00.0", -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        long value = -1;
        EXPECT_EQ(vgpu_machine_busid(rows[i].text, &value), rows[i].value >= 0);
        if (!EXPECT_EQ(value, rows[i].value)) {
            printf("for %s\n", rows[i].text);
        }
    }
}

int main(void)
{
    RUN(builtin_machines);
    RUN(uuids_are_stable);
    RUN(topology_file);
    RUN(links_between_pairs);
    RUN(mistakes_in_files);
    RUN(damaged_files);
    RUN(addresses);
    return expect_result();
}

// Labels and branches of inline PTX become C++'s, under names that no other asm statement has:
//   again: ... @p bra again;  ->  vgpu_l1_again: ... if (p) { ::vgpu_yield(); goto vgpu_l1_again; }
// A branch backwards is a loop, perhaps one that waits: it lets other threads run.
// SPDX-License-Identifier: Apache-2.0
#include "ptx_parse.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LABELS = 64 };

// The label of this name, made if need be; NULL with an error.
static struct label *find_label(struct parser *p, const char *name)
{
    for (int i = 0; i < p->label_count; i++) {
        if (strcmp(p->label[i].name, name) == 0) {
            return &p->label[i];
        }
    }
    if (p->label_count == MAX_LABELS) {
        ptx_fail(p, "inline PTX has more than %d labels", MAX_LABELS);
        return NULL;
    }
    if (!p->label) {
        p->label = allocate(MAX_LABELS * sizeof(*p->label));
    }
    struct label *label = &p->label[p->label_count++];
    *label = (struct label){.name = copy_string(name, strlen(name))};
    return label;
}

// Whether a word can be part of a C++ label.
static bool check_name(struct parser *p, const char *name)
{
    for (const char *c = name; *c; c++) {
        if (!ptx_is_name_part(*c)) {
            return ptx_fail(p, "'%s' is no label of inline PTX", name);
        }
    }
    return *name != '\0' || ptx_fail(p, "expected a label in inline PTX at '%.20s'", p->at);
}

bool ptx_define_label(struct parser *p, const char *name)
{
    struct label *label = check_name(p, name) ? find_label(p, name) : NULL;
    if (!label) {
        return false;
    }
    if (label->defined) {
        return ptx_fail(p, "inline PTX defines the label '%s' twice", name);
    }
    label->defined = true;
    text_printf(p->out, " vgpu_l%d_%s: __attribute__((unused));", p->program->serial, name);
    return true;
}

bool ptx_read_branch(struct parser *p, const char *guard)
{
    ptx_skip_space(p);
    size_t length = 0;
    while (ptx_is_name_part(p->at[length])) {
        length++;
    }
    char *name = copy_string(p->at, length);
    struct label *label = check_name(p, name) ? find_label(p, name) : NULL;
    p->at += length;
    if (label) {
        text_printf(p->out, " %s%s%s {%s goto vgpu_l%d_%s; }", guard ? "if (" : "",
                    guard ? guard : "", guard ? ")" : "", label->defined ? " ::vgpu_yield();" : "",
                    p->program->serial, name);
    }
    free(name);
    return label != NULL;
}

void ptx_end_labels(struct parser *p)
{
    for (int i = 0; i < p->label_count; i++) {
        if (!p->label[i].defined) {
            ptx_fail(p, "inline PTX branches to '%s', which is no label of this asm statement",
                     p->label[i].name);
        }
        free(p->label[i].name);
    }
    free(p->label);
}

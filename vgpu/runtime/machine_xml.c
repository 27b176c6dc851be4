// A virtual machine from a topology file in NCCL's XML form.
//
// A small strict parser: elements, attributes, comments and the five standard entities; no text
// between elements, no DTD. Of all elements only <pci busid>, <gpu dev sm ...> and
// <nvlink target tclass> matter; others are checked for form and passed over. Attributes of ours on
// <gpu>: name, memory (bytes, or with K, M, G), multiprocessors, multicast (0 or 1).
// SPDX-License-Identifier: Apache-2.0
#include "machine.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_NAME = 64, MAX_VALUE = 256, MAX_ATTRIBUTES = 32, MAX_TARGETS = 64 };

struct attribute {
    char name[MAX_NAME];
    char value[MAX_VALUE];
};

struct element {
    char name[MAX_NAME];
    int attribute_count;
    struct attribute attribute[MAX_ATTRIBUTES];
    bool closing;      // </name>
    bool self_closing; // <name/>
};

// A PCI address as one number, so that addresses compare.
struct links {
    bool to_switch;
    int target_count;
    long target[MAX_TARGETS];
};

struct parser {
    const char *name;
    const char *at, *end;
    int line;
    struct vgpu_machine *machine;
    int depth;
    char open[MAX_DEPTH][MAX_NAME];
    long busid[MAX_DEPTH]; // of the <pci> at this depth; -1 elsewhere
    int gpu_depth;         // depth inside a <gpu>; 0: not inside one
    struct links links[VGPU_MAX_DEVICES];
    int dev[VGPU_MAX_DEVICES];
    bool multicast_given[VGPU_MAX_DEVICES];
    struct element element;
};

static bool mistake(struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool mistake(struct parser *p, const char *format, ...)
{
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void)snprintf(p->machine->error, sizeof(p->machine->error), "%.120s:%d: %s", p->name, p->line,
                   text);
    return false;
}

// ---- Characters --------------------------------------------------------------------------------

static int peek(const struct parser *p)
{
    return p->at < p->end ? (unsigned char)*p->at : -1;
}

static void advance(struct parser *p, size_t count)
{
    for (size_t i = 0; i < count && p->at < p->end; i++) {
        p->line += *p->at == '\n';
        p->at++;
    }
}

static bool looking_at(const struct parser *p, const char *text)
{
    size_t length = strlen(text);
    return (size_t)(p->end - p->at) >= length && memcmp(p->at, text, length) == 0;
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end && isspace((unsigned char)*p->at)) {
        advance(p, 1);
    }
}

// Moves behind the next `text`; a mistake named `what` where there is none.
static bool skip_past(struct parser *p, const char *text, const char *what)
{
    while (p->at < p->end && !looking_at(p, text)) {
        advance(p, 1);
    }
    if (p->at >= p->end) {
        return mistake(p, "%s does not end (\"%s\" is missing)", what, text);
    }
    advance(p, strlen(text));
    return true;
}

// ---- Elements ----------------------------------------------------------------------------------

static bool read_name(struct parser *p, char name[MAX_NAME], const char *what)
{
    int length = 0;
    while (p->at < p->end && *p->at && (isalnum((unsigned char)*p->at) || strchr("_-.:", *p->at))) {
        if (length == MAX_NAME - 1) {
            return mistake(p, "the name of an %s is longer than %d characters", what, MAX_NAME - 1);
        }
        name[length++] = *p->at;
        advance(p, 1);
    }
    name[length] = '\0';
    return length > 0 || mistake(p, "the name of an %s is missing", what);
}

// One character of an attribute's value, entities resolved.
static bool read_character(struct parser *p, char *out)
{
    static const struct {
        const char *text;
        char character;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    if (peek(p) == '<') {
        return mistake(p, "\"<\" inside an attribute's value");
    }
    if (peek(p) != '&') {
        *out = *p->at;
        advance(p, 1);
        return true;
    }
    for (size_t i = 0; i < sizeof(entities) / sizeof(entities[0]); i++) {
        if (looking_at(p, entities[i].text)) {
            *out = entities[i].character;
            advance(p, strlen(entities[i].text));
            return true;
        }
    }
    return mistake(p, "unknown entity (known: &amp; &lt; &gt; &quot; &apos;)");
}

static bool read_attribute(struct parser *p, struct attribute *attribute)
{
    if (!read_name(p, attribute->name, "attribute")) {
        return false;
    }
    skip_space(p);
    if (peek(p) != '=') {
        return mistake(p, "attribute %s has no value (\"=\" is missing)", attribute->name);
    }
    advance(p, 1);
    skip_space(p);
    int quote = peek(p);
    if (quote != '"' && quote != '\'') {
        return mistake(p, "the value of %s is not in quotes", attribute->name);
    }
    advance(p, 1);
    int length = 0;
    while (p->at < p->end && peek(p) != quote) {
        if (length == MAX_VALUE - 1) {
            return mistake(p, "the value of %s is longer than %d characters", attribute->name,
                           MAX_VALUE - 1);
        }
        if (!read_character(p, &attribute->value[length++])) {
            return false;
        }
    }
    if (p->at >= p->end) {
        return mistake(p, "the value of %s does not end", attribute->name);
    }
    attribute->value[length] = '\0';
    advance(p, 1);
    return true;
}

static bool read_attributes(struct parser *p)
{
    struct element *e = &p->element;
    for (;;) {
        skip_space(p);
        if (looking_at(p, "/>")) {
            e->self_closing = true;
            advance(p, 2);
            return true;
        }
        if (peek(p) == '>') {
            advance(p, 1);
            return true;
        }
        if (peek(p) < 0) {
            return mistake(p, "<%s> does not end", e->name);
        }
        if (e->attribute_count == MAX_ATTRIBUTES) {
            return mistake(p, "<%s> has more than %d attributes", e->name, MAX_ATTRIBUTES);
        }
        struct attribute *next = &e->attribute[e->attribute_count];
        if (!read_attribute(p, next)) {
            return false;
        }
        for (int i = 0; i < e->attribute_count; i++) {
            if (strcmp(e->attribute[i].name, next->name) == 0) {
                return mistake(p, "<%s> has two attributes %s", e->name, next->name);
            }
        }
        e->attribute_count++;
    }
}

// Reads what starts with "<"; the caller has skipped space, comments and declarations.
static bool read_element(struct parser *p)
{
    struct element *e = &p->element;
    e->attribute_count = 0;
    e->self_closing = false;
    advance(p, 1);
    e->closing = peek(p) == '/';
    if (e->closing) {
        advance(p, 1);
    }
    if (!read_name(p, e->name, "element")) {
        return false;
    }
    if (!e->closing) {
        return read_attributes(p);
    }
    skip_space(p);
    if (peek(p) != '>') {
        return mistake(p, "</%s> does not end", e->name);
    }
    advance(p, 1);
    return true;
}

// ---- Meaning -----------------------------------------------------------------------------------

static const char *value_of(const struct element *e, const char *name)
{
    for (int i = 0; i < e->attribute_count; i++) {
        if (strcmp(e->attribute[i].name, name) == 0) {
            return e->attribute[i].value;
        }
    }
    return NULL;
}

// A whole number in [low, high]; `fallback` where the attribute is absent (required if negative).
static bool number_of(struct parser *p, const char *name, long low, long high, long fallback,
                      long *out)
{
    const char *text = value_of(&p->element, name);
    if (!text) {
        *out = fallback;
        return fallback >= 0 || mistake(p, "<%s> has no %s", p->element.name, name);
    }
    char *rest;
    long value = strtol(text, &rest, 10); // too large is LONG_MAX, and refused
    if (!isdigit((unsigned char)text[0]) || *rest || value < low || value > high) {
        return mistake(p, "%s is \"%.40s\"; it must be a number from %ld to %ld", name, text, low,
                       high);
    }
    *out = value;
    return true;
}

static bool memory_of(struct parser *p, size_t *out)
{
    const char *text = value_of(&p->element, "memory");
    if (!text) {
        *out = (size_t)80 << 30;
        return true;
    }
    char *rest;
    unsigned long long value = strtoull(text, &rest, 10);
    int shift = *rest == 'G' ? 30 : *rest == 'M' ? 20 : *rest == 'K' ? 10 : 0;
    bool fits = shift == 0 ? !*rest : !rest[1];
    if (!isdigit((unsigned char)text[0]) || !fits || value == 0 || value > (1ull << 46) >> shift) {
        return mistake(p,
                       "memory is \"%.40s\"; it must be bytes, or a number with K, M or G, "
                       "at most 64 TiB",
                       text);
    }
    *out = (size_t)(value << shift);
    return true;
}

static bool parse_busid(struct parser *p, const char *text, long *out)
{
    bool full = strchr(text, ':') != strrchr(text, ':') && strchr(text, '.');
    if (!full || !vgpu_machine_busid(text, out)) {
        return mistake(p, "\"%.40s\" is not a PCI address (like 0000:1b:00.0)", text);
    }
    return true;
}

static long busid_of(const struct vgpu_device_info *info)
{
    return ((long)info->pci_domain << 16) | ((long)info->pci_bus << 8) |
           ((long)info->pci_device << 3);
}

static bool start_gpu(struct parser *p)
{
    struct vgpu_machine *machine = p->machine;
    int index = machine->device_count;
    long dev = 0;
    long sm = 0;
    long multiprocessors = 0;
    long multicast = 0;
    if (index == VGPU_MAX_DEVICES) {
        return mistake(p, "more than %d GPUs", VGPU_MAX_DEVICES);
    }
    long busid = p->depth > 0 ? p->busid[p->depth - 1] : -1;
    if (busid < 0) {
        return mistake(p, "<gpu> is not directly inside a <pci busid=...>");
    }
    struct vgpu_device_info *info = &machine->device[index];
    if (!number_of(p, "dev", 0, VGPU_MAX_DEVICES - 1, -1, &dev) ||
        !number_of(p, "sm", 50, 999, -1, &sm) || !memory_of(p, &info->memory_bytes) ||
        !number_of(p, "multiprocessors", 1, 1024, sm >= 90 ? 132 : 108, &multiprocessors) ||
        !number_of(p, "multicast", 0, 1, 2, &multicast)) {
        return false;
    }
    info->pci_domain = (int)(busid >> 16);
    info->pci_bus = (int)(busid >> 8) & 255;
    info->pci_device = (int)(busid >> 3) & 31;
    info->major = (int)sm / 10;
    info->minor = (int)sm % 10;
    info->multiprocessors = (int)multiprocessors;
    info->multicast = multicast == 1;
    p->multicast_given[index] = multicast != 2;
    const char *name = value_of(&p->element, "name");
    if (name) {
        (void)snprintf(info->name, sizeof(info->name), "%s", name);
    } else {
        (void)snprintf(info->name, sizeof(info->name), "tutti virtual GPU sm_%ld", sm);
    }
    for (int i = 0; i < index; i++) {
        if (p->dev[i] == dev || busid_of(&machine->device[i]) == busid_of(info)) {
            return mistake(p, "a second GPU with this %s", p->dev[i] == dev ? "dev" : "busid");
        }
    }
    p->dev[index] = (int)dev;
    machine->device_count++;
    p->gpu_depth = p->depth + 1;
    return true;
}

static bool add_link(struct parser *p)
{
    if (!p->gpu_depth) {
        return true; // NVLink of something that is no GPU
    }
    struct links *links = &p->links[p->machine->device_count - 1];
    const char *target = value_of(&p->element, "target");
    const char *class = value_of(&p->element, "tclass");
    if (!target) {
        return mistake(p, "<nvlink> has no target");
    }
    if (class && strncmp(class, "0x0680", 6) == 0) {
        links->to_switch = true;
        return true;
    }
    if (links->target_count == MAX_TARGETS) {
        return mistake(p, "more than %d links at one GPU", MAX_TARGETS);
    }
    return parse_busid(p, target, &links->target[links->target_count++]);
}

static bool start_element(struct parser *p)
{
    struct element *e = &p->element;
    if (p->depth == 0 && strcmp(e->name, "system") != 0) {
        return mistake(p, "the outermost element is <%s>; it must be <system>", e->name);
    }
    if (p->depth == MAX_DEPTH) {
        return mistake(p, "elements nested deeper than %d", MAX_DEPTH);
    }
    long busid = -1;
    if (strcmp(e->name, "pci") == 0) {
        const char *text = value_of(e, "busid");
        if (!text) {
            return mistake(p, "<pci> has no busid");
        }
        if (!parse_busid(p, text, &busid)) {
            return false;
        }
    } else if (strcmp(e->name, "gpu") == 0) {
        if (p->gpu_depth) {
            return mistake(p, "<gpu> inside a <gpu>");
        }
        if (!start_gpu(p)) {
            return false;
        }
    } else if (strcmp(e->name, "nvlink") == 0 && !add_link(p)) {
        return false;
    }
    (void)snprintf(p->open[p->depth], MAX_NAME, "%s", e->name);
    p->busid[p->depth++] = busid;
    return true;
}

static bool end_element(struct parser *p)
{
    if (p->depth == 0) {
        return mistake(p, "</%s> without a beginning", p->element.name);
    }
    if (strcmp(p->open[p->depth - 1], p->element.name) != 0) {
        return mistake(p, "</%s> where </%s> must come", p->element.name, p->open[p->depth - 1]);
    }
    if (p->gpu_depth == p->depth) {
        p->gpu_depth = 0;
    }
    p->depth--;
    return true;
}

// Skips what stands between elements; false: a mistake.
static bool skip_between(struct parser *p)
{
    for (;;) {
        skip_space(p);
        if (looking_at(p, "<!--")) {
            advance(p, 4);
            if (!skip_past(p, "-->", "a comment")) {
                return false;
            }
        } else if (looking_at(p, "<?")) {
            if (!skip_past(p, "?>", "a declaration")) {
                return false;
            }
        } else if (p->at < p->end && peek(p) != '<') {
            return mistake(p, "text between elements");
        } else {
            return true;
        }
    }
}

static bool read_document(struct parser *p)
{
    bool seen = false;
    if (!skip_between(p)) {
        return false;
    }
    while (p->at < p->end) {
        if (seen && p->depth == 0) {
            return mistake(p, "a second outermost element");
        }
        if (!read_element(p) || (!p->element.closing && !start_element(p))) {
            return false;
        }
        if ((p->element.closing || p->element.self_closing) && !end_element(p)) {
            return false;
        }
        seen = true;
        if (!skip_between(p)) {
            return false;
        }
    }
    if (p->depth > 0) {
        return mistake(p, "the file ends inside <%s>", p->open[p->depth - 1]);
    }
    return seen || mistake(p, "no <system> element");
}

// Which GPUs are linked, and in the order of `dev`.
static bool finish(struct parser *p)
{
    struct vgpu_machine *machine = p->machine;
    int count = machine->device_count;
    struct vgpu_device_info sorted[VGPU_MAX_DEVICES];
    int from[VGPU_MAX_DEVICES];
    for (int i = 0; i < count; i++) {
        if (p->dev[i] >= count) {
            return mistake(p, "dev is %d with %d GPUs; they must be numbered from 0", p->dev[i],
                           count);
        }
        from[p->dev[i]] = i;
    }
    for (int i = 0; i < count; i++) {
        const struct links *mine = &p->links[from[i]];
        sorted[i] = machine->device[from[i]];
        sorted[i].physical = i;
        vgpu_machine_uuid(sorted[i].uuid, "topology file", (int)busid_of(&sorted[i]));
        for (int j = 0; j < count; j++) {
            const struct links *other = &p->links[from[j]];
            bool linked = mine->to_switch && other->to_switch;
            for (int t = 0; t < mine->target_count; t++) {
                linked |= mine->target[t] == busid_of(&machine->device[from[j]]);
            }
            for (int t = 0; t < other->target_count; t++) {
                linked |= other->target[t] == busid_of(&machine->device[from[i]]);
            }
            if (linked && i != j) {
                machine->linked[i] |= 1ull << j;
            }
        }
        uint64_t all = count == 64 ? ~0ull : (1ull << count) - 1;
        sorted[i].nvlink = machine->linked[i] == (all & ~(1ull << i)) && count > 1;
        if (!p->multicast_given[from[i]]) {
            sorted[i].multicast = mine->to_switch && sorted[i].major >= 9;
        }
    }
    memcpy(machine->device, sorted, (size_t)count * sizeof(sorted[0]));
    return true;
}

bool vgpu_machine_parse(struct vgpu_machine *machine, const char *text, size_t length,
                        const char *name)
{
    memset(machine, 0, sizeof(*machine));
    struct parser *p = calloc(1, sizeof(*p));
    if (!p) {
        (void)snprintf(machine->error, sizeof(machine->error), "%.120s: no memory to read it",
                       name);
        return false;
    }
    (void)snprintf(machine->name, sizeof(machine->name), "%s", name);
    p->name = name;
    p->at = text;
    p->end = text + length;
    p->line = 1;
    p->machine = machine;
    bool good = read_document(p) && finish(p);
    if (!good) {
        machine->device_count = 0;
    }
    free(p);
    return good;
}

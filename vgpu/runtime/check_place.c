// From program counters to lines of users' code.
//
// addr2line (binutils, which every gcc brings) reads the line tables and the inlined calls; it is
// started when a report needs it, and its answers are kept. Without it a place is a function and an
// offset. Frames inside the runtime and inside the headers of a library on top of it are left out:
// the line that called them is the user's.
// SPDX-License-Identifier: Apache-2.0
#include "check.h"
#include "error.h"

#include "settings.h"
#include "vgpu/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    FRAMES_READ = 48,
    LIBRARY_PARTS = 8,
    ANSWER_MS = 20000, // for addr2line, also where there is much to read
};

// One call on a line; several where calls were inlined.
struct frame {
    char *function;
    char *line;   // "a.cu:12"; NULL: not known
    bool library; // in a header of ours or of the library's
};

struct place {
    uintptr_t address; // of the instruction
    int count;
    struct frame *frame; // innermost first
    char *text;          // the first of users' code
    struct place *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static struct place *places;
static const char *library_part[LIBRARY_PARTS];
static atomic_bool no_tool; // addr2line did not start

void vgpuCheckLibraryHeaders(const char *part)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LIBRARY_PARTS; i++) {
        if (!library_part[i] || strcmp(library_part[i], part) == 0) {
            library_part[i] = part;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

// ---- Traces -------------------------------------------------------------------------------------

static const void *module_of(uintptr_t pc)
{
    Dl_info info;
    return dladdr((void *)pc, &info) ? info.dli_fbase : NULL;
}

void vgpu_trace_here(struct vgpu_trace *trace, uintptr_t fault_pc)
{
    void *frame[FRAMES_READ];
    int count = backtrace(frame, FRAMES_READ);
    const void *runtime = module_of((uintptr_t)vgpu_trace_here);
    int first = 0;
    if (fault_pc) {
        while (first < count && (uintptr_t)frame[first] != fault_pc) {
            first++;
        }
    } else {
        while (first < count && module_of((uintptr_t)frame[first]) != runtime) {
            first++; // a sanitizer stands before the unwinder
        }
        while (first < count && module_of((uintptr_t)frame[first]) == runtime) {
            first++;
        }
    }
    trace->count = 0;
    trace->exact = fault_pc != 0;
    if (fault_pc && first == count) { // it could not be unwound
        trace->pc[trace->count++] = fault_pc;
    }
    for (int i = first; i < count && trace->count < VGPU_TRACE_FRAMES; i++) {
        if (module_of((uintptr_t)frame[i]) == runtime && i > first) {
            break; // the runtime started the thread
        }
        trace->pc[trace->count++] = (uintptr_t)frame[i];
    }
}

// The unwinder is loaded when it is first used: not inside a signal's handler.
__attribute__((constructor)) static void load_unwinder(void)
{
    void *frame[1];
    if (vgpu_checking || vgpu_setting(VGPU_SETTING_CHECK)) {
        (void)backtrace(frame, 1);
    }
}

// ---- The tool -----------------------------------------------------------------------------------

struct module {
    uintptr_t address; // asked for
    uintptr_t bias;
    char path[PATH_MAX];
};

static int find_module(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct module *module = argument;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD &&
            module->address - (info->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            module->bias = info->dlpi_addr;
            const char *name =
                info->dlpi_name && *info->dlpi_name ? info->dlpi_name : "/proc/self/exe";
            if (!realpath(name, module->path)) {
                (void)snprintf(module->path, sizeof(module->path), "%s", name);
            }
            return 1;
        }
    }
    return 0;
}

// Everything that comes out of `fd` before the time is up; NULL: nothing, or no memory.
static char *read_all(int fd)
{
    size_t used = 0;
    size_t room = 4096;
    char *text = malloc(room);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    while (text && used + 1 < room) {
        int ready = poll(&wait, 1, ANSWER_MS);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        ssize_t got = ready > 0 ? read(fd, text + used, room - used - 1) : 0;
        if (got <= 0) {
            break;
        }
        used += (size_t)got;
        char *more = used + 1 == room ? realloc(text, room * 2) : NULL;
        if (more) {
            text = more;
            room *= 2;
        }
    }
    if (text) {
        text[used] = '\0';
    }
    return text;
}

// What addr2line says of an address of a file: pairs of lines, innermost call first. To be freed.
static char *ask(const char *path, uintptr_t address)
{
    char number[32];
    (void)snprintf(number, sizeof(number), "0x%lx", (unsigned long)address);
    char *arguments[] = {"addr2line", "-f", "-i", "-C", "-e", (char *)path, number, NULL};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return NULL;
    }
    posix_spawn_file_actions_t actions;
    pid_t child = 0;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int error = posix_spawnp(&child, arguments[0], &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    char *text = NULL;
    if (error == 0) {
        text = read_all(ends[0]);
        (void)kill(child, SIGKILL); // it has answered, or takes too long
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    } else {
        atomic_store(&no_tool, true);
    }
    (void)close(ends[0]);
    return text;
}

// ---- Answers ------------------------------------------------------------------------------------

// Whether a file is a header of the runtime, of the library on top of it, or of the system.
static bool is_library(const char *file)
{
    static const char *const PARTS[] = {
        "/include/vgpu/",   "/include/cuda/",      "/include/cuda_", "/include/cooperative_groups",
        "/include/device_", "/include/crt/",       "/include/c++/",  "/include/builtin_types.h",
        "/include/vector_", "/include/nccl_device"};
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        if (strstr(file, PARTS[i])) {
            return true;
        }
    }
    for (int i = 0; i < LIBRARY_PARTS && library_part[i]; i++) {
        if (strstr(file, library_part[i])) {
            return true;
        }
    }
    return strncmp(file, "/usr/", 5) == 0;
}

// "folder/a.cu:12 (discriminator 2)" as a reader in the working folder wants it; NULL: not known.
static char *tidy_line(char *line)
{
    char *end = strstr(line, " (");
    if (end) {
        *end = '\0';
    }
    const char *colon = strrchr(line, ':');
    if (!colon || colon == line || line[0] == '?' || strcmp(colon, ":0") == 0 ||
        strcmp(colon, ":?") == 0) {
        return NULL;
    }
    char folder[PATH_MAX];
    size_t length = getcwd(folder, sizeof(folder)) ? strlen(folder) : 0;
    if (length > 1 && strncmp(line, folder, length) == 0 && line[length] == '/') {
        return strdup(line + length + 1);
    }
    return strdup(line);
}

// A function's name without its parameters and without what it returns, which demangled names of
// templates begin with: as a kernel is named elsewhere.
static char *tidy_function(const char *name)
{
    static const char *const WHOLE[] = {"(anonymous namespace)",
                                        "operator()",
                                        "operator<<",
                                        "operator<",
                                        "operator->",
                                        "operator>>",
                                        "operator>",
                                        "operator "};
    int depth = 0;
    size_t begin = 0;
    size_t length = 0;
    while (name[length] && (name[length] != '(' || depth > 0 || length == 0)) {
        size_t step = 1;
        for (size_t i = 0; i < sizeof(WHOLE) / sizeof(WHOLE[0]) && step == 1; i++) {
            if (strncmp(name + length, WHOLE[i], strlen(WHOLE[i])) == 0) {
                step = strlen(WHOLE[i]);
            }
        }
        char c = step == 1 ? name[length] : '\0';
        depth += strchr("<({[", c) && c ? 1 : strchr(">)}]", c) && c ? -1 : 0;
        begin = c == ' ' && depth == 0 ? length + 1 : begin;
        length += step;
    }
    return strndup(name + begin, length - begin);
}

// Where a destructor of the library was inlined, the line is that of a closing brace: "a.cu:54
// (destructor of ncclLsaBarrierSession)". Takes over and returns `line`.
static char *note_destructor(char *line, const struct frame *inlined)
{
    const char *tilde = inlined->function ? strstr(inlined->function, "::~") : NULL;
    char *text = NULL;
    if (!tilde || !line || !inlined->library ||
        asprintf(&text, "%s (destructor of %.*s)", line, (int)strcspn(tilde + 3, "<("), tilde + 3) <
            0) {
        return line;
    }
    free(line);
    return text;
}

static void add_frame(struct place *place, const char *function, char *line)
{
    struct frame *more = realloc(place->frame, (size_t)(place->count + 1) * sizeof(*more));
    if (!more) {
        return;
    }
    place->frame = more;
    struct frame *frame = &place->frame[place->count++];
    frame->library = is_library(line);
    frame->function = tidy_function(function);
    frame->line = tidy_line(line);
    if (!frame->library && place->count > 1) {
        frame->line = note_destructor(frame->line, frame - 1);
    }
}

static void read_answer(struct place *place, char *text)
{
    char *save = NULL;
    char *function = strtok_r(text, "\n", &save);
    while (function) {
        char *line = strtok_r(NULL, "\n", &save);
        if (!line || function[0] == '?') {
            break;
        }
        add_frame(place, function, line);
        function = strtok_r(NULL, "\n", &save);
    }
}

// What can be said without line tables; to be freed, NULL: no memory.
static char *name_without_lines(uintptr_t address, const struct module *module)
{
    char *text = NULL;
    Dl_info info;
    const char *slash = strrchr(module->path, '/');
    const char *file = slash ? slash + 1 : module->path;
    const char *advice = atomic_load(&no_tool)
                             ? " (install binutils: its addr2line tells the line)"
                             : " (no line is known: compile with -g or -lineinfo)";
    bool named = dladdr((void *)address, &info) && info.dli_sname;
    const char *function = named ? info.dli_sname : file;
    uintptr_t from = named ? (uintptr_t)info.dli_saddr : module->bias;
    int length = asprintf(&text, "%s+0x%lx%s%s%s", function, (unsigned long)(address - from),
                          named ? " in " : "", named ? file : "", advice);
    return length >= 0 ? text : NULL;
}

// Under the lock. NULL: no memory.
static const struct place *find_place(uintptr_t address)
{
    for (const struct place *p = places; p; p = p->next) {
        if (p->address == address) {
            return p;
        }
    }
    struct place *place = calloc(1, sizeof(*place));
    struct module *module = calloc(1, sizeof(*module));
    if (!place || !module) {
        free(place);
        free(module);
        return NULL;
    }
    place->address = address;
    module->address = address;
    if (dl_iterate_phdr(find_module, module) != 0 && !atomic_load(&no_tool)) {
        char *text = ask(module->path, address - module->bias);
        if (text) {
            read_answer(place, text);
            free(text);
        }
    }
    for (int i = 0; i < place->count && !place->text; i++) {
        if (!place->frame[i].library && place->frame[i].line) {
            place->text = place->frame[i].line;
        }
    }
    if (!place->text) {
        place->text = name_without_lines(address, module);
    }
    free(module);
    place->next = places;
    places = place;
    return place;
}

static bool has_users_line(const struct place *place)
{
    for (int i = 0; i < place->count; i++) {
        if (place->text && place->text == place->frame[i].line) {
            return true;
        }
    }
    return false;
}

const char *vgpu_place_of(uintptr_t pc, bool exact)
{
    pthread_mutex_lock(&lock);
    const struct place *place = find_place(exact ? pc : pc - 1);
    const char *text = place && place->text ? place->text : "an unknown place";
    pthread_mutex_unlock(&lock);
    return text;
}

bool vgpu_places_differ(uintptr_t a, uintptr_t b)
{
    pthread_mutex_lock(&lock);
    const struct place *first = find_place(a - 1);
    const struct place *second = find_place(b - 1);
    bool differ = first && second && has_users_line(first) && has_users_line(second) &&
                  strcmp(first->text, second->text) != 0;
    pthread_mutex_unlock(&lock);
    return differ;
}

const char *vgpu_place_of_trace(const struct vgpu_trace *trace)
{
    const char *text = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < trace->count; i++) {
        const struct place *place =
            find_place(trace->exact && i == 0 ? trace->pc[i] : trace->pc[i] - 1);
        if (place && has_users_line(place)) {
            text = place->text;
            break;
        }
        text = text || !place ? text : place->text;
    }
    pthread_mutex_unlock(&lock);
    return text;
}

// Whether a frame is users' code, and not the stub that tutticc makes for a kernel.
static bool is_worth_a_line(const struct frame *frame)
{
    const char *function = frame->function ? frame->function : "";
    return !frame->library && frame->line && !strstr(function, "vgpu::kernel_stub") &&
           strncmp(function, "invoke_with<", 12) != 0;
}

void vgpu_trace_print(const struct vgpu_trace *trace, FILE *out)
{
    int printed = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < trace->count; i++) {
        const struct place *place =
            find_place(trace->exact && i == 0 ? trace->pc[i] : trace->pc[i] - 1);
        for (int f = 0; place && f < place->count; f++) {
            const struct frame *frame = &place->frame[f];
            if (is_worth_a_line(frame)) {
                (void)fprintf(out, "\n    %s %s in %s", printed++ ? "called from" : "at",
                              frame->line, frame->function ? frame->function : "?");
            }
        }
    }
    if (printed == 0 && trace->count > 0) {
        const struct place *place = find_place(trace->exact ? trace->pc[0] : trace->pc[0] - 1);
        (void)fprintf(out, "\n    at %s", place && place->text ? place->text : "an unknown place");
    }
    pthread_mutex_unlock(&lock);
}

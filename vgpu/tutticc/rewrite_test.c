// Tests of the rewriter on small texts: what each construct becomes, what stays, and what is said
// about mistakes.
// SPDX-License-Identifier: Apache-2.0
#include "rewrite.h"

#include "expect.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct result {
    struct text output;
    char *messages;
    int errors;
};

static struct result rewritten(const char *input, int arch)
{
    struct result result = {.messages = NULL};
    size_t size = 0;
    FILE *messages = open_memstream(&result.messages, &size);
    if (!EXPECT(messages != NULL)) {
        exit(1);
    }
    struct text text = {0};
    text_add(&text, input);
    struct rewrite_options options = {.file = "test.cu", .arch = arch, .messages = messages};
    result.errors = rewrite(&text, &options, &result.output);
    fclose(messages);
    text_free(&text);
    return result;
}

static void free_result(struct result *result)
{
    text_free(&result->output);
    free(result->messages);
}

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static bool is_word_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// The text with blanks only between words, and without line markers: where things stand is looked
// at in places_stay.
static char *plain(const char *text)
{
    char *out = malloc(strlen(text) + 1), *end = out;
    if (!EXPECT(out != NULL)) {
        exit(1);
    }
    while (*text) {
        int used = 0, line = 0;
        if (sscanf(text, "\n# %d \"%*[^\"]\"%n", &line, &used) == 1 && used > 0) {
            text += used + 1;
            continue;
        }
        size_t blanks = strspn(text, " ");
        bool between = end > out && is_word_character(end[-1]) && is_word_character(text[blanks]);
        if (blanks == 0 || between) {
            *end++ = *text;
        }
        text += blanks == 0 ? 1 : blanks;
    }
    *end = '\0';
    return out;
}

// The whole output.
static void expect_becomes(const char *input, const char *expected)
{
    struct result result = rewritten(input, 90);
    char *got = plain(result.output.data ? result.output.data : ""), *wanted = plain(expected);
    EXPECT_STR(result.messages, "");
    EXPECT_STR(got, wanted);
    free(wanted);
    free(got);
    free_result(&result);
}

// A part of the output.
static void expect_contains_part(const char *input, const char *part)
{
    struct result result = rewritten(input, 90);
    char *got = plain(result.output.data ? result.output.data : ""), *wanted = plain(part);
    EXPECT_STR(result.messages, "");
    EXPECT_CONTAINS(got, wanted);
    free(wanted);
    free(got);
    free_result(&result);
}

// Line and column of the character at `at`, by the markers of test.cu before it.
static void find_place(const char *text, const char *at, int *line, int *column)
{
    *line = 1;
    *column = 1;
    while (text < at) {
        int number = 0;
        if (*column == 1 && sscanf(text, "# %d \"test.cu\"", &number) == 1) {
            *line = number - 1;
        }
        *line += *text == '\n';
        *column = *text == '\n' ? 1 : *column + 1;
        text++;
    }
}

// Every one of the words w1, w2, ... of the input is at its line and column in the output.
static void expect_places(const char *input)
{
    struct result result = rewritten(input, 90);
    EXPECT_STR(result.messages, "");
    for (int i = 1; i < 10; i++) {
        char word[8];
        (void)snprintf(word, sizeof(word), "w%d", i);
        const char *before = strstr(input, word);
        const char *after = strstr(result.output.data ? result.output.data : "", word);
        if (!before) {
            break;
        }
        if (EXPECT(after != NULL)) {
            int line = 0, column = 0, new_line = 0, new_column = 0;
            find_place(input, before, &line, &column);
            find_place(result.output.data, after, &new_line, &new_column);
            EXPECT_EQ(new_line, line);
            EXPECT_EQ(new_column, column);
        }
    }
    free_result(&result);
}

static void places_stay(void)
{
    expect_places("__global__ void k(int, float) { w1(); }\n w2;\n");
    expect_places("__global__ void\nk()\n{ w1();\n w2(); } w3;\n");
    expect_places("void f() { k<<<1, w1>>>(w2, w3); w4(); }\nint w5;\n");
    expect_places("void f() { a<<<1,\n 2>>>(w1,\n w2); w3(); }\n w4;\n");
    expect_places("__device__ int a; int w1; __device__ void w2();\n  w3;\n");
    expect_places("__global__ void k() { __shared__ int s[4]; s[w1] = w2; }\nint w3;\n");
    expect_places("__global__ void k() { while (w1) { } w2(); }\nint w3;\n");
    expect_places("# 7 \"test.cu\"\n__global__ void k() { w1(); }\n\n  w2;\n");
}

// The messages, exactly.
static void expect_messages(const char *input, const char *messages)
{
    struct result result = rewritten(input, 90);
    EXPECT(result.errors > 0);
    EXPECT_STR(result.messages, messages);
    free_result(&result);
}

static void ordinary_code_stays(void)
{
    static const char *const SAME[] = {
        "int main() { return a << 2 >> b<c<d<int>>>(); }\n",
        "template <class T> struct S : B<T> { S() : a(1), b{2} {} T operator<<(int); };\n",
        "char const *s = \"__global__ <<<>>> asm\"; // __device__\n",
        "auto r = R\"(__shared__ int x; )\";\n",
        "extern int f(int) __asm__(\"other_name\") __attribute__((nothrow));\n",
        "asm(\".globl x\");\n",
        "void f() { asm volatile(\"mfence\" ::: \"memory\"); asm(\"\" : \"+r\"(x)); }\n",
        "__attribute__((__noinline__)) void f();\n",
        "extern void __assert_fail(const char *, const char *, unsigned, const char *);\n",
        "std::ostream &operator<<<int>(std::ostream &, T<int>);\n",
        "",
        "\n\n",
    };
    for (size_t i = 0; i < sizeof(SAME) / sizeof(SAME[0]); i++) {
        expect_becomes(SAME[i], SAME[i]);
    }
}

static void words_go(void)
{
    expect_becomes("__device__ int f(int);\n", " int f(int);\n");
    expect_becomes(
        "struct S { __device__ S() : a{1} {} __device__ ~S(); __device__ operator int() const; };",
        "struct S {  S() : a{1} {}  ~S();  operator int() const; };");
    expect_becomes("template <class T> __device__ T N::f(T x) { return x; }",
                   "template <class T>  T N::f(T x) { return x; }");
    expect_becomes("auto f = [=] __device__ (int i) { return i; };",
                   "auto f = [=]  (int i) { return i; };");
    expect_becomes("__global__ void k(int);", " void k(int);");
    expect_becomes("__global__ void __launch_bounds__(256, 2) k(int);", " void   k(int);");
    expect_becomes("__device__ __noinline__ void f();", " __attribute__((noinline)) void f();");
    expect_becomes("void f() { x ? (void)0 : __assert_fail(a, b, 1, c); }",
                   "void f() { x ? (void)0 : ::vgpu_assert_fail(a, b, 1, c); }");
    expect_becomes("#pragma unroll 4\nint a;\n#pragma once\n", "\nint a;\n#pragma once\n");
    expect_becomes("__device__ constexpr int n = 1;", " constexpr int n = 1;");
    expect_becomes("__device__ __managed__ int n;", "static __attribute__((unused))   int n;");
}

static void library_functions_of_devices(void)
{
    expect_becomes("__device__ void f() { printf(\"a\"); std::printf(\"b\"); ::std ::\n printf(c); "
                   "return ::printf(d), clock(); }",
                   " void f() { ::vgpu_printf(\"a\"); ::vgpu_printf(\"b\");  \n ::vgpu_printf(c); "
                   "return ::vgpu_printf(d), ::vgpu_device_clock(); }");
    static const char SAME[] = " void f() { x.printf(1); y->clock(); z::printf(2); int clock = 3; "
                               "clock++; fprintf(g, h); long clock(int); auto p = printf; }";
    char *device = format_string("__device__%s", SAME);
    expect_becomes(device, SAME);
    free(device);
    expect_becomes("void f() { printf(\"host\"); clock(); }",
                   "void f() { printf(\"host\"); clock(); }");
}

static void kernels_get_a_stub(void)
{
    expect_contains_part("__global__ void k(int a, float *b)\n{\n}\n",
                         " if (::vgpu::kernel_stub<void (*)(int a, float *b), &k, "
                         "vgpu_kernel_information>::launch(a, b)) return;\n}");
    expect_contains_part("# 41 \"dir/x.cu\"\n\n__global__ void k() {}\n", "return \"k\"");
    expect_contains_part("# 41 \"dir/x.cu\"\n\n__global__ void k() {}\n", "return \"dir/x.cu\"; }");
    expect_contains_part("# 41 \"dir/x.cu\"\n\n__global__ void k() {}\n", "line = 42");
    expect_contains_part(
        "template <class T, int n, class... R> __global__ void k(T t, R... r) {}",
        "<void (*)(T t, R... r), &k<T, n, R...>, vgpu_kernel_information>::launch(t, r...)");
    expect_contains_part("template <class, int = 3> __global__ void k() {}",
                         "&k<vgpu_parameter1000, vgpu_parameter1001>");
    expect_contains_part("template <class, int = 3> __global__ void k() {}",
                         "template <class vgpu_parameter1000 , int  vgpu_parameter1001 = 3>");
    expect_contains_part("template <> __global__ void k<int>(int *p) {}", "&k<int>, vgpu");
    expect_contains_part(
        "__global__ void k(int, void (*)(int), int (*p)[2] = nullptr, unsigned long) {}",
        "launch(vgpu_parameter0, vgpu_parameter1, p, vgpu_parameter3)");
    expect_contains_part("__global__ void k(int, void (*)(int)) {}",
                         "k(int vgpu_parameter0 , void (* vgpu_parameter1 )(int))");
    expect_contains_part("__global__ void __launch_bounds__(2 * n, 1) k() {}",
                         "return static_cast<int>(2 * n)");
    expect_contains_part("__global__ void k(A<1, 2> a = {3, 4},\n\n int b = f(1, 2))\n{}",
                         "<void (*)(A<1, 2> a, int b), &k,");
    expect_contains_part("namespace n { struct S { static __global__ void k(void) {} }; }",
                         "&k, vgpu_kernel_information>::launch()");
}

static void launches_become_calls(void)
{
    expect_becomes("void f() { k<<<1, 2>>>(3); }",
                   "void f() { (::vgpu::push_launch(1, 2), k(3)); }");
    expect_becomes("void f() { n::k<T, 1><<<a(b, c), d[1], 0, s>>>(x)\n; }",
                   "void f() { (::vgpu::push_launch(a(b, c), d[1], 0, s), n::k<T, 1>(x))\n; }");
    expect_becomes(
        "void f() { ::k<<<1, 2>>>(); o.p->q[3]<<<1, 2>>>(); (*t)<<<1, 2>>>(); g(1)<<<1, 2>>>(); }",
        "void f() { (::vgpu::push_launch(1, 2), ::k()); (::vgpu::push_launch(1, 2), o.p->q[3]()); "
        "(::vgpu::push_launch(1, 2), (*t)()); (::vgpu::push_launch(1, 2), g(1)()); }");
    expect_becomes("void f() { k<A<B<int>>><<<A<B<C<1>>>::v, 2>>>(); }",
                   "void f() { (::vgpu::push_launch(A<B<C<1>>>::v, 2), k<A<B<int>>>()); }");
    // What moves is written on one line; the lines it came from stay.
    expect_becomes("k\n<\n1>\n<<<\n1,\n2>>>\n(3\n)",
                   "(::vgpu::push_launch(\n\n\n\n1,\n2), k < 1>\n(3\n))");
    expect_becomes("k\n# 7 \"x\"\n<1><<<1, 2>>>()",
                   "(::vgpu::push_launch(\n# 7 \"x\"\n1, 2), k  <1>())");
}

static void shared_variables_become_references(void)
{
    expect_becomes(
        "void f() { __shared__ int a[2], *b; }",
        "void f() { typedef  int vgpu_t1_a[2], *vgpu_t1_b; static char vgpu_s1_a; vgpu_t1_a &a = "
        "*static_cast<vgpu_t1_a *>(::vgpu_shared(&vgpu_s1_a, sizeof(vgpu_t1_a), "
        "alignof(vgpu_t1_a))); static char vgpu_s1_b; "
        "vgpu_t1_b &b = *static_cast<vgpu_t1_b *>(::vgpu_shared(&vgpu_s1_b, sizeof(vgpu_t1_b), "
        "alignof(vgpu_t1_b))); }");
    expect_becomes("void f() { extern __shared__ T x[]; }",
                   "void f() { typedef   T vgpu_t1_x[]; vgpu_t1_x &x = *static_cast<vgpu_t1_x "
                   "*>(::vgpu_dynamic_shared()); }");
    expect_contains_part("void f() { alignas(64) __shared__ int a; }",
                         "struct alignas(64)  vgpu_a1 { char c; };");
    expect_contains_part(
        "extern __shared__ int x[];\nint f() { return x[0] + n::x[1] + s.x + p->x; }\n",
        "return vgpu_shared_x()[0] + n::x[1] + s.x + p->x;");
}

static void lambdas_reach_shared_memory(void)
{
    static const char INPUT[] =
        "__device__ int x; void f() { __shared__ int x; x = 1; auto g = [=] { x = "
        "2; { int x; x = 3; } }; x = 4; } int h() { return x; }";
    expect_contains_part(INPUT, " x = 1; auto g = [=] { (*static_cast<vgpu_t");
    expect_contains_part(INPUT, "alignof(vgpu_t2_x)))) = 2; { int x; x = 3; } }; x = 4; }");
    expect_contains_part(INPUT, "return ::vgpu::device_variable(x); }");
    expect_contains_part("extern __shared__ int x[];\nextern __shared__ int x[];",
                         "\ntypedef   int vgpu_t2_x[];");
}

static void polling_loops_let_others_run(void)
{
    static const char *const CASES[][2] = {
        {"while (*p);", "while (*p) ::vgpu_yield();"},
        {"while (*p) {}", "while (*p) { ::vgpu_yield();}"},
        {"for (; *p;);", "for (; *p;) ::vgpu_yield();"},
        {"do {} while (*p);", "do { ::vgpu_yield();} while (*p);"},
        {"do { a = *(volatile int *)p; } while (a);",
         "do { ::vgpu_yield(); a = *(volatile int *)p; } while (a);"},
        {"while (*(volatile int *)p) { n++; }",
         "while (*(volatile int *)p) { ::vgpu_yield(); n++; }"},
        {"while (*p) continue;", "while (*p) { ::vgpu_yield(); continue; }"},
        {"while (*(volatile int *)p) n++;", "while (*(volatile int *)p) { ::vgpu_yield(); n++; }"},
        {"while (*(volatile int *)p) if (a) b; else c;",
         "while (*(volatile int *)p) if (a) b; else c;"},
        {"while (a) { n++; }", "while (a) { n++; }"},
        {"do n++; while (a);", "do n++; while (a);"},
        {"do { n++; } while (a);", "do { n++; } while (a);"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char *input = format_string("__device__ void f() { %s }", CASES[i][0]);
        char *output = format_string(" void f() { %s }", CASES[i][1]);
        expect_becomes(input, output);
        free(input);
        free(output);
    }
    expect_becomes("void host() { while (*p); }", "void host() { while (*p); }");
}

static void variables_are_per_device(void)
{
    static const char DECLARED[] = "__device__ int v = 1;\n";
    expect_contains_part(DECLARED, "static __attribute__((unused))  int v = 1;");
    expect_contains_part(DECLARED, "static const ::vgpu::symbol vgpu_symbol1_v(v, \"v\", false);");
    expect_contains_part("__constant__ float v[3];", "(v, \"v\", true);");
    expect_contains_part("namespace n { __device__ int v; }\nint f() { return n::v + ::m::v; }",
                         "return ::vgpu::device_variable(n::v) + ::m::v;");
    expect_contains_part("extern __device__ int v;\n__device__ int v;", "\n int v; __attribute__");
    static const char *const HIDDEN[] = {
        "int f(int v) { return v; }",
        "int f() { int v = 0; return v; }",
        "int f() { const T &v = g(); return v + v; }",
        "int f() { T *v, w; return v; }",
        "int f() { for (int v = 0; v < 3; v++) g(v); }",
        "int f() { auto g = [](int v) { return v; }; }",
        "struct S { int v; int f() { return v; } };",
        "int f() { std::vector<int> v; return v; }",
        "int f() { return s.v + p->v + o::v; }",
    };
    for (size_t i = 0; i < sizeof(HIDDEN) / sizeof(HIDDEN[0]); i++) {
        char *input = format_string("%s%s", DECLARED, HIDDEN[i]);
        expect_contains_part(input, HIDDEN[i]);
        free(input);
    }
    static const struct {
        const char *input, *part;
    } USED[] = {
        {"int f() { return v; }", "return ::vgpu::device_variable(v);"},
        {"int f() { { int v; } return v; }", "} return ::vgpu::device_variable(v);"},
        {"int f() { for (int v = 0; v < 3;) g(); return v; }",
         "return ::vgpu::device_variable(v);"},
        {"void f(int v); int g() { return v; }", "return ::vgpu::device_variable(v);"},
        {"int f() { return a * v + (b & v) + ::v; }",
         "a * ::vgpu::device_variable(v) + (b & ::vgpu::device_variable(v)) + "
         "::vgpu::device_variable(::v)"},
        {"void f() { k<<<v, 1>>>(&v); }",
         "push_launch(::vgpu::device_variable(v), 1), k(&::vgpu::device_variable(v)))"},
    };
    for (size_t i = 0; i < sizeof(USED) / sizeof(USED[0]); i++) {
        char *input = format_string("%s%s", DECLARED, USED[i].input);
        expect_contains_part(input, USED[i].part);
        free(input);
    }
}

static void static_variables_of_functions_are_per_device(void)
{
    expect_becomes(
        "__device__ int f() { static __device__ int v = 1; return v + [] { return v; }(); }",
        " int f() { static  int vgpu_image1_v = 1; static const ::vgpu::symbol "
        "vgpu_symbol1_v(vgpu_image1_v, \"v\", false); auto &v = "
        "::vgpu::device_variable(vgpu_image1_v); return v + [] { return "
        "::vgpu::device_variable(vgpu_image1_v); }(); }");
}

static void ptx_becomes_blocks(void)
{
    expect_becomes("void f() { asm volatile(\"add.s32 %0, %1, 3;\" : \"=r\"(a) : \"r\"(b)); }",
                   "void f() { do {    auto &vgpu_o1_0 = (a); unsigned int vgpu_r1_0 = 0; "
                   "(void)vgpu_r1_0;   unsigned int vgpu_r1_1 = "
                   "::vgpu::ptx::in<unsigned int>(b); (void)vgpu_r1_1; { "
                   "::vgpu::ptx::set(vgpu_r1_0,  ::vgpu::ptx::add< ::vgpu::ptx::s32>(vgpu_r1_1, "
                   "0x3ull)); } ::vgpu::ptx::out(vgpu_o1_0, vgpu_r1_0); } while (0); }");
    expect_contains_part("__device__ void f() {\n if (x)\n asm(\n\"trap;\"\n);\n}",
                         "::vgpu::ptx::trap();");
    expect_contains_part("__device__ int v; __device__ void f() { asm(\"red.global.add.u32 [%0], "
                         "%1;\" :: \"l\"(&v), \"r\"(v)); }",
                         "in<unsigned long long>(&::vgpu::device_variable(v))");
    expect_contains_part(
        "# 1 \"/usr/include/x.h\" 1 3\ninline void f() { asm(\"rdtsc\" : \"=a\"(x)); }",
        "asm(\"rdtsc\" : \"=a\"(x));");
}

static void asm_statements_can_number_names(void)
{
    expect_contains_part("void f() { asm(\"{ .reg .b32 x%=; mov.b32 x%=, %0; }\" :: \"r\"(1)); }",
                         "::vgpu::ptx::set(vgpu_v1_1_0, ");
}

static void mistakes_are_named_with_their_line(void)
{
    expect_messages("\n__global__ int k() {}",
                    "test.cu:2: error: __global__ function 'k' must return void\n");
    expect_messages("# 30 \"u.cuh\"\n__global__ float *k() {}",
                    "u.cuh:30: error: __global__ function 'k' must return void\n");
    expect_messages("\nvoid f() { k<<<a, b, c, d, e>>>(); }",
                    "test.cu:2: error: a launch takes '<<<grid, block, shared bytes, stream>>>', "
                    "of which grid and block are needed; here are 5\n");
    expect_messages(
        "__global__ int x;",
        "test.cu:1: error: __global__ must be followed by the declaration of a function\n");
    expect_messages(
        "__global__",
        "test.cu:1: error: __global__ must be followed by the declaration of a function\n");
    expect_messages("void f() { __global__ void g(); }",
                    "test.cu:1: error: __global__ cannot be used inside a function\n");
    expect_messages(
        "__global__ void k(int n, ...) {}",
        "test.cu:1: error: a __global__ function cannot have a variable argument list\n");
    expect_messages("void f() {\n k<<<1, 2; }", "test.cu:2: error: '<<<' without '>>>'\n");
    expect_messages("void f() { k<<<1, 2>>>; }",
                    "test.cu:1: error: expected '(' and the kernel's arguments after '>>>'\n");
    expect_messages("void f() { k<<<>>>(); }",
                    "test.cu:1: error: a launch needs at least '<<<grid, block>>>'\n");
    expect_messages("void f() { 3<<<1, 2>>>(); }",
                    "test.cu:1: error: expected a kernel before '<<<'\n");
    expect_messages("void f() { __shared__ int a = 1; }",
                    "test.cu:1: error: __shared__ variable 'a' cannot have an initializer\n");
    expect_messages("void f() { extern __shared__ int a; }",
                    "test.cu:1: error: 'extern __shared__' declares the block's dynamic memory: "
                    "'a' must be an array\n");
    expect_messages("struct S { __shared__ int a; };",
                    "test.cu:1: error: __shared__ is supported for variables of functions and "
                    "namespaces only\n");
    expect_messages(
        "void f() { __shared__",
        "test.cu:1: error: __shared__ must be followed by the declaration of a variable\n");
    expect_messages("void f() { __device__ int a; }",
                    "test.cu:1: error: __device__ variables inside a function must be static\n");
    expect_messages("struct S { __device__ int a; };",
                    "test.cu:1: error: __device__ is not supported for members of classes\n");
    expect_messages("template <class T> __device__ T a;",
                    "test.cu:1: error: __device__ is not supported for variable templates\n");
    expect_messages(
        "__device__ void f() {\n\n asm(\"frobnicate.b32 %0;\" : \"=r\"(x)); }",
        "test.cu:3: error: tutticc does not translate the PTX instruction 'frobnicate.b32'\n");
    expect_messages("__device__ void f() { asm(\"add.s32 %0, %1, %2;\" : \"=r\"(x) : \"r\"(y)); }",
                    "test.cu:1: error: inline PTX names operand %2, but there are 2 operands\n");
    expect_messages("__device__ void f() { asm(\"trap;\" : \"=x\"(y)); }",
                    "test.cu:1: error: operand %0 of inline PTX has a constraint that is none of "
                    "\"h\", \"r\", \"l\", \"f\", \"d\", \"q\", \"n\"\n");
    expect_messages("__device__ void f() { asm(\"trap;\" : 3); }",
                    "test.cu:1: error: the operands of this asm statement are not written as "
                    "\"constraint\"(expression), ...\n");
}

static void many_mistakes_are_counted(void)
{
    struct text input = {0};
    for (int i = 0; i < 50; i++) {
        text_add(&input, "__global__ int k() {}\n");
    }
    struct result result = rewritten(input.data, 90);
    EXPECT_EQ(result.errors, 50);
    EXPECT_EQ(count_lines(result.messages), 21);
    EXPECT_CONTAINS(result.messages, "test.cu: error: 30 more errors\n");
    free_result(&result);
    text_free(&input);
}

// Long and deep texts take time and memory in proportion.
static void size_does_not_matter(void)
{
    struct text input = {0};
    text_add(&input, "__device__ int v; int table[] = {");
    for (int i = 0; i < 200000; i++) {
        text_add(&input, "{1,v},");
    }
    text_add(&input, "}; ");
    for (int i = 0; i < 100000; i++) {
        text_add(&input, "{(");
    }
    for (int i = 0; i < 1000; i++) {
        text_add(&input, "void f() { k<<<1, 2>>>(v); }");
    }
    struct result result = rewritten(input.data, 90);
    EXPECT_EQ(result.errors, 0);
    free_result(&result);
    text_free(&input);
}

// A header of a library may hold what nobody calls: only a call is an error.
static void libraries_may_hold_unknown_ptx(void)
{
    static const char UNKNOWN[] =
        "inline __device__ void f() { asm(\"frobnicate.b32 %0;\" :: \"r\"(1)); }";
    char *library = format_string("# 1 \"/opt/include/h.h\" 1 3\n%s", UNKNOWN);
    expect_contains_part(library, "__attribute__((error(\"tutticc does not translate the PTX "
                                  "instruction \'frobnicate.b32\'\")))");
    free(library);
}

static void the_target_decides_about_multimem(void)
{
    static const char USER[] =
        "__device__ void f() { asm(\"multimem.st.global.f32 [%0], %1;\" :: \"l\"(p), \"f\"(x)); }";
    struct result result = rewritten(USER, 80);
    EXPECT_STR(result.messages, "test.cu:1: error: the PTX instruction 'multimem.st.global.f32' "
                                "needs a target of sm_90 or later, not sm_80\n");
    free_result(&result);
    char *library = format_string("# 1 \"/opt/include/h.h\" 1 3\n%s", USER);
    result = rewritten(library, 80); // a header may hold what is never used
    EXPECT_STR(result.messages, "");
    free_result(&result);
    free(library);
}

int main(void)
{
    RUN(ordinary_code_stays);
    RUN(words_go);
    RUN(library_functions_of_devices);
    RUN(places_stay);
    RUN(kernels_get_a_stub);
    RUN(launches_become_calls);
    RUN(shared_variables_become_references);
    RUN(lambdas_reach_shared_memory);
    RUN(polling_loops_let_others_run);
    RUN(variables_are_per_device);
    RUN(static_variables_of_functions_are_per_device);
    RUN(ptx_becomes_blocks);
    RUN(asm_statements_can_number_names);
    RUN(mistakes_are_named_with_their_line);
    RUN(many_mistakes_are_counted);
    RUN(libraries_may_hold_unknown_ptx);
    RUN(the_target_decides_about_multimem);
    RUN(size_does_not_matter);
    return expect_result();
}

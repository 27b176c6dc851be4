// The vector conversions of 16-bit floats against the single ones, bit for bit: all 16-bit values,
// and floats around every one that they can be. Built for the plainest processor and, where this
// one can, for AVX2 with F16C.
// SPDX-License-Identifier: Apache-2.0
#include "../vgpu/float16_vectors.h"
#include "../vgpu/small_float.h"

#include <stdio.h>
#include <string.h>

static long checks, failures;

template <int n, class Vectors>
static void check_widen(const uint16_t *value, float (*single)(uint16_t), const char *name)
{
    typename vgpu::vectors_of<n>::halves narrow;
    memcpy(&narrow, value, sizeof(narrow));
    typename vgpu::vectors_of<n>::floats wide;
    Vectors::template widen<n>(wide, narrow);
    for (int i = 0; i < n; i++, checks++) {
        uint32_t got, wanted = vgpu_float_bits(single(value[i]));
        float element = wide[i];
        memcpy(&got, &element, sizeof(got));
        if (got != wanted && failures++ < 20)
            printf("%s of %d: widen(%04x) is %08x, must be %08x\n", name, n, value[i], got, wanted);
    }
}

template <int n, class Vectors>
static void check_narrow(const float *value, uint16_t (*single)(float), const char *name)
{
    typename vgpu::vectors_of<n>::floats wide;
    memcpy(&wide, value, sizeof(wide));
    typename vgpu::vectors_of<n>::halves narrow = Vectors::template narrow<n>(wide);
    for (int i = 0; i < n; i++, checks++) {
        uint16_t got = narrow[i], wanted = single(value[i]);
        if (got != wanted && failures++ < 20)
            printf("%s of %d: narrow(%a) is %04x, must be %04x\n", name, n, (double)value[i], got,
                   wanted);
    }
}

template <class Vectors>
static void check_all(float (*widen)(uint16_t), uint16_t (*narrow)(float), const char *name)
{
    for (unsigned first = 0; first < 65536; first += 8) {
        uint16_t half[8];
        for (unsigned i = 0; i < 8; i++)
            half[i] = (uint16_t)(first + i);
        check_widen<8, Vectors>(half, widen, name);
        check_widen<4, Vectors>(half, widen, name);
        check_widen<2, Vectors>(half, widen, name);
    }
    // Each value that there is, and floats a little beside it and half-way to the next.
    static const uint32_t beside[] = {0, 1, 0xffffffff, 0x1000, 0xfff, 0x1001, 0x8000, 0x7fff};
    for (unsigned half = 0; half < 65536; half++) {
        float near[8];
        for (unsigned i = 0; i < 8; i++)
            near[i] = vgpu_bits_float(vgpu_float_bits(widen((uint16_t)half)) + beside[i]);
        check_narrow<8, Vectors>(near, narrow, name);
        check_narrow<4, Vectors>(near + half % 5, narrow, name);
        check_narrow<2, Vectors>(near + half % 7, narrow, name);
    }
    // Floats of all exponents.
    for (unsigned bits = 0; bits < 0x10000; bits++) {
        float any[8];
        for (unsigned i = 0; i < 8; i++)
            any[i] = vgpu_bits_float(bits << 16 | (bits * 2654435761u + i * 40503u) >> 16);
        check_narrow<8, Vectors>(any, narrow, name);
    }
}

int main()
{
#ifdef __AVX2__
    if (!__builtin_cpu_supports("avx2")) {
        printf("this processor has no AVX2\n");
        return 77;
    }
#endif
    check_all<vgpu::half_vectors>(vgpu_half_to_float, vgpu_float_to_half, "half");
    check_all<vgpu::bfloat16_vectors>(vgpu_bfloat16_to_float, vgpu_float_to_bfloat16, "bfloat16");
    printf("%ld checks, %ld failed\n", checks, failures);
    return failures == 0 ? 0 : 1;
}

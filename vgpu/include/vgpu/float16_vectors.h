// Conversions of several 16-bit floats at once, in the compiler's vector types, so that they are
// vector instructions wherever they stand: the compiler does not make them from single conversions.
// The same bits as small_float.h.
// SPDX-License-Identifier: Apache-2.0
#ifndef VGPU_FLOAT16_VECTORS_H
#define VGPU_FLOAT16_VECTORS_H

#include <stdint.h>

extern "C++" {
namespace vgpu
{

// Vectors of n elements: 2, 4 or 8. Those of 32 bytes travel by reference, since how they do by
// value depends on the processor that is compiled for.
template <int n> struct vectors_of {
    typedef float floats __attribute__((vector_size(4 * n)));
    typedef int32_t ints __attribute__((vector_size(4 * n)));
    typedef uint32_t words __attribute__((vector_size(4 * n)));
    typedef uint16_t halves __attribute__((vector_size(2 * n)));
};

struct half_vectors {
    // Infinity and NaN apart, the fraction and exponent of a float whose exponent is 112 too small.
    template <int n>
    static inline void widen(typename vectors_of<n>::floats &to,
                             typename vectors_of<n>::halves value)
    {
        typedef typename vectors_of<n>::ints ints;
        typedef typename vectors_of<n>::floats floats;
        ints bits = __builtin_convertvector(value, ints);
        typedef typename vectors_of<n>::words words;
        ints sign = reinterpret_cast<ints>((reinterpret_cast<words>(bits) & 0x8000u) << 16);
        ints rest = bits & 0x7fff;
        ints finite = reinterpret_cast<ints>(reinterpret_cast<floats>(rest << 13) * 0x1p112f);
        ints special = rest == 0x7c00 ? sign | 0x7f800000 : ints{} + 0x7fffffff;
        to = reinterpret_cast<floats>(rest < 0x7c00 ? sign | finite : special);
    }
    // Normal results are rounded in the integer, subnormal ones by adding 0.5, whose last place is
    // theirs.
    template <int n>
    static inline typename vectors_of<n>::halves narrow(const typename vectors_of<n>::floats &value)
    {
        typedef typename vectors_of<n>::ints ints;
        typedef typename vectors_of<n>::floats floats;
        typedef typename vectors_of<n>::halves halves;
        typedef typename vectors_of<n>::words words; // sums may wrap, comparisons are signed
        ints bits = reinterpret_cast<ints>(value);
        ints sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
        words all = reinterpret_cast<words>(rest);
        ints normal =
            reinterpret_cast<ints>((all - (112u << 23) + 0xfffu + (all >> 13 & 1u)) >> 13);
        ints small = reinterpret_cast<ints>(reinterpret_cast<floats>(rest) + 0.5f) - 0x3f000000;
        ints number = rest < 0x38800000 ? small : normal;
        number = sign | (rest < 0x477ff000 ? number : ints{} + 0x7c00);
        number = rest > 0x7f800000 ? ints{} + 0x7fff : number;
        return __builtin_convertvector(number, halves);
    }
};

struct bfloat16_vectors {
    template <int n>
    static inline void widen(typename vectors_of<n>::floats &to,
                             typename vectors_of<n>::halves value)
    {
        typedef typename vectors_of<n>::words words;
        words bits = __builtin_convertvector(value, words) << 16;
        to = reinterpret_cast<typename vectors_of<n>::floats>(bits);
    }
    template <int n>
    static inline typename vectors_of<n>::halves narrow(const typename vectors_of<n>::floats &value)
    {
        typedef typename vectors_of<n>::ints ints;
        typedef typename vectors_of<n>::halves halves;
        typedef typename vectors_of<n>::words words;
        ints bits = reinterpret_cast<ints>(value);
        words all = reinterpret_cast<words>(bits);
        ints rounded = reinterpret_cast<ints>((all + 0x7fffu + (all >> 16 & 1u)) >> 16);
        ints number = (bits & 0x7fffffff) > 0x7f800000 ? ints{} + 0x7fff : rounded;
        return __builtin_convertvector(number, halves);
    }
};

#if defined(__AVX2__) && defined(__F16C__)
// The compiler's own names of the instructions: to read <immintrin.h>, which has others for them,
// takes longer than to compile a small kernel.
typedef short converted_halves __attribute__((vector_size(16)));
template <>
inline void half_vectors::widen<8>(vectors_of<8>::floats &to, vectors_of<8>::halves value)
{
    typedef vectors_of<8>::floats floats;
    floats wide = __builtin_ia32_vcvtph2ps256(reinterpret_cast<converted_halves>(value));
    vectors_of<8>::ints nan = vectors_of<8>::ints{} + 0x7fffffff;
    to = wide == wide ? wide : reinterpret_cast<floats>(nan);
}
template <> inline vectors_of<8>::halves half_vectors::narrow<8>(const vectors_of<8>::floats &value)
{
    typedef vectors_of<8>::halves halves;
    const int to_nearest = 0;
    halves number = reinterpret_cast<halves>(__builtin_ia32_vcvtps2ph256(value, to_nearest));
    return (number & 0x7fff) > 0x7c00 ? halves{} + 0x7fff : number;
}
#elif !defined(__AVX2__)
// Vectors of 32 bytes are made of single elements there: two of 16 instead.
template <class Vectors>
inline void widen_parts(vectors_of<8>::floats &to, vectors_of<8>::halves value)
{
    vectors_of<4>::halves part[2];
    vectors_of<4>::floats wide[2];
    __builtin_memcpy(part, &value, sizeof(part));
    Vectors::template widen<4>(wide[0], part[0]);
    Vectors::template widen<4>(wide[1], part[1]);
    __builtin_memcpy(&to, wide, sizeof(to));
}
template <class Vectors>
inline vectors_of<8>::halves narrow_parts(const vectors_of<8>::floats &value)
{
    vectors_of<4>::floats part[2];
    vectors_of<4>::halves small[2];
    __builtin_memcpy(part, &value, sizeof(part));
    small[0] = Vectors::template narrow<4>(part[0]);
    small[1] = Vectors::template narrow<4>(part[1]);
    vectors_of<8>::halves result;
    __builtin_memcpy(&result, small, sizeof(result));
    return result;
}
template <>
inline void half_vectors::widen<8>(vectors_of<8>::floats &to, vectors_of<8>::halves value)
{
    widen_parts<half_vectors>(to, value);
}
template <> inline vectors_of<8>::halves half_vectors::narrow<8>(const vectors_of<8>::floats &value)
{
    return narrow_parts<half_vectors>(value);
}
template <>
inline void bfloat16_vectors::widen<8>(vectors_of<8>::floats &to, vectors_of<8>::halves value)
{
    widen_parts<bfloat16_vectors>(to, value);
}
template <>
inline vectors_of<8>::halves bfloat16_vectors::narrow<8>(const vectors_of<8>::floats &value)
{
    return narrow_parts<bfloat16_vectors>(value);
}
#endif

} // namespace vgpu
}
#endif

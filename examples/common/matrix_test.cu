// SPDX-License-Identifier: Apache-2.0
// The judge of the lessons, judged: expect_rows against numbers done by hand, compare against
// results that are right, slightly wrong, and no numbers at all.
#include "matrix.cuh"

#include "expect.h"

#include <vector>

// One rank, eps 0: every row has the mean square 1 and the direction of the input.
template <typename T> static void rows_have_unit_mean_square()
{
    const size_t tokens = 3;
    const size_t hidden = 50;
    std::vector<float> expected(tokens * hidden);
    expect_rows<T>(expected.data(), 0, tokens, hidden, 1, 0.0f);
    for (size_t token = 0; token < tokens; token++) {
        double squares = 0;
        double ratio = (double)to_float(input_element<T>(0, token * hidden)) /
                       (double)expected[token * hidden];
        for (size_t i = token * hidden; i < (token + 1) * hidden; i++) {
            squares += (double)expected[i] * (double)expected[i];
            EXPECT_NEAR(to_float(input_element<T>(0, i)), ratio * (double)expected[i], 1e-5);
        }
        EXPECT_NEAR(squares / (double)hidden, 1, 1e-5);
    }
}

// A huge eps leaves almost nothing: sum / sqrt(eps).
static void eps_is_inside_the_root()
{
    float expected = 0;
    expect_rows<float>(&expected, 0, 1, 1, 2, 1e8f);
    double sum = (double)input_element<float>(0, 0) + (double)input_element<float>(1, 0);
    EXPECT_NEAR(expected, sum / 1e4, 1e-9);
}

static void inputs_differ_and_lie_in_range()
{
    size_t equal = 0;
    double total = 0;
    for (size_t i = 0; i < 10000; i++) {
        float a = input_element<float>(0, i);
        EXPECT(a >= 0 && a < 1);
        total += (double)a;
        equal += a == input_element<float>(1, i) || a == input_element<float>(0, i + 1);
    }
    EXPECT(equal < 10);
    EXPECT_NEAR(total / 10000, 0.5, 0.02);
}

template <typename T> static void compare_sees_mistakes()
{
    const float expected[4] = {1.0f, 0.0f, -2.0f, 0.5f};
    T result[4];
    for (int i = 0; i < 4; i++) {
        result[i] = from_float<T>(expected[i]);
    }
    EXPECT(compare(result, expected, 4, 2, 0));
    for (int i = 0; i < 4; i++) {
        T good = result[i];
        result[i] = from_float<T>(expected[i] + 0.1f);
        EXPECT(!compare(result, expected, 4, 2, 0));
        result[i] = from_float<T>(NAN);
        EXPECT(!compare(result, expected, 4, 2, 0));
        result[i] = good;
    }
    EXPECT(compare(result, expected, 4, 2, 0));
}

static void tokens_are_split_evenly()
{
    EXPECT_EQ(lesson_first_token(100, 3, 0), 0);
    EXPECT_EQ(lesson_first_token(100, 3, 1), 34);
    EXPECT_EQ(lesson_first_token(100, 3, 2), 67);
    EXPECT_EQ(lesson_first_token(100, 3, 3), 100);
    EXPECT_EQ(lesson_first_token(1, 2, 1), 1);
    EXPECT_EQ(lesson_first_token(1, 2, 2), 1);
}

static void references()
{
    rows_have_unit_mean_square<float>();
    rows_have_unit_mean_square<__half>();
    rows_have_unit_mean_square<__nv_bfloat16>();
}

static void comparisons()
{
    compare_sees_mistakes<float>();
    compare_sees_mistakes<__half>();
    compare_sees_mistakes<__nv_bfloat16>();
}

int main()
{
    RUN(references);
    RUN(eps_is_inside_the_root);
    RUN(inputs_differ_and_lie_in_range);
    RUN(comparisons);
    RUN(tokens_are_split_evenly);
    return expect_result();
}

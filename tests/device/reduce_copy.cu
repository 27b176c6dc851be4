// Every function of reduce_copy.h. Compiled with -DELEMENT=TYPE: on that type, with every kind of
// thread group. Otherwise on a choice of types, with FEW (under sanitizers) a smaller one;
// reduce_copy.sh compiles it for all of them.
// SPDX-License-Identifier: Apache-2.0
#include "reduce_copy.cuh"

template <typename T> static void all_groups(device_rank &me)
{
    all_functions<T>(me, GROUP_KINDS);
}
template <typename T> static void two_groups(device_rank &me)
{
    all_functions<T>(me, 2);
}
template <typename T> static void one_group(device_rank &me)
{
    all_functions<T>(me, 1);
}

#ifdef ELEMENT
static void run_threads(void)
{
    run_thread_ranks(4, as_rank<all_groups<ELEMENT>>, 240);
}
static void run_many(void)
{
    run_thread_ranks(7, as_rank<one_group<ELEMENT>>, 120);
}
static void run_alone(void)
{
    run_thread_ranks(1, as_rank<one_group<ELEMENT>>, 60);
}

int main(void)
{
    RUN(run_threads);
    RUN(run_many);
    RUN(run_alone);
    return expect_result();
}
#else
static void run_float(void)
{
#ifdef FEW
    run_thread_ranks(4, as_rank<one_group<float>>, 60);
#else
    run_thread_ranks(4, as_rank<all_groups<float>>, 60);
#endif
}
static void run_float_processes(void)
{
    run_ranks(2, as_two_ranks<one_group<float>>, 60);
}
static void run_float_alone(void)
{
    run_thread_ranks(1, as_rank<one_group<float>>, 60);
}
static void run_half(void)
{
    run_thread_ranks(5, as_rank<two_groups<__half>>, 60);
}
#ifndef FEW
static void run_bytes(void)
{
    run_thread_ranks(3, as_rank<one_group<int8_t>>, 60);
}
static void run_fp8(void)
{
    run_thread_ranks(4, as_rank<one_group<__nv_fp8_e4m3>>, 60);
}
#endif

int main(void)
{
    RUN(run_float);
    RUN(run_float_processes);
    RUN(run_float_alone);
    RUN(run_half);
#ifndef FEW
    RUN(run_bytes);
    RUN(run_fp8);
#endif
    return expect_result();
}
#endif

// Contexts and stacks: switching keeps registers and rounding modes, arguments arrive, stacks come
// and go, overflows are seen. Built with the assembly and with ucontext.
// SPDX-License-Identifier: Apache-2.0
#include "expect.h"
#include "fiber.h"
#include "sanitizer.h"

#include <fenv.h>
#include <string.h>

static struct vgpu_context home;
static struct vgpu_context away;
static int visits;
static int argument_seen;

static void visit(void *argument)
{
    argument_seen = *(int *)argument;
    (void)fesetround(FE_UPWARD);
    for (;;) {
        visits++;
        vgpu_context_switch(&away, &home);
    }
}

static void contexts_switch_and_keep_state(void)
{
    static struct vgpu_stack_pool pool;
    struct vgpu_stack *stack = vgpu_stack_take(&pool, vgpu_stack_class(0));
    int argument = 77;
    if (!EXPECT(stack)) {
        return;
    }
    vgpu_context_make(&away, stack->top, (size_t)(stack->top - stack->low), visit, &argument);
    volatile double a = 1.5; // values that live in registers across the switches
    long b = 11;
    long c = 12;
    long d = 13;
    for (int i = 1; i <= 1000; i++) {
        vgpu_context_switch(&home, &away);
        b += i;
        c ^= b;
        d -= c & 3;
        if (visits != i || fegetround() != FE_TONEAREST) {
            EXPECT_EQ(visits, i);
            EXPECT_EQ(fegetround(), FE_TONEAREST);
        }
    }
    EXPECT_EQ(visits, 1000);
    EXPECT_EQ(argument_seen, 77);
    EXPECT(a == 1.5);
    EXPECT_EQ(b, 11 + 500500);
    EXPECT(!vgpu_stack_overflowed(stack));
    vgpu_stack_give(&pool, stack, true);
}

static void leave(void *argument)
{
    *(int *)argument = fegetround();
    vgpu_context_jump(&home);
}

static void a_context_may_be_left_for_good(void)
{
    static struct vgpu_stack_pool pool;
    for (int i = 0; i < 100; i++) {
        struct vgpu_stack *stack = vgpu_stack_take(&pool, 0);
        int rounding = -1;
        if (!EXPECT(stack)) {
            return;
        }
        vgpu_context_make(&away, stack->top, (size_t)(stack->top - stack->low), leave, &rounding);
        vgpu_context_switch(&home, &away);
        EXPECT_EQ(rounding, FE_TONEAREST);
        vgpu_stack_give(&pool, stack, false);
    }
}

static void return_or_leave(void *argument)
{
    int *leaves = argument;
    (void)fesetround(FE_UPWARD);
    if (*leaves > 0) {
        vgpu_forget_frames();
        vgpu_context_jump(&home);
    }
    (void)fesetround(FE_TONEAREST);
    *leaves = 7;
}

static void a_call_returns_or_is_left(void)
{
    volatile double a = 1.5;
    long sum = 0;
    for (int i = 0; i < 1000; i++) {
        int leaves = i & 1;
        vgpu_context_call(&home, return_or_leave, &leaves);
        sum += leaves + i;
        EXPECT(fegetround() == FE_TONEAREST);
    }
    EXPECT(a == 1.5);
    EXPECT_EQ(sum, 500 * 7 + 500 * 1 + 499500);
}

static void stacks_are_reused_and_watched(void)
{
    enum { COUNT = 5000, COUNT_TSAN = 300 }; // there a stack costs 830 KiB
    static struct vgpu_stack *stack[COUNT];
    static struct vgpu_stack_pool pool;
    int count = vgpu_tsan() ? COUNT_TSAN : COUNT;
    for (int i = 0; i < count; i++) {
        stack[i] = vgpu_stack_take(&pool, 0);
        if (!EXPECT(stack[i])) {
            return;
        }
        EXPECT_EQ((uintptr_t)stack[i]->top % 16, 0);
        EXPECT(stack[i]->top - stack[i]->low > 60 << 10);
    }
    memset(stack[7]->low, 1, 1);
    EXPECT(vgpu_stack_overflowed(stack[7]));
    EXPECT(!vgpu_stack_overflowed(stack[8]));
    unsigned made = pool.made;
    for (int i = 0; i < count; i++) {
        vgpu_stack_give(&pool, stack[i], false);
    }
    vgpu_stack_mend(&pool);
    EXPECT(!vgpu_stack_overflowed(stack[7]));
    for (int i = 0; i < count; i++) {
        EXPECT(vgpu_stack_take(&pool, 0));
    }
    EXPECT_EQ(pool.made, made);
}

// Writes to the stack's memory as the fiber that runs on it.
static void write_as_fiber(const struct vgpu_stack *stack)
{
    void *running = __tsan_get_current_fiber();
    volatile long *word = (volatile long *)(void *)(stack->top - 64);
    __tsan_switch_to_fiber(stack->tsan_fiber, VGPU_TSAN_NO_SYNC);
    *word = 1;
    __tsan_switch_to_fiber(running, VGPU_TSAN_NO_SYNC);
}

// The thread sanitizer reports no race between fibers that had the same stack one after another.
static void a_new_fiber_has_the_stack_to_itself(void)
{
    struct vgpu_stack_pool pool = {0};
    pool.tsan_maker = __tsan_create_fiber(0);
    struct vgpu_stack *stack = vgpu_stack_take(&pool, 0);
    if (!EXPECT(stack)) {
        return;
    }
    for (int i = 0; i < 3; i++) {
        write_as_fiber(stack);
        vgpu_stack_give(&pool, stack, true);
        for (struct vgpu_stack *other = NULL; other != stack;) { // the others come first
            other = vgpu_stack_take(&pool, 0);
            if (!EXPECT(other)) {
                return;
            }
        }
    }
    __tsan_destroy_fiber(pool.tsan_maker);
}

static void classes_follow_the_limit(void)
{
    int least = vgpu_asan() || vgpu_tsan() ? VGPU_STACK_CLASS_SANITIZED : 0;
    EXPECT_EQ(vgpu_stack_class(0), least);
    EXPECT_EQ(vgpu_stack_class(1024), least);
    EXPECT_EQ(vgpu_stack_class(200 << 10), 2);
    EXPECT_EQ(vgpu_stack_class(512 << 10), VGPU_STACK_CLASSES - 1);
}

int main(void)
{
    RUN(contexts_switch_and_keep_state);
    RUN(a_context_may_be_left_for_good);
    RUN(a_call_returns_or_is_left);
    RUN(stacks_are_reused_and_watched);
    if (vgpu_tsan()) {
        RUN(a_new_fiber_has_the_stack_to_itself);
    }
    RUN(classes_follow_the_limit);
    return expect_result();
}

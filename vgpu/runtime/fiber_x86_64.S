// Switching between fibers on x86-64, System V calling convention.
//
// A saved context is its stack pointer; on the stack lie, upwards: mxcsr (4 bytes), x87 control word
// (2, padded to 4), r15, r14, r13, r12, rbx, rbp, the return address. The control words are loaded
// only where they differ: loading them is slow, differing rare. SPDX-License-Identifier: Apache-2.0
#if defined(__x86_64__) && !defined(VGPU_FIBER_UCONTEXT)
    .text

// void vgpu_context_switch(struct vgpu_context *save, struct vgpu_context *load)
    .globl vgpu_context_switch
    .hidden vgpu_context_switch
    .type vgpu_context_switch, @function
    .p2align 5
vgpu_context_switch:
    .cfi_startproc
    movq (%rsi), %rsi
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    subq $8, %rsp
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movl (%rsi), %eax
    cmpl (%rsp), %eax
    jne .Lcontrol_words
    movzwl 4(%rsi), %eax
    cmpw 4(%rsp), %ax
    jne .Lcontrol_words
.Lrestore:
    movq %rsi, %rsp
    addq $8, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.Lcontrol_words:
    ldmxcsr (%rsi)
    fldcw 4(%rsi)
    jmp .Lrestore
    .cfi_endproc
    .size vgpu_context_switch, . - vgpu_context_switch

// void vgpu_context_jump(struct vgpu_context *load)
    .globl vgpu_context_jump
    .hidden vgpu_context_jump
    .type vgpu_context_jump, @function
    .p2align 4
vgpu_context_jump:
    .cfi_startproc
    movq (%rdi), %rsi
    jmp .Lcontrol_words
    .cfi_endproc
    .size vgpu_context_jump, . - vgpu_context_jump

// void vgpu_context_call(struct vgpu_context *save, void (*function)(void *argument), void *argument)
    .globl vgpu_context_call
    .hidden vgpu_context_call
    .type vgpu_context_call, @function
    .p2align 4
vgpu_context_call:
    .cfi_startproc
    pushq %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbp, 0
    pushq %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    pushq %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r12, 0
    pushq %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r13, 0
    pushq %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r14, 0
    pushq %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r15, 0
    subq $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw 4(%rsp)
    movq %rsp, (%rdi)
    movq %rdx, %rdi
    call *%rsi
    addq $56, %rsp // the function kept all registers that a call keeps
    .cfi_adjust_cfa_offset -56
    ret
    .cfi_endproc
    .size vgpu_context_call, . - vgpu_context_call

// Where a new context starts: r12 is the function, rbx its argument. No caller: unwinding ends here.
    .globl vgpu_context_start
    .hidden vgpu_context_start
    .type vgpu_context_start, @function
    .p2align 4
vgpu_context_start:
    .cfi_startproc
    .cfi_undefined rip
    movq %rbx, %rdi
    xorl %ebp, %ebp
    call *%r12
    ud2
    .cfi_endproc
    .size vgpu_context_start, . - vgpu_context_start
#endif
    .section .note.GNU-stack, "", @progbits

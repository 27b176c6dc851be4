// printf in kernels: what is written, what a fault in an argument leaves, and %n.
// SPDX-License-Identifier: Apache-2.0
#include "captured_output.h"
#include "expect.h"
#include "kernel_by_hand.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; // signals are the sanitizer's
#else
enum { SANITIZED = 0 };
#endif

struct call {
    const char *text;
    int result;
    int written;
};

KERNEL(prints_text, struct call, 0)
{
    data->result = vgpu_printf("<%s> %5.2f%% %-3d|\n", data->text, 1.5, 7);
}

static void texts_of_any_length_are_written(void)
{
    struct call call = {.text = "brief"};
    begin_capture(stdout);
    cudaError_t error = LAUNCH(prints_text, 1, 1, 0, &call);
    error = error ? error : cudaDeviceSynchronize();
    const char *text = end_capture();
    EXPECT_CUDA(error);
    EXPECT_EQ(strcmp(text, "<brief>  1.50% 7  |\n"), 0);
    EXPECT_EQ(call.result, 3);
    static char longer[3001];
    memset(longer, 'x', sizeof(longer) - 1);
    call.text = longer;
    begin_capture(stdout);
    error = LAUNCH(prints_text, 1, 1, 0, &call);
    error = error ? error : cudaDeviceSynchronize();
    text = end_capture();
    EXPECT_CUDA(error);
    EXPECT_EQ(strlen(text), 3000 + strlen("<>  1.50% 7  |\n"));
    EXPECT_EQ(strncmp(text + 1, longer, 3000), 0);
}

static void a_bad_argument_leaves_the_stream_free(void)
{
    if (SANITIZED) {
        SKIP("the sanitizer handles signals");
        return;
    }
    struct call call = {.text = (const char *)0x10};
    begin_capture(stderr);
    cudaError_t error = LAUNCH(prints_text, 2, 40, 0, &call);
    error = error ? error : cudaDeviceSynchronize();
    EXPECT_CONTAINS(end_capture(), "0x10");
    EXPECT_EQ(error, cudaErrorIllegalAddress);
    (void)cudaGetLastError();
    EXPECT_CUDA(cudaSetDevice(1));
    struct call good = {.text = "another device"};
    begin_capture(stdout);
    printf("the host, "); // hangs where the lock is still held
    error = LAUNCH(prints_text, 1, 1, 0, &good);
    error = error ? error : cudaDeviceSynchronize();
    EXPECT_CONTAINS(end_capture(), "the host, <another device>");
    EXPECT_CUDA(error);
    (void)cudaSetDevice(0); // gives the error that sticks there
    EXPECT_CUDA(cudaDeviceReset());
    EXPECT_CUDA(LAUNCH(prints_text, 1, 1, 0, &good));
    EXPECT_CUDA(cudaDeviceSynchronize());
}

KERNEL(counts_characters, struct call, 0)
{
    static const char *volatile format = "a%-5n%d\n"; // no compiler looks at it
    int result = vgpu_printf(format, &data->written, 12);
    if (threadIdx.x == 0) {
        data->result = result;
    }
}

static void nothing_is_written_through_a_pointer(void)
{
    struct call call = {.written = 77};
    begin_capture(stdout);
    int saved_errors = dup(STDERR_FILENO);
    int errors = memfd_create("errors", MFD_CLOEXEC);
    (void)dup2(errors, STDERR_FILENO);
    cudaError_t error = LAUNCH(counts_characters, 1, 3, 0, &call);
    error = error ? error : cudaDeviceSynchronize();
    (void)dup2(saved_errors, STDERR_FILENO);
    (void)close(saved_errors);
    char said[512] = "";
    EXPECT(pread(errors, said, sizeof(said) - 1, 0) > 0);
    (void)close(errors);
    EXPECT_EQ(strcmp(end_capture(), "a12\na12\na12\n"), 0);
    EXPECT_CUDA(error);
    EXPECT_EQ(call.written, 77);
    EXPECT_EQ(call.result, 2);
    EXPECT_CONTAINS(said, "counts_characters: %n writes nothing");
    EXPECT(strchr(said, '\n') == strrchr(said, '\n')); // said once
}

int main(void)
{
    RUN(texts_of_any_length_are_written);
    RUN(nothing_is_written_through_a_pointer);
    RUN(a_bad_argument_leaves_the_stream_free);
    return expect_result();
}

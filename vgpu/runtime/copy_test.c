// Copies and fills: every direction, order in streams, ranges, pitches, and what is refused.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include "expect.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 18 };

static unsigned char host[BYTES];
static unsigned char back[BYTES];

static void fill_host(unsigned seed)
{
    for (int i = 0; i < BYTES; i++) {
        host[i] = (unsigned char)((unsigned)i * 7 + seed);
    }
    memset(back, 0, BYTES);
}

static void there_and_back(void)
{
    static const enum cudaMemcpyKind in[] = {cudaMemcpyHostToDevice, cudaMemcpyDefault};
    static const enum cudaMemcpyKind out[] = {cudaMemcpyDeviceToHost, cudaMemcpyDefault};
    void *a;
    void *b;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_CUDA(cudaMalloc(&b, BYTES));
    EXPECT_CUDA(cudaSetDevice(0));
    EXPECT_CUDA(cudaMalloc(&a, BYTES));
    for (unsigned i = 0; i < 2; i++) {
        fill_host(i);
        EXPECT_CUDA(cudaMemcpy(a, host, BYTES, in[i]));
        EXPECT_CUDA(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice));
        EXPECT_CUDA(cudaMemcpy(back, b, BYTES, out[i]));
        EXPECT(memcmp(host, back, BYTES) == 0);
        fill_host(i + 10);
        EXPECT_CUDA(cudaMemcpyAsync(a, host, BYTES, in[i], 0));
        EXPECT_CUDA(cudaMemcpyPeerAsync(b, 1, a, 0, BYTES, 0));
        EXPECT_CUDA(cudaMemcpyAsync(back, b, BYTES, out[i], 0)); // pageable: there on return
        EXPECT(memcmp(host, back, BYTES) == 0);
    }
    EXPECT_CUDA(cudaMemcpyPeer(a, 0, b, 1, BYTES));
    EXPECT_EQ(cudaMemcpyPeer(a, 0, b, 8, BYTES), cudaErrorInvalidDevice);
    EXPECT_CUDA(cudaMemcpy(back, host, BYTES, cudaMemcpyHostToHost));
    EXPECT_CUDA(cudaFree(a));
    EXPECT_CUDA(cudaFree(b));
    (void)cudaGetLastError();
}

// A small pageable source may be overwritten as soon as the call returns.
static void small_sources_are_taken_over(void)
{
    enum { COUNT = 100 };
    int *p;
    int value = 0;
    int result[COUNT];
    EXPECT_CUDA(cudaMalloc((void **)&p, COUNT * sizeof(int)));
    for (int i = 0; i < COUNT; i++) {
        value = i * 3;
        EXPECT_CUDA(cudaMemcpyAsync(p + i, &value, sizeof(int), cudaMemcpyHostToDevice, 0));
    }
    value = -1;
    EXPECT_CUDA(cudaMemcpy(result, p, sizeof(result), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++) {
        EXPECT_EQ(result[i], i * 3);
    }
    EXPECT_CUDA(cudaFree(p));
}

static void fills(void)
{
    unsigned char *p;
    EXPECT_CUDA(cudaMalloc((void **)&p, BYTES));
    EXPECT_CUDA(cudaMemset(p, 0x1ab, BYTES)); // the low byte counts
    EXPECT_CUDA(cudaMemsetAsync(p + 10, 7, 5, 0));
    EXPECT_CUDA(cudaMemset2D(p + 1024, 512, 9, 3, 4));
    EXPECT_CUDA(cudaMemset2DAsync(p + 8192, 512, 8, 0, 4, 0));
    EXPECT_CUDA(cudaMemcpy(back, p, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BYTES; i++) {
        bool in_rows = i >= 1024 && i < 1024 + 4 * 512 && (i - 1024) % 512 < 3;
        EXPECT_EQ(back[i], in_rows ? 9 : i >= 10 && i < 15 ? 7 : 0xab);
    }
    EXPECT_EQ(cudaMemset(p + 1, 0, BYTES), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemset(NULL, 0, 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemset(back, 0, 1), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemset2D(p, 2, 9, 3, 4), cudaErrorInvalidPitchValue);
    EXPECT_CUDA(cudaFree(p));
    (void)cudaGetLastError();
}

static void rows(void)
{
    unsigned char *p;
    size_t pitch = 0;
    fill_host(3);
    EXPECT_CUDA(cudaMallocPitch((void **)&p, &pitch, 100, 50));
    EXPECT(pitch >= 100);
    EXPECT_CUDA(cudaMemcpy2D(p, pitch, host, 120, 100, 50, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaMemcpy2D(back, 100, p, pitch, 100, 50, cudaMemcpyDeviceToHost));
    for (int row = 0; row < 50; row++) {
        EXPECT(memcmp(back + row * 100, host + row * 120, 100) == 0);
    }
    fill_host(4);
    EXPECT_CUDA(cudaMemcpy2DAsync(p, pitch, host, 120, 100, 50, cudaMemcpyHostToDevice, 0));
    EXPECT_CUDA(cudaMemcpy2DAsync(back, 100, p, pitch, 100, 50, cudaMemcpyDeviceToHost, 0));
    for (int row = 0; row < 50; row++) {
        EXPECT(memcmp(back + row * 100, host + row * 120, 100) == 0);
    }
    EXPECT_EQ(cudaMemcpy2D(p, 50, host, 120, 100, 50, cudaMemcpyHostToDevice),
              cudaErrorInvalidPitchValue);
    EXPECT_EQ(cudaMemcpy2D(p, pitch, host, 120, 100, 51, cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy2D(p, pitch, host, SIZE_MAX / 2, 100, 50, cudaMemcpyHostToDevice),
              cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(p));
    (void)cudaGetLastError();
}

// A box of bytes, copied to another place of another box and back.
static void boxes(void)
{
    enum { WIDTH = 5, HEIGHT = 3, DEPTH = 2 };
    struct cudaPitchedPtr box;
    static unsigned char from[4][6][8];
    static unsigned char to[DEPTH][HEIGHT][WIDTH];
    for (size_t i = 0; i < sizeof(from); i++) {
        from[i / 48][i / 8 % 6][i % 8] = (unsigned char)i;
    }
    EXPECT_CUDA(cudaMalloc3D(&box, (struct cudaExtent){16, 4, 3}));
    EXPECT_CUDA(cudaMemset3D(box, 0xee, (struct cudaExtent){16, 4, 3}));
    struct cudaMemcpy3DParms p = {.srcPtr = {from, 8, 8, 6},
                                  .srcPos = {1, 2, 1},
                                  .dstPtr = box,
                                  .dstPos = {3, 1, 1},
                                  .extent = {WIDTH, HEIGHT, DEPTH},
                                  .kind = cudaMemcpyHostToDevice};
    EXPECT_CUDA(cudaMemcpy3D(&p));
    struct cudaMemcpy3DParms q = {.srcPtr = box,
                                  .srcPos = {3, 1, 1},
                                  .dstPtr = {to, WIDTH, WIDTH, HEIGHT},
                                  .extent = {WIDTH, HEIGHT, DEPTH},
                                  .kind = cudaMemcpyDeviceToHost};
    EXPECT_CUDA(cudaMemcpy3DAsync(&q, 0));
    for (int z = 0; z < DEPTH; z++) {
        for (int y = 0; y < HEIGHT; y++) {
            EXPECT_EQ(memcmp(to[z][y], &from[z + 1][y + 2][1], WIDTH), 0);
        }
    }
    unsigned char around[2];
    EXPECT_CUDA(cudaMemcpy(around, (char *)box.ptr + box.pitch * (4 + 1) + 2, 1,
                           cudaMemcpyDeviceToHost)); // left of the box
    EXPECT_CUDA(cudaMemcpy(around + 1, (char *)box.ptr + box.pitch * (4 + 1) + 8, 1,
                           cudaMemcpyDeviceToHost)); // right of it
    EXPECT(around[0] == 0xee && around[1] == 0xee);
    q.extent.height = HEIGHT + 1; // more rows than a slice has
    EXPECT_EQ(cudaMemcpy3D(&q), cudaErrorInvalidPitchValue);
    q.extent.height = HEIGHT;
    q.srcPos.z = 2; // runs over the end
    EXPECT_EQ(cudaMemcpy3D(&q), cudaErrorInvalidValue);
    q.srcArray = (cudaArray_t)(void *)from;
    EXPECT_EQ(cudaMemcpy3D(&q), cudaErrorNotSupported);
    EXPECT_EQ(cudaMemcpy3D(NULL), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaFree(box.ptr));
    (void)cudaGetLastError();
}

static void what_is_refused(void)
{
    unsigned char *p;
    unsigned char *q;
    EXPECT_CUDA(cudaMalloc((void **)&p, 1000));
    EXPECT_CUDA(cudaMalloc((void **)&q, 1000));
    EXPECT_EQ(cudaMemcpy(p, host, 1001, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(p + 999, host, 2, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(back, p + 1, 1000, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(back, p, SIZE_MAX, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(p, host, 10, (enum cudaMemcpyKind)5), cudaErrorInvalidMemcpyDirection);
    EXPECT_EQ(cudaMemcpy(p, host, 10, (enum cudaMemcpyKind) - 1), cudaErrorInvalidMemcpyDirection);
    EXPECT_EQ(cudaMemcpy(back, host, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(back, host, 10, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(p, q, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(NULL, host, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(p, NULL, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_CUDA(cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    EXPECT_CUDA(cudaMemcpy(p, host, 1000, cudaMemcpyHostToDevice)); // all of it is fine
    EXPECT_CUDA(cudaFree(p));
    EXPECT_EQ(cudaMemcpy(p, host, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue); // freed
    EXPECT_CUDA(cudaFree(q));
    (void)cudaGetLastError();
}

int main(void)
{
    RUN(there_and_back);
    RUN(small_sources_are_taken_over);
    RUN(fills);
    RUN(rows);
    RUN(boxes);
    RUN(what_is_refused);
    return expect_result();
}

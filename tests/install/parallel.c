// SPDX-License-Identifier: Apache-2.0
// A C program from outside, a rank of a job: a mesh of data parallel ranks, and gradients summed in
// buckets over them.
#include "try.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <tutti_parallel.h>

enum { COUNT = 1000 };

// Rank r's gradients are (r + 1) * i; the sums of all ranks' stay in them.
static int sum_gradients(const struct tuttiMesh *mesh, float *device, float *host)
{
    static const struct tuttiGradient places[] = {{0, 700, "first"}, {700, COUNT - 700, "second"}};
    struct tuttiGradients gradients = {device, COUNT, ncclFloat32, places, 2};
    struct tuttiBucketsOptions options = TUTTI_BUCKETS_OPTIONS_INITIALIZER;
    struct tuttiBuckets *buckets;
    options.bucketBytes = 2000;
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)((mesh->rank + 1) * i);
    }
    TRY(cudaMemcpy(device, host, COUNT * sizeof *host, cudaMemcpyHostToDevice));
    TRY(tuttiBucketsCreate(&gradients, mesh->dataComm, &options, &buckets));
    TRY(tuttiBucketsReady(buckets, 1, NULL));
    TRY(tuttiBucketsReady(buckets, 0, NULL));
    TRY(tuttiBucketsWait(buckets, NULL));
    TRY(cudaMemcpy(host, device, COUNT * sizeof *host, cudaMemcpyDeviceToHost));
    TRY(tuttiBucketsDestroy(buckets));
    return 0;
}

int main(void)
{
    ncclComm_t world;
    struct tuttiMesh mesh;
    float *device, host[COUNT];
    TRY(tuttiCommInit(&world));
    TRY(tuttiMeshCreate(world, 0, 1, 1, 1, &mesh));
    TRY(cudaMalloc((void **)&device, sizeof host));
    if (sum_gradients(&mesh, device, host) != 0) {
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        float sum = (float)(mesh.size * (mesh.size + 1) / 2 * i);
        if (host[i] != sum) {
            fprintf(stderr, "rank %d: sum %d is %g instead of %g\n", mesh.rank, i, host[i], sum);
            return 1;
        }
    }
    if (mesh.rank == 0) {
        printf("SUCCESS: %d ranks\n", mesh.size);
    }
    TRY(cudaFree(device));
    TRY(tuttiMeshDestroy(&mesh));
    TRY(ncclCommDestroy(world));
    return 0;
}

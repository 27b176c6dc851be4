// What ranks know of each other: hosts, processes, LSA team, peer access. See comm.h. SPDX-License-Identifier: Apache-2.0
#include "base/gpu.h"
#include "base/log.h"
#include "base/params.h"
#include "base/quote.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "topology/lsa_team.h"

#include <ctype.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vgpu/check.h>

static uint64_t hash_text(const char *text)
{
    uint64_t hash;
    unsigned char bytes[16];
    crypto_generichash(bytes, sizeof bytes, (const unsigned char *)text, strlen(text), NULL, 0);
    memcpy(&hash, bytes, sizeof hash);
    return hash;
}

#pragma weak vgpuCheckOtherProcesses // exists on virtual GPUs
static pthread_once_t process_once = PTHREAD_ONCE_INIT;
static uint64_t process_hash;

static void choose_process_hash(void)
{
    randombytes_buf(&process_hash, sizeof process_hash);
}

// The running kernel's identity: what shares it can share memory.
static uint64_t machine_hash(void)
{
    char text[128] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (n <= 0 && gethostname(text, sizeof text - 1) != 0) {
        (void)snprintf(text, sizeof text, "unknown machine");
    }
    return hash_text(text);
}

// The pretended host of `rank` under TUTTI_FAKE_HOSTS, a list of ranks per host; what follows the
// list is one more host.
static ncclResult_t fake_host(int rank, int *host_out)
{
    const char *p = tt_param_text(TT_PARAM_FAKE_HOSTS);
    bool is_good = true;
    int host = 0;
    long first = 0; // of the host
    while (*p != 0 && is_good) {
        char *end;
        errno = 0;
        long count = strtol(p, &end, 10);
        is_good = isdigit((unsigned char)*p) && count >= 1 && count <= INT_MAX && errno == 0 &&
                  (*end == 0 || (*end == ',' && end[1] != 0));
        first += count;
        host += rank >= first;
        p = *end == 0 ? end : end + 1;
    }
    if (!is_good) {
        return tt_fail(ncclInvalidUsage, "TUTTI_FAKE_HOSTS=%s: must be ranks per host such as 3,5",
                       tt_quote(tt_param_text(TT_PARAM_FAKE_HOSTS)).text);
    }
    *host_out = host;
    return ncclSuccess;
}

static ncclResult_t describe_host(int rank, struct tt_peer *out)
{
    char text[512], name[128] = "";
    int fake = 0;
    out->machine_hash = machine_hash();
    TRY(fake_host(rank, &fake));
    if (gethostname(name, sizeof name - 1) != 0) {
        name[0] = 0;
    }
    const char *id = tt_param_text(TT_PARAM_HOSTID);
    (void)snprintf(text, sizeof text, "%s/%d/%llx", *id != 0 ? id : name, fake,
                   *id != 0 ? 0ull : (unsigned long long)out->machine_hash);
    out->host_hash = hash_text(text);
    return ncclSuccess;
}

static bool device_attribute(CUdevice device, CUdevice_attribute attribute)
{
    int value = 0;
    return cuDeviceGetAttribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

ncclResult_t tt_peer_describe(int rank, struct tt_peer *out)
{
    struct cudaDeviceProp properties;
    memset(out, 0, sizeof *out);
    pthread_once(&process_once, choose_process_hash);
    TRY(describe_host(rank, out));
    TRY_CUDA(cudaGetDevice(&out->cuda_device));
    TRY_CUDA(cudaGetDeviceProperties(&properties, out->cuda_device));
    CUdevice device;
    TRY_CUDA(cuDeviceGet(&device, out->cuda_device));
    memcpy(out->gpu_uuid, &properties.uuid, sizeof out->gpu_uuid);
    out->physical = tt_gpu(out->cuda_device)->physical;
    out->major = properties.major;
    out->minor = properties.minor;
    out->process_hash = process_hash;
    out->algorithms = hash_text(tt_param_text(TT_PARAM_ALGO));
    out->multicast = tt_param_int(TT_PARAM_NVLS_ENABLE) != 0 &&
                     device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
    out->device_memory =
        tt_param_int(TT_PARAM_CUMEM_ENABLE) != 0 && tt_param_int(TT_PARAM_WIN_ENABLE) != 0 &&
        device_attribute(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
    randombytes_buf(&out->random, sizeof out->random);
    return ncclSuccess;
}

bool tt_peer_same_device(const struct tt_peer *a, const struct tt_peer *b)
{
    return a->machine_hash == b->machine_hash &&
           memcmp(a->gpu_uuid, b->gpu_uuid, sizeof a->gpu_uuid) == 0;
}

// Numbers hosts and processes in the order of their first ranks.
static void number_peers(struct ncclComm *comm)
{
    int hosts = 0, processes = 0;
    for (int r = 0; r < comm->nranks; r++) {
        struct tt_peer *peer = &comm->peers[r];
        peer->host = peer->process = -1;
        for (int q = 0; q < r && (peer->host < 0 || peer->process < 0); q++) {
            const struct tt_peer *other = &comm->peers[q];
            peer->host = other->host_hash == peer->host_hash ? other->host : peer->host;
            peer->process =
                other->process_hash == peer->process_hash ? other->process : peer->process;
        }
        peer->host = peer->host < 0 ? hosts++ : peer->host;
        peer->process = peer->process < 0 ? processes++ : peer->process;
    }
    if (processes > 1 && vgpuCheckOtherProcesses != NULL) {
        vgpuCheckOtherProcesses();
    }
}

// Whether this rank's device can map the memory of the device with this uuid. Devices that this
// process does not see are taken to be reachable; mapping will tell.
static bool can_access(const struct ncclComm *comm, const unsigned char *uuid)
{
    int device = tt_gpu_find(uuid), can = 1;
    if (device < 0 || device == comm->cuda_device) {
        return true;
    }
    return cudaDeviceCanAccessPeer(&can, comm->cuda_device, device) == cudaSuccess && can != 0;
}

// How many ranks have the device of `rank`; *first_out: the lowest of them.
static int count_sharers(const struct ncclComm *comm, int rank, int *first_out)
{
    int count = 0;
    for (int r = comm->nranks - 1; r >= 0; r--) {
        if (tt_peer_same_device(&comm->peers[r], &comm->peers[rank])) {
            *first_out = r;
            count++;
        }
    }
    return count;
}

int tt_peers_sharing(const struct ncclComm *comm)
{
    int first = 0;
    return count_sharers(comm, comm->rank, &first);
}

// "0, 1, 2" into text: the ranks with the device of `rank`.
static void list_sharers(const struct ncclComm *comm, int rank, char *text, size_t bytes)
{
    size_t used = 0;
    for (int r = 0; r < comm->nranks; r++) {
        if (!tt_peer_same_device(&comm->peers[r], &comm->peers[rank])) {
            continue;
        }
        if (used + 24 > bytes) {
            (void)snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used > 0 ? ", " : "", r);
    }
}

// One line for each machine where ranks share GPUs, from the lowest of these ranks.
void tt_peers_tell_shared(const struct ncclComm *comm)
{
    int first = 0, more = 0, sharers = count_sharers(comm, comm->rank, &first);
    if (sharers < 2 || first != comm->rank) {
        return;
    }
    for (int r = 0; r < comm->nranks; r++) {
        bool here = comm->peers[r].machine_hash == comm->peers[comm->rank].machine_hash;
        if (here && r != comm->rank && count_sharers(comm, r, &first) > 1 && first == r) {
            if (r < comm->rank) {
                return; // that rank says it
            }
            more++;
        }
    }
    char ranks[200], others[48] = "";
    list_sharers(comm, comm->rank, ranks, sizeof ranks);
    if (more > 0) {
        (void)snprintf(others, sizeof others, "; %d more GPU%s shared too", more,
                       more == 1 ? " is" : "s are");
    }
    tt_say("%s: %d ranks share %s, %s: %s%s", comm->name, sharers,
           tt_peer_gpu(&comm->peers[comm->rank]).text, tt_gpu(comm->cuda_device)->uuid, ranks,
           others);
}

void tt_peers_arrange(struct ncclComm *comm)
{
    number_peers(comm);
    tt_lsa_team(comm->peers, comm->nranks, comm->rank, (int)tt_param_int(TT_PARAM_LSA_TEAM_SIZE),
                &comm->lsa_rank, &comm->lsa_size);
}

ncclResult_t tt_peers_agree(struct ncclComm *comm)
{
    int first = comm->rank - comm->lsa_rank;
    unsigned char mine = 1;
    unsigned char *all = malloc((size_t)comm->nranks);
    if (all == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    for (int r = first; r < first + comm->lsa_size; r++) {
        mine = mine && can_access(comm, comm->peers[r].gpu_uuid);
    }
    all[comm->rank] = mine;
    ncclResult_t result = tt_meet_allgather(comm, all, 1);
    comm->peer_access = true;
    for (int r = first; result == ncclSuccess && r < first + comm->lsa_size; r++) {
        comm->peer_access = comm->peer_access && all[r] != 0;
    }
    free(all);
    return result;
}

// See init_log.h. SPDX-License-Identifier: Apache-2.0
#include "comm/init_log.h"

#include "base/gpu.h"
#include "base/log.h"
#include "base/wait.h"

#include <inttypes.h>
#include <stdio.h>

enum { WHO_BYTES = 256 };

// "comm 0x1 rank 0 nranks 4 cudaDev 0 nvmlDev 3 busId 61000 uuid GPU-...". NCCL's nvmlDev is the
// number that the machine gives the GPU: it is left out where that is not known. Its busId is
// the PCI address without punctuation, in hexadecimal. The GPU's name as our own messages have it
// ends both lines that begin so.
static void say_who(const struct ncclComm *comm, char text[WHO_BYTES])
{
    const struct tt_gpu *gpu = tt_gpu(comm->cuda_device);
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    char physical[24] = "";
    // NOLINTNEXTLINE(cert-err34-c): CUDA wrote it; zeros stand for what it does not say
    (void)sscanf(gpu->pci, "%x:%x:%x.%x", &domain, &bus, &device, &function);
    if (gpu->physical >= 0) {
        (void)snprintf(physical, sizeof physical, "nvmlDev %d ", gpu->physical);
    }
    (void)snprintf(text, WHO_BYTES, "comm %p rank %d nranks %d cudaDev %d %sbusId %x uuid %s",
                   (const void *)comm, comm->rank, comm->nranks, comm->cuda_device, physical,
                   domain << 20 | bus << 12 | device << 4 | function, gpu->uuid);
}

void tt_init_log_start(const struct ncclComm *comm)
{
    tt_log_start(comm->rank);
    if (tt_log_level_wanted(TT_LOG_INFO)) {
        char who[WHO_BYTES];
        say_who(comm, who);
        tt_log(TT_LOG_INFO, TT_LOG_INIT, "[Rank %d] %s - Init START, %s", comm->rank, who,
               tt_gpu(comm->cuda_device)->name);
    }
}

void tt_init_log_complete(const struct ncclComm *comm, uint64_t start_ns)
{
    if (!tt_log_level_wanted(TT_LOG_INFO)) {
        return;
    }
    char who[WHO_BYTES];
    const struct tt_peer *mine = &comm->peers[comm->rank];
    int hosts = 0, local_ranks = 0, local_rank = 0;
    for (int r = 0; r < comm->nranks; r++) {
        bool here = comm->peers[r].host == mine->host;
        hosts = comm->peers[r].host >= hosts ? comm->peers[r].host + 1 : hosts;
        local_ranks += here;
        local_rank += here && r < comm->rank;
    }
    say_who(comm, who);
    tt_log(TT_LOG_INFO, TT_LOG_NVLS, "NVLS multicast support is %savailable on dev %s",
           mine->multicast ? "" : "not ", tt_gpu(comm->cuda_device)->name + sizeof "GPU " - 1);
    tt_log(
        TT_LOG_INFO, TT_LOG_INIT,
        "comm %p rank %d nRanks %d nNodes %d localRanks %d localRank %d MNNVL 0, LSA rank %d of %d",
        (const void *)comm, comm->rank, comm->nranks, hosts, local_ranks, local_rank,
        comm->lsa_rank, comm->lsa_size);
    tt_log(TT_LOG_INFO, TT_LOG_INIT, "%s commId 0x%016" PRIx64 " - Init COMPLETE, %s", who,
           comm->hash, tt_gpu(comm->cuda_device)->name);
    tt_log(TT_LOG_INFO, TT_LOG_INIT | TT_LOG_PROFILE,
           "Init timings - %s: rank %d nranks %d total %.3f s", comm->name, comm->rank,
           comm->nranks, (double)(tt_now_ns() - start_ns) / 1e9);
}

// SPDX-License-Identifier: Apache-2.0
// Lesson 09: from a launcher to a communicator, by hand.
//
// A launcher starts processes that know nothing of each other. PMIx is how each asks the launcher's
// server on its host who it is, and leaves things there for the others to find:
//   1 connect     the server's address is in the environment: somebody must have started us
//   2 init        PMIx_Init gives the namespace (the job's name) and the rank; then the job's size
//   3 local rank  the number among the processes of this host
//   4 GPU         chosen by the local rank among those that are visible; which one it really is
//   - exchange    Put, Commit, Fence, Get: an address, a handle of device memory, the unique id
//   5 finalize    the launcher hears that we end in good order
// tuttiCommInit of tutti.h does all of it in one call.
#include "lesson.h"

#include <arpa/inet.h>
#include <cuda_runtime.h>
#include <errno.h>
#include <nccl.h>
#include <netinet/in.h>
#include <pmix.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NUMBERS = 1000 };

// What each rank leaves for the others.
struct card {
    char address[INET_ADDRSTRLEN]; // IP address and port where it listens
    int port;
    int node; // its host's number in the job: memory is shared inside one alone
    cudaIpcMemHandle_t memory;
};

struct self {
    pmix_proc_t proc; // namespace and rank
    int rank, size, local_rank, node, device;
};

static void check_pmix(pmix_status_t status, int line, const char *call)
{
    if (status != PMIX_SUCCESS) {
        lesson_fail(__FILE__, line, call, PMIx_Error_string(status), NULL);
    }
}
#define CHECK_PMIX(call) check_pmix((call), __LINE__, #call)

// A number that the server knows, of this process or (rank PMIX_RANK_WILDCARD) of the job.
static int get_number(const struct self *self, pmix_rank_t rank, const char *key)
{
    pmix_proc_t proc = self->proc;
    pmix_value_t *value = NULL;
    int number = 0;
    proc.rank = rank;
    CHECK_PMIX(PMIx_Get(&proc, key, NULL, 0, &value));
    pmix_status_t status = PMIX_SUCCESS;
    PMIX_VALUE_GET_NUMBER(status, value, number, int); // whatever type of number it is
    PMIX_VALUE_RELEASE(value);
    check_pmix(status, __LINE__, key);
    return number;
}

// Everything that all ranks have put comes to all servers before anybody goes on. Two traps:
// without PMIX_COLLECT_DATA the data does not come, and in some Slurms not even the waiting is
// right; and a fence of some ranks only can hang where ranks are on several hosts. So: always with
// data, always all (NULL).
static void fence(void)
{
    pmix_info_t info;
    bool collect = true;
    PMIX_INFO_CONSTRUCT(&info);
    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    CHECK_PMIX(PMIx_Fence(NULL, 0, &info, 1));
    PMIX_INFO_DESTRUCT(&info);
}

static void put_bytes(const char *key, void *bytes, size_t size)
{
    pmix_value_t value;
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)bytes;
    value.data.bo.size = size;
    CHECK_PMIX(PMIx_Put(PMIX_GLOBAL, key, &value)); // kept in this process
    CHECK_PMIX(PMIx_Commit());                      // now at the server
}

static void get_bytes(const struct self *self, int rank, const char *key, void *bytes, size_t size)
{
    pmix_proc_t proc = self->proc;
    pmix_value_t *value = NULL;
    proc.rank = (pmix_rank_t)rank;
    CHECK_PMIX(PMIx_Get(&proc, key, NULL, 0, &value));
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size != size) {
        lesson_fail(__FILE__, __LINE__, key, "not what was put there", NULL);
    }
    memcpy(bytes, value->data.bo.bytes, size);
    PMIX_VALUE_RELEASE(value);
}

// Steps 1 to 4.
static bool find_place(struct self *self)
{
    if (getenv("PMIX_NAMESPACE") == NULL || getenv("PMIX_RANK") == NULL) {
        printf("REFUSED: no PMIx server has started this process. Use tutti-run -n 4 ./pmix, srun "
               "--mpi=pmix -n 4 ./pmix, or mpirun -n 4 ./pmix.\n");
        return false;
    }
    int gpus = 0;
    char bus[32] = "";
    CHECK_PMIX(PMIx_Init(&self->proc, NULL, 0));
    self->rank = (int)self->proc.rank;
    self->size = get_number(self, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
    self->local_rank = get_number(self, self->proc.rank, PMIX_LOCAL_RANK);
    self->node = get_number(self, self->proc.rank, PMIX_NODEID);
    CHECK_CUDA(cudaGetDeviceCount(&gpus));
    self->device = self->local_rank % gpus;
    CHECK_CUDA(cudaSetDevice(self->device));
    // "GPU 0" may be another one in every process: its bus id says which it is.
    CHECK_CUDA(cudaDeviceGetPCIBusId(bus, (int)sizeof bus, self->device));
    printf("rank %d of %d: local rank %d on node %d takes GPU %d of %d, PCI bus id %s\n",
           self->rank, self->size, self->local_rank, self->node, self->device, gpus, bus);
    return true;
}

// A socket that listens at an address of this host, which goes on the card.
static int listen_somewhere(struct card *card)
{
    struct sockaddr_in where = {};
    socklen_t length = sizeof where;
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK); // one host; else that of its network
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&where, length) != 0 || listen(fd, 8) != 0 ||
        getsockname(fd, (struct sockaddr *)&where, &length) != 0 ||
        inet_ntop(AF_INET, &where.sin_addr, card->address, sizeof card->address) == NULL) {
        lesson_fail(__FILE__, __LINE__, "a socket that listens", strerror(errno), NULL);
    }
    card->port = ntohs(where.sin_port);
    return fd;
}

// Sends this rank's number to the neighbour's address; who came to ours?
static int exchange_ranks(const struct self *self, const struct card *neighbour, int listener)
{
    struct sockaddr_in where = {};
    int came = -1;
    where.sin_family = AF_INET;
    where.sin_port = htons((uint16_t)neighbour->port);
    inet_pton(AF_INET, neighbour->address, &where.sin_addr);
    int out = socket(AF_INET, SOCK_STREAM, 0);
    bool good = out >= 0 && connect(out, (struct sockaddr *)&where, sizeof where) == 0 &&
                send(out, &self->rank, sizeof self->rank, 0) == (ssize_t)sizeof self->rank;
    int in = good ? accept(listener, NULL, NULL) : -1;
    if (in < 0 || recv(in, &came, sizeof came, MSG_WAITALL) != (ssize_t)sizeof came) {
        lesson_fail(__FILE__, __LINE__, "the neighbour's address", strerror(errno), NULL);
    }
    close(in);
    close(out);
    return came;
}

__global__ void fill(int *numbers, int first)
{
    for (int i = threadIdx.x; i < NUMBERS; i += blockDim.x) {
        numbers[i] = first + i;
    }
}

// Counts the numbers that are not as `fill` of that rank has made them.
__global__ void count_wrong(const int *numbers, int first, int *wrong)
{
    for (int i = threadIdx.x; i < NUMBERS; i += blockDim.x) {
        if (numbers[i] != first + i) {
            atomicAdd(wrong, 1);
        }
    }
}

// Reads the neighbour's device memory in place; how many of its numbers are wrong.
static int read_neighbour(const struct self *self, const struct card *card, int neighbour)
{
    int *numbers, *wrong, count = 0;
    CHECK_CUDA(cudaMalloc((void **)&wrong, sizeof *wrong));
    CHECK_CUDA(cudaMemset(wrong, 0, sizeof *wrong));
    CHECK_CUDA(
        cudaIpcOpenMemHandle((void **)&numbers, card->memory, cudaIpcMemLazyEnablePeerAccess));
    count_wrong<<<1, 32>>>(numbers, neighbour * NUMBERS, wrong);
    CHECK_CUDA(cudaGetLastError());
    CHECK_CUDA(cudaMemcpy(&count, wrong, sizeof count, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaIpcCloseMemHandle(numbers));
    CHECK_CUDA(cudaFree(wrong));
    printf("rank %d: read %d numbers of rank %d in its memory, %d wrong\n", self->rank, NUMBERS,
           neighbour, count);
    return count;
}

// Cards: everybody puts one, and takes the next rank's.
static bool exchange_cards(const struct self *self)
{
    struct card mine = {}, theirs;
    int *numbers, next = (self->rank + 1) % self->size;
    int listener = listen_somewhere(&mine);
    mine.node = self->node;
    CHECK_CUDA(cudaMalloc((void **)&numbers, NUMBERS * sizeof *numbers));
    fill<<<1, 32>>>(numbers, self->rank * NUMBERS);
    CHECK_CUDA(cudaDeviceSynchronize());
    CHECK_CUDA(cudaIpcGetMemHandle(&mine.memory, numbers));
    put_bytes("lesson.card", &mine, sizeof mine);
    fence(); // all cards are there, and what they lead to
    get_bytes(self, next, "lesson.card", &theirs, sizeof theirs);

    bool right = true;
    if (theirs.node != self->node) {
        printf("rank %d: rank %d is on another host, its memory is not to be read here\n",
               self->rank, next);
    } else if (next != self->rank) { // a process opens no handle of its own
        int came = exchange_ranks(self, &theirs, listener);
        right = came == (self->rank + self->size - 1) % self->size;
        printf("rank %d: rank %d has come to my address\n", self->rank, came);
        right = read_neighbour(self, &theirs, next) == 0 && right;
    }
    fence(); // nobody reads any more
    close(listener);
    CHECK_CUDA(cudaFree(numbers));
    return right;
}

// The unique id goes the same way: rank 0 makes it, all get it, and a communicator comes of it.
static bool sum_over_ranks(const struct self *self)
{
    ncclUniqueId id;
    ncclComm_t comm;
    int *number, sum = 0, mine = self->rank + 1;
    if (self->rank == 0) {
        CHECK_NCCL(ncclGetUniqueId(&id));
        put_bytes("lesson.id", &id, sizeof id);
    }
    fence();
    get_bytes(self, 0, "lesson.id", &id, sizeof id);
    CHECK_NCCL(ncclCommInitRank(&comm, self->size, id, self->rank));
    CHECK_CUDA(cudaMalloc((void **)&number, sizeof *number));
    CHECK_CUDA(cudaMemcpy(number, &mine, sizeof mine, cudaMemcpyHostToDevice));
    CHECK_NCCL(ncclAllReduce(number, number, 1, ncclInt, ncclSum, comm, 0));
    CHECK_CUDA(cudaMemcpy(&sum, number, sizeof sum, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaFree(number));
    CHECK_NCCL(ncclCommDestroy(comm));
    printf("rank %d: 1 + ... + %d = %d\n", self->rank, self->size, sum);
    return sum == self->size * (self->size + 1) / 2;
}

int main(int argc, char **argv)
{
    struct self self = {};
    if (argc > 1) {
        bool asks = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
        fprintf(asks ? stdout : stderr, "%s%susage: tutti-run -n 4 pmix   (no options)\n",
                asks ? "" : argv[1], asks ? "" : ": what is that?\n");
        return asks ? 0 : 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); // lines of several processes: whole
    if (!find_place(&self)) {
        return 1;
    }
    bool right = exchange_cards(&self);
    right = sum_over_ranks(&self) && right;
    CHECK_PMIX(PMIx_Finalize(NULL, 0)); // step 5
    printf(right ? "rank %d: SUCCESS\n" : "rank %d: FAILED\n", self.rank);
    return right ? 0 : 1;
}

// See family.h. SPDX-License-Identifier: Apache-2.0
#include "comm/family.h"

#include "base/holdings.h"
#include "base/log.h"
#include "base/wait.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/local.h"
#include "exec/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 2, PAGE = 4096 };
static const uint64_t family_magic = UINT64_C(0x79006974747574);
// A slot's word: how many have it, and its turn above. 0 of them: it is free; WIPING: it is being
// made zeros.
enum { COUNT_BITS = 16, WIPING = (1 << COUNT_BITS) - 1 };
static const uint64_t look_ns = 20000000;

// A process of the family, written by it alone.
struct life {
    _Alignas(64) pthread_mutex_t held; // robust, by the thread that watches
    int32_t pid;
};

struct head {
    uint64_t magic;
    uint32_t version, processes;
    _Atomic uint32_t slot[TT_FAMILY_SLOTS]; // words
    struct life life[];                     // [processes]; unused where there is only one
};

// One process's part.
struct tt_family {
    struct tt_family *next; // `mutex`
    int references;         // `mutex`
    uint64_t hash;          // of the first communicator
    int descriptor;
    struct head *head;
    int process, processes;
    bool holds_life;
    unsigned char key[32];
    _Atomic uint64_t next_look_ns;
    _Atomic bool has_deaths;
    _Atomic bool is_dead[]; // [processes]
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the list
static struct tt_family *families;

static size_t head_bytes(int processes)
{
    size_t bytes = sizeof(struct head) + (size_t)processes * sizeof(struct life);
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

uint64_t tt_family_offset(int slot)
{
    return (uint64_t)(slot + 1) * TT_ROOM_BYTES;
}

static uint32_t word_of(uint32_t turn, uint32_t count)
{
    return turn << COUNT_BITS | count;
}

static uint32_t count_of(uint32_t word)
{
    return word & WIPING;
}

static uint32_t turn_of(uint32_t word)
{
    return word >> COUNT_BITS;
}

// ---- The file -----------------------------------------------------------------------------------

// What a head begins with.
struct start {
    uint64_t magic;
    uint32_t version, processes, first_slot;
};
_Static_assert(offsetof(struct head, slot) == offsetof(struct start, first_slot), "the same");

static ncclResult_t make_file(int processes, int *descriptor_out)
{
    // Named as vgpu's own: its checking mode need not expect that another process ends what a
    // kernel waits for in it.
    int descriptor = memfd_create("vgpu-tutti-family", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0) {
        return tt_fail(ncclSystemError, "no memory that ranks can share (memfd_create): %m");
    }
    struct start start = {family_magic, VERSION, (uint32_t)processes,
                          word_of(TT_FIRST_SLOT.turn, 1)};
    if (ftruncate(descriptor, (off_t)tt_family_offset(TT_FAMILY_SLOTS)) != 0 ||
        pwrite(descriptor, &start, sizeof start, 0) != sizeof start ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        (void)tt_fail(ncclSystemError, "the memory that ranks share cannot be made: %m");
        close(descriptor);
        return ncclSystemError;
    }
    *descriptor_out = descriptor;
    return ncclSuccess;
}

// Whether a descriptor of another process is what it should be.
static ncclResult_t check_file(int descriptor, int processes)
{
    struct stat status;
    struct start start;
    int seals = fcntl(descriptor, F_GET_SEALS);
    if (fstat(descriptor, &status) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
        (uint64_t)status.st_size != tt_family_offset(TT_FAMILY_SLOTS) ||
        pread(descriptor, &start, sizeof start, 0) != sizeof start || start.magic != family_magic ||
        start.version != VERSION || start.processes != (uint32_t)processes) {
        return tt_fail(ncclSystemError,
                       "the memory that ranks share is not that of %d processes of this version: "
                       "all processes must load the same libnccl.so.2",
                       processes);
    }
    return ncclSuccess;
}

// Says that this process lives, where there are others.
static ncclResult_t begin_life(struct tt_family *family, const struct ncclComm *comm)
{
    struct life *life = &family->head->life[family->process];
    pthread_mutexattr_t attributes;
    if (family->processes == 1) {
        return ncclSuccess;
    }
    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(&life->held, &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    life->pid = (int32_t)getpid();
    TRY(tt_watch_hold(&life->held, comm->abort_flag));
    family->holds_life = true;
    return ncclSuccess;
}

// Maps the head. Takes the descriptor over, also where it fails.
static ncclResult_t open_family(const struct ncclComm *comm, int descriptor, int processes,
                                struct tt_family **family_out)
{
    struct tt_family *family = calloc(1, sizeof *family + (size_t)processes * sizeof(_Atomic bool));
    ncclResult_t result = check_file(descriptor, processes);
    void *head = MAP_FAILED;
    if (family == NULL) {
        result = tt_fail(ncclSystemError, "no memory for a family of communicators");
    }
    if (result == ncclSuccess) {
        head = mmap(NULL, head_bytes(processes), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        if (head == MAP_FAILED) {
            result = tt_fail(ncclSystemError, "memory that ranks share cannot be mapped: %m");
        }
    }
    if (result != ncclSuccess) {
        free(family);
        close(descriptor);
        return result;
    }
    tt_holdings_add(TT_HOLD_MAPPINGS, head_bytes(processes));
    family->references = 1;
    family->hash = comm->hash;
    family->descriptor = descriptor;
    family->head = head;
    family->process = comm->peers[comm->rank].process;
    family->processes = processes;
    tt_bootstrap_derive_key(comm->bootstrap, "family", family->key);
    pthread_mutex_lock(&mutex);
    family->next = families;
    families = family;
    pthread_mutex_unlock(&mutex);
    result = begin_life(family, comm);
    if (result != ncclSuccess) {
        tt_family_release(family);
        return result;
    }
    *family_out = family;
    return ncclSuccess;
}

void tt_family_hold(struct tt_family *family)
{
    pthread_mutex_lock(&mutex);
    family->references++;
    pthread_mutex_unlock(&mutex);
}

// Holds that of a first communicator; NULL: this process has it no more.
static struct tt_family *find_family(uint64_t hash)
{
    pthread_mutex_lock(&mutex);
    struct tt_family *family = families;
    while (family != NULL && family->hash != hash) {
        family = family->next;
    }
    if (family != NULL) {
        family->references++;
    }
    pthread_mutex_unlock(&mutex);
    return family;
}

// With the mutex held.
static void take_out(const struct tt_family *family)
{
    struct tt_family **at = &families;
    while (*at != family) {
        at = &(*at)->next;
    }
    *at = family->next;
}

void tt_family_release(struct tt_family *family)
{
    if (family == NULL) {
        return;
    }
    pthread_mutex_lock(&mutex);
    bool last = --family->references == 0;
    if (last) {
        take_out(family);
    }
    pthread_mutex_unlock(&mutex);
    if (!last) {
        return;
    }
    // Where the thread does not answer, as the process ends, the mutex stays mapped: the thread's
    // list of what it holds leads through it.
    if (!family->holds_life || tt_watch_let_go(&family->head->life[family->process].held)) {
        munmap(family->head, head_bytes(family->processes));
        tt_holdings_remove(TT_HOLD_MAPPINGS, head_bytes(family->processes));
    }
    close(family->descriptor);
    sodium_memzero(family->key, sizeof family->key);
    free(family);
}

// ---- Founding -----------------------------------------------------------------------------------

static int count_processes(const struct ncclComm *comm)
{
    int count = 0;
    for (int r = 0; r < comm->nranks; r++) {
        count = comm->peers[r].process >= count ? comm->peers[r].process + 1 : count;
    }
    return count;
}

// Passes rank 0's descriptor on. *descriptor: rank 0's own, else -1; on return every process's
// leader has one.
static ncclResult_t pass_descriptor(struct ncclComm *comm, int *descriptor)
{
    int *passed = malloc((size_t)comm->nranks * sizeof *passed);
    if (passed == NULL) {
        return tt_fail(ncclSystemError, "rank %d: no memory for %d ranks", comm->rank,
                       comm->nranks);
    }
    ncclResult_t result = tt_local_pass_descriptors(comm, *descriptor, passed);
    for (int r = 0; result == ncclSuccess && r < comm->nranks; r++) {
        if (passed[r] >= 0 && *descriptor < 0 && r == 0) {
            *descriptor = passed[r];
        } else if (passed[r] >= 0) {
            close(passed[r]);
        }
    }
    free(passed);
    return result;
}

ncclResult_t tt_family_found(struct ncclComm *comm, struct tt_family **family_out)
{
    int descriptor = -1, processes = count_processes(comm);
    struct tt_family *family = NULL;
    if (comm->rank == 0) {
        TRY(make_file(processes, &descriptor));
    }
    if (processes > 1) {
        ncclResult_t result = pass_descriptor(comm, &descriptor);
        if (result != ncclSuccess) {
            if (descriptor >= 0) {
                close(descriptor);
            }
            return result;
        }
    }
    bool leads = tt_local_rank(comm) == 0;
    if (leads) {
        TRY(open_family(comm, descriptor, processes, &family));
    }
    ncclResult_t result = tt_local_barrier(comm); // the leader has it, unless it has failed since
    if (result == ncclSuccess && !leads && (family = find_family(comm->hash)) == NULL) {
        result = tt_leaders_reason(
            comm, tt_fail(ncclRemoteError, "rank %d: the first rank of its process has failed",
                          comm->rank));
    }
    if (result != ncclSuccess) {
        tt_family_release(family);
        return result;
    }
    *family_out = family;
    return ncclSuccess;
}

// ---- Room ---------------------------------------------------------------------------------------

int tt_family_descriptor(const struct tt_family *family)
{
    return family->descriptor;
}

ncclResult_t tt_family_take(struct tt_family *family, struct tt_room_slot *slot_out)
{
    for (int slot = 1; slot < TT_FAMILY_SLOTS; slot++) {
        uint32_t word = atomic_load_explicit(&family->head->slot[slot], memory_order_relaxed);
        uint32_t taken = word_of(turn_of(word) + 1, 1);
        if (count_of(word) == 0 &&
            atomic_compare_exchange_strong(&family->head->slot[slot], &word, taken)) {
            *slot_out = (struct tt_room_slot){slot, turn_of(taken)};
            return ncclSuccess;
        }
    }
    return tt_fail(ncclSystemError,
                   "%d communicators were split from one and its children and are there still; no "
                   "more are possible: destroy some",
                   TT_FAMILY_SLOTS - 1);
}

ncclResult_t tt_family_join(struct tt_family *family, struct tt_room_slot slot)
{
    _Atomic uint32_t *place = &family->head->slot[slot.number];
    uint32_t word = atomic_load(place);
    do {
        if (turn_of(word) != slot.turn || count_of(word) == 0 || count_of(word) == WIPING) {
            return tt_fail(ncclRemoteError, "the other ranks have given up making it");
        }
    } while (!atomic_compare_exchange_weak(place, &word, word + 1));
    return ncclSuccess;
}

void tt_family_leave(struct tt_family *family, int slot)
{
    _Atomic uint32_t *place = &family->head->slot[slot];
    uint32_t word = atomic_load(place), next;
    // The last one leaves and begins to wipe in one step: a slot that nobody has may be taken.
    do {
        next = count_of(word) == 1 ? word_of(turn_of(word), WIPING) : word - 1;
    } while (!atomic_compare_exchange_weak(place, &word, next));
    if (count_of(next) == WIPING) {
        (void)fallocate(family->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)tt_family_offset(slot), (off_t)TT_ROOM_BYTES);
        atomic_store(place, word_of(turn_of(next), 0));
    }
}

// ---- Processes ----------------------------------------------------------------------------------

int tt_family_process(const struct tt_family *family)
{
    return family->process;
}

int tt_family_pid(const struct tt_family *family, int process)
{
    return family->head->life[process].pid;
}

bool tt_family_is_dead(const struct tt_family *family, int process)
{
    return atomic_load(&family->is_dead[process]);
}

// Who has let go of it has left in good order: all its ranks have. Who died leaves it to whoever
// asks first, who gives it back so that nobody can have it any more.
static bool has_died(pthread_mutex_t *held)
{
    int error = pthread_mutex_trylock(held);
    if (error == 0 || error == EOWNERDEAD) {
        (void)pthread_mutex_unlock(held);
    }
    return error == EOWNERDEAD || error == ENOTRECOVERABLE;
}

bool tt_family_has_deaths(struct tt_family *family)
{
    uint64_t now = tt_now_ns(), next = atomic_load(&family->next_look_ns);
    if (family->processes > 1 && now >= next &&
        atomic_compare_exchange_strong(&family->next_look_ns, &next, now + look_ns)) {
        for (int p = 0; p < family->processes; p++) {
            if (p != family->process && !atomic_load(&family->is_dead[p]) &&
                has_died(&family->head->life[p].held)) {
                atomic_store(&family->is_dead[p], true);
                atomic_store(&family->has_deaths, true);
            }
        }
    }
    return atomic_load(&family->has_deaths);
}

void tt_family_derive_key(const struct tt_family *family, const char *label,
                          unsigned char key_out[32])
{
    crypto_generichash(key_out, 32, (const unsigned char *)label, strlen(label), family->key,
                       sizeof family->key);
}

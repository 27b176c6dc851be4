// Finds waits in a circle. See circle.h.
//
// A node is a rank of a communicator, an edge leads to a rank that it waits for. From the node of
// whoever looks, all that can be reached is searched, breadth first, until the search comes back.
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/circle.h"

#include "base/log.h"
#include "exec/cpu/pair.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS = 1024, RANK_BITS = 16, MOST_CIRCLE = 64 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // guards the rest
static struct tt_host *first_host;                        // linked by `next`

// The last work that was put on each stream; of streams that share a place, on the last one.
static struct {
    uintptr_t key;
    uint64_t hash, turn;
    int rank;
} streams[STREAMS];

static uint64_t get(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

// ---- What is known ------------------------------------------------------------------------------

void tt_circle_add(struct tt_host *host)
{
    pthread_mutex_lock(&mutex);
    host->next = first_host;
    first_host = host;
    pthread_mutex_unlock(&mutex);
}

void tt_circle_remove(struct tt_host *host)
{
    pthread_mutex_lock(&mutex);
    struct tt_host **place = &first_host;
    while (*place != NULL && *place != host) {
        place = &(*place)->next;
    }
    if (*place != NULL) {
        *place = host->next;
    }
    pthread_mutex_unlock(&mutex);
}

// Where the last work of a stream is kept; *key_out tells the stream from others with this place.
static size_t place_of(const struct tt_host *host, cudaStream_t stream, uintptr_t *key_out)
{
    bool is_default = stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
    *key_out = (uintptr_t)stream + (is_default ? (uintptr_t)host->team.device * 8 : 0) + 1;
    return (size_t)((*key_out >> 4 ^ *key_out >> 14) % STREAMS);
}

void tt_circle_queued(struct tt_host *host, uint64_t turn, cudaStream_t stream, bool is_begun)
{
    uintptr_t key = 0;
    size_t place = place_of(host, stream, &key);
    struct tt_own *own = tt_arena_own(host->arena, host->rank);
    pthread_mutex_lock(&mutex);
    // What comes first is known only where nothing else of this rank is to come before it.
    bool is_next =
        !is_begun && atomic_load_explicit(&host->calls_done, memory_order_acquire) == turn - 1;
    if (is_next && streams[place].key == key && streams[place].hash != host->team.comm_hash) {
        atomic_store_explicit(&host->queued, turn, memory_order_relaxed);
        atomic_store_explicit(&own->behind_turn,
                              streams[place].turn << RANK_BITS | (uint64_t)streams[place].rank,
                              memory_order_relaxed);
        atomic_store_explicit(&own->behind, streams[place].hash, memory_order_release);
    }
    streams[place].key = key;
    streams[place].hash = host->team.comm_hash;
    streams[place].turn = turn;
    streams[place].rank = host->rank;
    pthread_mutex_unlock(&mutex);
}

// Whether the work kept there has ended, as far as is known here.
static bool has_ended(size_t place)
{
    const struct tt_host *host = first_host;
    while (host != NULL && host->team.comm_hash != streams[place].hash) {
        host = host->next;
    }
    return host == NULL ||
           get(&tt_arena_own(host->arena, streams[place].rank)->turns) >= streams[place].turn;
}

void tt_circle_joined(struct tt_host *host, cudaStream_t before, cudaStream_t after)
{
    uintptr_t key = 0, after_key = 0;
    size_t place = place_of(host, before, &key), to = place_of(host, after, &after_key);
    pthread_mutex_lock(&mutex);
    bool is_later = streams[place].hash == streams[to].hash &&
                    streams[place].rank == streams[to].rank &&
                    streams[place].turn > streams[to].turn;
    if (streams[place].key == key && (streams[to].key != after_key || is_later || has_ended(to))) {
        streams[to] = streams[place];
        streams[to].key = after_key;
    }
    pthread_mutex_unlock(&mutex);
}

void tt_circle_begun(struct tt_host *host, uint64_t turn)
{
    if (turn > 0 && atomic_load_explicit(&host->queued, memory_order_relaxed) == turn) {
        atomic_store_explicit(&tt_arena_own(host->arena, host->rank)->behind, 0,
                              memory_order_release);
    }
}

// ---- Edges --------------------------------------------------------------------------------------

enum reason { NONE, COLLECTIVE, SENDS, RECEIVES, SIGNAL, BEHIND };

// What a rank was seen to be in.
struct state {
    uint64_t messages, waits, entered, behind, behind_turn;
};

static struct state state_of(const struct tt_host *host, int rank)
{
    const struct tt_own *own = tt_arena_own(host->arena, rank);
    return (struct state){.messages = atomic_load_explicit(&own->messages, memory_order_acquire),
                          .waits = atomic_load_explicit(&own->waits, memory_order_acquire),
                          .entered = atomic_load_explicit(&own->entered, memory_order_acquire),
                          .behind = atomic_load_explicit(&own->behind, memory_order_acquire),
                          .behind_turn =
                              atomic_load_explicit(&own->behind_turn, memory_order_acquire)};
}

// Whether the rank's send to `peer` cannot end before the peer has begun work that it is not in.
static bool send_waits(const struct tt_host *host, int rank, int peer)
{
    const struct tt_pair *pair = tt_pair_of(host, rank, peer);
    uint64_t at = get(&pair->sender.at);
    if (get(&pair->sender.ended) >= at) {
        return false;
    }
    bool is_offered = get(&pair->offer[at % TT_PAIR_OFFERS].number) == at;
    uint64_t ahead = is_offered ? 0 : TT_PAIR_OFFERS; // it waits for the place of its offer
    return at > ahead && get(&pair->receiver.last) < at - ahead;
}

static bool receive_waits(const struct tt_host *host, int rank, int peer)
{
    const struct tt_pair *pair = tt_pair_of(host, peer, rank);
    uint64_t at = get(&pair->receiver.at);
    return get(&pair->receiver.ended) < at && get(&pair->sender.last) < at;
}

// Why a rank in this state waits for another of its communicator.
static enum reason waits_for(const struct tt_host *host, int rank, const struct state *state,
                             int peer)
{
    if (peer == rank) {
        return NONE;
    }
    if (state->waits % 2 != 0) {
        return tt_signal_is_owed(host, rank, peer) ? SIGNAL : NONE;
    }
    if (state->messages % 2 != 0) {
        if (!tt_pair_is_known(host, rank, peer)) {
            return NONE;
        }
        return send_waits(host, rank, peer)      ? SENDS
               : receive_waits(host, rank, peer) ? RECEIVES
                                                 : NONE;
    }
    return state->entered > get(&tt_arena_own(host->arena, peer)->entered) ? COLLECTIVE : NONE;
}

// Whether a rank in this state has yet to begin work behind that of `other`'s communicator.
static bool is_behind(const struct state *state, const struct tt_host *other, int *rank_out)
{
    *rank_out = (int)(state->behind_turn & ((1 << RANK_BITS) - 1));
    return state->behind != 0 && state->behind == other->team.comm_hash &&
           *rank_out < other->nranks &&
           get(&tt_arena_own(other->arena, *rank_out)->turns) < state->behind_turn >> RANK_BITS;
}

static bool is_idle(const struct tt_own *own)
{
    return get(&own->turns) == get(&own->called) && get(&own->launches) == 0;
}

bool tt_circle_waits_for_idle(const struct tt_host *host)
{
    bool reached[TT_ARENA_MOST_RANKS] = {false};
    uint16_t queue[TT_ARENA_MOST_RANKS];
    int first = 0, last = 0;
    queue[last++] = (uint16_t)host->rank;
    reached[host->rank] = true;
    while (first < last) {
        int rank = queue[first++];
        struct state state = state_of(host, rank);
        for (int peer = 0; peer < host->nranks; peer++) {
            if (reached[peer] || waits_for(host, rank, &state, peer) == NONE) {
                continue;
            }
            if (is_idle(tt_arena_own(host->arena, peer))) {
                return true;
            }
            reached[peer] = true;
            queue[last++] = (uint16_t)peer;
        }
    }
    return false;
}

// ---- Searching ----------------------------------------------------------------------------------

struct node {
    struct tt_host *host; // any of this process in its communicator
    struct tt_host *own;  // the rank's, where it is of this process; else NULL
    int rank;
    enum reason reason; // why the one before waits for it
    int before;         // -1: where the search began; -2: not reached
    struct state state;
};

struct search {
    struct node *node; // those of a communicator one behind the other
    int *queue;
    int nodes, first, last;
};

static int node_of(const struct search *search, uint64_t hash, int rank)
{
    for (int i = 0; i < search->nodes; i += search->node[i].host->nranks) {
        if (search->node[i].host->team.comm_hash == hash) {
            return i + rank;
        }
    }
    return -1;
}

static bool prepare(struct search *search)
{
    int most = 0;
    for (const struct tt_host *host = first_host; host != NULL; host = host->next) {
        most += host->nranks;
    }
    if (most == 0) {
        return false;
    }
    search->node = calloc((size_t)most, sizeof *search->node);
    search->queue = calloc((size_t)most, sizeof *search->queue);
    if (search->node == NULL || search->queue == NULL) {
        return false;
    }
    for (struct tt_host *host = first_host; host != NULL; host = host->next) {
        int first = node_of(search, host->team.comm_hash, 0);
        bool is_new = first < 0;
        first = is_new ? search->nodes : first;
        for (int rank = 0; is_new && rank < host->nranks; rank++) {
            search->node[search->nodes++] = (struct node){.host = host, .rank = rank, .before = -2};
        }
        search->node[first + host->rank].own = host;
    }
    return true;
}

// Whether the rank has ended, or its communicator has failed: what it was in stays as it was.
static bool is_over(const struct node *node)
{
    return atomic_load_explicit(&tt_arena_header(node->host->arena)->failure.state,
                                memory_order_acquire) != 0 ||
           get(&tt_arena_own(node->host->arena, node->rank)->is_over) != 0 ||
           (node->own != NULL && tt_host_is_over(node->own));
}

// Follows an edge; true: back to where the search began.
static bool reach(struct search *search, int from, int to, enum reason reason)
{
    struct node *node = &search->node[to];
    if (node->before == -2) {
        node->before = from;
        node->reason = reason;
        search->queue[search->last++] = to;
    }
    return node->before == -1;
}

// Goes on from a node; true: its edge `*reason_out` leads back.
static bool expand(struct search *search, int at, enum reason *reason_out)
{
    struct node *node = &search->node[at];
    bool waits = false;
    if (is_over(node)) {
        return false;
    }
    node->state = state_of(node->host, node->rank);
    for (int peer = 0; peer < node->host->nranks; peer++) {
        *reason_out = waits_for(node->host, node->rank, &node->state, peer);
        waits |= *reason_out != NONE;
        if (*reason_out != NONE && reach(search, at, at - node->rank + peer, *reason_out)) {
            return true;
        }
    }
    int other = waits || node->state.behind == 0 ? -1 : node_of(search, node->state.behind, 0);
    int rank = 0;
    *reason_out = BEHIND;
    return other >= 0 && is_behind(&node->state, search->node[other].host, &rank) &&
           reach(search, at, other + rank, BEHIND);
}

// Whether everything along the circle is still so, in the same work.
static bool still_stands(const struct search *search, const int *circle, int length)
{
    for (int i = 0; i < length; i++) {
        const struct node *node = &search->node[circle[i]];
        const struct node *next = &search->node[circle[(i + 1) % length]];
        struct state now = state_of(node->host, node->rank);
        int rank = 0;
        bool stands = next->reason == BEHIND
                          ? is_behind(&now, next->host, &rank) && rank == next->rank
                          : waits_for(node->host, node->rank, &now, next->rank) == next->reason;
        if (!stands || is_over(node) || memcmp(&now, &node->state, sizeof now) != 0) {
            return false;
        }
    }
    return true;
}

// The nodes from `start` on in the order of waiting; 0: there is no circle, or it is too long.
static int find(struct search *search, int start, int *circle)
{
    search->node[start].before = -1;
    search->queue[search->last++] = start;
    while (search->first < search->last) {
        int at = search->queue[search->first++], length = 0;
        enum reason reason = NONE;
        if (!expand(search, at, &reason)) {
            continue;
        }
        search->node[start].reason = reason;
        for (int node = at; node >= 0; node = search->node[node].before) {
            length++;
        }
        if (length < 2 || length > MOST_CIRCLE) {
            return 0;
        }
        for (int node = at, i = length - 1; node >= 0; node = search->node[node].before, i--) {
            circle[i] = node;
        }
        return length;
    }
    return 0;
}

// ---- Telling ------------------------------------------------------------------------------------

static void describe(const struct node *node, const struct node *next, char *text, size_t bytes)
{
    const struct tt_own *own = tt_arena_own(node->host->arena, node->rank);
    struct tt_call call = tt_arena_last_call(own);
    if (next->reason == SENDS) {
        const struct tt_pair *pair = tt_pair_of(node->host, node->rank, next->rank);
        const struct tt_offer *offer = &pair->offer[get(&pair->sender.at) % TT_PAIR_OFFERS];
        call = (struct tt_call){.function = TT_SEND,
                                .count = offer->count,
                                .type = (uint8_t)offer->type,
                                .root = next->rank};
    } else if (next->reason == RECEIVES) {
        const struct tt_claim *claim =
            &tt_pair_of(node->host, next->rank, node->rank)->receiver.claim;
        call = (struct tt_call){.function = TT_RECV,
                                .count = claim->count,
                                .type = (uint8_t)claim->type,
                                .root = next->rank};
    } else if (next->reason == SIGNAL) {
        const struct tt_pair *pair = tt_pair_of(node->host, next->rank, node->rank);
        call = (struct tt_call){.function = TT_WAIT_SIGNAL,
                                .count = get(&pair->wanted) - get(&pair->given),
                                .root = next->rank};
    }
    tt_call_describe(&call, text, bytes);
}

// Whether the operation that a rank entered last is one that sends and receives can do, too.
static bool is_made_of_messages(const struct tt_own *own)
{
    int function = tt_arena_last_call(own).function;
    return function == TT_ALL_TO_ALL || function == TT_GATHER || function == TT_SCATTER;
}

static const char *name_of(const struct node *node)
{
    return node->host->team.comm_name == NULL ? "?" : node->host->team.comm_name;
}

// "rank 0 in Send(count 5, int32, to rank 1) on comm-1; "; what names the other rank anyway does
// not name it twice. is_one: the circle is in one communicator, which is named elsewhere.
static void describe_edge(const struct node *node, const struct node *next, bool is_one, char *text,
                          size_t bytes)
{
    char call[120] = "", whom[24] = "";
    if (next->reason == BEHIND) {
        (void)snprintf(text, bytes, "rank %d's next work on %s is behind rank %d's on %s; ",
                       node->rank, name_of(node), next->rank, name_of(next));
        return;
    }
    if (next->reason == COLLECTIVE) {
        (void)snprintf(whom, sizeof whom, " for rank %d", next->rank);
    }
    describe(node, next, call, sizeof call);
    (void)snprintf(text, bytes, "rank %d in %s%s%s%s; ", node->rank, call, is_one ? "" : " on ",
                   is_one ? "" : name_of(node), whom);
}

// What to do about a circle.
static const char *advice(const struct search *search, const int *circle, int length)
{
    bool has_message = false, has_collective = false, has_exchange = false, has_signal = false;
    for (int i = 0; i < length; i++) {
        const struct node *node = &search->node[circle[i]];
        enum reason reason = search->node[circle[(i + 1) % length]].reason;
        has_message |= reason == SENDS || reason == RECEIVES;
        has_signal |= reason == SIGNAL;
        has_collective |= reason == COLLECTIVE;
        has_exchange |= reason == COLLECTIVE &&
                        is_made_of_messages(tt_arena_own(node->host->arena, node->rank));
    }
    if (has_signal) {
        return "give the signals that others need before what waits for them";
    }
    if (has_message && has_exchange) {
        return "a collective is not matched by sends and receives";
    }
    if (has_message && has_collective) {
        return "make both sides of a message before the next collective";
    }
    return has_message ? "put sends and receives that need each other into one group"
                       : "use communicators in the same order on all ranks";
}

// All ranks of the circle as far as there is room, and how many more there are; what to do.
static void describe_circle(const struct search *search, const int *circle, int length, char *text,
                            size_t bytes)
{
    enum { MORE_BYTES = 16 };
    const char *what = advice(search, circle, length);
    size_t room = bytes - strlen(what) - MORE_BYTES;
    bool is_one = true;
    int told = 0;
    for (int i = 1; i < length; i++) {
        is_one &= search->node[circle[i]].host == search->node[circle[0]].host;
    }
    size_t used = (size_t)snprintf(
        text, room, "ranks wait for each other in a circle%s%s: ", is_one ? " on " : "",
        is_one ? name_of(&search->node[circle[0]]) : "");
    while (told < length) {
        char part[300];
        describe_edge(&search->node[circle[told]], &search->node[circle[(told + 1) % length]],
                      is_one, part, sizeof part);
        if (used + strlen(part) >= room) {
            break;
        }
        used += (size_t)snprintf(text + used, room - used, "%s", part);
        told++;
    }
    if (told < length) {
        used += (size_t)snprintf(text + used, MORE_BYTES, "and %d more; ", length - told);
    }
    (void)snprintf(text + used, bytes - used, "%s", what);
}

static void report(const struct search *search, const int *circle, int length)
{
    char text[460];
    describe_circle(search, circle, length, text, sizeof text);
    for (int i = 0; i < length; i++) {
        struct tt_host *host = search->node[circle[i]].host;
        (void)tt_host_fail(host, ncclInvalidUsage, "rank %d: %s", search->node[circle[0]].rank,
                           text);
    }
}

void tt_circle_look(struct tt_host *host)
{
    struct search search = {0};
    int circle[MOST_CIRCLE] = {0};
    pthread_mutex_lock(&mutex);
    if (prepare(&search)) {
        int start = node_of(&search, host->team.comm_hash, host->rank);
        int length = start < 0 ? 0 : find(&search, start, circle);
        if (length > 0 && still_stands(&search, circle, length)) {
            report(&search, circle, length);
        }
    }
    pthread_mutex_unlock(&mutex);
    free(search.node);
    free(search.queue);
}

// Draws, scenarios, players: who takes part and how they meet. See soak.h.
// SPDX-License-Identifier: Apache-2.0
#include "soak.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

struct shared *shared;

unsigned draw(struct draws *draws, unsigned n)
{
    draws->state = draws->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(draws->state >> 33) % n;
}

unsigned draw_size(struct draws *draws, unsigned most)
{
    unsigned bits = 0;
    while (most >> bits > 1) {
        bits++;
    }
    unsigned size = draw(draws, 2u << draw(draws, bits + 1));
    return size % most;
}

struct draws draw_draws(struct draws *draws)
{
    uint64_t high = draw(draws, 1u << 31);
    return (struct draws){mix_bits(high << 31 | draw(draws, 1u << 31))};
}

void sleep_ms(int milliseconds)
{
    (void)poll(NULL, 0, milliseconds);
}

void count_event(enum event event)
{
    (void)atomic_fetch_add(&shared->events[event], 1);
}

struct scenario draw_scenario(uint64_t seed, int number, int processes, int most)
{
    struct scenario s = {.seed = seed, .number = number, .processes = processes, .most = most};
    struct draws draws = {mix_bits(seed + mix_bits((uint64_t)number + 1))};
    unsigned kind = draw(&draws, 8); // 0: threads of one process alone; 1, 2: guests are killed
    if (kind == 0) {
        s.size = s.threads[draw(&draws, (unsigned)processes)] =
            1 + (int)draw(&draws, (unsigned)most);
    } else {
        s.is_deadly = kind <= 2;
        s.guests = s.is_deadly ? 1 + (int)draw(&draws, 2) : kind == 3;
        s.guests = s.guests < most ? s.guests : most - 1;
        s.size = s.guests;
        for (int i = 0, p = (int)draw(&draws, (unsigned)processes); i < processes; i++) {
            int threads = 1 + (int)draw(&draws, 8) / 5; // one, or seldom two
            threads = s.size + threads <= most ? threads : most - s.size;
            s.threads[(p + i) % processes] = threads;
            s.size += threads;
        }
    }
    s.shift = (int)draw(&draws, (unsigned)s.size);
    s.steps = 4 + (int)draw(&draws, 12);
    s.draws = draw_draws(&draws);
    return s;
}

// ---- Players ------------------------------------------------------------------------------------

void end_if_failed(const struct scenario *s)
{
    int none = 0;
    if (expect_failures() > 0 && atomic_compare_exchange_strong(&shared->failed, &none, 1)) {
        fprintf(stderr,
                "soak: scenario %d of seed %lu fails; again: --seed %lu --ranks %d --first %d\n",
                s->number, (unsigned long)s->seed, (unsigned long)s->seed, s->most, s->number);
    }
    if (atomic_load(&shared->failed)) {
        fflush(NULL);
        _exit(1);
    }
}

void meet(const struct player *p)
{
    int generation = atomic_load(&shared->generation);
    end_if_failed(p->scenario);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == p->met) {
        atomic_store(&shared->arrived, 0);
        atomic_store(&shared->generation, generation + 1);
    }
    for (int looks = 0; atomic_load(&shared->generation) == generation; looks++) {
        end_if_failed(p->scenario);
        if (looks < 100) {
            (void)sched_yield();
        } else {
            sleep_ms(1);
        }
    }
}

int place_of(const struct life *life, int rank)
{
    for (int i = 0; i < life->count; i++) {
        if (life->order[i] == rank) {
            return i;
        }
    }
    return -1;
}

struct member member_of(const struct player *p, const struct life *life)
{
    return (struct member){.rank = place_of(life, p->rank),
                           .size = life->count,
                           .device = p->device,
                           .comm = life->comm,
                           .stream = p->stream};
}

void play(const struct scenario *scenario, int index)
{
    struct player p = {.scenario = scenario,
                       .index = index,
                       .rank = (index + scenario->shift) % scenario->size,
                       .is_guest = index >= scenario->size - scenario->guests,
                       .met = scenario->size - (scenario->is_deadly ? scenario->guests : 0),
                       .common = scenario->draws};
    int devices = 0;
    p.own.state = mix_bits(scenario->draws.state + (uint64_t)p.rank);
    expect_set_rank(p.rank);
    if (!EXPECT_CUDA(cudaGetDeviceCount(&devices)) || !EXPECT(devices > 0)) {
        return;
    }
    p.device = (p.rank + (int)draw(&p.common, 3)) % devices;
    EXPECT_CUDA(cudaSetDevice(p.device));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&p.stream, cudaStreamNonBlocking));
    if (begin_lives(&p) && (!scenario->is_deadly || survive(&p))) {
        for (int i = 0; i < scenario->steps; i++) {
            step(&p);
        }
    }
    end_lives(&p);
    meet(&p);
    end_work();
    EXPECT_CUDA(cudaStreamDestroy(p.stream));
}

/* Schedules: the lists of small placements written out, and what holds for the lists of all. */
#include "core/random.h"
#include "core/text.h"
#include "teacher/plan/sweep_schedule.h"
#include "teacher/run/stage_order.h"
#include "testing.h"

enum { TEXT_MAX = 8192, BATCHES_MAX = 5 };

/* ---- lists as text ---- */

static size_t add_entry(char text[TEXT_MAX], size_t used, const wd_sweep_entry *e)
{
    static const char *const names[] = {
        [WD_ENTRY_ACQUIRE] = "acquire", [WD_ENTRY_RELEASE] = "release", [WD_ENTRY_ENTER] = "enter",
        [WD_ENTRY_RUN] = "run",         [WD_ENTRY_LEAVE] = "leave",     [WD_ENTRY_COPY] = "copy",
        [WD_ENTRY_SEND] = "send",       [WD_ENTRY_RECEIVE] = "receive",
    };
    used = wd_append_text(text, TEXT_MAX, used, "%s expert %d stage %d", names[e->kind], e->expert,
                          e->stage);
    if (e->batch < 0) return wd_append_text(text, TEXT_MAX, used, " device %d\n", e->device);
    used = wd_append_text(text, TEXT_MAX, used, " batch %d device %d place %d", e->batch, e->device,
                          e->place);
    if (e->to >= 0) used = wd_append_text(text, TEXT_MAX, used, " to device %d", e->to);
    if (e->to_place >= 0) used = wd_append_text(text, TEXT_MAX, used, " place %d", e->to_place);
    return wd_append_text(text, TEXT_MAX, used, "\n");
}

static void assert_list(wd_sweep_schedule *s, const wd_sweep_work *window, const char *expected)
{
    char text[TEXT_MAX] = "";
    size_t used = 0;
    wd_sweep_schedule_make(s, window);
    for (int i = 0; i < s->count; i++) used = add_entry(text, used, &s->entry[i]);
    assert_string_equal(text, expected);
}

static wd_sweep_schedule opened(const wd_placement *p, int devices, int batches)
{
    wd_err err;
    wd_sweep_schedule s;
    wd_test_ok(wd_sweep_schedule_open(&s, devices, p, batches, &err), &err);
    return s;
}

/* Everything stays on one device, which takes a micro-batch at a time. */
static void on_one_device(void **state)
{
    (void)state;
    const wd_placement p = {.experts = 1, .stages = 3, .buffers = 2, .by_batch = 1};
    wd_sweep_schedule s = opened(&p, 1, 2);
    assert_list(&s, &(wd_sweep_work){.batches = {2}},
                "acquire expert 0 stage 0 device 0\n"
                "acquire expert 0 stage 1 device 0\n"
                "acquire expert 0 stage 2 device 0\n"
                "enter expert 0 stage 0 batch 0 device 0 place 0\n"
                "run expert 0 stage 1 batch 0 device 0 place 0\n"
                "leave expert 0 stage 2 batch 0 device 0 place 0\n"
                "enter expert 0 stage 0 batch 1 device 0 place 0\n"
                "run expert 0 stage 1 batch 1 device 0 place 0\n"
                "leave expert 0 stage 2 batch 1 device 0 place 0\n"
                "release expert 0 stage 0 device 0\n"
                "release expert 0 stage 1 device 0\n"
                "release expert 0 stage 2 device 0\n");
    wd_sweep_schedule_close(&s);
}

/* Weights come from host memory: a stage takes the whole window. */
static void offloaded(void **state)
{
    (void)state;
    wd_placement p = {.experts = 1, .stages = 4, .buffers = 2, .by_batch = 1};
    for (int i = 0; i < 4; i++) p.place[0][i].home = WD_HOME_HOST;
    wd_sweep_schedule s = opened(&p, 1, 2);
    assert_list(&s, &(wd_sweep_work){.batches = {2}},
                "acquire expert 0 stage 0 device 0\n"
                "enter expert 0 stage 0 batch 0 device 0 place 0\n"
                "enter expert 0 stage 0 batch 1 device 0 place 1\n"
                "release expert 0 stage 0 device 0\n"
                "acquire expert 0 stage 1 device 0\n"
                "run expert 0 stage 1 batch 0 device 0 place 0\n"
                "run expert 0 stage 1 batch 1 device 0 place 1\n"
                "release expert 0 stage 1 device 0\n"
                "acquire expert 0 stage 2 device 0\n"
                "run expert 0 stage 2 batch 0 device 0 place 0\n"
                "run expert 0 stage 2 batch 1 device 0 place 1\n"
                "release expert 0 stage 2 device 0\n"
                "acquire expert 0 stage 3 device 0\n"
                "leave expert 0 stage 3 batch 0 device 0 place 0\n"
                "leave expert 0 stage 3 batch 1 device 0 place 1\n"
                "release expert 0 stage 3 device 0\n");
    wd_sweep_schedule_close(&s);
}

/* Two devices of a rank: the second one has three places, which come round from sweep to sweep. */
static void in_a_pipeline(void **state)
{
    (void)state;
    wd_placement p = {.experts = 1, .stages = 3, .buffers = 2, .by_batch = 3};
    p.place[0][1].device = p.place[0][2].device = 1;
    wd_sweep_schedule s = opened(&p, 2, 2);
    assert_int_equal(s.of_device[0].places, 1);
    assert_int_equal(s.of_device[1].places, WD_PIPELINE_PLACES);
    wd_sweep_schedule_make(&s, &(wd_sweep_work){.batches = {2}});
    assert_list(&s, &(wd_sweep_work){.batches = {2}},
                "acquire expert 0 stage 0 device 0\n"
                "acquire expert 0 stage 1 device 1\n"
                "acquire expert 0 stage 2 device 1\n"
                "enter expert 0 stage 0 batch 0 device 0 place 0\n"
                "copy expert 0 stage 1 batch 0 device 0 place 0 to device 1 place 2\n"
                "run expert 0 stage 1 batch 0 device 1 place 2\n"
                "leave expert 0 stage 2 batch 0 device 1 place 2\n"
                "enter expert 0 stage 0 batch 1 device 0 place 0\n"
                "copy expert 0 stage 1 batch 1 device 0 place 0 to device 1 place 0\n"
                "run expert 0 stage 1 batch 1 device 1 place 0\n"
                "leave expert 0 stage 2 batch 1 device 1 place 0\n"
                "release expert 0 stage 0 device 0\n"
                "release expert 0 stage 1 device 1\n"
                "release expert 0 stage 2 device 1\n");
    wd_sweep_schedule_close(&s);
}

/* Two ranks of a device each, which have one teacher together: each does its own entries. */
static void between_ranks(void **state)
{
    (void)state;
    wd_placement p = {
        .experts = 2, .stages = 3, .buffers = 2, .by_batch = 1, .ranks = 2, .devices = 1};
    for (int e = 0; e < 2; e++) p.place[e][2].device = 1;
    wd_sweep_schedule s = opened(&p, 2, 2);
    assert_list(&s, &(wd_sweep_work){.batches = {0, 1}},
                "acquire expert 1 stage 0 device 0\n"
                "acquire expert 1 stage 1 device 0\n"
                "acquire expert 1 stage 2 device 1\n"
                "enter expert 1 stage 0 batch 0 device 0 place 0\n"
                "run expert 1 stage 1 batch 0 device 0 place 0\n"
                "send expert 1 stage 2 batch 0 device 0 place 0 to device 1\n"
                "receive expert 1 stage 2 batch 0 device 1 place 0\n"
                "leave expert 1 stage 2 batch 0 device 1 place 0\n"
                "release expert 1 stage 0 device 0\n"
                "release expert 1 stage 1 device 0\n"
                "release expert 1 stage 2 device 1\n");
    wd_sweep_schedule_close(&s);
}

/* ---- all placements ---- */

static uint64_t draws;

static int between(int low, int high)
{
    double u = wd_random_uniform((wd_random){.seed = 17, .stream = WD_RANDOM_TEST}, draws++);
    return low + (int)(u * (double)(high - low + 1)) % (high - low + 1);
}

enum { DEVICES = 3, PLACES_MAX = BATCHES_MAX + WD_PIPELINE_PLACES };

static wd_placement random_placement(void)
{
    wd_placement p = {.experts = between(1, 2),
                      .stages = between(3, 8),
                      .buffers = between(2, 4),
                      .by_batch = (unsigned)between(0, 7)};
    if (between(0, 1)) p.ranks = DEVICES, p.devices = 1, p.by_batch = between(0, 1) ? 1 : 0;
    for (int e = 0; e < p.experts; e++)
        for (int i = 0; i < p.stages; i++) {
            const bool stays = i && between(0, 1);
            p.place[e][i] = stays ? p.place[e][i - 1]
                                  : (wd_stage_placement){(wd_home)between(0, WD_HOMES - 1),
                                                         between(0, DEVICES - 1)};
        }
    return p;
}

/* What is where, as entries are gone through. */
typedef struct world {
    const wd_sweep_schedule *schedule;
    bool taken[DEVICES][PLACES_MAX];
    bool there[WD_PLACED_EXPERTS_MAX][WD_PLACED_STAGES_MAX];         /* weights */
    int device[BATCHES_MAX], place[BATCHES_MAX], stage[BATCHES_MAX]; /* of micro-batches */
} world;

static void take(world *w, const wd_sweep_entry *e, int device, int place)
{
    assert_true(place >= 0 && place < w->schedule->of_device[device].places);
    assert_false(w->taken[device][place]);
    w->taken[device][place] = true;
    w->device[e->batch] = device;
    w->place[e->batch] = place;
}

static void leave_place(world *w, const wd_sweep_entry *e)
{
    assert_int_equal(w->device[e->batch], e->device);
    assert_int_equal(w->place[e->batch], e->place);
    assert_true(w->taken[e->device][e->place]);
    w->taken[e->device][e->place] = false;
}

/* A stage is computed where it is placed, by a micro-batch that is there and has come through all
 * stages before it, with weights that are there. */
static void compute(world *w, const wd_sweep_entry *e)
{
    const wd_placement *p = w->schedule->placement;
    assert_int_equal(e->device, p->place[e->expert][e->stage].device);
    assert_int_equal(e->device, w->device[e->batch]);
    assert_int_equal(e->place, w->place[e->batch]);
    assert_true(w->there[e->expert][e->stage]);
    assert_int_equal(e->stage, w->stage[e->batch]++);
}

static int streamed_there(const world *w, int device, wd_home home, wd_stage_kind kind)
{
    const wd_placement *p = w->schedule->placement;
    int n = 0;
    for (int e = 0; e < p->experts; e++)
        for (int s = 0; s < p->stages; s++)
            n += w->there[e][s] && p->place[e][s].device == device && p->place[e][s].home == home &&
                 wd_stage_kind_of(s, p->stages) == kind;
    return n;
}

static void follow(world *w, const wd_sweep_entry *e)
{
    const wd_placement *p = w->schedule->placement;
    switch (e->kind) {
    case WD_ENTRY_ACQUIRE:
        assert_false(w->there[e->expert][e->stage]);
        w->there[e->expert][e->stage] = true;
        if (p->place[e->expert][e->stage].home != WD_HOME_DEVICE)
            assert_int_equal(streamed_there(w, e->device, p->place[e->expert][e->stage].home,
                                            wd_stage_kind_of(e->stage, p->stages)),
                             1);
        break;
    case WD_ENTRY_RELEASE:
        assert_true(w->there[e->expert][e->stage]);
        w->there[e->expert][e->stage] = false;
        break;
    case WD_ENTRY_ENTER:
        w->stage[e->batch] = 0;
        take(w, e, e->device, e->place);
        compute(w, e);
        break;
    case WD_ENTRY_RUN:
        compute(w, e);
        break;
    case WD_ENTRY_LEAVE:
        compute(w, e);
        leave_place(w, e);
        assert_int_equal(w->stage[e->batch], p->stages);
        break;
    case WD_ENTRY_COPY:
        leave_place(w, e);
        take(w, e, e->to, e->to_place);
        break;
    case WD_ENTRY_SEND:
        leave_place(w, e);
        assert_true(wd_placed_rank(p, e->device) != wd_placed_rank(p, e->to));
        break;
    case WD_ENTRY_RECEIVE:
        take(w, e, e->device, e->place);
        break;
    }
}

/* No two micro-batches are ever in one place, and each goes through all stages, sweep after sweep,
 * under random placements. */
static void lists_hold_together(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++) {
        const wd_placement p = random_placement();
        wd_sweep_schedule s = opened(&p, DEVICES, BATCHES_MAX);
        for (int sweep = 0; sweep < 4; sweep++) {
            world w = {.schedule = &s};
            wd_sweep_work window = {{0}};
            int left = 0;
            for (int e = 0; e < p.experts; e++) window.batches[e] = between(0, BATCHES_MAX);
            wd_sweep_schedule_make(&s, &window);
            for (int k = 0; k < s.count; k++) {
                follow(&w, &s.entry[k]);
                left += s.entry[k].kind == WD_ENTRY_LEAVE;
            }
            assert_int_equal(left, window.batches[0] + window.batches[1]);
        }
        wd_sweep_schedule_close(&s);
    }
}

/* Compares the stages of one home and device that a sweep of these experts acquires with those that
 * are brought for it. Returns their number. */
static int64_t compare_order(const wd_sweep_schedule *s, const wd_placed_stages *part,
                             unsigned experts)
{
    int64_t turns = 0;
    wd_err err;
    wd_stage_order order;
    wd_test_ok(wd__stage_order_open(&order, part, &err), &err);
    wd__stage_order_add(&order, (wd_sweep_experts){experts, experts}, (wd_sweep_experts){0});
    for (int i = 0; i < s->count; i++) {
        const wd_sweep_entry *e = &s->entry[i];
        if (e->kind != WD_ENTRY_ACQUIRE || e->device != part->device ||
            part->placement->place[e->expert][e->stage].home != part->home)
            continue;
        assert_true(turns < order.end);
        const wd_stage_turn *turn = wd__stage_order_at(&order, turns++);
        assert_int_equal(turn->expert, e->expert);
        assert_int_equal(turn->stage, e->stage);
    }
    assert_int_equal(turns, order.end);
    wd__stage_order_close(&order);
    return turns;
}

/* Streamed stages come in the order of the list's entries, under random placements, although
 * stage_order.c finds this order without a list. */
static void streamed_stages_come_in_this_order(void **state)
{
    (void)state;
    int64_t compared = 0;
    for (int i = 0; i < 1000; i++) {
        const wd_placement p = random_placement();
        const unsigned experts = (unsigned)between(1, (1 << p.experts) - 1);
        wd_sweep_schedule s = opened(&p, DEVICES, BATCHES_MAX);
        wd_sweep_work window = {{0}};
        for (int e = 0; e < p.experts; e++)
            window.batches[e] = experts >> e & 1 ? between(1, BATCHES_MAX) : 0;
        wd_sweep_schedule_make(&s, &window);
        for (int d = 0; d < DEVICES; d++)
            for (int h = WD_HOME_HOST; h < WD_HOMES; h++)
                compared += compare_order(&s, &(wd_placed_stages){&p, (wd_home)h, d}, experts);
        wd_sweep_schedule_close(&s);
    }
    assert_true(compared > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_device),       cmocka_unit_test(offloaded),
        cmocka_unit_test(in_a_pipeline),       cmocka_unit_test(between_ranks),
        cmocka_unit_test(lists_hold_together), cmocka_unit_test(streamed_stages_come_in_this_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

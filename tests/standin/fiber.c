/* Fibers: see standin/fiber.h. */
#include "standin/fiber.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/error.h"

#if defined(__x86_64__)
#define WD_FIBER_SWITCH 1
#else
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define WD_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define WD_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WD_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define WD_FIBER_TSAN 1
#endif
#endif

#ifdef WD_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WD_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifdef WD_FIBER_SWITCH
/* Where a side goes on: its stack, on which its registers are. */
typedef void *place;
#else
typedef ucontext_t place;
#endif

struct wd_fiber {
    place here, caller;
    char *stack; /* WD_FIBER_STACK bytes, above a page that is not to be touched */
    wd_fiber_fn *fn;
    void *argument;
    void *fake_here, *fake_caller; /* what the address sanitizer keeps of each side */
    const void *caller_stack;
    size_t caller_bytes;
    void *known, *caller_known; /* as which the thread sanitizer knows each side */
};

#ifdef WD_FIBER_SWITCH
/* wd_fiber_switch(&from, to): saves what a function must keep on this stack, and takes it from the
 * other one. */
void wd_fiber_switch(place *from, place to);
__asm__(".text\n"
        ".globl wd_fiber_switch\n"
        ".hidden wd_fiber_switch\n"
        ".type wd_fiber_switch, @function\n"
        "wd_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size wd_fiber_switch, . - wd_fiber_switch\n");

static void go(place *from, place *to)
{
    wd_fiber_switch(from, *to);
}
#else
static void go(place *from, place *to)
{
    swapcontext(from, to);
}
#endif

static size_t guard_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Tells the address sanitizer that this side stops, and the other one, of this stack, goes on. */
static void before_switch(void **fake, const void *stack, size_t bytes)
{
#ifdef WD_FIBER_ASAN
    __sanitizer_start_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

static void after_switch(void *fake, const void **stack, size_t *bytes)
{
#ifdef WD_FIBER_ASAN
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
#else
    (void)fake, (void)stack, (void)bytes;
#endif
}

/* The same for the thread sanitizer, which is told before the switch only. */
static void enter_known(wd_fiber *f)
{
#ifdef WD_FIBER_TSAN
    f->caller_known = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(f->known, 0);
#else
    (void)f;
#endif
}

static void leave_known(wd_fiber *f)
{
#ifdef WD_FIBER_TSAN
    __tsan_switch_to_fiber(f->caller_known, 0);
#else
    (void)f;
#endif
}

static _Thread_local wd_fiber *entered; /* for the first words of a fiber */

static void begin(void)
{
    wd_fiber *f = entered;
    after_switch(NULL, &f->caller_stack, &f->caller_bytes);
    f->fn(f->argument);
    WD_REQUIRE(false, "the function of a fiber returned");
}

static void prepare(wd_fiber *f)
{
#ifdef WD_FIBER_TSAN
    f->known = __tsan_create_fiber(0);
#endif
#ifdef WD_FIBER_SWITCH
    /* six registers, where to go on, and a return address that nobody uses, 16-byte aligned */
    void **top = (void **)(void *)(f->stack + WD_FIBER_STACK) - 2;
    void (*start)(void) = begin;
    memcpy(&top[0], &start, sizeof start);
    top[1] = NULL;
    f->here = top - 6;
    memset(f->here, 0, 6 * sizeof *top);
#else
    getcontext(&f->here);
    f->here.uc_stack.ss_sp = f->stack;
    f->here.uc_stack.ss_size = WD_FIBER_STACK;
    makecontext(&f->here, begin, 0);
#endif
}

/* All fibers, then their stacks, in one mapping. */
static size_t stacks_at(int count)
{
    size_t page = guard_bytes(), bytes = (size_t)count * sizeof(wd_fiber);
    return (bytes + page - 1) / page * page;
}

static size_t mapped_bytes(int count)
{
    return stacks_at(count) + (size_t)count * (guard_bytes() + WD_FIBER_STACK);
}

wd_fiber *wd_fibers_open(int count, wd_fiber_fn *fn, void *argument)
{
    size_t guard = guard_bytes();
    char *all = mmap(NULL, mapped_bytes(count), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    WD_REQUIRE(all != MAP_FAILED, "there is no memory for the stacks of %d fibers", count);
    wd_fiber *fibers = (wd_fiber *)(void *)all;
    char *stack = all + stacks_at(count);
    for (int i = 0; i < count; i++, stack += guard + WD_FIBER_STACK) {
        int failed = mprotect(stack, guard, PROT_NONE);
        WD_REQUIRE(!failed, "the end of the stack of fiber %d cannot be protected", i);
        fibers[i] = (wd_fiber){.stack = stack + guard, .fn = fn, .argument = argument};
        prepare(&fibers[i]);
    }
    return fibers;
}

void wd_fibers_close(wd_fiber *fibers, int count)
{
#ifdef WD_FIBER_ASAN
    for (int i = 0; i < count; i++) ASAN_UNPOISON_MEMORY_REGION(fibers[i].stack, WD_FIBER_STACK);
#endif
#ifdef WD_FIBER_TSAN
    for (int i = 0; i < count; i++) __tsan_destroy_fiber(fibers[i].known);
#endif
    munmap(fibers, mapped_bytes(count));
}

void wd_fiber_enter(wd_fiber *fibers, int number)
{
    wd_fiber *f = &fibers[number];
    entered = f;
    before_switch(&f->fake_caller, f->stack, WD_FIBER_STACK);
    enter_known(f);
    go(&f->caller, &f->here);
    after_switch(f->fake_caller, NULL, NULL);
}

void wd_fiber_leave(wd_fiber *fibers, int number)
{
    wd_fiber *f = &fibers[number];
    before_switch(&f->fake_here, f->caller_stack, f->caller_bytes);
    leave_known(f);
    go(&f->here, &f->caller);
    after_switch(f->fake_here, &f->caller_stack, &f->caller_bytes);
}

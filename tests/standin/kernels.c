/* The stand-in driver with all that the cuda device needs: our kernels on the host
 * (standin/blocks.h), and the libraries' stand-ins. The order in which threads of a block run is
 * drawn for every launch. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "standin/blocks.h"
#include "standin/driver.h"
#include "standin/libraries.h"
#include "standin/nccl.h"

/* Stacks of a host thread, for each order; a stack is never used by another thread. */
typedef struct stacks {
    wd_standin *in[WD_STANDIN_ORDERS];
} stacks;

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void close_stacks(void *context)
{
    stacks *s = context;
    for (int i = 0; i < WD_STANDIN_ORDERS; i++)
        if (s->in[i]) wd_standin_close(s->in[i]);
    free(s);
}

static void make_key(void)
{
    if (pthread_key_create(&key, close_stacks)) abort();
}

static wd_standin *stacks_of(wd_standin_order order, uint64_t seed)
{
    pthread_once(&once, make_key);
    stacks *s = pthread_getspecific(key);
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s || pthread_setspecific(key, s)) abort();
    }
    if (!s->in[order]) s->in[order] = wd_standin_open(order, seed);
    return s->in[order];
}

static void run(wd_cuda_kernel kernel, const void *argument, const wd_standin_launch *l)
{
    const wd_standin_order order = (wd_standin_order)(l->seed % WD_STANDIN_ORDERS);
    wd_standin_run(stacks_of(order, l->seed), kernel, l->grid, l->block, l->shared_bytes, argument,
                   l->argument_bytes);
}

#define X(name)                                                                                    \
    static void run_##name(const void *argument, const wd_standin_launch *launch)                  \
    {                                                                                              \
        run(WD_CUDA_##name, argument, launch);                                                     \
    }
WD_CUDA_KERNEL_MAP(X)
#undef X

static const wd_standin_function *find(const char *symbol)
{
#define X(name) {#name, run_##name},
    static const wd_standin_function functions[] = {WD_CUDA_KERNEL_MAP(X)};
#undef X
    for (int k = 0; k < WD_CUDA_KERNEL_COUNT; k++)
        if (!strcmp(symbol, wd__cuda_kernel_symbol((wd_cuda_kernel)k))) return &functions[k];
    return NULL;
}

void wd_standin_install_all(wd_standin_options *options)
{
    static wd_cuda_api libraries;
    libraries = (wd_cuda_api){0};
    wd_standin_libraries(&libraries, wd_standin_enqueue);
    if (options->nccl) wd_standin_nccl_fill(&libraries);
    options->find = find;
    options->libraries = &libraries;
    wd_standin_install(options);
}

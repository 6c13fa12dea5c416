/* See job/launch/pmix.h.
 *
 * The exchange has two steps. First the ranks of one machine wait for one another. The launcher has
 * started these together, so that a few seconds are enough, and a slow machine elsewhere does not
 * hide that one of them was stopped. Then all ranks wait for one another, and PMIx brings their
 * records to everybody. */
#include "job/launch/pmix.h"

#include <pmix.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "job/launch/launch.h"

static const char key[] = "wandistiller.record";

static pmix_proc_t self; /* this process; PMIx, too, exists once in a process */

/* A number that the launcher knows about the job; 0: it does not know it. */
static int number_of(const char *what)
{
    pmix_proc_t job;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Get(&job, what, NULL, 0, &value) != PMIX_SUCCESS) return 0;
    const int n = value->type == PMIX_UINT32 ? (int)value->data.uint32 : 0;
    PMIX_VALUE_RELEASE(value);
    return n;
}

/* PMIx cannot be relied on once it was finalized, so it is opened once in a process. */
wd_pmix wd_pmix_open(void)
{
    static bool was_opened;
    if (was_opened) return (wd_pmix){0};
    was_opened = true;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) return (wd_pmix){0};
    const wd_pmix pmix = {(int)self.rank, number_of(PMIX_JOB_SIZE), number_of(PMIX_LOCAL_SIZE)};
    if (pmix.ranks > 0 && pmix.host_ranks > 0) return pmix;
    PMIx_Finalize(NULL, 0);
    return (wd_pmix){0};
}

static pmix_status_t put(const void *data, size_t bytes)
{
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT,
                          .data.bo = {.bytes = (char *)data, .size = bytes}};
    const pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    return rc == PMIX_SUCCESS ? PMIx_Commit() : rc;
}

/* The ranks of this machine, [host_ranks]; the caller frees them with free(). NULL: PMIx does not
 * know them all, or there is no memory. */
static pmix_proc_t *find_neighbours(const wd_pmix *pmix)
{
    pmix_proc_t job, *all = calloc((size_t)pmix->host_ranks, sizeof *all);
    pmix_value_t *value = NULL;
    int n = 0;
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    if (all && PMIx_Get(&job, PMIX_LOCAL_PEERS, NULL, 0, &value) == PMIX_SUCCESS) {
        char *at = value->type == PMIX_STRING ? value->data.string : NULL;
        for (; at && *at && n < pmix->host_ranks; at += *at == ',', n++) {
            const pmix_rank_t rank = (pmix_rank_t)strtoul(at, &at, 10);
            PMIX_LOAD_PROCID(&all[n], self.nspace, rank); /* a macro */
        }
        PMIX_VALUE_RELEASE(value);
    }
    if (n == pmix->host_ranks) return all;
    free(all);
    return NULL;
}

/* Waits until the ranks `who` [count] (NULL: all ranks) have called it. */
static pmix_status_t fence(const pmix_proc_t *who, int count)
{
    bool yes = true;
    pmix_info_t collect;
    PMIX_INFO_CONSTRUCT(&collect);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    const pmix_status_t rc = PMIx_Fence(who, (size_t)count, &collect, 1);
    PMIX_INFO_DESTRUCT(&collect);
    return rc;
}

static pmix_status_t fence_all(const wd_pmix *pmix, wd_deadline *deadline)
{
    pmix_proc_t *here = find_neighbours(pmix);
    const pmix_status_t rc = here ? fence(here, pmix->host_ranks) : PMIX_ERR_NOT_FOUND;
    free(here);
    if (rc != PMIX_SUCCESS || pmix->host_ranks == pmix->ranks) return rc;
    wd_deadline_next(deadline, wd_launch_limit_s(pmix->ranks, true), "the start of all hosts");
    return fence(NULL, 0);
}

static pmix_status_t get(void *out, size_t bytes, int rank)
{
    pmix_proc_t who;
    pmix_value_t *value = NULL;
    PMIX_LOAD_PROCID(&who, self.nspace, (pmix_rank_t)rank);
    pmix_status_t rc = PMIx_Get(&who, key, NULL, 0, &value);
    if (rc != PMIX_SUCCESS) return rc;
    if (value->type == PMIX_BYTE_OBJECT && value->data.bo.size == bytes)
        memcpy(out, value->data.bo.bytes, bytes);
    else
        rc = PMIX_ERR_TYPE_MISMATCH;
    PMIX_VALUE_RELEASE(value);
    return rc;
}

wd_status wd_pmix_exchange(const wd_pmix *pmix, void *all, size_t bytes, wd_deadline *deadline,
                           wd_err *err)
{
    char *record = all;
    wd_deadline_next(deadline, wd_launch_limit_s(pmix->host_ranks, false),
                     "the start of all ranks of this host");
    pmix_status_t rc = put(record + (size_t)pmix->rank * bytes, bytes);
    if (rc == PMIX_SUCCESS) rc = fence_all(pmix, deadline);
    for (int r = 0; rc == PMIX_SUCCESS && r < pmix->ranks; r++)
        if (r != pmix->rank) rc = get(record + (size_t)r * bytes, bytes, r);
    if (rc == PMIX_SUCCESS) return WD_OK;
    return wd_fail(err, WD_RANK_LOST, "rank %d cannot exchange addresses with the others: PMIx: %s",
                   pmix->rank, PMIx_Error_string(rc));
}

void wd_pmix_close(const wd_pmix *pmix)
{
    if (pmix->ranks) PMIx_Finalize(NULL, 0);
}

/* The roll call by PMIx: see dist/roll.h.
 *
 * In two steps: first the ranks of a machine meet. They were started together, so that seconds are
 * enough, and no slow machine elsewhere hides that one of them was stopped. Then all of them meet,
 * and what they have put is brought to everybody. */
#include "dist/roll.h"

#include <pmix.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "dist/fuse.h"
#include "dist/launch.h"
#include "dist/sentry.h"

static const char key[] = "wandistiller.roll";

static pmix_proc_t self; /* of the process, as PMIx is */

/* A number that the launcher knows of the job; 0: it does not. */
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

/* Once in a process: PMIx is not to be relied on after its end. */
wd_roll wd_roll_open(void)
{
    static bool before;
    if (before) return (wd_roll){0};
    before = true;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) return (wd_roll){0};
    const wd_roll roll = {(int)self.rank, number_of(PMIX_JOB_SIZE), number_of(PMIX_LOCAL_SIZE)};
    if (roll.ranks > 0 && roll.host_ranks > 0) return roll;
    PMIx_Finalize(NULL, 0);
    return (wd_roll){0};
}

static pmix_status_t put(const void *data, size_t bytes)
{
    pmix_value_t value = {.type = PMIX_BYTE_OBJECT,
                          .data.bo = {.bytes = (char *)data, .size = bytes}};
    const pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &value);
    return rc == PMIX_SUCCESS ? PMIx_Commit() : rc;
}

/* Those of this machine: to free(). */
static pmix_proc_t *find_neighbours(const wd_roll *roll)
{
    pmix_proc_t job, *all = calloc((size_t)roll->host_ranks, sizeof *all);
    pmix_value_t *value = NULL;
    int n = 0;
    PMIX_LOAD_PROCID(&job, self.nspace, PMIX_RANK_WILDCARD);
    if (all && PMIx_Get(&job, PMIX_LOCAL_PEERS, NULL, 0, &value) == PMIX_SUCCESS) {
        char *at = value->type == PMIX_STRING ? value->data.string : NULL;
        for (; at && *at && n < roll->host_ranks; at += *at == ',', n++) {
            const pmix_rank_t rank = (pmix_rank_t)strtoul(at, &at, 10);
            PMIX_LOAD_PROCID(&all[n], self.nspace, rank); /* a macro */
        }
        PMIX_VALUE_RELEASE(value);
    }
    if (n == roll->host_ranks) return all;
    free(all);
    return NULL;
}

/* `who` [count]; NULL: all ranks. */
static pmix_status_t meet(const pmix_proc_t *who, int count)
{
    bool yes = true;
    pmix_info_t collect;
    PMIX_INFO_CONSTRUCT(&collect);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    const pmix_status_t rc = PMIx_Fence(who, (size_t)count, &collect, 1);
    PMIX_INFO_DESTRUCT(&collect);
    return rc;
}

static pmix_status_t meet_all(const wd_roll *roll, wd_fuse *fuse)
{
    pmix_proc_t *here = find_neighbours(roll);
    wd_sentry_dismiss(); /* whoever is stopped once it has come is seen by the others */
    const pmix_status_t rc = here ? meet(here, roll->host_ranks) : PMIX_ERR_NOT_FOUND;
    free(here);
    if (rc != PMIX_SUCCESS || roll->host_ranks == roll->ranks) return rc;
    wd_fuse_renew(fuse, wd_launch_hosts_s, "the start of all hosts");
    return meet(NULL, 0);
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

wd_status wd_roll_tell(const wd_roll *roll, void *all, size_t bytes, wd_err *err)
{
    wd_fuse *fuse;
    char *record = all;
    WD_TRY(wd_fuse_light(&fuse, roll->rank, wd_launch_host_s(roll->host_ranks),
                         "the start of all ranks of this host", err));
    pmix_status_t rc = put(record + (size_t)roll->rank * bytes, bytes);
    if (rc == PMIX_SUCCESS) rc = meet_all(roll, fuse);
    for (int r = 0; rc == PMIX_SUCCESS && r < roll->ranks; r++)
        if (r != roll->rank) rc = get(record + (size_t)r * bytes, bytes, r);
    wd_fuse_put_out(fuse);
    if (rc == PMIX_SUCCESS) return WD_OK;
    return wd_fail(err, WD_RANK_LOST, "rank %d cannot tell the others where it is: PMIx says %s",
                   roll->rank, PMIx_Error_string(rc));
}

void wd_roll_close(const wd_roll *roll)
{
    if (roll->ranks) PMIx_Finalize(NULL, 0);
}

/* Checks that all ranks have the same options, teacher, student, prompts and plan. This happens
 * before weights are loaded, so that a rank that was started differently is an error, instead of
 * the cause of a wrong student. */
#ifndef WD_API_JOBS_AGREEMENT_H
#define WD_API_JOBS_AGREEMENT_H

#include "api/plan/train_plan.h"

enum { WD_AGREEMENT_MAX = 160, WD_AGREED_NAME = 64, WD_AGREED_TEXT = 56 };

/* The value that a rank has for a name. */
typedef struct wd_agreed {
    uint64_t hash;
    char text[WD_AGREED_TEXT]; /* its beginning, for errors; "": no readable text */
} wd_agreed;

typedef struct wd_agreement {
    int count;
    char name[WD_AGREEMENT_MAX][WD_AGREED_NAME];
    const char *remedy[WD_AGREEMENT_MAX]; /* borrowed */
    wd_agreed value[WD_AGREEMENT_MAX];
} wd_agreement;

/* Adds this rank's value of `name`. */
void wd__agree_on_text(wd_agreement *agreement, const char *name, const char *text);
void wd__agree_on_bytes(wd_agreement *agreement, const char *name, const void *data, size_t bytes);

/* Compares the values of all ranks, which must add the same names in the same order. If two differ,
 * all ranks return WD_MISMATCH with the ranks, the name, both values, and what to do. All ranks
 * call it. */
wd_status wd__agreement_check(const wd_agreement *agreement, wd_comm *comm, wd_err *err);

/* Compares all ranks of a run that is set up: options, prompts, the keys of teacher and text
 * encoder, and what it resumes. It comes before the ranks exchange anything whose size follows from
 * these. WD_IO: the checkpoint from which it resumes cannot be read. All ranks call it. */
wd_status wd__train_agree(const wd_train_setup *setup, wd_err *err);

/* Compares what the ranks have planned from that. All ranks call it. */
wd_status wd__train_agree_on_plan(const wd_train_plan *plan, const wd_train_setup *setup,
                                  wd_err *err);

#endif

/* That all ranks are of one run: the same options, teacher, student, prompts and plan. Compared
 * before a byte is loaded, so that a rank that was started otherwise is named, and not found out by
 * a student that is wrong. */
#ifndef WD_API_AGREEMENT_H
#define WD_API_AGREEMENT_H

#include "api/train_plan.h"

enum { WD_AGREEMENT_MAX = 160, WD_AGREED_NAME = 64, WD_AGREED_TEXT = 56 };

/* What one rank says of one thing. */
typedef struct wd_agreed {
    uint64_t hash;
    char text[WD_AGREED_TEXT]; /* the beginning of it; "": nothing that could be read */
} wd_agreed;

typedef struct wd_agreement {
    int count;
    char name[WD_AGREEMENT_MAX][WD_AGREED_NAME];
    const char *remedy[WD_AGREEMENT_MAX]; /* borrowed */
    wd_agreed said[WD_AGREEMENT_MAX];
} wd_agreement;

/* Adds what this rank says of `name`. */
void wd_agree_on_text(wd_agreement *agreement, const char *name, const char *text);
void wd_agree_on_bytes(wd_agreement *agreement, const char *name, const void *data, size_t bytes);

/* The same by a key, which only a text says something about that may be another on each rank.
 * `remedy` (borrowed): what to do where keys differ. */
void wd_agree_on_key(wd_agreement *agreement, const char *name, const char *key, const char *text,
                     const char *remedy);

/* Compares with all ranks, which add the same names in the same order: WD_MISMATCH on all
 * of them where two differ, with the ranks, the name, what they say, and what to do. All ranks call
 * it. */
wd_status wd_agreement_check(const wd_agreement *agreement, wd_comm *comm, wd_err *err);

/* The same of a run that is set up and planned, with the keys of its teacher and text encoder.
 * WD_IO: the checkpoint that it goes on from cannot be read. All ranks call it. */
wd_status wd_train_agree(const wd_train_plan *plan, const wd_train_setup *setup, wd_err *err);

#endif

/* The three words by which two ranks make sure of one another when their watches connect.
 *
 * Who connects says who it is and who it takes the other for, with random bytes (the call). Who
 * listens answers with random bytes of its own, and proves that it knows the job's secret: by a
 * keyed hash of all that was said. Who has called proves the same (the close). The secret itself is
 * never sent, so that neither who listens in the place of a rank nor who connects to one learns
 * anything of use. */
#ifndef WD_DIST_WATCH_WORD_H
#define WD_DIST_WATCH_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WD_SECRET_BYTES = 32, WD_NONCE_BYTES = 16, WD_PROOF_BYTES = 32 };

typedef struct wd_watch_word {
    char greeting[8];
    int32_t from, to;
    unsigned char nonce[WD_NONCE_BYTES]; /* of who says it; zeroed in the close */
    unsigned char proof[WD_PROOF_BYTES]; /* zeroed in the call */
} wd_watch_word;

/* What the proofs are about: equal on both sides. */
typedef struct wd_watch_talk {
    int32_t caller, listener;
    unsigned char caller_nonce[WD_NONCE_BYTES], listener_nonce[WD_NONCE_BYTES];
} wd_watch_talk;

/* What each side says; `secret` is the job's, [WD_SECRET_BYTES]. False: no random bytes. */
bool wd_watch_call(wd_watch_word *out, wd_watch_talk *talk, int caller, int listener);
bool wd_watch_answer(wd_watch_word *out, wd_watch_talk *talk, const wd_watch_word *call,
                     const unsigned char *secret);
void wd_watch_confirm(wd_watch_word *out, const wd_watch_talk *talk, const unsigned char *secret);

/* Whether what has come is a call to rank `listener` of so many by a higher one; the right answer;
 * the right close. An answer completes the talk. */
bool wd_watch_is_call(const wd_watch_word *word, int listener, int ranks);
bool wd_watch_is_answer(const wd_watch_word *word, wd_watch_talk *talk,
                        const unsigned char *secret);
bool wd_watch_is_close(const wd_watch_word *word, const wd_watch_talk *talk,
                       const unsigned char *secret);

#endif

/* The three messages by which two ranks authenticate each other when their watches connect.
 *
 * The rank that connects (the caller) sends its own number, the number of the rank that it expects
 * to reach, and random bytes: the call. The rank that listens sends random bytes of its own, and a
 * keyed hash of both numbers and both sides' random bytes, which proves that it knows the job's
 * secret: the answer. The caller proves the same: the confirmation. The secret itself is never
 * sent, so that another program that listens in place of a rank, or connects to one, does not learn
 * it. */
#ifndef WD_JOB_WATCH_WATCH_HANDSHAKE_H
#define WD_JOB_WATCH_WATCH_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WD_SECRET_BYTES = 32, WD_NONCE_BYTES = 16, WD_PROOF_BYTES = 32 };

typedef struct wd_handshake_message {
    char greeting[8];
    int32_t from, to;
    unsigned char nonce[WD_NONCE_BYTES]; /* of the sender; zero in the confirmation */
    unsigned char proof[WD_PROOF_BYTES]; /* zero in the call */
} wd_handshake_message;

/* The data that both proofs are a hash of; both sides have the same. */
typedef struct wd_handshake {
    int32_t caller, listener;
    unsigned char caller_nonce[WD_NONCE_BYTES], listener_nonce[WD_NONCE_BYTES];
} wd_handshake;

/* Make the three messages; `secret` is the job's, [WD_SECRET_BYTES]. False: there are no random
 * bytes. */
bool wd__handshake_call(wd_handshake_message *out, wd_handshake *handshake, int caller,
                        int listener);
bool wd__handshake_answer(wd_handshake_message *out, wd_handshake *handshake,
                          const wd_handshake_message *call, const unsigned char *secret);
void wd__handshake_confirm(wd_handshake_message *out, const wd_handshake *handshake,
                           const unsigned char *secret);

/* Check a received message: whether it is a call of a higher rank to rank `listener` of `ranks`;
 * the right answer, whose random bytes complete `handshake`; the right confirmation. */
bool wd__handshake_is_call(const wd_handshake_message *message, int listener, int ranks);
bool wd__handshake_is_answer(const wd_handshake_message *message, wd_handshake *handshake,
                             const unsigned char *secret);
bool wd__handshake_is_confirmation(const wd_handshake_message *message,
                                   const wd_handshake *handshake, const unsigned char *secret);

#endif

/* See job/watch/watch_handshake.h. */
#include "job/watch/watch_handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

static const char greeting[8] = "wd-rank";

typedef enum side { LISTENER, CALLER } side;

/* The HMAC-SHA-256 of the side that proves it and of the handshake, so that it is not valid for the
 * other side or for another handshake. False: the library has failed, and no proof is valid. */
static bool prove(unsigned char out[WD_PROOF_BYTES], side who, const wd_handshake *handshake,
                  const unsigned char *secret)
{
    unsigned char text[1 + sizeof *handshake];
    unsigned int bytes = 0;
    text[0] = (unsigned char)who;
    memcpy(text + 1, handshake, sizeof *handshake);
    return HMAC(EVP_sha256(), secret, WD_SECRET_BYTES, text, sizeof text, out, &bytes) &&
           bytes == WD_PROOF_BYTES;
}

static bool is_proven(const unsigned char *proof, side who, const wd_handshake *handshake,
                      const unsigned char *secret)
{
    unsigned char expected[WD_PROOF_BYTES];
    return prove(expected, who, handshake, secret) &&
           !CRYPTO_memcmp(proof, expected, sizeof expected);
}

static wd_handshake_message message_of(int from, int to)
{
    wd_handshake_message message = {.from = from, .to = to};
    memcpy(message.greeting, greeting, sizeof greeting);
    return message;
}

static bool is_message(const wd_handshake_message *message, int from, int to)
{
    return !memcmp(message->greeting, greeting, sizeof greeting) && message->from == from &&
           message->to == to;
}

static bool draw(unsigned char nonce[WD_NONCE_BYTES])
{
    return getrandom(nonce, WD_NONCE_BYTES, 0) == WD_NONCE_BYTES;
}

bool wd__handshake_call(wd_handshake_message *out, wd_handshake *handshake, int caller,
                        int listener)
{
    *handshake = (wd_handshake){.caller = caller, .listener = listener};
    *out = message_of(caller, listener);
    if (!draw(handshake->caller_nonce)) return false;
    memcpy(out->nonce, handshake->caller_nonce, sizeof out->nonce);
    return true;
}

bool wd__handshake_answer(wd_handshake_message *out, wd_handshake *handshake,
                          const wd_handshake_message *call, const unsigned char *secret)
{
    *handshake = (wd_handshake){.caller = call->from, .listener = call->to};
    *out = message_of(call->to, call->from);
    memcpy(handshake->caller_nonce, call->nonce, sizeof handshake->caller_nonce);
    if (!draw(handshake->listener_nonce)) return false;
    memcpy(out->nonce, handshake->listener_nonce, sizeof out->nonce);
    return prove(out->proof, LISTENER, handshake, secret);
}

void wd__handshake_confirm(wd_handshake_message *out, const wd_handshake *handshake,
                           const unsigned char *secret)
{
    *out = message_of(handshake->caller, handshake->listener);
    prove(out->proof, CALLER, handshake, secret);
}

bool wd__handshake_is_call(const wd_handshake_message *message, int listener, int ranks)
{
    return is_message(message, message->from, listener) && message->from > listener &&
           message->from < ranks;
}

bool wd__handshake_is_answer(const wd_handshake_message *message, wd_handshake *handshake,
                             const unsigned char *secret)
{
    if (!is_message(message, handshake->listener, handshake->caller)) return false;
    memcpy(handshake->listener_nonce, message->nonce, sizeof handshake->listener_nonce);
    return is_proven(message->proof, LISTENER, handshake, secret);
}

bool wd__handshake_is_confirmation(const wd_handshake_message *message,
                                   const wd_handshake *handshake, const unsigned char *secret)
{
    return is_message(message, handshake->caller, handshake->listener) &&
           is_proven(message->proof, CALLER, handshake, secret);
}

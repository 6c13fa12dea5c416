/* See dist/watch_word.h. */
#include "dist/watch_word.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>

static const char greeting[8] = "wd-rank";

typedef enum side { LISTENER, CALLER } side;

/* HMAC-SHA-256 of who proves it and of the talk. A proof of one side is none of the other, nor of
 * another talk. False: the library refuses, for which nobody is believed. */
static bool prove(unsigned char out[WD_PROOF_BYTES], side who, const wd_watch_talk *talk,
                  const unsigned char *secret)
{
    unsigned char text[1 + sizeof *talk];
    unsigned int bytes = 0;
    text[0] = (unsigned char)who;
    memcpy(text + 1, talk, sizeof *talk);
    return HMAC(EVP_sha256(), secret, WD_SECRET_BYTES, text, sizeof text, out, &bytes) &&
           bytes == WD_PROOF_BYTES;
}

static bool is_proven(const unsigned char *proof, side who, const wd_watch_talk *talk,
                      const unsigned char *secret)
{
    unsigned char expected[WD_PROOF_BYTES];
    return prove(expected, who, talk, secret) && !CRYPTO_memcmp(proof, expected, sizeof expected);
}

static wd_watch_word word_of(int from, int to)
{
    wd_watch_word word = {.from = from, .to = to};
    memcpy(word.greeting, greeting, sizeof greeting);
    return word;
}

static bool is_word(const wd_watch_word *word, int from, int to)
{
    return !memcmp(word->greeting, greeting, sizeof greeting) && word->from == from &&
           word->to == to;
}

static bool draw(unsigned char nonce[WD_NONCE_BYTES])
{
    return getrandom(nonce, WD_NONCE_BYTES, 0) == WD_NONCE_BYTES;
}

bool wd_watch_call(wd_watch_word *out, wd_watch_talk *talk, int caller, int listener)
{
    *talk = (wd_watch_talk){.caller = caller, .listener = listener};
    *out = word_of(caller, listener);
    if (!draw(talk->caller_nonce)) return false;
    memcpy(out->nonce, talk->caller_nonce, sizeof out->nonce);
    return true;
}

bool wd_watch_answer(wd_watch_word *out, wd_watch_talk *talk, const wd_watch_word *call,
                     const unsigned char *secret)
{
    *talk = (wd_watch_talk){.caller = call->from, .listener = call->to};
    *out = word_of(call->to, call->from);
    memcpy(talk->caller_nonce, call->nonce, sizeof talk->caller_nonce);
    if (!draw(talk->listener_nonce)) return false;
    memcpy(out->nonce, talk->listener_nonce, sizeof out->nonce);
    return prove(out->proof, LISTENER, talk, secret);
}

void wd_watch_confirm(wd_watch_word *out, const wd_watch_talk *talk, const unsigned char *secret)
{
    *out = word_of(talk->caller, talk->listener);
    prove(out->proof, CALLER, talk, secret);
}

bool wd_watch_is_call(const wd_watch_word *word, int listener, int ranks)
{
    return is_word(word, word->from, listener) && word->from > listener && word->from < ranks;
}

bool wd_watch_is_answer(const wd_watch_word *word, wd_watch_talk *talk, const unsigned char *secret)
{
    if (!is_word(word, talk->listener, talk->caller)) return false;
    memcpy(talk->listener_nonce, word->nonce, sizeof talk->listener_nonce);
    return is_proven(word->proof, LISTENER, talk, secret);
}

bool wd_watch_is_close(const wd_watch_word *word, const wd_watch_talk *talk,
                       const unsigned char *secret)
{
    return is_word(word, talk->caller, talk->listener) &&
           is_proven(word->proof, CALLER, talk, secret);
}

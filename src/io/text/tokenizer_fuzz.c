/* Fuzz target: any bytes as a tokenizer's folder, and as a prompt for it. No id is written beyond
 * its buffer. */
#include "fuzzing.h"

#include "io/text/tokenizer.h"

enum { IDS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"spiece.model", "tokenizer_config.json"};
    static const char fixed[] = "a caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac aaaa bbbb <a></s>";
    char text[128];
    const size_t n = bytes < sizeof text - 1 ? bytes : sizeof text - 1;
    wd_err err;
    wd_tokenizer *t;
    int32_t ids[IDS];
    int64_t count;
    wd_fuzz_files(names, 2, data, bytes);
    if (wd_tokenizer_open(&t, wd_fuzz_folder(), &err) != WD_OK) return 0;
    memcpy(text, data, n);
    text[n] = '\0';
    const char *const texts[] = {fixed, text};
    for (int i = 0; i < 2; i++)
        if (wd_tokenizer_encode(ids, &count, t, texts[i], IDS, &err) == WD_OK &&
            (count < 1 || count > IDS))
            abort();
    wd_tokenizer_close(t);
    return 0;
}

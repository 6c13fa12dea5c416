/* libFuzzer target: any bytes as a prompt. The result must be UTF-8, trimmed, without double
 * spaces. */
#include "fuzzing.h"

#include "core/memory.h"
#include "core/unicode.h"
#include "io/text/prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1), *clean;
    wd_err err;
    if (!text) return 0;
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (wd_prompt_clean(&clean, text, &err) == WD_OK) {
        size_t n = strlen(clean);
        if (wd_utf8_check(clean, n) >= 0 || strstr(clean, "  ")) abort();
        if (n && (clean[0] == ' ' || clean[n - 1] == ' ')) abort();
        wd_free(clean);
    }
    free(text);
    return 0;
}

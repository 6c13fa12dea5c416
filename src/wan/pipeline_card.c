/* Default picture sizes and sampling steps: see wan/pipeline_card.h. Wan's own files state none
 * (their cards describe video); models made for one size state it in a configuration or on their
 * card. */
#include "wan/pipeline_card.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/memory.h"

enum { PIXELS_MIN = 16, PIXELS_MAX = 1 << 14, STEPS_MAX = 1000, CARD_BYTES_MAX = 1 << 20 };

static bool usable(int64_t pixels)
{
    return pixels >= PIXELS_MIN && pixels <= PIXELS_MAX && pixels % PIXELS_MIN == 0;
}

wd_status wd_pipeline_size_read(int64_t *height, int64_t *width, wd_json_reader r, wd_err *err)
{
    static const char *const keys[] = {"sample_size", "image_size"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys && !*height; i++) {
        int64_t size[2] = {0, 0}, count = 0;
        const json_t *value = json_object_get(r.object, keys[i]);
        if (!value || json_is_null(value)) continue;
        if (json_is_array(value)) {
            WD_TRY(wd_json_ints(size, &count, 2, r, keys[i], WD_JSON_OPTIONAL, err));
            if (count == 1) size[1] = size[0];
        } else {
            WD_TRY(wd_json_int(size, r, keys[i], PIXELS_MIN, PIXELS_MAX, WD_JSON_OPTIONAL, err));
            size[1] = size[0];
        }
        if (!usable(size[0]) || !usable(size[1]))
            return wd_fail(err, WD_BAD_FORMAT,
                           "%s: \"%s\": expected height and width as multiples of %d up to %d",
                           r.where, keys[i], PIXELS_MIN, PIXELS_MAX);
        *height = size[0];
        *width = size[1];
    }
    return WD_OK;
}

/* Finds the next "<number>x<number>" of a text that ends with '\0' or a newline. */
static bool find_size(int64_t *height, int64_t *width, const char *text)
{
    for (const char *p = text; *p && *p != '\n'; p++) {
        char *end, *last;
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) continue;
        long long w = strtoll(p, &end, 10);
        if (*end != 'x' || !isdigit((unsigned char)end[1])) continue;
        long long h = strtoll(end + 1, &last, 10);
        if (*last == 'x' || !usable(w) || !usable(h))
            continue; /* 17x512x512 is the size of a video */
        *width = w;
        *height = h;
        return true;
    }
    return false;
}

/* The first "<number> step" of a text that ends with '\0' or a newline; 0: there is none. */
static int64_t find_steps(const char *text)
{
    for (const char *p = text; *p && *p != '\n'; p++) {
        char *end;
        if (!isdigit((unsigned char)*p) || (p > text && isalnum((unsigned char)p[-1]))) continue;
        const long long steps = strtoll(p, &end, 10);
        if (!strncmp(end, " step", 5) && steps > 0 && steps <= STEPS_MAX) return steps;
    }
    return 0;
}

/* What a line says behind the word "sample". */
static void read_line(wd_pipeline *p, const char *line)
{
    if (!p->default_height) find_size(&p->default_height, &p->default_width, line);
    if (!p->default_steps) p->default_steps = find_steps(line);
}

wd_status wd_pipeline_card_read(wd_pipeline *pipeline, wd_err *err)
{
    static const char word[] = "sample";
    char path[WD_PATH_MAX], *card;
    size_t bytes, length = sizeof word - 1;
    WD_TRY(wd_path_join(path, pipeline->path, "README.md", err));
    wd_status status = wd_file_read(&card, &bytes, path, CARD_BYTES_MAX, NULL);
    if (status == WD_OUT_OF_MEMORY) return wd_fail(err, status, "%s: no memory to read it", path);
    if (status != WD_OK) return WD_OK; /* a model need not have a readable card */
    for (const char *p = card; (p = strcasestr(p, word));) {
        bool begins = p == card || !(isalnum((unsigned char)p[-1]) || strchr("_-", p[-1]));
        bool ends = !(isalnum((unsigned char)p[length]) || p[length] == '_');
        p += length;
        if (!begins || !ends) continue;
        read_line(pipeline, p);
        p += strcspn(p, "\n"); /* the rest of the line was searched */
    }
    wd_free(card);
    return WD_OK;
}

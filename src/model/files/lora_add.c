/* Adding what LoRAs change: see model/files/lora_add.h. */
#include "model/files/lora_add.h"

#include "core/memory.h"
#include "dev/codec/values.h"

enum { COLUMNS = 512 };

/* rows [count, columns] += scale B A, of B [count, rank] = up and A [rank, columns] = down. */
static void add_product(float *rows, float *sum, const float *up, const float *down, int64_t rank,
                        int64_t count, int64_t columns, float scale)
{
    for (int64_t at = 0; at < columns; at += COLUMNS) {
        const int64_t n = columns - at < COLUMNS ? columns - at : COLUMNS;
        for (int64_t i = 0; i < count; i++) {
            float *row = rows + i * columns + at;
            for (int64_t c = 0; c < n; c++) sum[c] = 0;
            for (int64_t r = 0; r < rank; r++) {
                const float b = up[i * rank + r], *a = down + r * columns + at;
                for (int64_t c = 0; c < n; c++) sum[c] += b * a[c];
            }
            for (int64_t c = 0; c < n; c++) row[c] += scale * sum[c];
        }
    }
}

/* *out, which grows, = values [at, at + count) of the tensor. */
static wd_status widen(float **out, const wd_tensor *t, int64_t at, int64_t count, wd_err *err)
{
    void *block = *out;
    WD_TRY(wd_resize(&block, (size_t)count, sizeof **out, "factors of a LoRA", err));
    *out = block;
    wd_tensor_values(*out, t, at, count);
    return WD_OK;
}

wd_status wd_lora_add(float *rows, wd_lora_room *room, const wd_lora_change *c, int64_t first,
                      int64_t count, int64_t columns, wd_err *err)
{
    void *block = room->sum;
    if (!block) WD_TRY(wd_alloc(&block, COLUMNS, sizeof *room->sum, "factors of a LoRA", err));
    room->sum = block;
    if (c->diff) {
        WD_TRY(widen(&room->up, c->diff, first * columns, count * columns, err));
        for (int64_t i = 0; i < count * columns; i++) rows[i] += c->scale * room->up[i];
        return WD_OK;
    }
    WD_TRY(widen(&room->up, c->up, first * c->rank, count * c->rank, err));
    WD_TRY(widen(&room->down, c->down, 0, c->rank * columns, err));
    add_product(rows, room->sum, room->up, room->down, c->rank, count, columns, c->scale);
    return WD_OK;
}

void wd_lora_room_close(wd_lora_room *room)
{
    wd_free(room->up);
    wd_free(room->down);
    wd_free(room->sum);
    *room = (wd_lora_room){0};
}

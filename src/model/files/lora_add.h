/* Adds what LoRAs change to rows of a tensor. */
#ifndef WD_MODEL_FILES_LORA_ADD_H
#define WD_MODEL_FILES_LORA_ADD_H

#include "model/files/lora.h"

/* Room for the factors of a change. */
typedef struct wd_lora_room {
    float *up, *down; /* grow as needed */
    float *sum;       /* [some columns] */
} wd_lora_room;

/* rows [count, columns] += the change's rows [first, first + count). The order of a sum is fixed,
 * by rank, so the bits are the same on every processor. */
wd_status wd_lora_add(float *rows, wd_lora_room *room, const wd_lora_change *change, int64_t first,
                      int64_t count, int64_t columns, wd_err *err);
void wd_lora_room_close(wd_lora_room *room); /* a zeroed one is fine */

#endif

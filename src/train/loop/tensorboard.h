/* TensorBoard event files: scalars and pictures, written by hand.
 *
 * A file is a sequence of TFRecords, each holding one tensorflow.Event protocol buffer. */
#ifndef WD_TRAIN_LOOP_TENSORBOARD_H
#define WD_TRAIN_LOOP_TENSORBOARD_H

#include "core/error.h"

/* The bytes of one picture, and of all pictures in a file, at most. */
enum { WD_TENSORBOARD_PICTURE_MAX = 16 << 20, WD_TENSORBOARD_PICTURES_MAX = 256 << 20 };

typedef struct wd_tensorboard wd_tensorboard;

/* Begins a new file events.out.tfevents.<time>.<host>.<pid> in `folder`. `purge_step` > 0: whatever
 * other files of the folder say about this step or later ones is void. */
wd_status wd__tensorboard_open(wd_tensorboard **out, const char *folder, int64_t purge_step,
                               wd_err *err);
void wd__tensorboard_close(wd_tensorboard *board); /* NULL is allowed */

/* Writes one value; `tag` is shorter than 256 bytes. */
wd_status wd__tensorboard_scalar(wd_tensorboard *board, const char *tag, double value, int64_t step,
                                 wd_err *err);

/* Writes a PNG file as a picture; `tag` as above. *left_out: it is not written, because it is
 * larger than 16 MiB, or because pictures would be more than 256 MiB of the event file. */
wd_status wd__tensorboard_picture(bool *left_out, wd_tensorboard *board, const char *tag,
                                  const char *path, int64_t step, wd_err *err);

/* CRC-32C (Castagnoli) of `bytes` bytes, and the masked form that TFRecord stores. */
uint32_t wd__crc32c(const void *data, size_t bytes);
uint32_t wd__crc32c_masked(const void *data, size_t bytes);

#endif

/* The student's first weights: taken from the teacher.
 *
 * Data flow: the teacher's mapped safetensors -> choice of blocks, of channels of the residual
 * stream, of heads and feed-forward units per block -> p of wd_params. Only chosen tensors are
 * read, a piece at a time, so a teacher of any size serves.
 *
 * Blocks: first and last, the others spread evenly; more blocks than the teacher has are refused.
 * Same width: copied as they are. Narrower: see init.c. */
#ifndef WD_TRAIN_NETWORK_INIT_H
#define WD_TRAIN_NETWORK_INIT_H

#include "model/files/pipeline.h"
#include "train/network/params.h"

/* block[i] = the teacher's block that becomes the student's block i, i < layers, which is at most
 * teacher_layers. */
void wd__student_choose_blocks(int64_t *block, int64_t layers, int64_t teacher_layers);

/* The expert that a student is taken from: the low-noise one where there are two (it does most of
 * the steps, and all of the detail). */
wd_component wd_student_expert(const wd_pipeline *teacher);

/* Fills `p` (and the compute copy) from the component's weights, of the blocks that
 * wd__student_choose_blocks names; the configuration must pass wd_student_config_check. Returns
 * when the copies are done. WD_INTERRUPTED: a stop was requested, and the weights are not whole. Of
 * shared params: all ranks, of which each may return that alone, having done its part of what they
 * do together. */
wd_status wd_student_init(wd_params *params, const wd_pipeline *teacher, wd_component expert,
                          wd_queue *queue, wd_err *err);

/* The same with block[i] as the student's block i; NULL: those of wd__student_choose_blocks. */
wd_status wd_student_init_from(wd_params *params, const wd_pipeline *teacher, wd_component expert,
                               const int64_t *block, wd_queue *queue, wd_err *err);

/* Logs which blocks wd_student_init_from takes. */
void wd_student_say_blocks(const wd_dit_config *student, const wd_pipeline *from,
                           const int64_t *block);

#endif

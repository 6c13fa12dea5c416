/* The dtypes in which models compute where options leave them open: a run's teacher and student,
 * and the models of other commands. */
#ifndef WD_API_SETUP_DTYPES_H
#define WD_API_SETUP_DTYPES_H

#include "api/setup/train_setup.h"
#include "dev/device.h"
#include "dev/device_list.h"
#include "io/json/json.h"
#include "model/files/pipeline.h"

/* ---- of a command that has the option --dtype ---- */

/* *out = `given` (the value of --dtype), or if that is NULL the dtype of the component's files: F32
 * where most of its weights are float32 and the processor computes, else BF16. GPUs, real or
 * simulated, compute in BF16 unless --dtype says float32. Reads headers only. */
wd_status wd_compute_dtype(wd_dtype *out, const char *given, const wd_pipeline *pipeline,
                           wd_component component, const wd_device *device, wd_err *err);

/* ---- of a run ----
 *
 * Where the options leave them open, teacher and student compute in bf16 on GPUs, real or
 * simulated, and in fp32 where the processor is the only device. They never depend on memory, so
 * that a machine with more of it trains the same student. */

/* Notes the dtypes with which the run of a checkpoint was begun, whose JSON is `run`: a resumed run
 * has them where its options leave them open, whatever its devices. */
void wd__train_dtypes_keep(wd_train_setup *setup, const json_t *run);

/* Sets the open ones of the set-up's options teacher_dtype and mixed_precision, and the dtype of
 * the text encoder. Logs what float16 means. Fails where --devices must be read for it, and
 * cannot. */
wd_status wd__train_dtypes_resolve(wd_train_setup *setup, wd_err *err);

/* Resolves them for devices that were opened, of which `auto` may have found that they are the
 * processor alone, and applies them. */
void wd_train_dtypes_follow(wd_train_setup *setup, const wd_device_list *opened);

/* Sets the trainer's dtypes to those of the options. A quantised teacher computes in bf16, which is
 * also the dtype of what is not quantised. */
void wd__train_dtypes_apply(wd_train_setup *setup);

#endif

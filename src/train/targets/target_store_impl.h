/* What reader and writer of stores of targets have in common. */
#ifndef WD_TRAIN_TARGETS_TARGET_STORE_IMPL_H
#define WD_TRAIN_TARGETS_TARGET_STORE_IMPL_H

#include "train/targets/target_store.h"

enum {
    WD_STORE_NAME_MAX = 64,
    WD_STORE_CHECKSUM_BYTES = 8,
    WD_STORE_FILE_BYTES = 256 << 20, /* of the targets in a file, at most: a writer's buffer */
    WD_STORE_FILE_TARGETS = 4096     /* of a file, at most */
};

/* The format with its version, which is raised when the meaning of a file changes. */
#define WD_STORE_FORMAT "wandistiller targets 1"
#define WD_STORE_MANIFEST "targets.json"
#define WD_STORE_PROMPTS "prompts.jsonl"

/* "targets-000000000000.safetensors" */
void wd__store_file_name(char out[WD_STORE_NAME_MAX], int64_t first);
/* The number in such a name; -1: it is none. */
int64_t wd__store_file_first(const char *name);

/* A filter of wd_folder_list_open, and its order: files of targets, by their numbers. */
int wd__store_is_file(const struct dirent *entry);
int wd__store_file_order(const struct dirent **a, const struct dirent **b);

/* *out = a new object with what numbers of targets mean: the "trajectory" of targets.json, which
 * one run writes and others read. */
wd_status wd__store_trajectory_json(json_t **out, const wd_trajectory_options *options,
                                    wd_err *err);

/* The checksum of a target [2, count] bf16. */
void wd__store_checksum(uint8_t out[WD_STORE_CHECKSUM_BYTES], const uint16_t *target, int64_t count,
                        float sigma, float timestep, int64_t prompt);

/* Whether all of these bf16 values are finite. */
bool wd__store_is_finite(const uint16_t *value, int64_t count);

#endif

/* The sizes of the student: --student_config, checked against the teacher.
 *
 * A JSON object with the short names (hidden_size, depth, ...) or those of diffusers' config.json
 * (num_attention_heads, num_layers, ...), or both where they agree. A key that is
 * not given has the teacher's value; the depth, half of it. */
#ifndef WD_TRAIN_NETWORK_CONFIG_H
#define WD_TRAIN_NETWORK_CONFIG_H

#include "model/files/pipeline.h"

typedef struct wd_student_config {
    wd_dit_config dit;
    int64_t image_height, image_width; /* pixels; image_size, else the teacher's default */
    int64_t text_tokens;               /* text_max_length; 0: not said */
} wd_student_config;

/* `path` NULL: the default student. A key that is unknown, that contradicts another, or that
 * contradicts the teacher (channels, text width, patch, head size) is an error with both values. */
wd_status wd_student_config_load(wd_student_config *out, const char *path,
                                 const wd_pipeline *teacher, wd_err *err);
/* As wd_student_config_load, from parsed JSON (NULL: the default student); `where` names it in
 * errors. */
wd_status wd__student_config_read(wd_student_config *out, const json_t *json, const char *where,
                                  const wd_pipeline *teacher, wd_err *err);

/* The teacher's configuration with so many heads and blocks, and its proportion of the feed-forward
 * width to the width, as --student_config takes them where it does not say "ffn_dim". */
wd_dit_config wd_student_config_sized(const wd_dit_config *teacher, int64_t heads, int64_t layers);

/* The default student's number of heads. */
int64_t wd_student_config_default_heads(const wd_dit_config *teacher);

/* Makes the shortest object that --student_config reads as `student`, which was taken from
 * `teacher` with other numbers of heads and blocks and another feed-forward width. The caller owns
 * it. */
json_t *wd_student_config_json(const wd_dit_config *student, const wd_dit_config *teacher);

/* Whether a student of this configuration can be taken from that teacher: heads of the same size,
 * not deeper, not wider, same channels, text width and patch. An error says what is, and what may
 * be. */
wd_status wd_student_config_check(const wd_dit_config *student, const wd_dit_config *teacher,
                                  wd_err *err);

#endif

/* The option tables, one per job. Name, type, range, default and help of an option are defined only
 * there. */
#ifndef WD_API_OPTIONS_TABLES_H
#define WD_API_OPTIONS_TABLES_H

#include "wandistiller.h"

typedef struct wd_option_table {
    const wd_option *option;
    int64_t count;
    size_t bytes;    /* of the options struct */
    size_t bytes_at; /* offset of the field `bytes` in the options struct */
} wd_option_table;

wd_option_table wd__table_train(void);
wd_option_table wd__table_plan(void);
wd_option_table wd__table_sample(void);
wd_option_table wd__table_eval(void);
wd_option_table wd__table_inspect(void);
wd_option_table wd__table_convert(void);
wd_option_table wd__table_report(void);
wd_option_table wd__table_tell(void);
wd_option_table wd__table_forward(void);
wd_option_table wd__table_bench(void);
wd_option_table wd__table_common(void);

/* The word of a WD_OPTION_INT that stands for this number; NULL: there is none. */
const char *wd__option_word(const wd_option *option, int64_t value);

/* Whether an option has the same value in two structs of its job; texts are compared by content. */
bool wd__option_same(const wd_option *option, const void *a, const void *b);

/* Lines of a table, for a struct that OPTIONS names. */
#define WD_FIELD(field) .name = #field, .offset = offsetof(OPTIONS, field)
#define WD_TEXT_LINE(field, default_, metavar_)                                                    \
    WD_FIELD(field), .type = WD_OPTION_TEXT, .default_text = default_, .metavar = metavar_
#define WD_INT_LINE(field, default_, min_, max_)                                                   \
    WD_FIELD(field), .type = WD_OPTION_INT, .default_text = default_, .min = min_, .max = max_,    \
                     .metavar = "N"
#define WD_SEED_LINE(field, default_)                                                              \
    WD_FIELD(field), .type = WD_OPTION_SEED, .default_text = default_, .max = 0x1p64, .metavar = "N"
#define WD_FLOAT_LINE(field, default_, min_, max_)                                                 \
    WD_FIELD(field), .type = WD_OPTION_FLOAT, .default_text = default_, .min = min_, .max = max_,  \
                     .metavar = "X"
#define WD_CHOICES(...)                                                                            \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define WD_CHOICE_LINE(field, default_, ...)                                                       \
    WD_FIELD(field), .type = WD_OPTION_CHOICE, .default_text = default_,                           \
                     .choices = WD_CHOICES(__VA_ARGS__)
#define WD_FLAG_LINE(field)                                                                        \
    WD_FIELD(field), .type = WD_OPTION_FLAG, .default_text = "false", .bare = "true"

/* Parts of a model that lie elsewhere: see model/files/pipeline.h. */
#define WD_PART_LINES(group_, flags_)                                                              \
    {WD_TEXT_LINE(transformer, "", "FILE"), .group = group_,                                       \
     .flags = WD_OPTION_FILE | WD_OPTION_PART | (flags_),                                          \
     .help = "Transformer of its own: a safetensors file (F32, F16, BF16, fp8, int8) or a GGUF "   \
             "file in diffusers' or the original naming, as for ComfyUI, or a folder; of two "     \
             "experts the high-noise one"},                                                        \
        {WD_TEXT_LINE(transformer_2, "", "FILE"), .group = group_,                                 \
         .flags = WD_OPTION_FILE | WD_OPTION_PART | (flags_), .help = "The low-noise expert"},     \
        {WD_TEXT_LINE(text_encoder, "", "FILE"), .group = group_,                                  \
         .flags = WD_OPTION_FILE | WD_OPTION_PART | (flags_),                                      \
         .help = "UMT5 of its own: a safetensors file, or a folder"},                              \
    {                                                                                              \
        WD_TEXT_LINE(vae, "", "FILE"), .group = group_,                                            \
                                       .flags = WD_OPTION_FILE | WD_OPTION_PART | (flags_),        \
                                       .help = "VAE of its own: a safetensors file, or a folder"   \
    }
#define WD_TOKENIZER_LINE(group_, flags_)                                                          \
    {                                                                                              \
        WD_TEXT_LINE(tokenizer, "", "FILE"),                                                       \
            .group = group_, .flags = WD_OPTION_FILE | WD_OPTION_PART | (flags_),                  \
            .help =                                                                                \
                "spiece.model, or a folder with it; default: the one in the text encoder's file"   \
    }
#define WD_PRESET_LINE(group_, flags_)                                                             \
    {                                                                                              \
        WD_CHOICE_LINE(teacher_preset, "", "wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b",             \
                       "wan2.2-5b"),                                                               \
            .group = group_, .flags = (flags_),                                                    \
            .help =                                                                                \
                "The published model whose scheduler, and boundary between two experts, single "   \
                "files go with; default: the one that has their sizes"                             \
    }

#define WD_LORA_LINES(group_, flags_)                                                              \
    {WD_TEXT_LINE(teacher_lora, "", "FILES"), .group = group_, .flags = WD_OPTION_FILE | (flags_), \
     .help = "LoRAs that are merged into the transformer: FILE or FILE:STRENGTH, several with "    \
             "commas between them; of two experts into the high-noise one"},                       \
    {                                                                                              \
        WD_TEXT_LINE(teacher_lora_2, "", "FILES"), .group = group_,                                \
                                                   .flags = WD_OPTION_FILE | (flags_),             \
                                                   .help = "LoRAs of the low-noise expert"         \
    }

#define WD_UNKNOWN_LINE(group_, flags_)                                                            \
    {                                                                                              \
        WD_FLAG_LINE(ignore_unknown_tensors), .group = group_, .flags = (flags_),                  \
                                              .help = "Leave out tensors that no Wan model has, "  \
                                                      "which are an error without this option: "   \
                                                      "a model that has them is another one"       \
    }

#define WD_INT_MAX 1e15 /* exact as a double */

#endif

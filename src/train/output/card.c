/* README.md of a student: what it is, how to sample with it. The Hub reads the front matter. */
#include "train/output/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text.h"
#include "io/file/file.h"
#include "wandistiller.h"

/* The bytes of a Hub id such as "Wan-AI/Wan2.1-T2V-1.3B-Diffusers" in a name, without the revision
 * behind an '@'; 0: the name is a path. The Hub can link an id, it cannot link a path; and an id
 * has no character that means something in YAML or Markdown. */
static int hub_id_bytes(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t org = strspn(name, letters);
    if (!org || name[0] == '.' || name[org] != '/' || wd_path_exists(name)) return 0;
    const size_t model = strspn(name + org + 1, letters), bytes = org + 1 + model;
    return model && (!name[bytes] || name[bytes] == '@') ? (int)bytes : 0;
}

/* The last part of a path: the folders above it concern nobody who reads the card. */
static const char *last_part(const char *path)
{
    const char *part = path;
    for (const char *c = path; *c; c++)
        if (*c == '/' && c[1] && c[1] != '/') part = c + 1;
    return part;
}

/* The teacher as Markdown: a path as code, in which nothing but a backquote has a meaning. */
static void write_teacher(FILE *out, const char *name)
{
    const int bytes = hub_id_bytes(name);
    if (bytes) {
        fprintf(out, "%.*s", bytes, name);
        return;
    }
    fputc('`', out);
    for (const char *c = last_part(name); *c; c++) fputc(*c == '`' ? '\'' : *c, out);
    fputc('`', out);
}

static void write_front_matter(FILE *out, const wd_export_options *o)
{
    const int bytes = hub_id_bytes(o->teacher_name);
    fprintf(out, "---\nlibrary_name: diffusers\npipeline_tag: text-to-image\n"
                 "tags: [wan, distillation, wandistiller]\n");
    if (bytes) fprintf(out, "base_model: %.*s\n", bytes, o->teacher_name);
    fprintf(out, "---\n\n");
}

static void write_facts(FILE *out, const wd_params *p, const wd_export_options *o)
{
    char weights[WD_WEIGHTS_TEXT];
    const wd_dit_config *c = &p->config;
    fprintf(out, "# A text-to-image student of ");
    write_teacher(out, o->teacher_name);
    fprintf(out, "\n\n");
    fprintf(out,
            "A Wan transformer with %s weights (%lld blocks, width %lld, %lld heads, "
            "feed-forward %lld, %s), distilled with WanDistiller %s",
            wd_weights_text(weights, p->weights), (long long)c->layers, (long long)wd_dit_width(c),
            (long long)c->heads, (long long)c->ffn_dim, wd_dtype_option_name(o->dtype), WD_VERSION);
    if (o->trained_steps) fprintf(out, " in %lld steps", (long long)o->trained_steps);
    fprintf(out, ". Text encoder, tokenizer and VAE are the teacher's.\n\n");
    if (o->best_step && o->best_step == o->trained_steps)
        fprintf(out,
                "Of the students of its run it has the least validation error, %.4g: the norm of "
                "what its outputs differ by from the teacher's, over the norm of these.\n\n",
                o->best_error);
    else if (o->best_step)
        fprintf(out,
                "The student of its run with the least validation error, %.4g, is that of step "
                "%lld, which `--keep_best` has kept in the folder best/ of the run.\n\n",
                o->best_error, (long long)o->best_step);
    fprintf(out,
            "Classifier-free guidance is folded in: the student answers as the teacher does "
            "with guidance scale %g",
            o->guidance_scale[0]);
    if (o->guidance_scale[1] != o->guidance_scale[0]) {
        fprintf(out, " (high noise) and %g (low noise)", o->guidance_scale[1]);
    }
    /* Programs read these numbers in model_index.json (model/files/pipeline_card.h). */
    fprintf(out,
            ", so there is one evaluation per step, and no negative prompt. Sample with %lld "
            "step%s, guidance 1, %lldx%lld, prompts of up to %lld tokens, flow shift %g.\n\n",
            (long long)o->sampling_steps, o->sampling_steps == 1 ? "" : "s", (long long)o->width,
            (long long)o->height, (long long)o->text_tokens, o->flow_shift);
}

/* As a Python string. */
static void write_for_python(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) fprintf(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', out);
}

/* A name or prompt as a part of one line: no line break, nothing that a terminal obeys when it is
 * pasted, and no row of backquotes, which would end a code block. *out is the caller's to wd_free.
 */
static wd_status copy_line(char **out, const char *text, wd_err *err)
{
    WD_TRY(wd_copy_text(out, text, err));
    wd_make_terminal_safe(*out);
    for (char *c = *out; *c; c++) {
        if (*c == '\n' || *c == '\t') *c = ' ';
        if (!strncmp(c, "```", 3)) memcpy(c, "'''", 3);
    }
    return WD_OK;
}

/* `word`: the prompt for a shell. */
static void write_usage(FILE *out, const wd_export_options *o, const char *word)
{
    fprintf(out,
            "## Sampling\n\n```python\nimport torch\nfrom diffusers import WanPipeline\n\n"
            "pipe = WanPipeline.from_pretrained(\"path/to/this/folder\", "
            "torch_dtype=torch.%s)\npipe.to(\"cuda\")  # or \"cpu\"\nout = pipe(\n    prompt=",
            wd_dtype_option_name(o->dtype));
    write_for_python(out, o->prompt);
    fprintf(out,
            ",\n    height=%lld, width=%lld, num_frames=1,\n    num_inference_steps=%lld, "
            "guidance_scale=1.0, max_sequence_length=%lld,\n    output_type=\"pil\",\n)\n"
            "out.frames[0][0].save(\"picture.png\")\n```\n\nor\n\n"
            "```\nwandistiller sample --model path/to/this/folder --steps %lld --height %lld "
            "--width %lld \\\n    --max_sequence_length %lld --prompt%s%s --out picture.png\n```\n",
            (long long)o->height, (long long)o->width, (long long)o->sampling_steps,
            (long long)o->text_tokens, (long long)o->sampling_steps, (long long)o->height,
            (long long)o->width, (long long)o->text_tokens, strncmp(o->prompt, "--", 2) ? " " : "=",
            word); /* "--" would begin a name */
}

/* transformers' tokenizer reads tokenizer.json; it makes one of SentencePiece's model only with two
 * more packages, and otherwise says that it lacks tiktoken, which does not help. */
static wd_status write_tokenizer_note(FILE *out, const char *folder, wd_err *err)
{
    char path[WD_PATH_MAX];
    WD_TRY(wd_path_join(path, folder, "tokenizer/tokenizer.json", err));
    if (!wd_path_exists(path))
        fprintf(out, "\ndiffusers needs `pip install sentencepiece protobuf` for this folder's "
                     "tokenizer, which has no `tokenizer.json`.\n");
    return WD_OK;
}

wd_status wd__student_write_card(const char *folder, const wd_params *params,
                                 const wd_export_options *options, wd_err *err)
{
    char path[WD_PATH_MAX];
    char *text = NULL, *prompt = NULL, *teacher = NULL; /* text: open_memstream's, so free'd */
    char *word = NULL;
    size_t bytes = 0, word_bytes;
    wd_status status;
    WD_TRY(wd_path_join(path, folder, "README.md", err));
    WD_TRY_OUT(copy_line(&prompt, options->prompt, err));
    WD_TRY_OUT(copy_line(&teacher, options->teacher_name, err));
    word_bytes = WD_SHELL_WORD_BYTES(strlen(prompt));
    WD_TRY_OUT(wd_alloc((void **)&word, word_bytes, 1, "README.md", err));
    wd_shell_word(word, word_bytes, prompt);
    wd_export_options o = *options;
    o.prompt = prompt;
    o.teacher_name = teacher;
    FILE *out = open_memstream(&text, &bytes);
    bool failed = !out;
    if (out) {
        write_front_matter(out, &o);
        write_facts(out, params, &o);
        write_usage(out, &o, word);
        status = write_tokenizer_note(out, folder, err);
        failed = ferror(out);
        failed = fclose(out) || failed;
        if (status != WD_OK) goto out;
    }
    status = failed ? wd_fail(err, WD_OUT_OF_MEMORY, "%s: no memory to write it", path)
                    : wd_file_write(path, text, bytes, err);
out:
    wd_free(word);
    wd_free(teacher);
    wd_free(prompt);
    free(text);
    return status;
}

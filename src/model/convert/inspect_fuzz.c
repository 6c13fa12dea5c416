/* Fuzz target: any bytes as a model's folder and as single files, described as `inspect` does, as a
 * tree and as text. The text has no character that a terminal obeys. */
#include "fuzzing.h"

#include "core/memory.h"
#include "model/convert/inspect.h"

#define WEIGHTS "diffusion_pytorch_model.safetensors"

static void describe(const char *path)
{
    json_t *tree;
    char *text;
    wd_err err;
    if (wd_inspect_tree(&tree, path, NULL, &err) != WD_OK) return;
    if (wd_inspect_text(&text, tree, &err) == WD_OK) {
        for (const char *c = text; *c; c++)
            if ((unsigned char)*c < ' ' && *c != '\n' && *c != '\t') abort();
        wd_free(text);
    }
    json_decref(tree);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"model/model_index.json",
                                        "model/transformer/config.json",
                                        "model/transformer/" WEIGHTS,
                                        "model/transformer_2/config.json",
                                        "model/vae/config.json",
                                        "model/text_encoder/config.json",
                                        "model/text_encoder/model.safetensors.index.json",
                                        "model/tokenizer/tokenizer_config.json",
                                        "model/scheduler/scheduler_config.json",
                                        "model/README.md",
                                        "single/config.json",
                                        "single.safetensors",
                                        "model/transformer_2/" WEIGHTS};
    enum { NAMES = sizeof names / sizeof *names };
    wd_fuzz_files(names, NAMES, data, bytes);
    describe(wd_fuzz_path("model"));
    describe(wd_fuzz_path("single"));
    describe(wd_fuzz_path("single.safetensors"));
    return 0;
}

/* Fuzz target: any bytes as a transformer's single file, with or without a configuration beside it,
 * converted to diffusers' layout. What was written opens again. */
#include "fuzzing.h"

#include "model/convert/convert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const names[] = {"in/file.safetensors", "in/config.json"};
    static const wd_dtype dtype = WD_F16;
    char from[256], to[256];
    wd_err err;
    wd_safetensors *set;
    wd_fuzz_files(names, 2, data, bytes);
    snprintf(from, sizeof from, "%s", wd_fuzz_path(names[0]));
    snprintf(to, sizeof to, "%s", wd_fuzz_path("out"));
    wd_folder_remove(to, NULL);
    if (wd_convert_to_diffusers(to, from, NULL, NULL, bytes % 2 ? &dtype : NULL, false, &err) !=
        WD_OK)
        return 0;
    if (wd_safetensors_open_stem(&set, to, "diffusion_pytorch_model", &err) != WD_OK) abort();
    wd_safetensors_close(set);
    return 0;
}

/* The options of the commands about files and runs, `inspect`, `convert`, `bench`, `report` and
 * `tell`, and those of every command. */
#include <stddef.h>

#include "api/options/tables.h"

#define OPTIONS wd_inspect_options

static const wd_option inspect_table[] = {
    {WD_TEXT_LINE(path, "", "PATH"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_POSITIONAL | WD_OPTION_FILE,
     .help = "Pipeline folder, Hub id in the local cache, component folder, or safetensors file"},
    WD_PART_LINES("", 0),
    WD_TOKENIZER_LINE("", 0),
    WD_PRESET_LINE("", 0),
    WD_LORA_LINES("", 0),
    WD_UNKNOWN_LINE("", 0),
    {WD_FLAG_LINE(json), .help = "Print JSON instead of tables"},
};

#undef OPTIONS
#define OPTIONS wd_convert_options

static const wd_option convert_table[] = {
    {WD_TEXT_LINE(model, "", "PATH"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_FILE,
     .help = "Pipeline folder or Hub id; to diffusers: a safetensors file in either naming, which "
             "--transformer may name, too"},
    WD_PART_LINES("", 0),
    WD_TOKENIZER_LINE("", 0),
    WD_PRESET_LINE("", 0),
    WD_LORA_LINES("", 0),
    WD_UNKNOWN_LINE("", 0),
    {WD_CHOICE_LINE(to, "", "comfyui", "gguf", "diffusers"), .flags = WD_OPTION_REQUIRED,
     .help = "comfyui: one safetensors file with the original Wan key names; gguf: one GGUF file "
             "with these names; of a student both get a workflow for ComfyUI beside them; "
             "diffusers: a transformer folder"},
    {WD_CHOICE_LINE(component, "transformer", "transformer", "transformer_2"),
     .help = "Which transformer, where there are two"},
    {WD_CHOICE_LINE(dtype, "", "float32", "float16", "bfloat16", "float8_e4m3fn", "q8_0", "q4_k"),
     .help = "dtype of the weights; float8_e4m3fn, to comfyui: scaled fp8; q8_0 and q4_k, to gguf; "
             "these quantise the matrices of the blocks; default: as they are stored"},
    {WD_TEXT_LINE(out, "", "PATH"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help =
         "File to write, which must not exist yet: .safetensors for ComfyUI, .gguf for gguf; with "
         "--to diffusers a folder without a model"},
};

#undef OPTIONS
#define OPTIONS wd_bench_options

static const wd_option bench_table[] = {
    {WD_TEXT_LINE(only, "", "NAME"), .flags = WD_OPTION_POSITIONAL,
     .help =
         "Run the cases whose name contains this: peak, forward, train, tiny, vae, codecs, copies, "
         "shapes, models, placement, quantised, prediction; default: all, but codecs, copies, "
         "shapes, models and quantised only on GPUs"},
    {WD_TEXT_LINE(device, "auto", "DEVICE"),
     .help = "Device to compute on: auto (the first usable GPU, else the processor), cpu, "
             "cuda:N, or a simulated device, as in `train --devices`"},
    {WD_INT_LINE(num_threads, "0", 0, 4096), .help = "Threads; 0: all cores"},
};

#undef OPTIONS
#define OPTIONS wd_report_options

static const wd_option report_table[] = {
    {.name = "runs",
     .offset = offsetof(OPTIONS, runs),
     .type = WD_OPTION_TEXTS,
     .default_text = "",
     .metavar = "RUN",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL | WD_OPTION_FILE,
     .help = "Output folders of `train`: of one run all is shown, of up to eight the curves lie "
             "over one another, and their figures, options and samples beside one another"},
    {WD_TEXT_LINE(out, "", "FILE"), .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "The page, one HTML file that needs no network; a page that is there is replaced; "
             "default: report.html in the folder of the only run"},
};

#undef OPTIONS
#define OPTIONS wd_tell_options

static const wd_option tell_table[] = {
    {WD_TEXT_LINE(run, "", "RUN"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL | WD_OPTION_FILE,
     .help = "Output folder of a run that is under way"},
    {WD_CHOICE_LINE(request, "", "sample", "save", "stop"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_POSITIONAL,
     .help = "sample: draw a sheet of samples after the next step; save: write a checkpoint after "
             "it; stop: end as Ctrl-C ends the run, with a checkpoint. Never changes the student "
             "of that many steps"},
};

#undef OPTIONS
#define OPTIONS wd_common_options

static const wd_option common_table[] = {
    {WD_TEXT_LINE(config, "", "FILE"), .flags = WD_OPTION_FILE,
     .help =
         "JSON file with options of the command by name; options of the command line replace them"},
    {WD_CHOICE_LINE(log_level, "info", "error", "warning", "info", "debug"),
     .help = "Messages of this level and of more severe ones are shown"},
};

wd_option_table wd__table_inspect(void)
{
    return (wd_option_table){inspect_table, sizeof inspect_table / sizeof *inspect_table,
                             sizeof(wd_inspect_options), offsetof(wd_inspect_options, bytes)};
}

wd_option_table wd__table_convert(void)
{
    return (wd_option_table){convert_table, sizeof convert_table / sizeof *convert_table,
                             sizeof(wd_convert_options), offsetof(wd_convert_options, bytes)};
}

wd_option_table wd__table_bench(void)
{
    return (wd_option_table){bench_table, sizeof bench_table / sizeof *bench_table,
                             sizeof(wd_bench_options), offsetof(wd_bench_options, bytes)};
}

wd_option_table wd__table_common(void)
{
    return (wd_option_table){common_table, sizeof common_table / sizeof *common_table,
                             sizeof(wd_common_options), offsetof(wd_common_options, bytes)};
}

wd_option_table wd__table_tell(void)
{
    return (wd_option_table){tell_table, sizeof tell_table / sizeof *tell_table,
                             sizeof(wd_tell_options), offsetof(wd_tell_options, bytes)};
}

wd_option_table wd__table_report(void)
{
    return (wd_option_table){report_table, sizeof report_table / sizeof *report_table,
                             sizeof(wd_report_options), offsetof(wd_report_options, bytes)};
}

/* The options of `sample`, `eval` and `forward`. */
#include <stddef.h>

#include "api/options/tables.h"

#define OPTIONS wd_sample_options

static const wd_option sample_table[] = {
    {WD_TEXT_LINE(model, "", "PATH"), .group = "Model",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_FILE,
     .help = "Diffusers Wan pipeline folder (a teacher or a student), or a Hub id in the local "
             "cache; not needed where --transformer and the like name single files"},
    WD_PART_LINES("Model", 0),
    WD_TOKENIZER_LINE("Model", 0),
    WD_PRESET_LINE("Model", 0),
    WD_LORA_LINES("Model", 0),
    WD_UNKNOWN_LINE("Model", 0),
    {WD_CHOICE_LINE(dtype, "", "float32", "bfloat16"), .group = "Model",
     .help =
         "dtype in which transformer and text encoder compute; the VAE computes in float32. "
         "Default: bfloat16, but on a processor float32 if the transformer's file is of float32"},

    {WD_TEXT_LINE(prompts, "", "FILE"), .group = "Pictures", .flags = WD_OPTION_FILE,
     .help = "File with one prompt per line: one picture each"},
    {WD_FIELD(prompt), .type = WD_OPTION_TEXTS, .default_text = "", .metavar = "TEXT",
     .group = "Pictures", .help = "Prompts on the command line, instead of a file"},
    {WD_TEXT_LINE(negative_prompt, "", "TEXT"), .group = "Pictures",
     .help =
         "Prompt from which guidance leads away; default: for Wan's own models the one of their "
         "authors, else none"},
    {WD_INT_LINE(height, "0", 0, 16384), .group = "Pictures", .help = "Pixels; 0: the model's"},
    {WD_INT_LINE(width, "0", 0, 16384), .group = "Pictures", .help = "Pixels; 0: the model's"},
    {WD_SEED_LINE(seed, "0"), .group = "Pictures",
     .help = "The picture of prompt i starts from noise number i of this seed"},
    {WD_INT_LINE(images_per_prompt, "1", 1, 1000), .group = "Pictures",
     .help = "Pictures of each prompt, one after another: of SEED, of SEED + 1, and so on"},
    {WD_TEXT_LINE(out, "", "PATH"), .group = "Pictures",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "Folder for 0000.png, 0001.png, ... and contact-sheet.png; or a .png file for one "
             "prompt"},

    {WD_INT_LINE(steps, "0", 0, 1000), .group = "Sampling",
     .help = "Sampling steps; 0: what the model's card says, else 20"},
    {WD_FLOAT_LINE(guidance_scale, "", 0, 100), .group = "Sampling",
     .help = "Guidance; 1: none. Default: 1 for a student of this program, else what the model's "
             "authors recommend: 4 for Wan2.2-A14B, else 5"},
    {WD_FLOAT_LINE(guidance_scale_2, "", 0, 100), .group = "Sampling",
     .help = "Guidance of the low-noise expert; default: GUIDANCE_SCALE, and without it 3 for "
             "Wan2.2-A14B, else 5"},
    {WD_CHOICE_LINE(scheduler, "", "unipc", "euler"), .group = "Sampling",
     .help = "Scheduler; default: the model's"},
    {WD_FLOAT_LINE(flow_shift, "", 0.01, 1000), .group = "Sampling",
     .help = "Flow shift; default: the scheduler's"},
    {WD_INT_LINE(max_sequence_length, "0", 0, 4096), .group = "Sampling",
     .help = "Text tokens; 0: as many as the student was trained with, else the smaller of 512 and "
             "the tokenizer's maximum"},
    {WD_INT_LINE(batch_size, "0", 0, 65536), .group = "Sampling",
     .help = "Pictures at a time; 0: chosen. Never changes a picture"},

    {WD_TEXT_LINE(latents, "", "FILE"), .group = "Comparing", .flags = WD_OPTION_FILE,
     .help = "Start from the tensor `latents` [B, C, 1, H, W] of this safetensors file"},
    {WD_TEXT_LINE(trace, "", "FILE"), .group = "Comparing",
     .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "Write input_ids, prompt_embeds, negative_prompt_embeds, latents.0 ... latents.N and "
             "sample to this safetensors file"},

    {WD_TEXT_LINE(device, "auto", "DEVICE"), .group = "Machine",
     .help = "What computes: auto (the first usable GPU, else the processor), cpu, cuda:N, or "
             "a simulated device, as in `train --devices`"},
    {WD_CHOICE_LINE(teacher_device_strategy, "", "auto", "gpu", "offload", "disk", "cpu"),
     .group = "Machine",
     .help =
         "Where the model's weights are kept: gpu, on the device as a whole; offload, in host "
         "memory, and disk, in their files, from where they come block by block; cpu, in host "
         "memory, and the processor computes; auto (the default), the first of gpu, offload and "
         "disk that fits, on a processor cpu or disk. Never changes a picture"},
    {WD_TEXT_LINE(host_memory, "", "BYTES"), .group = "Machine",
     .help = "Host memory that may be used, such as 60GiB; default: the free memory"},
    {WD_INT_LINE(num_threads, "0", 0, 4096), .group = "Machine", .help = "Threads; 0: all cores"},
};

#undef OPTIONS
#define OPTIONS wd_eval_options

static const wd_option eval_table[] = {
    {WD_TEXT_LINE(teacher, "", "PATH"), .group = "Models",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_FILE,
     .help = "Diffusers Wan pipeline folder or Hub id; not needed where --transformer and the like "
             "name single files"},
    WD_PART_LINES("Models", 0),
    WD_TOKENIZER_LINE("Models", 0),
    WD_PRESET_LINE("Models", 0),
    WD_LORA_LINES("Models", 0),
    WD_UNKNOWN_LINE("Models", 0),
    {WD_TEXT_LINE(student, "", "PATH"), .group = "Models", .flags = WD_OPTION_FILE,
     .help = "The student's folder; required, but for --quantisation"},
    {WD_CHOICE_LINE(quantisation, "", "float8_e4m3fn", "int8"), .group = "Models",
     .help = "Instead of a student the teacher, quantised as by train --teacher_dtype: shows what "
             "that costs, by noise level"},
    {WD_CHOICE_LINE(dtype, "", "float32", "bfloat16"), .group = "Models",
     .help = "dtype in which both models compute; default: for each model as in `sample`"},
    {WD_TEXT_LINE(prompts, "", "FILE"), .group = "Pictures",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_FILE, .help = "File with one prompt per line"},
    {WD_INT_LINE(count, "16", 0, 1e6), .group = "Pictures",
     .help = "Number of its prompts that are used, from the first; 0: all"},
    {WD_TEXT_LINE(negative_prompt, "", "TEXT"), .group = "Pictures",
     .help = "Prompt from which the teacher's guidance leads away; default: as when the student "
             "was trained"},
    {WD_INT_LINE(height, "0", 0, 16384), .group = "Pictures", .help = "Pixels; 0: the student's"},
    {WD_INT_LINE(width, "0", 0, 16384), .group = "Pictures", .help = "Pixels; 0: the student's"},
    {WD_SEED_LINE(seed, "0"), .group = "Pictures",
     .help = "Picture i of both models starts from noise number i of this seed"},
    {WD_INT_LINE(seeds, "1", 1, 1000), .group = "Pictures",
     .help = "Number of seeds, from --seed up, with which every prompt is drawn: several give "
             "meaningful standard errors, and the diversity of pictures"},
    {WD_INT_LINE(steps, "0", 0, 1000), .group = "Sampling",
     .help = "Sampling steps of the student; 0: what it was made for, else 20"},
    {WD_INT_LINE(reference_steps, "0", 0, 1000), .group = "Sampling",
     .help =
         "Sampling steps of the teacher's pictures on the sheet and in the agreement; 0: what the "
         "teacher's card says, else 20"},
    {WD_FLOAT_LINE(guidance_scale, "", 0, 100), .group = "Sampling",
     .help = "The teacher's guidance; default: that of the student's training targets"},
    {WD_FLOAT_LINE(guidance_scale_2, "", 0, 100), .group = "Sampling",
     .help = "Guidance of the teacher's low-noise expert; default: that of the student's training "
             "targets"},
    {WD_INT_LINE(max_sequence_length, "0", 0, 4096), .group = "Sampling",
     .help = "Text tokens; 0: as many as the student was trained with, else the smaller of 512 and "
             "the tokenizer's maximum"},
    {WD_INT_LINE(batch_size, "0", 0, 65536), .group = "Sampling",
     .help = "Pictures at a time; 0: chosen"},
    {WD_TEXT_LINE(out, "", "DIR"), .group = "Output", .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "Folder for eval.json and side-by-side.png"},
    {WD_FLAG_LINE(json), .group = "Output", .help = "Print JSON instead of a table"},
    {WD_TEXT_LINE(device, "auto", "DEVICE"), .group = "Machine",
     .help = "What computes: auto (the first usable GPU, else the processor), cpu, cuda:N, or "
             "a simulated device, as in `train --devices`"},
    {WD_CHOICE_LINE(teacher_device_strategy, "", "auto", "gpu", "offload", "disk", "cpu"),
     .group = "Machine",
     .help =
         "Where the teacher's weights are kept: gpu, on the device as a whole; offload, in host "
         "memory, and disk, in their files, from where they come block by block; cpu, in host "
         "memory, and the processor computes; auto (the default), the first of gpu, offload and "
         "disk that fits, on a processor cpu or disk. Never changes a figure"},
    {WD_TEXT_LINE(host_memory, "", "BYTES"), .group = "Machine",
     .help = "Host memory that may be used, such as 60GiB; default: the free memory"},
    {WD_INT_LINE(num_threads, "0", 0, 4096), .group = "Machine", .help = "Threads; 0: all cores"},
};

#undef OPTIONS
#define OPTIONS wd_forward_options

static const wd_option forward_table[] = {
    {WD_TEXT_LINE(model, "", "PATH"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_FILE,
     .help = "Pipeline folder or Hub id, or a folder that has the component's subfolder; not "
             "needed where an option names the component's file"},
    WD_PART_LINES("", 0),
    WD_TOKENIZER_LINE("", 0),
    WD_PRESET_LINE("", 0),
    WD_LORA_LINES("", 0),
    WD_UNKNOWN_LINE("", 0),
    {WD_CHOICE_LINE(component, "", "transformer", "transformer_2", "text_encoder", "vae_decoder",
                    "vae_encoder"),
     .flags = WD_OPTION_REQUIRED, .help = "Component to run"},
    {WD_TEXT_LINE(in, "", "FILE"), .flags = WD_OPTION_REQUIRED | WD_OPTION_FILE,
     .help =
         "safetensors file with its inputs: hidden_states, timestep, encoder_hidden_states and, "
         "for gradients, grad_sample; or input_ids and attention_mask; or latents; or image"},
    {WD_TEXT_LINE(out, "", "FILE"),
     .flags = WD_OPTION_REQUIRED | WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "safetensors file for sample, last_hidden_state or encoded_mean, and for grad.*; all "
             "float32. A file that is not an earlier result is not overwritten"},
    {WD_FLAG_LINE(grad),
     .help = "Also write grad.NAME of sum(sample * grad_sample) for every parameter and input of a "
             "transformer"},
    {WD_CHOICE_LINE(dtype, "", "float32", "bfloat16"),
     .help =
         "dtype in which the component computes; the VAE computes in float32. Default: bfloat16, "
         "but on a processor float32 if the component's file is of float32"},
    {WD_TEXT_LINE(device, "auto", "DEVICE"),
     .help = "What computes: auto (the first usable GPU, else the processor), cpu, cuda:N, or "
             "a simulated device, as in `train --devices`"},
    {WD_INT_LINE(num_threads, "0", 0, 4096), .help = "Threads; 0: all cores"},
};

wd_option_table wd__table_sample(void)
{
    return (wd_option_table){sample_table, sizeof sample_table / sizeof *sample_table,
                             sizeof(wd_sample_options), offsetof(wd_sample_options, bytes)};
}

wd_option_table wd__table_eval(void)
{
    return (wd_option_table){eval_table, sizeof eval_table / sizeof *eval_table,
                             sizeof(wd_eval_options), offsetof(wd_eval_options, bytes)};
}

wd_option_table wd__table_forward(void)
{
    return (wd_option_table){forward_table, sizeof forward_table / sizeof *forward_table,
                             sizeof(wd_forward_options), offsetof(wd_forward_options, bytes)};
}

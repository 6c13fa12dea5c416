/* The options of `train`, and of `plan`, which has them, too. */
#include <assert.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "api/options/tables.h"
#include "model/sampling/schedule.h"
#include "teacher/plan/strategy.h"

#define OPTIONS wd_train_options

static const char *const strategies[] = {
#define X(name, what) #name,
    WD_STRATEGY_MAP(X)
#undef X
        NULL,
};

/* A flag of the Python version that chose a strategy. */
#define STRATEGY_ALIAS(name_, strategy)                                                            \
    .name = name_, .type = WD_OPTION_CHOICE, .choices = strategies, .default_text = "",            \
    .offset = offsetof(OPTIONS, teacher_device_strategy), .bare = strategy, .group = "Teacher",    \
    .flags = WD_OPTION_LEGACY | WD_OPTION_SAME_STUDENT,                                            \
    .help = "Short for --teacher_device_strategy " strategy

static const wd_option table[] = {
    {WD_TEXT_LINE(teacher_path, "", "PATH"), .group = "Teacher",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_PARTS | WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "Diffusers Wan pipeline folder, or a Hub id such as Wan-AI/Wan2.1-T2V-1.3B-Diffusers "
             "that lies in the local Hub cache; or ComfyUI's models folder, or one of Wan's "
             "original release. Not needed where --transformer and the like name single files"},
    WD_PART_LINES("Teacher", WD_OPTION_STUDENT),
    WD_TOKENIZER_LINE("Teacher", WD_OPTION_STUDENT),
    WD_PRESET_LINE("Teacher", WD_OPTION_STUDENT),
    WD_LORA_LINES("Teacher", WD_OPTION_STUDENT),
    WD_UNKNOWN_LINE("Teacher", WD_OPTION_STUDENT),
    {WD_CHOICE_LINE(teacher_dtype, "", "float32", "float16", "bfloat16", "float8_e4m3fn", "int8"),
     .group = "Teacher", .flags = WD_OPTION_STUDENT,
     .help = "dtype of the teacher's weights in memory; it computes in float32 with float32, else "
             "in bfloat16. float16 rounds weights to bfloat16, and is the same as that. "
             "float8_e4m3fn and int8 quantise the matrices of its blocks, with a scale for each "
             "row, and keep the rest in bfloat16: the quantised weights are written to --cache_dir "
             "once (docs/models.md). bf16, fp16, fp32 and fp8 are understood, too. Default: "
             "bfloat16 on GPUs, float32 where the processor is the only device"},
    {WD_FIELD(teacher_device_strategy), .type = WD_OPTION_CHOICE, .default_text = "",
     .choices = strategies, .group = "Teacher", .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Where the teacher's weights are kept, and which device computes (docs/strategies.md); "
         "default: auto, the fastest strategy that fits. Never changes the student, except cpu "
         "beside GPUs"},
    {WD_TEXT_LINE(teacher_device_map, "", "FILE"), .group = "Teacher",
     .flags = WD_OPTION_FILE | WD_OPTION_SAME_STUDENT,
     .help = "JSON file with the placement of custom: names of components and blocks, each with a "
             "device, cpu or disk"},
    {WD_INT_LINE(teacher_rank, "-1", -1, 1024), .group = "Teacher", .flags = WD_OPTION_SAME_STUDENT,
     .help = "The device, or the rank if there are several, that has the teacher under gpu0; -1: "
             "the first. Without a strategy it means gpu0"},
    {WD_INT_LINE(teacher_prefetch, "1", 1, 7), .group = "Teacher", .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Number of blocks that offload and disk fetch ahead of use. Never changes the student"},
    {WD_INT_LINE(teacher_window, "0", 0, 1e6), .group = "Teacher", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Trajectories advanced per pass over the teacher's weights, those of all ranks "
             "together; 0: chosen. Never changes the student"},
    {WD_INT_LINE(teacher_micro_batch, "0", 0, 1e6), .group = "Teacher",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "States that go through a block of the teacher together; 0: chosen. Never changes the "
             "student"},

    {WD_TEXT_LINE(student_config, "", "FILE"), .group = "Student",
     .flags = WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "JSON file with the sizes of the student; default: half the teacher's depth, and its "
             "width, but at most 1536"},
    {WD_TEXT_LINE(init_student, "", "MODEL"), .group = "Student",
     .flags = WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "Model from which the student starts instead of the teacher's blocks: a folder, such "
             "as an earlier student's, a Hub id, or a file for ComfyUI; for plan a preset, too. "
             "Without STUDENT_CONFIG the student has its sizes"},
    {WD_CHOICE_LINE(mixed_precision, "", "no", "bf16", "fp16"), .bare = "bf16", .group = "Student",
     .flags = WD_OPTION_STUDENT,
     .help =
         "What the student computes in while it trains; its weights are kept in fp32, too. no: "
         "fp32, which GPUs compute without TF32. fp16 computes in bf16, which has the range of "
         "fp32: no loss needs to be scaled. Default: bf16 on GPUs, no where the processor is the "
         "only device"},
    {WD_FLAG_LINE(gradient_checkpointing), .group = "Student", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Save only the blocks' inputs and compute other activations again: less memory, more "
             "time"},

    {WD_TEXT_LINE(data_path, "", "PATH"), .group = "Prompts",
     .flags = WD_OPTION_REQUIRED | WD_OPTION_OR_TARGETS | WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "Prompts: a text file with one per line; a .csv, .tsv, .json or .jsonl file; or a "
             "folder: its prompts.txt, else its metadata.jsonl or metadata.csv, else its .txt "
             "files, each of them one caption. Not needed with TARGETS, which has its own"},
    {WD_TEXT_LINE(prompt_column, "", "NAME"), .group = "Prompts", .flags = WD_OPTION_STUDENT,
     .help = "Column of the table, or key of the JSON objects, that has the prompt; default: "
             "prompt, caption or text"},
    {WD_TEXT_LINE(negative_prompt, "", "TEXT"), .group = "Prompts", .flags = WD_OPTION_STUDENT,
     .help = "Prompt from which guidance leads away; default: for published Wan models their "
             "authors' text without the words against still pictures, else an empty one"},
    {WD_INT_LINE(height, "0", 0, 16384), .group = "Prompts", .flags = WD_OPTION_STUDENT,
     .help = "Pixels; 0: the student configuration's, else the teacher's"},
    {WD_INT_LINE(width, "0", 0, 16384), .group = "Prompts", .flags = WD_OPTION_STUDENT,
     .help = "Pixels; 0: the student configuration's, else the teacher's"},
    {WD_INT_LINE(max_sequence_length, "0", 0, 4096), .group = "Prompts", .flags = WD_OPTION_STUDENT,
     .help = "Text tokens; 0: the student configuration's, else the smaller of 512 and the "
             "tokenizer's maximum"},
    {WD_TEXT_LINE(cache_dir, "", "DIR"), .group = "Prompts",
     .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN | WD_OPTION_SAME_STUDENT,
     .help = "Folder in which prompt embeddings are kept between runs; default: OUTPUT_DIR/cache"},

    {WD_INT_LINE(trajectories, "64", 1, 65536), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Number of the teacher's trajectories that advance at the same time, staggered"},
    {WD_INT_LINE(trajectory_steps, "16", 1, 1000), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Steps of a trajectory from noise to picture"},
    {WD_INT_LINE(student_steps, "0", 0, WD_SCHEDULE_FEW_STEPS_MAX), .group = "Objective",
     .flags = WD_OPTION_STUDENT,
     .help = "Number of sampling steps that the student is made for: in each it learns to do "
             "TRAJECTORY_STEPS / STUDENT_STEPS steps of the teacher, so it must divide "
             "TRAJECTORY_STEPS (but see CHORDS); 0: it learns the teacher's velocities, and is "
             "sampled in as many steps as the teacher"},
    {WD_INT_LINE(chords, "0", 0, WD_SCHEDULE_FEW_STEPS_MAX), .group = "Objective",
     .flags = WD_OPTION_STUDENT,
     .help = "Number of straight pieces of a trajectory, along each of which the student makes "
             "STUDENT_STEPS / CHORDS steps; 0: STUDENT_STEPS. A student of 20 steps learns more "
             "from 4 chords than from 20, and can be sampled in 4 steps, too"},
    {WD_TEXT_LINE(trajectory_sigmas, "", "LIST"), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Noise levels at which the teacher is asked, from 1 down, or timesteps, from 1000: "
             "1,0.9375,0.8333,0.625 for a teacher that is made for these four. Needs "
             "STUDENT_STEPS, and takes the place of TRAJECTORY_STEPS; FLOW_SHIFT follows from it"},
    {WD_TEXT_LINE(recipe, "", "NAMES"), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "What the student learns: velocity, chord (the few steps that STUDENT_STEPS asks "
             "for), or velocity,chord, one after the other. velocity:3,chord:2 gives each a share "
             "of the steps, or of the time; default: chord with STUDENT_STEPS, else velocity"},
    {WD_FLOAT_LINE(on_policy_share, "", 0, 1), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Share of the trajectories whose blocks begin where the student's own steps lead, as "
             "they do when it is sampled; the teacher goes on from there. Needs STUDENT_STEPS of 2 "
             "and more, and so many CHORDS where they are given. Default: 1 where that is so, else "
             "0"},
    {WD_FLOAT_LINE(on_policy_end, "1", 0, 1), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "ON_POLICY_SHARE has an effect until this share of the training on chords is over. "
             "With less than 1 pictures of one prompt differ more (docs/recipe.md)"},
    {WD_INT_LINE(on_policy_every, "25", 1, 1e6), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Optimiser steps after which the weights are copied with which the student makes the "
             "steps of ON_POLICY_SHARE"},
    {WD_FLOAT_LINE(diversity_gain, "0", 0, 1), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "With more than 0 pictures of one prompt differ more, for a little less exact ones: "
             "in a long training try 0.35 (docs/which-recipe.md). Needs STUDENT_STEPS; twice the "
             "steps of a trajectory must divide TRAJECTORIES"},
    {WD_INT_LINE(target_reuse, "0", 0, 1000), .choices = WD_CHOICES("auto"), .group = "Objective",
     .flags = WD_OPTION_STUDENT,
     .help =
         "How often the student trains on each target, on average: a velocity of the teacher, "
         "or a chord, which STUDENT_STEPS asks for; 0: 2 for a velocity, and 2 N for a chord that "
         "is made of N velocities; auto: more, while that makes steps much faster as planned "
         "(docs/recipe.md). A resumed run keeps what was chosen"},
    {WD_INT_LINE(target_replay, "0", 0, 1e7), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help =
         "Number of latest targets from which repeated ones are drawn; 0: as many as 512 MiB "
         "hold, at least 1024 and at most 8192. With a TARGET_REUSE of 1 none is repeated, and 1 "
         "takes least memory"},
    {WD_FLOAT_LINE(guidance_scale, "", 0, 100), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "Guidance of the training targets, so that the student needs none; default: that of "
             "the teacher's authors, 5, for Wan2.2-A14B 4 and 3"},
    {WD_FLOAT_LINE(guidance_scale_2, "", 0, 100), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help =
         "Guidance of the low-noise expert's targets; default: GUIDANCE_SCALE if that is given"},
    {WD_FLOAT_LINE(flow_shift, "", 0.01, 1000), .group = "Objective", .flags = WD_OPTION_STUDENT,
     .help = "How far noise levels are shifted towards noise; default: the teacher's scheduler's"},

    {WD_TEXT_LINE(save_targets, "", "DIR"), .group = "Objective",
     .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN | WD_OPTION_STUDENT,
     .help = "Write all targets to this new folder as they are made, for later runs with TARGETS. "
             "States and velocities are rounded to bfloat16, also for this run's own student. One "
             "rank, one recipe"},
    {WD_TEXT_LINE(targets, "", "DIR"), .group = "Objective",
     .flags = WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "Train from the targets in a folder of SAVE_TARGETS, with no teacher in memory. With "
             "the same options the student is the same, bit for bit, as that of the run that made "
             "them; sizes, student, batches and learning rate may differ (docs/which-recipe.md)"},

    {WD_INT_LINE(batch_size, "0", 0, 65536), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Samples of a micro-batch; 0: as many as have 512 image tokens, at least 2"},
    {WD_INT_LINE(gradient_accumulation_steps, "1", 1, 65536), .group = "Training",
     .flags = WD_OPTION_STUDENT, .help = "Micro-batches of an optimiser step, of each rank"},
    {WD_FLAG_LINE(deterministic_reduce), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Add gradients in the order of the micro-batches, which gives the same bits for any "
             "number of ranks with the same samples per step"},
    {WD_FLAG_LINE(shard_optimizer), .group = "Training", .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Each rank keeps only its share of the optimiser's moments, the EMA and, in bf16, what "
         "master weights have beside the bf16 ones: the same student with less memory (ZeRO-1)"},
    {WD_CHOICE_LINE(optimizer_device, "auto", "auto", "device", "host"), .group = "Training",
     .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Where the optimiser's moments, the EMA and, in bf16, the master weights are: on the "
         "student's device, or in host memory, where the processor updates them (ZeRO-Offload), "
         "which leaves 8 of 22 bytes a weight on the device (12 of 24 in fp32); auto: in host "
         "memory where the run or its sheets fit, or steps are faster, only so. Never changes the "
         "student"},
    {WD_CHOICE_LINE(ema_device, "auto", "auto", "device", "host"), .group = "Training",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Where the EMA alone is, which takes 4 bytes a weight: on the student's device, or in "
             "host memory, where the processor updates it; auto: where the optimiser's other state "
             "is, or, under --optimizer_device auto, in host memory if it is enough to move it. "
             "Never changes the student"},
    {WD_CHOICE_LINE(gradient_dtype, "float32", "float32", "bfloat16"), .group = "Training",
     .flags = WD_OPTION_STUDENT,
     .help =
         "What the student's gradients are kept in. bfloat16 takes up to 2 fewer bytes for "
         "each of the student's weights on a GPU: those of a micro-batch are summed in fp32, and "
         "then rounded. It needs --mixed_precision bf16, and one micro-batch per step or "
         "--deterministic_reduce"},
    {WD_INT_LINE(num_epochs, "0", 0, WD_INT_MAX), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "End after this number of passes over the prompts; 0: no such limit. The first limit "
             "reached ends the run; without any it is 10 epochs"},
    {WD_INT_LINE(num_steps, "0", 0, WD_INT_MAX), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "End after this number of optimiser steps; 0: no such limit"},
    {WD_FLOAT_LINE(max_minutes, "0", 0, 1e9), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "End after this number of minutes of training; 0: no such limit"},
    {WD_FLOAT_LINE(lr, "", 0, 1), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Highest learning rate; default: 0.24 over the student's width (1.6e-4 at 1536), less "
             "for steps of fewer than 32 samples, and a fifth for a student that keeps all blocks "
             "and channels of what it starts from"},
    {WD_CHOICE_LINE(lr_schedule, "cosine", "cosine", "constant"), .group = "Training",
     .flags = WD_OPTION_STUDENT,
     .help = "How the learning rate falls after the warm-up: by steps, or by time if only "
             "MAX_MINUTES ends the run"},
    {WD_INT_LINE(warmup_steps, "50", 0, WD_INT_MAX), .group = "Training",
     .flags = WD_OPTION_STUDENT, .help = "Steps over which the learning rate rises"},
    {WD_FLOAT_LINE(min_lr_ratio, "0.03", 0, 1), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "The last learning rate over the highest one"},
    {WD_CHOICE_LINE(optimizer, "adamw", "adamw", "adamw8bit", "ademamix"), .group = "Training",
     .flags = WD_OPTION_STUDENT,
     .help =
         "adamw8bit keeps AdamW's moments in 8 bits, which takes 5.9 fewer bytes for each of the "
         "student's weights; ademamix trains students of few sampling steps faster, in runs of "
         "3,000 steps and "
         "more: it is AdamW with a second, slow moving average of the gradients, and takes 4 "
         "more bytes for each of the student's weights"},
    {WD_FLOAT_LINE(ademamix_alpha, "5", 0, 100), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "AdEMAMix's weight of the slow average at the end of the run, or of each phase of "
             "RECIPE; it begins at 0"},
    {WD_FLOAT_LINE(ademamix_beta3, "0.999", 0, 0.9999999), .group = "Training",
     .flags = WD_OPTION_STUDENT,
     .help = "Decay of AdEMAMix's slow average at the same time; it begins at ADAM_BETA1. 0.999 "
             "averages over 1,000 steps, which should be a small part of the run"},
    {WD_FLOAT_LINE(weight_decay, "0", 0, 1), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Decoupled weight decay of both optimisers"},
    {WD_FLOAT_LINE(adam_beta1, "0.9", 0, 0.999999), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Decay of the first moment, the average of the gradients"},
    {WD_FLOAT_LINE(adam_beta2, "0.99", 0, 0.9999999), .group = "Training",
     .flags = WD_OPTION_STUDENT, .help = "Decay of the second moment, that of their squares"},
    {WD_FLOAT_LINE(adam_eps, "1e-8", 1e-20, 1), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Epsilon, which is added to the second moment's root"},
    {WD_FLOAT_LINE(max_grad_norm, "1", 0, 1e9), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Norm to which gradients are clipped; 0: no clipping"},
    {WD_FLOAT_LINE(ema_decay, "0.999", 0, 0.9999999), .group = "Training",
     .flags = WD_OPTION_STUDENT,
     .help = "Decay of the moving average of the weights, which the written student has; 0: the "
             "latest weights"},
    {WD_SEED_LINE(seed, "0"), .group = "Training", .flags = WD_OPTION_STUDENT,
     .help = "Seed of all random numbers; the same seed and options give the same student, bit for "
             "bit"},

    {WD_TEXT_LINE(validation_prompts, "", "N|FILE"), .group = "Validation",
     .flags = WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help =
         "Measure the student's error on prompts that it does not train on: N of the data's, "
         "which follow from SEED, or those of a file, which are left out of the data. The error "
         "is that of its velocities, or of its chords with STUDENT_STEPS, on states of the "
         "teacher that never change, by noise level (docs/options.md). Default: none"},
    {WD_INT_LINE(validation_interval, "0", 0, WD_INT_MAX), .group = "Validation",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Steps between validations; 0: so many that they take less than 2 % of the student's "
             "time. The last one is at the end"},
    {WD_FLAG_LINE(keep_best), .group = "Validation", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Keep the student with the least validation error in OUTPUT_DIR/best, beside the last "
             "one. Needs VALIDATION_PROMPTS"},

    {WD_TEXT_LINE(output_dir, "./outputs", "DIR"), .group = "Output",
     .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN | WD_OPTION_SAME_STUDENT,
     .help = "Folder for the student's pipeline, metrics, checkpoints and samples"},
    {WD_TEXT_LINE(resume, "", "PATH|auto"), .bare = "auto", .group = "Output",
     .flags = WD_OPTION_FILE | WD_OPTION_STUDENT,
     .help = "Continue from a checkpoint's folder; auto: from the latest in OUTPUT_DIR, or from "
             "the start if there is none"},
    {WD_INT_LINE(checkpoint_interval, "0", 0, WD_INT_MAX), .group = "Output",
     .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Steps between checkpoints; 0: one every 15 minutes. The last one is written at the end"},
    {WD_INT_LINE(keep_checkpoints, "2", 1, 1e6), .group = "Output", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Number of checkpoints that are kept"},
    {.name = "export",
     .offset = offsetof(OPTIONS, export_to),
     .type = WD_OPTION_TEXT,
     .default_text = "",
     .metavar = "FORMS",
     .group = "Output",
     .flags = WD_OPTION_SAME_STUDENT,
     .help =
         "Write the student at the end also as comfyui (comfyui/student.safetensors in bfloat16), "
         "as gguf (gguf/student-Q8_0.gguf), or as comfyui,gguf, each with the workflow "
         "student.json for ComfyUI"},
    {WD_CHOICE_LINE(save_samples, "auto", "auto", "true", "false"), .bare = "true",
     .group = "Output", .flags = WD_OPTION_STUDENT,
     .help = "Draw sample sheets, with the teacher's pictures above the student's; auto: if "
             "drawing one takes less than a tenth of the time between two"},
    {WD_FIELD(sample_prompts), .type = WD_OPTION_TEXTS, .default_text = "", .metavar = "TEXT",
     .group = "Output", .flags = WD_OPTION_STUDENT,
     .help =
         "Prompts of the sample sheets, or one file of prompts; default: the first of the data"},
    {WD_INT_LINE(sample_interval, "0", 0, WD_INT_MAX), .group = "Output",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Steps between sheets; 0: ten sheets in the run, or one at its end if only "
             "MAX_MINUTES ends it"},
    {WD_INT_LINE(sample_steps, "20", 1, 1000), .group = "Output", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Sampling steps of the sheets"},
    {WD_TEXT_LINE(sample_dir, "", "DIR"), .group = "Output",
     .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN | WD_OPTION_SAME_STUDENT,
     .help = "Folder for sample sheets; default: OUTPUT_DIR/samples"},
    {WD_CHOICE_LINE(save_report, "true", "true", "false"), .bare = "true", .group = "Output",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Write report.html while the run goes on: a page with curves, samples, plan and "
             "options"},

    {WD_TEXT_LINE(devices, "auto", "LIST"), .group = "Machine", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Devices to compute on, the student on the first: auto (all GPUs, else the "
             "processor), cpu, GPUs by number, cuda:0, cuda:0,1, cuda:4-7 (docs/gpu.md), or "
             "simulated ones, sim:4x24GiB@link=25GB/s,compute=80TFLOP/s, or cards by name, "
             "sim:4x4090, sim:h100 (docs/strategies.md). compute= is the speed of all products, "
             "unless fp32=20TFLOP/s gives that of those in fp32. To plan for another "
             "machine, cpu=3TFLOP/s after the @, or cpu@compute=3TFLOP/s, gives the speed of its "
             "processor, and memory=80GB/s that of messages between its ranks"},
    {WD_TEXT_LINE(host_memory, "", "BYTES"), .group = "Machine", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Memory of a host that all its ranks together may use, such as 60GiB; default: the "
             "free memory"},
    {WD_TEXT_LINE(network_bandwidth, "12.5GB/s", "SPEED"), .group = "Machine",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Speed of messages from a host to others, which plans of many ranks assume"},
    {WD_FLAG_LINE(measure_rates), .group = "Machine", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Measure this machine's speeds again, even if an earlier run has"},
    {WD_FLAG_LINE(profile_memory), .group = "Machine", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Report at the end planned and measured memory of each device, and the bytes that "
             "ranks have sent"},
    {WD_INT_LINE(num_threads, "0", 0, 4096), .group = "Machine", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Threads; 0: all cores. Never changes the student"},
    {WD_INT_LINE(stop_at_step, "0", 0, WD_INT_MAX), .group = "Machine", .flags = WD_OPTION_STUDENT,
     .help = "End after this step as Ctrl-C does, to resume later; 0: never"},

    {WD_FLAG_LINE(distributed), .group = "Ranks", .flags = WD_OPTION_STUDENT,
     .help = "This process is one of several, started by mpirun or srun, that train one student "
             "(docs/ranks.md)"},
    {WD_INT_LINE(nproc_per_node, "0", 0, 1024), .group = "Ranks", .flags = WD_OPTION_STUDENT,
     .help = "Start this number of ranks on this machine by mpirun, with --distributed"},
    {WD_FLAG_LINE(multi_gpu), .group = "Ranks", .flags = WD_OPTION_STUDENT,
     .help = "Start one rank for each of DEVICES on this machine by mpirun, with --distributed"},
    {WD_INT_LINE(local_rank, "-1", -1, WD_INT_MAX), .group = "Ranks",
     .flags = WD_OPTION_LEGACY | WD_OPTION_SAME_STUDENT,
     .help = "Not needed: ranks know where they are"},
    {WD_FLOAT_LINE(step_timeout, "0", 0, 1e9), .group = "Ranks", .flags = WD_OPTION_SAME_STUDENT,
     .help = "Seconds that a step may take before ranks that wait for one another end the job; 0: "
             "ten times the predicted time of a step and a sweep, and a minute"},
    {WD_CHOICE_LINE(nccl, "auto", "auto", "on", "off"), .group = "Ranks",
     .flags = WD_OPTION_SAME_STUDENT,
     .help = "Whether ranks on different GPUs exchange gradients by NCCL: auto, if all of them "
             "can; on, it is an error if they cannot; off, never. Never changes the student"},

    {STRATEGY_ALIAS("teacher_on_cpu", "cpu")},
    {STRATEGY_ALIAS("balance_teacher", "balanced")},
    {STRATEGY_ALIAS("balanced_teacher", "balanced")},
    {STRATEGY_ALIAS("sequential_teacher", "sequential")},
    {STRATEGY_ALIAS("sequential", "sequential")},
    {STRATEGY_ALIAS("share_teacher", "offload")},
    {WD_TEXT_LINE(offload_folder, "", "DIR"), .group = "Machine",
     .flags = WD_OPTION_LEGACY | WD_OPTION_FILE | WD_OPTION_WRITTEN | WD_OPTION_SAME_STUDENT,
     .help = "Not needed: disk reads the checkpoint's own files"},
    {WD_INT_LINE(num_workers, "0", 0, WD_INT_MAX), .group = "Machine",
     .flags = WD_OPTION_LEGACY | WD_OPTION_SAME_STUDENT,
     .help = "Not needed: prompts are read once, at the start"},
};

wd_option_table wd__table_train(void)
{
    return (wd_option_table){table, sizeof table / sizeof *table, sizeof(OPTIONS),
                             offsetof(OPTIONS, bytes)};
}

/* ---- the options of `plan`: those of `train`, of which none is required, and its own ---- */

#undef OPTIONS
#define OPTIONS wd_plan_options

static const wd_option own[] = {
    {WD_CHOICE_LINE(teacher_preset, "", "wan2.1-1.3b", "wan2.1-14b", "wan2.2-a14b", "wan2.2-5b"),
     .group = "Teacher",
     .help = "A published model instead of TEACHER_PATH: no file is needed. One of the two is "
             "required; beside single files, what train's option of that name means"},
    {WD_FLAG_LINE(largest_student), .group = "Student",
     .help = "Print the largest students that fit, not a plan. A few shapes, each with its "
             "STUDENT_CONFIG, the seconds of a step, the days of a million samples, and what "
             "stops a larger one; GRADIENT_CHECKPOINTING and smaller micro-batches are tried, too"},
    {WD_INT_LINE(ranks, "0", 0, 512), .group = "Machine",
     .help = "Number of ranks to plan for; 0: those of other options, or one per host. The ranks "
             "of a host share its DEVICES and HOST_MEMORY"},
    {WD_INT_LINE(hosts, "1", 1, 512), .group = "Machine",
     .help = "Number of hosts; each has the same number of ranks"},
    {WD_FLAG_LINE(json), .group = "Output", .help = "Print JSON instead of tables"},
    {WD_FLAG_LINE(verbose), .group = "Output",
     .help =
         "Print more. What each strategy copies in a step, strategies that these devices cannot "
         "serve, every device, and items of less than a MiB"},
    {WD_TEXT_LINE(svg, "", "FILE"), .group = "Output", .flags = WD_OPTION_FILE | WD_OPTION_WRITTEN,
     .help = "Draw the recommended plan, or that of TEACHER_DEVICE_STRATEGY: the memory of every "
             "device, and one sweep over the teacher"},
};

enum { OWN = sizeof own / sizeof *own };

static wd_option plan_table[WD_OPTIONS_MAX];
static int64_t rows;

static bool is_own(const char *name)
{
    for (int k = 0; k < OWN; k++)
        if (!strcmp(own[k].name, name)) return true;
    return false;
}

/* The struct of `train` is the first part of that of `plan`, so its lines serve as they are. Own
 * lines stand behind the first of train's in their group. */
static void make_plan_table(void)
{
    static_assert(offsetof(wd_plan_options, train) == 0, "offsets of train's lines");
    const wd_option_table train = wd__table_train();
    const char *group = "";
    assert(train.count + OWN <= WD_OPTIONS_MAX);
    for (int64_t i = 0; i < train.count; i++) {
        const wd_option *line = &train.option[i];
        if (is_own(line->name)) continue;
        const bool begins = strcmp(line->group, group) && !(line->flags & WD_OPTION_LEGACY);
        plan_table[rows] = *line;
        plan_table[rows++].flags &= ~(unsigned)WD_OPTION_REQUIRED;
        if (!begins) continue;
        group = line->group;
        for (int k = 0; k < OWN; k++)
            if (!strcmp(own[k].group, group)) plan_table[rows++] = own[k];
    }
    assert(rows == train.count + OWN - 1); /* both have teacher_preset */
}

wd_option_table wd__table_plan(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_plan_table);
    return (wd_option_table){plan_table, rows, sizeof(OPTIONS), offsetof(OPTIONS, bytes)};
}

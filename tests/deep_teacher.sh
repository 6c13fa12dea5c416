#!/bin/sh
# Checks tools/make_deep_teacher.sh: its twelve blocks do about what the six do that they are made
# from, and the folder that it writes is a teacher for a student of fewer blocks.
# Usage: tests/deep_teacher.sh SOURCE_FOLDER PROGRAM
set -eu
source=$1 program=$2
command -v python3 >/dev/null || { echo "there is no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$source"
head -n 4 models/wan-tiny/prompts.txt >"$folder/prompts.txt"
tools/make_deep_teacher.sh "$program" "$folder/deep" --data_path "$folder/prompts.txt" \
    --num_steps 1 --batch_size 8 >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
grep -q "samples: cosine 0.[89]" "$folder/log" ||
    { echo "twelve blocks should agree with the six at the start:"; cat "$folder/log"; exit 1; }
"$program" train --teacher_path "$folder/deep" --data_path "$folder/prompts.txt" --num_steps 1 \
    --guidance_scale 1 --batch_size 8 --save_samples false --output_dir "$folder/student" \
    >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
grep -q "the student starts from blocks 0, 2, 4, 7, 9, 11 of" "$folder/log" ||
    { echo "a student of the deep teacher should have 6 of 12 blocks:"; cat "$folder/log"; exit 1; }

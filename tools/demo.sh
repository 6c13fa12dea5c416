#!/bin/sh
# Distils the embedded teacher into three students of half the depth, which make a picture in 2, 1
# and 4 steps: the first learns for most of the time, the others go on from it. Draws the teacher's
# pictures above theirs (tools/demo_sheet.c). tools/demo.json has the options of all of them.
# Usage: tools/demo.sh PROGRAM [options of train]
set -eu
program=$1
shift
out=build/demo
rm -rf "$out"
mkdir -p "$out"

# STEPS MINUTES [options of train]: trains the student of so many steps.
learn() {
    steps=$1 minutes=$2
    shift 2
    "$program" train --config tools/demo.json --output_dir "$out/student-$steps" \
        --cache_dir "$out/cache" --save_samples false --trajectory_steps 8 --flow_shift 2 \
        --student_steps "$steps" --max_minutes "$minutes" "$@"
}

# NAME MODEL [options of sample]: draws pictures, and says how long each took.
draw() {
    name=$1 model=$2
    shift 2
    "$program" sample --model "$model" --prompts "$out/prompts.txt" --out "$out/$name" \
        --log_level info "$@" 2>"$out/$name.txt"
    sed -n 's/.* steps\{0,1\}: \([-0-9.e+]*\) s each.*/\1/p' "$out/$name.txt"
}

learn 2 1.9 --optimizer ademamix "$@"
learn 1 0.4 --init_student "$out/student-2" "$@"
learn 4 0.4 --init_student "$out/student-2" "$@"
head -n 8 models/wan-tiny/prompts-held-out.txt >"$out/prompts.txt"
teacher=$(draw teacher models/wan-tiny --steps 20 --guidance_scale 2)
four=$(draw four "$out/student-4")
two=$(draw two "$out/student-2")
one=$(draw one "$out/student-1")
"$(dirname "$program")/demo_sheet" "$out/side-by-side.png" "$out/prompts.txt" 8 \
    "teacher, 20 steps: $teacher s a picture" "$out/teacher" \
    "student, 4 steps: $four s" "$out/four" \
    "student, 2 steps: $two s" "$out/two" \
    "student, 1 step: $one s" "$out/one"
echo "contact sheet: $out/side-by-side.png"
echo "seconds per picture, teacher: $teacher in 20 steps"
echo "seconds per picture, student: $four in 4 steps, $two in 2, $one in 1"

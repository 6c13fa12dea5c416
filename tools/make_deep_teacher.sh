#!/bin/sh
# Makes a teacher of twelve blocks from the embedded one of six, for experiments about depth: each
# block of its low-noise expert comes twice, with half of its effect (deepen_transformer.py), and
# all twelve learn the embedded teacher's velocities, with guidance, from a fixed seed. The result
# is a pipeline folder for --teacher_path, to be used with --guidance_scale 1. Needs python3.
# Usage, in the repository's root: tools/make_deep_teacher.sh PROGRAM OUTPUT [options of train]
set -eu
[ $# -ge 2 ] || { sed -n 's/^# Usage/usage/p' "$0" >&2; exit 2; }
program=$1 output=$2
shift 2
start=$output.start
python3 tools/deepen_transformer.py models/wan-tiny/transformer_2 "$start" 2
"$program" train --config tools/demo.json --init_student "$start" --recipe velocity \
    --max_minutes 0 --num_steps 1400 --lr 6e-4 --save_samples false \
    --output_dir "$output" "$@"
rm -r "$start"

#!/bin/sh
# Distils the embedded teacher into a student of half the depth (tools/demo.json), and draws
# pictures of both.
# Usage: tools/demo.sh PROGRAM [options of train]
set -eu
program=$1
shift
out=build/demo
rm -rf "$out"
"$program" train --config tools/demo.json --output_dir "$out/student" "$@"
"$program" eval --teacher models/wan-tiny --student "$out/student" --steps 20 --count 8 \
    --prompts models/wan-tiny/prompts-held-out.txt --out "$out" --log_level warning >"$out/eval.txt"
echo "contact sheet: $out/side-by-side.png"
tail -n 3 "$out/eval.txt"

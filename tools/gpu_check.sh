#!/bin/sh
# Checks and measures a device, above all a GPU, and writes one report (Markdown). Each part ends
# after at most PART_SECONDS (540), whatever happens in it; a step that fails is said in the report,
# and the others run.
#
#   ceilings   copies, and every product and attention of the 1.3B and 14B transformers
#   correct    the fixtures of PyTorch and diffusers, pictures, the same student under strategies
#   speed      a pass of 14B, training steps of 1.3B and of the embedded teacher; PyTorch beside
#              them where python3 has torch
#   distil     the embedded teacher distilled as `make demo` does it, compared with its teacher
#
# Usage, in the source's folder: tools/gpu_check.sh BUILD_FOLDER REPORT [PART...]
# DEVICE in the environment: the device to check; default: cuda:0.
set -u
build=$1 report=$2
shift 2
[ $# -gt 0 ] || set -- ceilings correct speed distil
device=${DEVICE:-cuda:0} seconds=${PART_SECONDS:-540}
program=$build/wandistiller
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
failed=0

say() { printf '%s\n' "$*" >>"$report"; }

# Runs a command, with what it prints in the report.
step() { # TITLE COMMAND...
    title=$1
    shift
    left=$((deadline - $(date +%s)))
    say "" "### $title" '```'
    if [ "$left" -le 0 ]; then
        say "not run: the part's $seconds s were over"
        status=124
    else
        timeout "$left" "$@" >"$stage/out" 2>&1
        status=$?
        tail -c 60000 "$stage/out" >>"$report"
    fi
    say '```'
    [ "$status" -eq 0 ] && return
    failed=$((failed + 1))
    say "**failed with exit status $status**: \`$*\`"
}

bench() { step "$1" "$program" bench --only "$1" --device "$device"; }

ceilings() {
    bench copies
    bench shapes
}

# The student of a short run is the same under every strategy that computes on the device.
strategies() {
    first=
    for strategy in gpu offload disk; do
        "$program" train --teacher_path models/wan-tiny --data_path models/wan-tiny/prompts.txt \
            --output_dir "$stage/$strategy" --guidance_scale 2 --num_steps 20 \
            --devices "$device" --teacher_device_strategy $strategy || return 1
        hash=$(sha256sum <"$stage/$strategy/transformer/diffusion_pytorch_model.safetensors")
        echo "$strategy: $hash"
        [ "${first:=$hash}" = "$hash" ] || { echo "$strategy gives another student"; return 1; }
    done
}

correct() {
    for test in "$build"/tests/test_gpu_*; do
        [ ! -x "$test" ] || step "$(basename "$test")" "$test"
    done
    export WD_TEST_DEVICE="$device"
    for test in forward sample; do step "tests/$test" "$build/tests/test_tests_$test"; done
    step "the same student under gpu, offload and disk" \
        sh "$0" "$build" "$stage/strategies.md" strategies
    sanitizer=$(command -v compute-sanitizer || true)
    [ -n "$sanitizer" ] || { say "" "compute-sanitizer is not installed: not run"; return; }
    for tool in memcheck racecheck initcheck; do
        for test in "$build"/tests/test_gpu_*; do
            [ ! -x "$test" ] || step "compute-sanitizer $tool, $(basename "$test")" \
                "$sanitizer" --tool "$tool" --error-exitcode 1 "$test"
        done
    done
}

speed() {
    for case in models tiny vae; do bench $case; done
    if python3 -c 'import torch, diffusers' 2>/dev/null; then
        step "PyTorch" python3 bench/pytorch_models.py --program "$program" --device "$device"
    else
        say "" "python3 has no torch and diffusers here: PyTorch not measured"
    fi
}

distil() {
    step "train" "$program" train --config tools/demo.json --output_dir "$stage/demo" \
        --devices "$device" --profile_memory
    step "eval" "$program" eval --teacher models/wan-tiny --student "$stage/demo" --steps 20 \
        --prompts models/wan-tiny/prompts-held-out.txt --count 64 --device "$device"
}

[ "$*" != strategies ] || { strategies; exit; }
[ -x "$program" ] || { echo "$program is not there: run make" >&2; exit 2; }
{
    echo "# Check of $device"
    echo
    echo "$(date -u +%Y-%m-%d), $("$program" --version), $(uname -m), $(nproc) cores"
} >"$report"
smi=$(command -v nvidia-smi || true)
deadline=$(($(date +%s) + seconds))
[ -z "$smi" ] || step "nvidia-smi" "$smi"
for part in "$@"; do
    deadline=$(($(date +%s) + seconds))
    say "" "## $part"
    case $part in
    ceilings | correct | speed | distil) $part ;;
    *) echo "$part: expected ceilings, correct, speed or distil" >&2; exit 2 ;;
    esac
done
say "" "$failed of the steps above failed."
echo "$report: $failed failed"
[ $failed -eq 0 ]

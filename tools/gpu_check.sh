#!/bin/sh
# Checks and measures a device, above all a GPU, and writes one report (Markdown): a table of what
# is required, wanted and found, then what every step printed. Each part ends after at most
# PART_SECONDS (540), whatever happens in it; parts may be run one by one, for one report.
#
#   first      a short form of the next ones, in four minutes: run it on a machine that is new
#   correct    kernels, devices, the networks of PyTorch and diffusers
#   strategies the same student under every strategy that one GPU can have, in fp32 and bf16
#   gpus       NCCL on one GPU; on two, copies between them, strategies, ranks
#   memcheck, racecheck, initcheck
#              the kernels' tests under that tool of compute-sanitizer
#   speed      a pass of 14B and a training step of 1.3B beside the best matrix product
#   pytorch    the same beside PyTorch
#   shapes     copies, and every product and attention of both models: shown, nothing is required
#   offload    a made-up 14B expert in host memory beside the same on the GPU
#   distil     the embedded teacher distilled on the processor and on the device
#   steady     eight minutes of training in the geometry of 1.3B: memory and idle time
#
# Usage: tools/gpu_check.sh BUILD_FOLDER REPORT [PART...]; without parts: all but `first`
# REPORT.tar.gz has the report and the files that it was made of, which are in PARTS meanwhile
# (REPORT.parts). Both are written anew before every step.
# In the environment: DEVICE, default cuda:0, numbered as by nvidia-smi. GPU_CHECK_LIBRARIES,
# folders of the libraries that the tests load, for a bundle that has its own. TMPDIR, a folder with
# room for 45 GB. Sizes:
#   OFFLOAD_BLOCKS   blocks of 14B in `offload` (40, or as many as have room) and `first` (8)
#   STEADY_SECONDS   of training in `steady` (480, or what the part's time has room for)
#   DISTIL_STEPS     of training in `distil`: the processor does not train, its score is known
#   DISTIL_SCORE     its score after so many steps, in percent; known for 1000 steps
#   PYTORCH_TOKENS   of the cases beside PyTorch (1024,1560,4096,8192; in `first` 4096)
# QUICK=1 makes everything small: it tries this script out on any device, and its figures mean
# nothing.
set -u
# With this, CUDA numbers GPUs as nvidia-smi does, by their places on the bus. By default it gives
# number 0 to the fastest.
export CUDA_DEVICE_ORDER=PCI_BUS_ID
here=$(cd "$(dirname "$0")" && pwd)
. "$here/gpu_check_report.sh"
parts="correct strategies gpus memcheck racecheck initcheck speed pytorch shapes offload"
parts="$parts distil steady"
build=$(cd "$1" && pwd) && report=$(cd "$(dirname "$2")" && pwd)/$(basename "$2") || exit 2
shift 2
device=${DEVICE:-cuda:0} seconds=${PART_SECONDS:-540} quick=${QUICK:-}
libraries=${GPU_CHECK_LIBRARIES:-}
library_path=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
program=$build/wandistiller
[ -x "$program" ] || { echo "$program is not there: run make" >&2; exit 2; }
for part in "$@"; do
    case " first $parts " in
    *" $part "*) ;;
    *) echo "gpu-check: no part is called $part: expected some of $parts" >&2; exit 2 ;;
    esac
done
cd "$here/.." || exit 2
kept=${PARTS:-$report.parts} out=${PARTS:-$report.parts}/running
mkdir -p "$kept" || exit 2

# The first opening of the device. Whatever comes of it, what it prints is kept, and the parts run,
# unless the program has no kernels. Speeds that are stated are not measured.
opening=
case $device in
cuda*)
    began=$(date +%s)
    timeout -k 5 60 "$program" plan --teacher_path models/wan-tiny \
        --devices "${device%%@*}@link=25GB/s,compute=1TFLOP/s" >"$kept/opening" 2>&1
    status=$?
    if grep "this build has no CUDA" "$kept/opening"; then
        echo "gpu-check: $program has no kernels for $device: build it where nvcc is" >&2
        exit 2
    fi
    if [ $status -ne 0 ]; then
        opening=$(how_it_ended $status $(($(date +%s) - began)) 60 "$kept/opening")
        opening="the first opening of $device: $opening"
        echo "gpu-check: $opening"
    fi ;;
esac
export WD_TEST_DEVICE="$device" WD_TEST_SOURCE="$PWD" WD_TEST_PROGRAM="$program"
stage=$(mktemp -d) || exit 2
run= # the process of a run in the background
trap '[ -z "$run" ] || kill "$run"; rm -rf "$stage"' EXIT
trap 'exit 130' INT TERM

# The GPU as nvidia-smi counts it, which does not know CUDA_VISIBLE_DEVICES.
gpu=$(printf '%s' "$device" | sed -n 's/^cuda:\([0-9]*\).*/\1/p')
[ -z "$gpu" ] || gpu=$(printf '%s' "${CUDA_VISIBLE_DEVICES:-}" | awk -F, -v n="$gpu" '
    { print $(n + 1) } END { if (!NR) print n }')
smi=
if [ -n "$gpu" ] && command -v nvidia-smi >/dev/null; then
    smi="timeout -k 5 10 nvidia-smi -i $gpu --format=csv,noheader,nounits"
fi

# Opens the device, so that a part that needs it for long work fails at once; $why says why it
# cannot be opened. Speeds that are stated are not measured.
device_opens() {
    case $device in cpu*) return ;; esac
    step "open $device" "$program" plan --teacher_path models/wan-tiny \
        --devices "${device%%@*}@link=25GB/s,compute=1TFLOP/s" && return
    why=$(last_line "$out")
    [ -n "$why" ] || why="$device could not be opened in the part's time"
    return 1
}

# ---- correct; memcheck, racecheck, initcheck ----

# Runs what was built with the program, and what checks that.
with_libraries() { # TITLE COMMAND...
    title=$1
    shift
    step "$title" ${libraries:+env "LD_LIBRARY_PATH=$library_path"} "$@"
}

# Runs every command of the form PREFIX TEST; the number of those that fail is the figure. What does
# not end in the part's time, or cannot be run here (77), has not failed, but then nothing is known.
tests_of() { # KEY TITLE TESTS PREFIX...
    key=$1 what=$2 tests=$3 ran=0 bad=0 late=0 why=
    shift 3
    for test in $tests; do
        [ -x "$build/gpu_tests" ] || continue
        ran=$((ran + 1))
        with_libraries "$what$test" "$@" "$build/gpu_tests" "$test" && continue
        case $status in
        77) why=$(sed -n 's/^not tested here: //p' "$out" | tail -n 1) ;;
        124 | 137)
            # a test that is killed before has failed
            if [ "$(seconds_left)" -eq 0 ]; then late=$((late + 1)); else bad=$((bad + 1)); fi ;;
        *) bad=$((bad + 1)) ;;
        esac
    done
    if [ $bad -gt 0 ]; then
        found "$key" $bad
    elif [ $ran -eq 0 ]; then
        not_run "$key" "there are no such tests for $device"
    elif [ -n "$why" ]; then
        not_run "$key" "$why"
    elif [ $late -gt 0 ]; then
        not_run "$key" "$late of $ran tests did not end in the part's time"
    else
        found "$key" 0
    fi
}

kernel_tests() {
    case $device in
    cuda*) ${libraries:+env "LD_LIBRARY_PATH=$library_path"} "$build/gpu_tests" |
        grep -Ev '^(device|lone_peer|fixtures|properties|reopen)$' ;;
    esac
}

# Those of our own kernels alone, which a sanitizer is to look at.
own_kernel_tests() { kernel_tests | grep -v '^attention_device$'; }

device_test() {
    case $device in cuda*) echo device ;; esac
}

correct() {
    tests_of kernels "" "$(kernel_tests) $([ -z "$(device_test)" ] || echo reopen)"
    tests_of device "" "$(device_test)"
    tests_of fixtures "" fixtures
}

sanitize() { # TOOL
    sanitizer=$(command -v compute-sanitizer)
    if [ -z "$sanitizer" ]; then
        not_run "$1" "compute-sanitizer is not installed"
    else
        WD_TEST_SANITIZER=$1
        export WD_TEST_SANITIZER
        tests_of "$1" "$1, " "$(own_kernel_tests)" "$sanitizer" --tool "$1" --error-exitcode 1
        unset WD_TEST_SANITIZER
    fi
}

memcheck() { sanitize memcheck; }
racecheck() { sanitize racecheck; }
initcheck() { sanitize initcheck; }

# ---- strategies, gpus ----

. "$here/gpu_check_runs.sh"

# ---- first ----

. "$here/gpu_check_first.sh"

# ---- speed, pytorch, shapes ----

bench() { step "bench $1" "$program" bench --only "$1" --device "$device"; }

shapes() {
    for case in copies shapes tiny vae; do bench $case; done
}

# The share of the peak in the line of a case: "... 61.2 % of peak".
share() { # KEY CASE
    figure=$(sed -n "s/^$2  *BF16 .* \([0-9.]*\) % of peak\$/\1/p" "$out")
    if [ -n "$figure" ]; then found "$1" "$figure"; return; fi
    why=$(sed -n "s/^$2  *left out: //p" "$out")
    if [ -n "$why" ]; then not_run "$1" "$why"; else found "$1" "not in what bench printed"; fi
}

speed() {
    bench models
    for tokens in 1024 1560 4096 8192; do
        share forward-$tokens "forward 14B, 4 blocks, $tokens tokens"
    done
    share step-4096 "train 1.3B, 8 blocks, 4096 tokens"
}

# Sets $python to a Python whose PyTorch can use the device: that of PATH, or of the environment
# whose libraries the tests of `first` found; $why says why there is none.
find_torch() {
    why="no python3 has torch for $device"
    libraries_of_python='s|^.*"\(/.*\)/lib/python3[^/]*/site-packages/nvidia/.*|\1/bin/python3|p'
    found_by_first=$(sed -n "$libraries_of_python" "$kept/first/properties.json" 2>/dev/null |
        head -n 1)
    works='import torch'
    case $device in cuda*) works="$works; assert torch.cuda.is_available()" ;; esac
    for python in python3 $found_by_first; do
        most=$(seconds_left)
        [ "$most" -le 60 ] || most=60
        [ "$most" -gt 0 ] || break
        timeout -k 5 "$most" "$python" -c "$works" 2>/dev/null && return
        [ $? -ne 124 ] || why="torch takes more than $most s to load"
    done
    return 1
}

# The least of PyTorch's times over ours, in what pytorch_models.py printed to a file.
least_ratio() { # FILE
    awk '/ ms +[0-9.]+ ms +[0-9.]+$/ { if (least == "" || $NF < least) least = $NF }
        END { print least == "" ? "no case was measured" : least }' "$1"
}

pytorch() {
    find_torch || { not_run pytorch "$why"; return; }
    rest=
    step "PyTorch" "$python" bench/pytorch_models.py --program "$program" --device "$device" \
        ${PYTORCH_TOKENS:+--tokens "$PYTORCH_TOKENS"} || rest=", before it ended unfinished"
    found pytorch "$(least_ratio "$out")$rest"
}

# ---- offload ----

# The number of blocks of 14B, of 0.71 GB, that disk, host memory and GPU have room for, at most
# MOST. Other processes may have a part of the GPU.
blocks_with_room() { # MOST
    disk=$(df -Pk "$stage" | awk 'NR == 2 { print $4 * 1024 }')
    host=$(awk '/^MemAvailable/ { print $2 * 1024 }' /proc/meminfo)
    pool=$([ -z "$smi" ] || $smi --query-gpu=memory.free | awk '/^[0-9]/ { print $1 * 1048576 }')
    awk -v disk="$disk" -v host="$host" -v pool="${pool:-1e15}" -v most="$1" 'BEGIN {
        room = disk - 2e9
        if (host - 8e9 < room) room = host - 8e9
        if (0.7 * pool < room) room = 0.7 * pool
        blocks = int(room / 0.71e9)
        print (blocks > most ? most : blocks)
    }'
}

# Sets the sizes of a teacher in the geometry of 14B with at most MOST blocks. False: not even one
# has room.
size_of_offload() { # MOST
    preset=wan2.1-14b pixels=512 passes=14 blocks=$(blocks_with_room "$1")
    [ -z "$quick" ] || { preset=wan2.1-1.3b pixels=32 passes=8 blocks=1; }
    [ "$blocks" -gt 0 ]
}

# A few prompts, so that runs encode no more than they need; written once, since runs may read them.
few_prompts() {
    [ -s "$stage/prompts.txt" ] || head -n 64 models/wan-tiny/prompts.txt >"$stage/prompts.txt"
}

# Makes it by `COMMAND... make_pipeline`.
make_14b() { # COMMAND...
    few_prompts
    echo '{"hidden_size": 256, "depth": 1, "num_heads": 2}' >"$stage/student-of-14b.json"
    make_teacher "$stage/14b" $preset "$blocks" "$@"
}

# Seconds of one pass over the teacher for 8 targets: the median of the steps of a run, but the
# first three and the last two, which begin with nothing and end with all targets made.
seconds_per_pass() { # METRICS
    sed 's/.*"targets": \([0-9]*\),.*"seconds": \([0-9.]*\),.*/\1 \2/' "$1" |
        awk 'NR > 1 && $1 > targets { print 8 * ($2 - s) / ($1 - targets) }
             { targets = $1; s = $2 }' | sed '1,2d' | sed '$d' | sed '$d' | sort -n |
        awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }'
}

# Trains on its targets under a strategy, by `COMMAND... train`.
train_on_14b() { # STRATEGY DEVICES COMMAND...
    strategy=$1 on=$2
    shift 2
    rm -rf "$stage/run"
    # shellcheck disable=SC2086
    "$@" "$program" train --teacher_path "$stage/14b" \
        --data_path "$stage/prompts.txt" --student_config "$stage/student-of-14b.json" \
        --output_dir "$stage/run" --devices "$on" --teacher_device_strategy "$strategy" \
        --trajectories 8 --teacher_window 8 --batch_size 8 --trajectory_steps 2 --target_reuse 1 \
        --target_replay 1 --num_steps $passes --height $pixels --width $pixels --guidance_scale 5 \
        --teacher_dtype bfloat16 --mixed_precision bf16 --save_samples false
}

passes_under() { # STRATEGY
    train_on_14b "$1" "$device" step "train under $1" || return
    pass=$(seconds_per_pass "$stage/run/metrics.jsonl")
    say "" "One pass under $1: ${pass:-not known} s"
}

# GB/s of large copies to the device, in what `bench --only copies` printed to a file.
link_speed() { # FILE
    sed -n 's/^copy, host to device *256.00 MiB .* \([0-9.]*\) GB.s$/\1/p' "$1"
}

# A pass under offload over the larger of the other two times.
offload_ratio() { # RESIDENT OFFLOAD LINK
    bytes=$(stat -c %s "$stage/14b/transformer/diffusion_pytorch_model.safetensors")
    say "" "$bytes bytes over a link of ${3:-unknown} GB/s"
    awk -v resident="$1" -v pass="$2" -v bytes="$bytes" -v link="$3" 'BEGIN {
        if (!(pass > 0 && resident > 0 && link > 0)) { print "a time is not known"; exit }
        most = bytes / link / 1e9
        if (resident > most) most = resident
        printf "%.3f\n", pass / most
    }'
}

offload() {
    device_opens || { not_run offload "$why"; return; }
    size_of_offload "${OFFLOAD_BLOCKS:-40}" ||
        { not_run offload "no room for one block of 14B"; return; }
    say "" "A teacher of $blocks blocks, as many as were asked for and have room."
    make_14b step "make a teacher" || { found offload "no teacher was made"; return; }
    bench copies
    link=$(link_speed "$out")
    passes_under gpu || { found offload "gpu failed"; return; }
    resident=$pass
    passes_under offload || { found offload "offload failed"; return; }
    found offload "$(offload_ratio "$resident" "$pass" "$link")"
    [ "$blocks" -ge 40 ] || say "" "**Fewer blocks than a 14B expert has.**"
    rm -rf "$stage/14b" "$stage/run"
}

# ---- distil ----

# Trains with the options of tools/demo.json, on velocities, and sets $agreement, in percent of the
# velocity, on the processor.
student_of() { # DEVICE OPTION...
    on=$1
    shift
    rm -rf "$stage/student"
    step "train on $on" "$program" train --config tools/demo.json --output_dir "$stage/student" \
        --devices "$on" "$@" &&
        step "eval" "$program" eval --teacher models/wan-tiny --student "$stage/student" \
            --prompts models/wan-tiny/prompts-held-out.txt --steps 20 --count $count \
            --device cpu || return
    agreement=$(sed -n 's/^agreement with the teacher: \([0-9.]*\) % .*/\1/p' "$out")
}

# Sets $steps and $score: those of the processor in its time, or what is asked for.
score_of_processor() {
    if [ -n "${DISTIL_STEPS:-}" ]; then
        steps=$DISTIL_STEPS score=${DISTIL_SCORE:-}
        [ "$steps" != 1000 ] || score=${score:-$score_after_1000}
        return
    fi
    student_of cpu --max_minutes $minutes && [ -n "$agreement" ] || return
    score=$agreement steps=$(wc -l <"$stage/student/metrics.jsonl")
}

# Of a processor with AVX-512 and bf16; --num_steps 1000 in the place of minutes makes it again.
score_after_1000=53.5

# Both students have the same seed and number of steps.
distil() {
    minutes=2.5 count=64 score='' steps=
    [ -z "$quick" ] || { minutes=0.05 count=2; }
    score_of_processor || { found score "the processor failed"; return; }
    [ -n "$score" ] ||
        { not_run score "the processor's score after $steps steps: say DISTIL_SCORE"; return; }
    student_of "$device" --max_minutes 0 --num_steps "$steps" ||
        { found score "$device failed"; return; }
    say "" "After $steps steps: $score % on the processor, $agreement % on $device"
    found score "$(awk -v a="$agreement" -v b="$score" 'BEGIN {
        if (a == "" || b == "") print "eval printed no agreement"; else printf "%.1f\n", a - b }')"
}

# ---- steady ----

# Once a second while the run lasts: second, steps, GPU MiB and busy %, own host KiB. Ends the run
# when the part's time is over.
watch_run() { # PROCESS METRICS
    while kill -0 "$1" 2>/dev/null; do
        [ "$(seconds_left)" -gt 0 ] || kill -9 "$1"
        rows=$(grep -c '' "$2" 2>/dev/null)
        gpu_line=$([ -z "$smi" ] || $smi --query-gpu=memory.used,utilization.gpu | tr -d ,)
        own=$(awk '/^RssAnon/ { print $2 }' "/proc/$1/status" 2>/dev/null)
        echo "$(date +%s) ${rows:-0} ${gpu_line:-- -} ${own:--}" >>"$stage/samples"
        sleep "$pause"
    done
}

# Of the samples between the first rows and the last: the steady part of the run.
steady_figures() {
    awk -v skip="$skip" '$2 > 0 && !first { first = $1 }
        first && $1 >= first + skip && $2 > rows { for (i = 0; i < n; i++) kept[k++] = held[i]
            n = 0 }
        first && $1 >= first + skip { held[n++] = $0; rows = $2 }
        END { for (i = 0; i < k; i++) print kept[i] }' "$stage/samples" >"$stage/steady"
    say "" "Samples (second, steps, GPU MiB, GPU busy %, host KiB), at the start and at the end:" \
        '```' "$(head -n 3 "$stage/steady")" "$(tail -n 3 "$stage/steady")" '```'
}

growth() { # COLUMN DIVISOR: the most of the second half less the most of the first
    awk -v c="$1" -v d="$2" '{ v[NR] = $c } END {
        if (NR < 4) { print "too few samples"; exit }
        for (i = 1; i <= NR; i++) if (i <= NR / 2) { if (v[i] > a) a = v[i] }
            else if (v[i] > b) b = v[i]
        printf "%.1f\n", (b - a) / d }' "$stage/steady"
}

# Minutes that the run lasts: those that are asked for, or whole ones, at most 8; at least 45
# seconds of the part's time remain in which the run opens its models and ends.
minutes_of_run() {
    minutes=$((($(seconds_left) - 45) / 60))
    [ $minutes -le 8 ] || minutes=8
    [ $minutes -ge 1 ] || minutes=1
    [ -z "${STEADY_SECONDS:-}" ] || minutes=$(awk -v most=$minutes -v s="$STEADY_SECONDS" 'BEGIN {
        print (s / 60 < most ? s / 60 : most) }')
    echo "$minutes"
}

steady() {
    device_opens || { for key in idle flat host plan beside; do not_run $key "$why"; done; return; }
    teacher=$stage/1.3b pixels=1024 pause=1 skip=30
    [ -z "$quick" ] ||
        { teacher=models/wan-tiny pixels=64 pause=0.1 skip=0; }
    [ -n "$quick" ] || make_teacher "$teacher" wan2.1-1.3b "" step "make a teacher" ||
        { found plan "no teacher was made"; return; }
    [ -n "$quick" ] || echo '{"depth": 8}' >"$stage/student.json"
    minutes=0.05
    [ -n "$quick" ] || minutes=$(minutes_of_run)
    before=$([ -z "$smi" ] || $smi --query-gpu=memory.used)
    set -- "$program" train --teacher_path "$teacher" --data_path models/wan-tiny/prompts.txt \
        --output_dir "$stage/run" --devices "$device" --teacher_device_strategy gpu \
        --height $pixels --width $pixels --guidance_scale 5 --teacher_dtype bfloat16 \
        --mixed_precision bf16 --trajectories 8 --batch_size 4 --max_minutes "$minutes" \
        --save_samples false --profile_memory
    [ -n "$quick" ] || set -- "$@" --student_config "$stage/student.json"
    : >"$stage/samples"
    "$@" >"$out" 2>&1 &
    run=$!
    watch_run $run "$stage/run/metrics.jsonl"
    wait $run
    status=$? run=
    say "" "### train" '```' "$(cat "$out")" '```'
    [ $status -eq 0 ] || { found plan "the run failed with exit status $status"; return; }
    steady_figures
    found host "$(growth 5 1024)"
    found plan "$(awk '/: planned .* measured /{ on = $0 !~ /host memory: / }
        on && / measured / { sub(/.* planned /, ""); sub(/,/, ""); n++
            if ($1 $2 != $(NF - 1) $NF) bad++ }
        END { print n ? bad + 0 : "no sizes were printed" }' "$out")"
    if [ -z "$smi" ]; then
        for key in idle flat beside; do not_run $key "there is no nvidia-smi for this device"; done
        return
    fi
    found idle "$(awk '$4 !~ /^[0-9]+$/ { unknown = 1 } { busy += $4 } END {
        if (unknown || !NR) print "the driver does not say"
        else printf "%.1f\n", 100 - busy / NR }' "$stage/steady")"
    found flat "$(growth 3 1)"
    planned=$(find_planned_mib)
    found beside "$(awk -v before="$before" -v planned="$planned" '$3 > most { most = $3 } END {
        printf "%.0f\n", most - before - planned }' "$stage/steady")"
}

# The plan's bytes of the device, as run.json has them, in MiB.
find_planned_mib() {
    tr -d ' \n' <"$stage/run/run.json" | sed 's/.*"devices":{"[^"]*":\([0-9]*\).*/\1/' |
        awk '{ print $1 / 1048576 }'
}

# ---- all ----

{
    echo "$(date -u +%Y-%m-%d), $("$program" --version | head -n 1), $(uname -m), $(nproc) cores"
    [ -z "$opening" ] || { echo; echo "**Failed: $opening**"; }
    if [ -n "$smi" ]; then
        echo
        echo '```'
        timeout -k 5 10 nvidia-smi -i "$gpu" 2>&1 || echo "nvidia-smi: exit status $?"
        echo '```'
    fi
} >"$kept/machine"
for part in ${*:-$parts}; do
    deadline=$(($(date +%s) + seconds))
    : >"$kept/$part.found"
    printf '\n## %s\n' "$part" >"$kept/$part.md"
    $part
    rm -rf "${stage:?}"/*
    write_report
done
grep -v '| part [a-z]* was not run | not run |$' "$kept/table"
echo "$report, $report.tar.gz: $passed passed, $failed failed, $missing not run"
[ "$failed" -eq 0 ]

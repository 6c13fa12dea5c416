#!/bin/sh
# Tests tools/gpu_check.sh on a machine without a GPU.
#
# 1. Every judgement: the parts run on stand-ins for the program, its tests, compute-sanitizer,
#    nvidia-smi and python3, which print what the real ones print, once with figures that meet every
#    requirement and once with figures that miss every one. They also see the environment and the
#    options that the script gives them.
# 2. That the real program prints what the script reads: on a simulated device, made small.
#
# Usage: tests/gpu_check.sh SOURCE_FOLDER BUILD_FOLDER
set -eu
source=$1 build=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
fake=$stage/fake
mkdir -p "$fake/bin"

fail() {
    echo "$*"
    cat "$stage/report.md"
    exit 1
}

write_fake() { # PATH: the script on standard input
    { echo '#!/bin/sh'; cat; } >"$1"
    chmod +x "$1"
}

# ---- 1. stand-ins; FIGURES=good or bad ----

write_fake "$fake/gpu_tests" <<'END'
[ "${1:-none}" != "$KILLED" ] || kill -9 $$
case $1 in
"") printf '%s\n' norm device lone_peer fixtures properties reopen ;;
lone_peer)
    [ -z "$NO_NCCL" ] || { echo "not tested here: NCCL: it is missing"; exit 77; }
    [ "$FIGURES" = good ] ;;
*)
    echo "case 7 failed: $1: m 28, n 65"
    [ "$FIGURES" = good ] && [ "$LD_LIBRARY_PATH" = "$EXPECTED_LIBRARIES" ] ;;
esac
END
write_fake "$fake/bin/compute-sanitizer" <<'END'
[ "$FIGURES" = good ] && [ "$WD_TEST_SANITIZER" = "$2" ]
END
write_fake "$fake/make_pipeline" <<'END'
[ "$LD_LIBRARY_PATH" = "$EXPECTED_LIBRARIES" ] || exit 127
echo "$3 of ${5:-all} blocks" >>"$MADE"
mkdir -p "$1/transformer"
: >"$1/model_index.json"
head -c 1000000 /dev/zero >"$1/transformer/diffusion_pytorch_model.safetensors"
END
write_fake "$fake/bin/nvidia-smi" <<'END'
[ -z "$SMI_HANGS" ] || exec sleep 20
case $* in
*utilization*)
    [ -f "$FIGURES_STATE" ] || echo 4000 >"$FIGURES_STATE"
    read -r used <"$FIGURES_STATE"
    if [ "$FIGURES" = good ]; then echo "4000, 98"; else echo "$used, 90"; fi
    echo $((used + 10)) >"$FIGURES_STATE" ;;
*memory.free*) echo 81920 ;;
*) echo 1000 ;;
esac
END
write_fake "$fake/bin/python3" <<'END'
[ "$1" != -c ] || exit 0
echo "$*" >>"$MADE"
ratio=1.20
[ "$FIGURES" = good ] || ratio=0.90
echo "case                    tokens   wandistiller      PyTorch    ratio"
echo "forward 14B, 4 blocks     1024       10.00 ms     15.00 ms     1.50"
echo "train 1.3B, 8 blocks      1024       10.00 ms     12.00 ms     $ratio"
[ -z "$PYTORCH_FAILS" ]
END
# A command with these words is ended at once, as if its time were over.
write_fake "$fake/bin/timeout" <<END
case "\$* " in *" \${ENDED:-none} "*) exit 124 ;; esac
exec $(command -v timeout) "\$@"
END
# Where it fails, it leaves a part of the archive.
write_fake "$fake/bin/tar" <<END
[ -n "\$TAR_FAILS" ] || exec $(command -v tar) "\$@"
for file; do case \$file in *.tar.part) echo half >"\$file" ;; esac; done
exit 2
END

# The program: plan, bench, train and eval. A pass under offload takes 1.2 ms, resident 1.18 or 1
# ms, and 1 MB over the link 1 ms.
write_fake "$fake/wandistiller" <<'END'
all=$*
value() { # OPTION
    printf '%s\n' "$all" | sed -n "s/.*--$1 \([^ ]*\).*/\1/p"
}
good() { [ "$FIGURES" = good ]; }
case $1 in
plan)
    [ -z "$NO_GPU" ] || { echo "cuda:0: the GPU is lost"; exit 6; }
    [ -z "$NO_KERNELS" ] || { echo "cuda:0: this build has no CUDA"; exit 6; }
    [ -z "$PLAN_CRASHES" ] || { echo "looking for cuDNN"; kill -SEGV $$; }
    [ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ] || { echo "another order than nvidia-smi's"; exit 1; }
    [ -z "$ONE_GPU" ] || { echo "cuda:1: expected a GPU below 1, for it is alone"; exit 6; }
    ;;
bench)
    share=66.0
    good || share=49.0
    [ -n "$NO_LINK" ] ||
        echo "copy, host to device          256.00 MiB     0.270 ms      1.00 GB/s"
    for tokens in 1024 1560 4096 8192; do
        rate="BF16       12.00 ms  100000.0 GFLOP/s  $share % of peak"
        echo "forward 14B, 4 blocks, $tokens tokens $rate"
        echo "train 1.3B, 8 blocks, $tokens tokens  $rate"
    done ;;
train)
    case ${WD_GPU_SHARES:-none}${CUDA_VISIBLE_DEVICES:-}$all in
    none* | 20*"cuda:0,1@"*balanced*) ;;
    *) exit 1 ;;
    esac
    [ -z "$EXPECTED_MINUTES" ] || [ "$(value max_minutes)" = "$EXPECTED_MINUTES" ] || exit 1
    case "$NO_NCCL$all" in no*"--nccl on"*) echo "NCCL is missing"; exit 6 ;; esac
    prompts=$(value data_path) config=$(value student_config)
    [ -z "$prompts" ] || echo "${prompts##*/} of $(stat -c %y "$prompts")" >>"$MADE"
    [ -z "$config" ] ||
        echo "student of $(basename "$(value teacher_path)"): $(cat "$config")" >>"$MADE"
    [ -z "$TRAIN_HANGS" ] || { trap '' TERM; echo $$ >>"$TRAIN_HANGS"; sleep 60; }
    folder=$(value output_dir) strategy=$(value teacher_device_strategy)
    mkdir -p "$folder/transformer"
    student=one
    good || student="$strategy, $(value devices), $(value nccl)"
    loss=0.5000
    good || [ "$strategy" != cpu ] || loss=0.5150
    echo "$student" >"$folder/transformer/diffusion_pytorch_model.safetensors"
    echo '{"memory": {"devices": {"cuda:0": 1048576000}}}' >"$folder/run.json"
    measured="5.82 MiB" pass=1180
    good || measured="5.83 MiB"
    [ "$strategy" != offload ] || pass=1200
    good || [ "$strategy" = offload ] || pass=1000
    rows=14 pause=0
    case $all in *profile_memory*) rows=30 pause=0.1 ;; esac
    row=0 held=
    : >"$folder/metrics.jsonl"
    while [ $row -lt $rows ]; do
        row=$((row + 1))
        printf '{"step": %d, "loss": %s, "targets": %d, "phase": "velocity", ' \
            $row $loss $((8 * row)) >>"$folder/metrics.jsonl"
        printf '"seconds": 0.0%d, "steps_per_s": 1}\n' $((10000 + pass * row)) \
            >>"$folder/metrics.jsonl"
        [ "$pause" = 0 ] || sleep $pause
    done
    echo "host memory: planned 1 MiB, measured 2 MiB"
    echo "  training   staging                          planned 1 MiB     measured 2 MiB"
    echo "cuda:0: planned 1.02 GiB, measured 1.02 GiB"
    echo "  training   student weights                  planned 5.82 MiB  measured $measured" ;;
eval)
    agreement=60.0
    good || [ ! -f "$FIGURES_STATE.eval" ] || agreement=57.0 # the second student
    : >"$FIGURES_STATE.eval"
    echo "agreement with the teacher: $agreement % of the velocity, pictures correlate 0.954" ;;
esac
END
# Runs all parts on the stand-ins; every requirement but those given has the result.
judged() { # good|bad RESULT SHOWN
    rm -f "$stage/state" "$stage/state.eval"
    for parts in first ""; do
        # shellcheck disable=SC2086
        FIGURES=$1 FIGURES_STATE=$stage/state QUICK=1 PATH="$fake/bin:$PATH" \
            sh "$source/tools/gpu_check.sh" "$fake" "$stage/report.md" $parts >"$stage/said" || true
    done
    grep '^| [a-z]* | ' "$stage/report.md" | grep -v '^| part ' >"$stage/table"
    [ "$(wc -l <"$stage/table")" -ge 32 ] || fail "the table is not whole"
    others=$(grep -vc "| $2 |\$" "$stage/table") || true
    [ "$others" = "$3" ] || fail "$1 figures: $others lines are not \"$2\", expected $3"
}

export ONE_GPU='' NO_NCCL='' NO_KERNELS='' NO_GPU='' EXPECTED_MINUTES='' MADE=$stage/made
export KILLED='' SMI_HANGS='' PYTORCH_FAILS='' ENDED='' TAR_FAILS='' PLAN_CRASHES='' NO_LINK=''
export TRAIN_HANGS=''
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}" EXPECTED_LIBRARIES="${LD_LIBRARY_PATH:-}"
judged good pass 3 # what is only shown
judged bad fail 4  # that, and the host memory of a shell script

# The tests find a bundle's libraries first, then those that the user's environment names.
for own in /own "/own:/other one" ""; do
    FIGURES=good QUICK=1 GPU_CHECK_LIBRARIES=/bundle/lib:/bundle/check/lib LD_LIBRARY_PATH=$own \
        EXPECTED_LIBRARIES="/bundle/lib:/bundle/check/lib${own:+:$own}" \
        sh "$source/tools/gpu_check.sh" "$fake" "$stage/libraries.md" correct >"$stage/said" ||
        fail "tests do not find the libraries of the bundle and of LD_LIBRARY_PATH=$own"
done

# The long run ends before its part does, with time left for all that is beside its steps.
for time in 540:8 250:3 30:1; do
    EXPECTED_MINUTES=${time#*:} PART_SECONDS=${time%:*} FIGURES=good FIGURES_STATE=$stage/state \
        sh "$source/tools/gpu_check.sh" "$fake" "$stage/time.md" steady >"$stage/said" || true
    ! grep -q "the run failed" "$stage/time.md" ||
        fail "of ${time%:*} seconds the run was not to take ${time#*:} minutes"
done

# Sizes by option.
sized() { # PART WORDS: the report or what was made has these words
    FIGURES=good FIGURES_STATE=$stage/state PATH="$fake/bin:$PATH" \
        sh "$source/tools/gpu_check.sh" "$fake" "$stage/size.md" "$1" >"$stage/said" || true
    grep -qse "$2" "$stage/size.md" "$MADE" || fail "$1: expected $2"
}
rm -f "$stage/state.eval"
EXPECTED_MINUTES=1.5 STEADY_SECONDS=90 sized steady "not the planned one .*| pass |"
OFFLOAD_BLOCKS=1 sized offload "wan2.1-14b of 1 blocks"
PYTORCH_TOKENS=1560,4096 sized pytorch "--tokens 1560,4096$"
DISTIL_STEPS=1000 sized distil "After 1000 steps: 53.5 % on the processor, 60.0 %"
DISTIL_STEPS=70 DISTIL_SCORE=59 sized distil "After 70 steps: 59 % on the processor, 6"
DISTIL_STEPS=70 sized distil "score after 70 steps: say DISTIL_SCORE | not run |"

# A device that cannot be opened is found out before anything is written for it.
rm -f "$MADE"
for part in offload steady; do
    NO_GPU=yes sized $part "| cuda:0: the GPU is lost | not run |"
    [ ! -f "$MADE" ] || fail "$part made a teacher for a GPU that is lost"
done

# What a machine lacks is said, and is no failure.
lacking() { # ONE_GPU NO_NCCL COUNT WORDS: so many lines of the part are not run, for this reason
    FIGURES=good ONE_GPU=$1 NO_NCCL=$2 QUICK=1 \
        sh "$source/tools/gpu_check.sh" "$fake" "$stage/report.md" gpus >"$stage/said" ||
        fail "what this machine lacks is a failure"
    [ "$(grep -c "^| gpus | .* | $4.* | not run |\$" "$stage/report.md")" = "$3" ] ||
        fail "expected $3 lines with: $4"
}
rm -rf "$stage/report.md.parts"
lacking yes '' 5 "skipped: one GPU"
lacking '' no 2 "NCCL"

# ---- what ends early, hangs or is killed ----

# Runs a part on good figures; $status is the exit status.
checked() { # PART
    status=0
    rm -rf "$stage/report.md.parts"
    FIGURES=good FIGURES_STATE=$stage/state PATH="$fake/bin:$PATH" \
        sh "$source/tools/gpu_check.sh" "$fake" "$stage/report.md" "$1" >"$stage/said" 2>&1 ||
        status=$?
}
expect() { # STATUS WORDS...: the exit status, and patterns that the report has
    [ $status -eq "$1" ] || fail "exit status $status, expected $1"
    shift
    for words in "$@"; do
        grep -q "$words" "$stage/report.md" || fail "the report has no \"$words\""
    done
}

# What is read at the same time is written once, and each teacher has its own student. The program
# that makes teachers finds the bundle's libraries.
rm -f "$MADE"
GPU_CHECK_LIBRARIES=/lib EXPECTED_LIBRARIES="/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
    checked first
expect 0 "| steps that fail | at most 0 | 0 | pass |"
[ "$(grep '^prompts.txt of ' "$MADE" | sort -u | wc -l)" = 1 ] || fail "prompts are written twice"
printf '%s\n' 'student of 14b: {"hidden_size": 256, "depth": 1, "num_heads": 2}' \
    'student of teacher: {"depth": 1}' >"$stage/students"
grep '^student of ' "$MADE" | sort -u | cmp - "$stage/students" || fail "other students"

# What its own limit ends, or another process, has failed. A figure that is only shown may be
# unknown.
KILLED=norm ENDED="$fake/gpu_tests reopen" NO_LINK=yes PART_SECONDS=1000 QUICK=1 checked first
expect 1 "| steps that fail | at most 0 | 2 | fail |" "| a time is not known | not run |" \
    "^reopen .*: FAILED: ended after 400 s, since it hangs or is too slow" \
    "^k-norm .*: FAILED: ended by signal 9"
KILLED=norm QUICK=1 checked correct
expect 1 "processor's: test programs that fail | at most 0 | 1 | fail |"

# What the part's end cuts short has not, but nothing is known of it; and it is gone.
: >"$stage/hanging"
TRAIN_HANGS=$stage/hanging PART_SECONDS=4 QUICK=1 checked first
expect 0 "| steps that fail | at most 0 | 0 of those that ran; not run: .*fp32-gpu.* | not run |" \
    "| fp32: .* | 0 of 4 runs ended in the part's time | not run |"
grep -q "^| first .* | not run |" "$stage/said" || fail "what was not run is not said"
while read -r process; do
    case $(sed -n 's/^State:.\(.\).*/\1/p' "/proc/$process/status" 2>/dev/null) in
    "" | Z | X) ;;
    *) fail "a program that hangs was left running" ;;
    esac
done <"$stage/hanging"

# The first opening of the device has a limit, as nvidia-smi has, and what comes of it is said. A
# whole archive is not replaced by one that is not.
PLAN_CRASHES=yes SMI_HANGS=yes ENDED="nvidia-smi -i" TAR_FAILS=yes QUICK=1 checked correct
expect 0 "^nvidia-smi: exit status 124" \
    "^\*\*Failed: the first opening of cuda:0: ended by signal 11: looking for cuDNN" \
    "processor's: test programs that fail | at most 0 | 0 | pass |"
grep -q "looking for cuDNN" "$stage/report.md.parts/opening" || fail "an opening's output is lost"
tar -tzf "$stage/report.md.tar.gz" >/dev/null || fail "the archive is lost"
ENDED="$fake/wandistiller plan --teacher_path" QUICK=1 checked correct
expect 0 "the first opening of cuda:0: ended after 60 s"

# Some of PyTorch's cases are not all; a torch that loads slowly is not missing.
PYTORCH_FAILS=yes QUICK=1 checked pytorch
expect 1 "| 1.20, before it ended unfinished | fail |"
ENDED="python3 -c" QUICK=1 checked pytorch
expect 0 "| torch takes more than 60 s to load | not run |"

# A program without kernels for GPUs is not checked, and a bundle of it says so.
status=0
NO_KERNELS=yes sh "$source/tools/gpu_check.sh" "$fake" "$stage/none.md" 2>"$stage/said" || status=$?
[ $status -eq 2 ] && grep -q "no kernels for cuda:0: build it where nvcc is" "$stage/said" ||
    fail "a program without kernels was checked"
NO_KERNELS=yes sh "$source/tools/bundle.sh" "$fake" "$stage/none.tar.xz" 2>"$stage/said" || true
grep -q "^warning: .* processors only: its program was built without nvcc" "$stage/said" ||
    fail "a bundle without kernels was not warned of"
sh "$source/tools/bundle.sh" "$fake" "$stage/none.tar.xz" 2>"$stage/said" || true
! grep -q "^warning: .* nvcc" "$stage/said" || fail "a bundle with kernels was warned of"

# ---- 2. the real program ----

result() { # PART WORDS RESULT: of the requirement that has these words
    line=$(grep "^| $1 | .*$2" "$stage/report.md")
    case $line in *"| $3 |") ;; *) fail "expected \"$3\": $line" ;; esac
}

# Several calls make one report.
rm -rf "$stage/report.md.parts"
for parts in "correct strategies gpus" "memcheck distil" "offload steady"; do
    # shellcheck disable=SC2086
    DEVICE=sim:3GiB@link=1GB/s,compute=1TFLOP/s QUICK=1 sh "$source/tools/gpu_check.sh" "$build" \
        "$stage/report.md" $parts || true
done
fixtures=pass
[ -x "$build/gpu_tests" ] || fixtures="not run" # it is built where CUDA's compiler is
result correct "PyTorch and diffusers" "$fixtures"
result strategies "fp32: different students" pass
result strategies "bf16: different students" pass
result gpus "copies between two GPUs" "not run"
result memcheck memcheck "not run"
result steady "planned one" pass
for words in "offload, window 8" "agreement of the" "host memory after"; do
    # a figure, whatever it is on this machine
    grep -Eq "^\| [a-z]+ \| .*$words.* \| -?[0-9.]+ \| (pass|fail) \|\$" "$stage/report.md" ||
        fail "no figure of: $words"
done

# What cannot be run is said, and changes nothing.
status=0
sh "$source/tools/gpu_check.sh" "$build" "$stage/none.md" nonsense 2>"$stage/said" || status=$?
[ $status -eq 2 ] && grep -q "no part is called nonsense" "$stage/said" || fail "nonsense was run"

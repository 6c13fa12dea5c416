# The part `first` of tools/gpu_check.sh, which reads this file: what a machine with a GPU can show
# in four minutes, in the order of what teaches most. Steps that do not need the GPU for themselves
# run at the same time. Each has a time limit, and its output is in $first_out/STEP as it comes; the
# other steps go on where one fails. It is packed into one archive beside the report. A step that
# its own limit ends has failed; one that the part's end cuts short has not, and was not run.

first_out=$kept/first

first_left() {
    left=$((first_end - $(date +%s)))
    echo "$left"
}

# One line of the summary, which is printed, too.
tell() { printf '%s\n' "$*" | tee -a "$first_out/summary"; }

# The result of a step. A test that ends with 77 cannot be run here. $is_cut: MOST is what was left
# of the part's time.
result_of() { # STATUS NAME SECONDS MOST
    if [ "$1" -eq 0 ]; then
        echo pass
    elif [ "$1" -eq 77 ]; then
        why=$(sed -n 's/^not tested here: //p' "$first_out/$2" | tail -n 1)
        echo "not run: $(printf '%s' "$why" | cut -c1-120)"
    elif [ -n "$is_cut" ] && timed_out "$1" "$3" "$4"; then
        echo "not run: the part's time was over"
    else
        echo "FAILED: $(how_it_ended "$1" "$3" "$4" "$first_out/$2")"
    fi
}

# Runs a command for at most SECONDS, or what is left of the part's time. A device that only tries
# this script out may be slow.
first_step() { # NAME SECONDS COMMAND...
    name=$1 most=$2 is_cut=
    shift 2
    [ -z "$quick" ] || [ "$most" -lt 1 ] || most=$((most * 10))
    left=$(first_left)
    [ "$most" -lt "$left" ] || is_cut=yes most=$left
    began=$(date +%s) status=124
    : >"$first_out/$name"
    if [ "$most" -gt 1 ]; then
        CUBLASLT_LOG_LEVEL=${log_level:-1} CUBLASLT_LOG_FILE=$first_out/$name.cublaslt \
            CUDNN_LOGLEVEL_DBG=${cudnn_level:-1} CUDNN_LOGDEST_DBG=$first_out/$name.cudnn \
            timeout -k 5 "$most" "$@" >"$first_out/$name" 2>&1
        status=$?
    fi
    [ -s "$first_out/$name.cublaslt" ] || rm -f "$first_out/$name.cublaslt"
    [ -s "$first_out/$name.cudnn" ] || rm -f "$first_out/$name.cudnn"
    now=$(date +%s)
    tell "$(printf '%-24s %3d s, at %3d s: %s' "$name" $((now - began)) \
        $((now - first_end + first_seconds)) \
        "$(result_of $status "$name" $((now - began)) "$most")")"
    for file in "$first_out/$name" "$first_out/$name".cu*; do shorten "$file"; done
    return $status
}

# Cuts the middle out of a long output, so that what is packed stays small.
shorten() { # FILE
    [ -f "$1" ] && [ "$(wc -c <"$1")" -gt 400000 ] || return
    { head -c 200000 "$1"; echo; echo "[cut]"; tail -c 200000 "$1"; } >"$1.cut"
    mv "$1.cut" "$1"
}

gpu_test() { # NAME SECONDS TEST
    first_step "$1" "$2" ${libraries:+env "LD_LIBRARY_PATH=$library_path"} "$build/gpu_tests" "$3"
}

first_machine() {
    first_step machine 20 sh -c 'nvidia-smi; nvidia-smi -q -d MEMORY,CLOCK,POWER,ECC | head -n 80
        lscpu | head -n 25; free -g; df -h / /tmp; ulimit -a
        ldconfig -p | grep -E "libcuda.so|cublasLt|cudnn|nvrtc|nccl"; env | grep -iE "cuda|nvidia"
        command -v python3 gcc nvcc ncu compute-sanitizer'
}

# Speeds that are stated are not measured: several runs would measure them at the same time.
stated="@link=25GB/s,compute=100TFLOP/s"

# One student under one strategy; its hash is the last line of the step's output. No shell runs the
# program: `timeout` would wait for the shell alone, and leave a program that hangs on the GPU.
first_train() { # NAME TEACHER STRATEGY DEVICES OPTION...
    name=$1 teacher=$2 strategy=$3 on=$4
    shift 4
    # shellcheck disable=SC2086
    first_step "$name" 90 $shares "$program" train --teacher_path "$teacher" \
        --data_path "$stage/prompts.txt" --cache_dir "$stage/$name.cache" \
        --output_dir "$stage/$name" --guidance_scale 2 --save_samples false \
        --devices "$on$stated" --teacher_device_strategy "$strategy" "$@" &&
        sha256sum <"$stage/$name/transformer/diffusion_pytorch_model.safetensors" \
            >>"$first_out/$name"
}

# The strategies of one GPU, and one of several: there the GPU is two devices with half of its
# memory each (src/dev/cuda/cuda.c).
first_strategies_of() {
    echo gpu offload disk
    [ -z "$gpu" ] || echo balanced
}

# Runs that must make the same student, at the same time; $processes has theirs.
first_strategies() { # TYPE
    use_type "$1" first_step "$1-teacher" 60 || return
    for strategy in $(first_strategies_of); do
        shares='' on=${device%%@*}
        [ $strategy != balanced ] ||
            shares="env CUDA_VISIBLE_DEVICES=$gpu WD_GPU_SHARES=2" on=cuda:0,1
        # shellcheck disable=SC2086
        first_train "$type-$strategy" "$teacher" $strategy $on $options &
        processes="$processes $!"
    done
}

first_compare() { # TYPE
    wanted=0 late=0
    for strategy in $(first_strategies_of); do
        wanted=$((wanted + 1))
        ! grep -Eq "^$1-(teacher|$strategy) .*: not run" "$first_out/summary" || late=$((late + 1))
        tail -n 1 "$first_out/$1-$strategy" 2>/dev/null | grep -Eo '^[0-9a-f]{64}'
    done >"$stage/hashes"
    runs=$(wc -l <"$stage/hashes") students=$(sort -u "$stage/hashes" | wc -l)
    [ "$runs" -eq $wanted ] || [ "$students" -gt 1 ] || students="$runs of $wanted runs ended"
    # shellcheck disable=SC2046
    tell "$1, different students under" $(first_strategies_of) "together: $students"
    case $students in
    *" $wanted runs ended")
        if [ $((runs + late)) -eq $wanted ]; then
            not_run "first-$1" "$students in the part's time"
        else
            found "first-$1" "$students"
        fi ;;
    *) found "first-$1" "$students" ;;
    esac
}

# A pass over blocks in the geometry of 14B for a window of 8, resident and streamed.
first_offload() {
    if [ ! -f "$stage/14b/model_index.json" ]; then
        why="no teacher of 14B was made"
        [ "$blocks" -gt 0 ] || why="no room for one block of 14B"
        tell "offload: not run: $why"
        not_run first-offload "$why"
        return
    fi
    resident='' pass=''
    train_on_14b gpu "${device%%@*}$stated" first_step offload-resident 45 &&
        resident=$(seconds_per_pass "$stage/run/metrics.jsonl")
    train_on_14b offload "${device%%@*}$stated" first_step offload-streamed 45 &&
        pass=$(seconds_per_pass "$stage/run/metrics.jsonl")
    ratio=$(offload_ratio "$resident" "$pass" "$(link_speed "$first_out/copies")")
    tell "offload, $blocks blocks of 14B, window 8: a pass takes ${pass:-?} s, resident" \
        "${resident:-?} s; over the larger of that and the link: $ratio"
    found first-offload "$ratio"
    rm -rf "$stage/14b" "$stage/run"
}

# Loads torch a first time, beside other steps: from a slow disk that takes a minute.
first_torch() {
    if find_torch; then echo "$python" >"$stage/python"; else echo "$why" >"$stage/no-torch"; fi
}

# Beside what `bench` has measured. Compiling takes a minute; less time is for what is not compiled.
# It is last and has all time that is left: that PyTorch is slow is no failure.
first_pytorch() {
    wait "$loading"
    if [ ! -s "$stage/python" ]; then
        why=$(cat "$stage/no-torch")
        tell "PyTorch: not run: $why"
        not_run first-pytorch "$why"
        return
    fi
    python=$(cat "$stage/python") eager=--eager
    [ "$(first_left)" -lt 90 ] || eager=
    first_step pytorch "$(first_left)" "$python" bench/pytorch_models.py \
        --ours "$first_out/models" \
        --device "${device%%@*}" --tokens "${PYTORCH_TOKENS:-4096}" $eager
    tell "$(grep -E ' ms +[0-9.]+$' "$first_out/pytorch")"
    found first-pytorch "$(least_ratio "$first_out/pytorch")"
}

first_failures() {
    grep -hE '^case [0-9]+ failed|^\[  (FAILED|ERROR) |^    .*(largest error|were changed)|error:' \
        "$first_out"/k-* "$first_out"/fixtures "$first_out"/device "$first_out"/reopen 2>/dev/null |
        cut -c1-240 | head -n 20
}

# How many steps failed; with those that were not run or did not end in the part's time nothing is
# known where none failed.
first_verdict() {
    bad=$(grep -cE ' s, at +[0-9]+ s: FAILED' "$first_out/summary")
    rest=$(sed -nE 's/^([^ ]+) +[0-9]+ s, at +[0-9]+ s: not run.*/\1/p' "$first_out/summary" |
        tr '\n' ' ' | cut -c1-200)
    if [ "$bad" -eq 0 ] && [ -n "$rest" ]; then
        not_run first-failed "0 of those that ran; not run: ${rest% }"
    else
        found first-failed "$bad"
    fi
}

first() {
    first_seconds=${PART_SECONDS:-240}
    first_end=$(($(date +%s) + first_seconds)) deadline=$first_end
    rm -rf "$first_out" && mkdir -p "$first_out" || return
    tell "first: $device, $("$program" --version | head -n 1), at most $first_seconds s"
    first_machine &
    # The libraries' own logs of one opening of the device are kept whole.
    log_level=5 cudnn_level=3 gpu_test properties.json 60 properties
    opened=$? log_level='' cudnn_level=''
    wait
    write_report
    # The processor makes the teacher of 14B and loads torch while the GPU is tested.
    few_prompts
    size_of_offload "${OFFLOAD_BLOCKS:-8}"
    [ $opened -eq 77 ] || [ "$blocks" -lt 1 ] || make_14b first_step teacher-14b 100 &
    making=$!
    first_torch &
    loading=$! processes=
    gpu_test reopen 40 reopen
    write_report
    for test in $(kernel_tests); do
        WD_TEST_CASES=1 gpu_test "k-$test" 100 "$test" &
        processes="$processes $!"
    done
    # shellcheck disable=SC2086
    [ -z "$processes" ] || wait $processes
    write_report
    gpu_test device 90 device
    write_report
    NCCL_DEBUG=INFO gpu_test nccl 40 lone_peer
    gpu_test fixtures 60 fixtures
    write_report
    processes=
    first_strategies fp32
    first_strategies bf16
    # shellcheck disable=SC2086
    wait $making $processes
    first_compare fp32
    first_compare bf16
    write_report
    first_step models 90 "$program" bench --only models --device "$device"
    first_step copies 20 "$program" bench --only copies --device "$device"
    write_report
    first_offload
    write_report
    first_step shapes 60 "$program" bench --only shapes --device "$device"
    write_report
    first_pytorch
    tell "$(grep -hE 'matrix product|% of peak|left out' "$first_out/models" | head -n 14)"
    tell "$(grep -h 'GB/s' "$first_out/copies" | head -n 4)"
    tell "$(first_failures)"
    first_verdict
    say "" '```' "$(head -n 100 "$first_out/summary")" '```'
}

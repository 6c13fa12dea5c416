# The part `first` of tools/gpu_check.sh, which reads this file: what a machine with a GPU can show
# in four minutes, in the order of what teaches most. Steps that do not need the GPU for themselves
# run at the same time. Each has a time limit, and its output is in $first_out/STEP as it comes; the
# other steps go on where one fails. At the end it is packed into one archive beside the report.

first_out=$kept/first

first_left() {
    left=$((first_end - $(date +%s)))
    echo "$left"
}

# One line of the summary, which is printed, too.
tell() { printf '%s\n' "$*" | tee -a "$first_out/summary"; }

# The result of an exit status. A test that ends with 77 cannot be run here; 124 and 137 are of
# `timeout`.
result_of() { # STATUS
    case $1 in
    0) echo pass ;;
    77)
        why=$(sed -n 's/^not tested here: //p' "$first_out/$2" | tail -n 1 | cut -c1-120)
        echo "not run: $why" ;;
    124 | 137) echo "not run: its time was over" ;;
    *) echo "FAILED ($1)" ;;
    esac
}

# Runs a command for at most SECONDS, or what is left of the part's time.
first_step() { # NAME SECONDS COMMAND...
    name=$1 most=$2
    shift 2
    left=$(first_left)
    [ "$most" -lt "$left" ] || most=$left
    began=$(date +%s) status=124
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
        $((now - first_end + first_seconds)) "$(result_of $status "$name")")"
    return $status
}

gpu_test() { # NAME SECONDS TEST
    first_step "$1" "$2" \
        ${libraries:+env "LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"} \
        "$build/gpu_tests" "$3"
}

first_machine() {
    first_step machine 20 sh -c 'nvidia-smi; nvidia-smi -q -d MEMORY,CLOCK,POWER,ECC | head -n 80
        lscpu | head -n 25; free -g; df -h / /tmp; ulimit -a
        ldconfig -p | grep -E "libcuda.so|cublasLt|cudnn|nvrtc|nccl"; env | grep -iE "cuda|nvidia"
        command -v python3 gcc nvcc ncu compute-sanitizer'
}

# Speeds that are stated are not measured: several runs would measure them at the same time.
stated="@link=25GB/s,compute=100TFLOP/s"

# One student under one strategy; its hash is the last line of the step's output.
first_train() { # NAME TEACHER STRATEGY DEVICES OPTION...
    name=$1 teacher=$2 strategy=$3 on=$4
    shift 4
    # shellcheck disable=SC2016,SC2086
    first_step "$name" 90 \
        sh -c '"$@" && sha256sum <"$0/transformer/diffusion_pytorch_model.safetensors"' \
        "$stage/$name" $shares "$program" train --teacher_path "$teacher" \
        --data_path "$stage/prompts.txt" --cache_dir "$stage/$name.cache" \
        --output_dir "$stage/$name" --guidance_scale 2 --save_samples false \
        --devices "$on$stated" --teacher_device_strategy "$strategy" "$@"
}

# The strategies of one GPU, and one of several: there the GPU is two devices with half of its
# memory each (src/dev/cuda/cuda.c).
first_strategies_of() {
    echo gpu offload disk
    [ -z "$gpu" ] || echo balanced
}

# Runs that must make the same student, at the same time.
first_strategies() { # TYPE
    use_type "$1" || return
    few_prompts
    for strategy in $(first_strategies_of); do
        shares='' on=${device%%@*}
        [ $strategy != balanced ] ||
            shares="env CUDA_VISIBLE_DEVICES=$gpu WD_GPU_SHARES=2" on=cuda:0,1
        # shellcheck disable=SC2086
        first_train "$type-$strategy" "$teacher" $strategy $on $options &
    done
}

first_compare() { # TYPE
    wanted=0
    for strategy in $(first_strategies_of); do
        wanted=$((wanted + 1))
        tail -n 1 "$first_out/$1-$strategy" 2>/dev/null | grep -Eo '^[0-9a-f]{64}'
    done >"$stage/hashes"
    runs=$(wc -l <"$stage/hashes") students=$(sort -u "$stage/hashes" | wc -l)
    [ "$runs" -eq $wanted ] || students="$runs of $wanted runs ended"
    # shellcheck disable=SC2046
    tell "$1, different students under" $(first_strategies_of) "together: $students"
    found "first-$1" "$students"
}

# The teacher of `first_offload`, which the processor makes while the GPU is tested.
first_teacher() {
    size_of_offload "${OFFLOAD_BLOCKS:-8}" && make_14b first_step teacher-14b 100
}

# A pass over blocks in the geometry of 14B for a window of 8, resident and streamed.
first_offload() {
    if [ ! -f "$stage/14b/model_index.json" ]; then
        tell "offload: not run: there is no teacher of 14B"
        not_run first-offload "no teacher of 14B was made"
        return
    fi
    size_of_offload "${OFFLOAD_BLOCKS:-8}"
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

# Beside what `bench` has measured. Compiling takes a minute; less time is for what is not compiled.
first_pytorch() {
    if ! find_torch; then
        tell "PyTorch: not run: no python3 has torch for $device"
        not_run first-pytorch "no python3 has torch for $device"
        return
    fi
    eager=--eager
    [ "$(first_left)" -lt 90 ] || eager=
    first_step pytorch 80 "$python" bench/pytorch_models.py --ours "$first_out/models" \
        --device "${device%%@*}" --tokens "${PYTORCH_TOKENS:-4096}" $eager
    tell "$(grep -E ' ms +[0-9.]+$' "$first_out/pytorch")"
    found first-pytorch "$(least_ratio "$first_out/pytorch")"
}

first_failures() {
    grep -hE '^case [0-9]+ failed|^\[  (FAILED|ERROR) |^    .*(largest error|were changed)|error:' \
        "$first_out"/k-* "$first_out"/fixtures "$first_out"/device "$first_out"/reopen 2>/dev/null |
        cut -c1-240 | head -n 20
}

first() {
    first_seconds=${PART_SECONDS:-240}
    first_end=$(($(date +%s) + first_seconds))
    rm -rf "$first_out" && mkdir -p "$first_out" || return
    tell "first: $device, $("$program" --version | head -n 1), at most $first_seconds s"
    first_machine &
    # The libraries' own logs of one opening of the device are kept whole.
    log_level=5 cudnn_level=3 gpu_test properties.json 60 properties
    opened=$? log_level='' cudnn_level=''
    wait
    write_report
    [ $opened -eq 77 ] || first_teacher &
    gpu_test reopen 40 reopen
    tests=
    for test in $(kernel_tests); do
        WD_TEST_CASES=1 gpu_test "k-$test" 100 "$test" &
        tests="$tests $!"
    done
    # shellcheck disable=SC2086
    [ -z "$tests" ] || wait $tests
    write_report
    gpu_test device 40 device
    gpu_test nccl 40 lone_peer
    gpu_test fixtures 60 fixtures
    write_report
    first_strategies fp32
    first_strategies bf16
    wait
    first_compare fp32
    first_compare bf16
    write_report
    first_step models 90 "$program" bench --only models --device "$device"
    first_step copies 20 "$program" bench --only copies --device "$device"
    first_offload
    write_report
    first_step shapes 60 "$program" bench --only shapes --device "$device"
    write_report
    first_pytorch
    tell "$(grep -hE 'matrix product|% of peak|left out' "$first_out/models" | head -n 14)"
    tell "$(grep -h 'GB/s' "$first_out/copies" | head -n 4)"
    tell "$(first_failures)"
    found first-failed "$(grep -c ': FAILED' "$first_out/summary")"
    say "" '```' "$(head -n 60 "$first_out/summary")" '```'
    for file in "$first_out"/*; do shorten "$file"; done
}

# Cuts the middle out of a long output, so that what is packed stays small.
shorten() { # FILE
    [ "$(wc -c <"$1")" -gt 400000 ] || return
    { head -c 200000 "$1"; echo; echo "[cut]"; tail -c 200000 "$1"; } >"$1.cut"
    mv "$1.cut" "$1"
}

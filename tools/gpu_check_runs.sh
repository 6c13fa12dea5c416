# Short runs of training that must make one student: under every strategy on one GPU, on two, and in
# ranks. tools/gpu_check.sh reads this file.

speeds=$(printf '%s' "$device" | sed -n 's/^[^@]*\(@.*\)$/\1/p')
number=$(printf '%s' "$device" | sed -n 's/^cuda:\([0-9]*\).*/\1/p')

# Makes a teacher, of BLOCKS blocks or, where that is empty, all, by `COMMAND... make_pipeline`.
make_teacher() { # FOLDER PRESET BLOCKS COMMAND...
    to=$1 of_preset=$2 layers=$3
    shift 3
    # shellcheck disable=SC2086
    "$@" ${libraries:+env "LD_LIBRARY_PATH=$library_path"} "$build/make_pipeline" "$to" \
        models/wan-tiny "$of_preset" bfloat16 $layers
}

# Sets $type, and the options of runs in fp32 or bf16. In fp32 the teacher is the embedded one. In
# bf16 it is a made-up one of 4 blocks of 1.3B, whose heads are of the size that cuDNN computes; it
# is made by `COMMAND... make_pipeline`.
use_type() { # fp32|bf16 COMMAND...
    type=$1 teacher=models/wan-tiny first=0-1 second=2-3 third=4-5
    shift
    options="--mixed_precision no --teacher_dtype float32 --num_steps 20 --batch_size 4"
    if [ "$type" = bf16 ]; then
        options="--mixed_precision bf16 --teacher_dtype bfloat16 --num_steps 8 --batch_size 4
            --trajectories 8 --trajectory_steps 4"
    fi
    if [ -n "$quick" ]; then
        options="${options%%--num_steps*} --num_steps 2 --batch_size 2 --trajectories 4
            --trajectory_steps 4 --height 32 --width 32"
    elif [ "$type" = bf16 ]; then
        teacher=$stage/teacher first=0 second=1 third=2-3
        options="$options --height 256 --width 256 --student_config $stage/student-of-1.3b.json"
        echo '{"depth": 1}' >"$stage/student-of-1.3b.json"
        make_teacher "$teacher" wan2.1-1.3b 4 "$@"
    fi
}

# A map of the teacher: the place of its first, second and last third of blocks, and of its head.
# The prompts are encoded on the GPU, as without a map.
write_map() { # FIRST SECOND THIRD HEAD
    cat >"$stage/map.json" <<MAP
{"text_encoder": 0, "vae": 0, "patch_embedding": 0, "condition_embedder": 0, "rope": 0,
 "blocks.$first": $1, "blocks.$second": $2, "blocks.$third": $3,
 "norm_out": $4, "proj_out": $4, "scale_shift_table": $4}
MAP
}

# One run; the hash of its student is added to $stage/students, and $loss is its last loss.
student_under() { # NAME DEVICES OPTION...
    name=$1 on=$2
    shift 2
    rm -rf "$stage/run"
    # shellcheck disable=SC2086
    step "train, $type, $name" "$program" train --teacher_path "$teacher" \
        --data_path models/wan-tiny/prompts.txt --cache_dir "$stage/cache" \
        --output_dir "$stage/run" --guidance_scale 2 --save_samples false $options \
        --devices "$on" "$@" || return
    hash=$(sha256sum <"$stage/run/transformer/diffusion_pytorch_model.safetensors")
    echo "${hash%% *}  $name" >>"$stage/students"
    loss=$(tail -n 1 "$stage/run/metrics.jsonl" | sed -n 's/.*"loss": \([0-9.e+-]*\).*/\1/p')
}

count_students() { # KEY
    say "" "Hashes of the students:" '```' "$(cat "$stage/students")" '```'
    found "$1" "$(cut -d ' ' -f 1 "$stage/students" | sort -u | wc -l)"
}

# ---- strategies ----

strategies_of() { # fp32|bf16
    use_type "$1" step "make a teacher" || { found "students-$1" "no teacher was made"; return; }
    write_map '"cpu"' '"disk"' 0 0
    : >"$stage/students"
    for strategy in gpu gpu0 offload disk custom auto; do
        set -- --teacher_device_strategy $strategy
        [ $strategy != custom ] || set -- "$@" --teacher_device_map "$stage/map.json"
        student_under $strategy "$device" "$@" ||
            { found "students-$type" "$strategy failed"; return; }
        [ $strategy != gpu ] || loss_on_gpu=$loss
    done
    count_students "students-$type"
    student_under cpu "$device" --teacher_device_strategy cpu ||
        { found "loss-$type" "cpu failed"; return; }
    say "" "Last loss: $loss_on_gpu with the teacher on $device, $loss with it on the processor"
    found "loss-$type" "$(awk -v a="$loss_on_gpu" -v b="$loss" 'BEGIN {
        if (!(a > 0 && b > 0)) { print "a loss is not known"; exit }
        printf "%.2f\n", 100 * (a > b ? a - b : b - a) / a }')"
}

strategies() {
    strategies_of fp32
    strategies_of bf16
}

# ---- gpus ----

# Sets $pair to two GPUs, of which one is the device, or $why to the reason why there is none.
find_pair() {
    pair='' why='' other=1
    case $number in
    '') why="$device is not a GPU"; return ;;
    0) pair=cuda:0,1 ;;
    *) pair=cuda:0,$number other=0 ;;
    esac
    # Speeds that are stated are not measured.
    step "look for $pair" "$program" plan --teacher_path models/wan-tiny \
        --devices "$pair@link=25GB/s,compute=1TFLOP/s" && return
    why="$pair cannot be used"
    ! grep -q "expected a GPU below" "$out" || why="skipped: one GPU"
    pair=
}

on_two_gpus() { # fp32|bf16
    use_type "$1" step "make a teacher" || { found "pair-$1" "no teacher was made"; return; }
    write_map 0 1 0 1
    : >"$stage/students"
    student_under "gpu, $device" "$device" --teacher_device_strategy gpu ||
        { found "pair-$type" "gpu failed"; return; }
    spread="gpu0 balanced sequential custom"
    [ -z "$quick" ] || spread="balanced custom"
    for strategy in $spread; do
        set -- --teacher_device_strategy $strategy
        [ $strategy != gpu0 ] || set -- "$@" --teacher_rank 1
        [ $strategy != custom ] || set -- "$@" --teacher_device_map "$stage/map.json"
        student_under "$strategy, $pair" "$pair$speeds" "$@" ||
            { found "pair-$type" "$strategy failed"; return; }
    done
    count_students "pair-$type"
}

# The samples of a step are the same for one rank that accumulates two micro-batches and for two
# ranks, whose gradients are added in the order of the micro-batches.
ranks_of_two() {
    use_type bf16 step "make a teacher" || { found ranks "no teacher was made"; return; }
    : >"$stage/students"
    student_under "one rank" "$device" --gradient_accumulation_steps 2 --teacher_device_strategy gpu
    set -- --nproc_per_node 2 --teacher_device_strategy gpu --deterministic_reduce
    if student_under "two ranks, --nccl off" "$pair$speeds" "$@" --nccl off; then
        count_students ranks
    else
        found ranks "the ranks failed"
    fi
    if student_under "two ranks, --nccl on" "$pair$speeds" "$@" --nccl on; then
        count_students ranks-nccl
    elif grep -q "NCCL is missing" "$out"; then
        not_run ranks-nccl "NCCL is not installed"
    else
        found ranks-nccl "the ranks failed"
    fi
}

gpus() {
    tests_of nccl "NCCL of one rank, " "$([ -z "$(device_test)" ] || echo lone_peer)"
    find_pair
    if [ -z "$pair" ]; then
        for key in peers pair-fp32 pair-bf16 ranks ranks-nccl; do not_run $key "$why"; done
        return
    fi
    WD_TEST_OTHER_DEVICE=cuda:$other
    export WD_TEST_OTHER_DEVICE
    tests_of peers "copies to cuda:$other, " device
    unset WD_TEST_OTHER_DEVICE
    on_two_gpus fp32
    on_two_gpus bf16
    ranks_of_two
}

# Two machines, as far as network and names go: namespaces with an address each, joined by a cable.
# Needs root and network namespaces: exits with 77 where there are none.
#
# Read by tests of several machines, whose arguments are PROGRAM TEACHER: gives the machines' names
# $a and $b, a $folder that both see, `on NAME COMMAND...`, and the run that they train.
program=$1 teacher=$2
a=wd-a-$$ b=wd-b-$$
address_a=10.211.37.1 address_b=10.211.37.2
folder=$(mktemp -d)

clean_up() {
    for name in "$a" "$b"; do
        ip netns pids "$name" 2>/dev/null | xargs -r kill -9 2>/dev/null || true
        ip netns del "$name" 2>/dev/null || true
    done
    rm -rf "$folder"
}
trap clean_up EXIT
skip() {
    echo "not tested here: $(basename "$0" .sh): $1"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "not root"
command -v ip >/dev/null || skip "there is no ip (iproute2)"
mkdir -p /run/netns 2>/dev/null || skip "no /run/netns"
ip netns add "$a" 2>/dev/null && ip netns add "$b" 2>/dev/null || skip "no network namespaces"
unshare --uts true 2>/dev/null || skip "no namespaces for host names"
ip link add "$a" type veth peer name "$b" 2>/dev/null || skip "no virtual cables"

ip link set "$a" netns "$a"
ip link set "$b" netns "$b"
ip -n "$a" addr add "$address_a/24" dev "$a"
ip -n "$b" addr add "$address_b/24" dev "$b"
for name in "$a" "$b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set "$name" up
done

on() { # NAME COMMAND...
    # shellcheck disable=SC2016
    ip netns exec "$1" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$@"
}

fail() { # WHAT: and what was said
    cat "$folder/log"
    echo "$1"
    exit 1
}

printf 'a red apple\na blue star\na yellow smiling face\n' >"$folder/prompts.txt"
printf '{"depth": 1}' >"$folder/student.json"
train() { # OUTPUT options...
    output=$1
    shift
    echo train --teacher_path "$teacher" --data_path "$folder/prompts.txt" --student_config \
        "$folder/student.json" --output_dir "$folder/$output" --height 32 --width 32 --batch_size \
        1 --trajectories 8 --trajectory_steps 4 --deterministic_reduce "$@"
}
weights=transformer/diffusion_pytorch_model.safetensors

# Whether OUTPUT, of four ranks and six steps, is the student of one rank.
is_that_of_one() {
    # shellcheck disable=SC2046
    "$program" $(train one --num_steps 6 --gradient_accumulation_steps 4) >"$folder/log" 2>&1 ||
        fail "one rank does not train"
    cmp "$folder/$1/$weights" "$folder/one/$weights"
}

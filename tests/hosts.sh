#!/bin/sh
# Two machines, as far as network and names go: namespaces with an address each, joined by a cable.
# Open MPI starts ranks on both over TCP, as on a small cluster, and they train the student that one
# rank trains. Needs root and network namespaces: exits with 77 where there are none.
# Usage: tests/hosts.sh PROGRAM MPI_TEST TEACHER
set -eu
program=$1 mpi_test=$2 teacher=$3
a=wd-a-$$ b=wd-b-$$
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
    echo "skipped: $1"
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
ip -n "$a" addr add 10.211.37.1/24 dev "$a"
ip -n "$b" addr add 10.211.37.2/24 dev "$b"
for name in "$a" "$b"; do
    ip -n "$name" link set lo up
    ip -n "$name" link set "$name" up
done

# What Open MPI calls instead of ssh: HOST COMMAND...
cat >"$folder/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname $b; exec sh -c "\$1"' sh "\$*"
END
chmod 700 "$folder/agent"
printf '10.211.37.1 slots=2\n10.211.37.2 slots=2\n' >"$folder/hosts"

# on_both ARGUMENTS...: mpirun on the first, with two ranks on each.
on_both() {
    # shellcheck disable=SC2016
    ip netns exec "$a" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "$a" \
        mpirun --allow-run-as-root -n 4 --hostfile "$folder/hosts" --bind-to none \
        --mca plm_rsh_agent "$folder/agent" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include 10.211.37.0/24 --mca btl_tcp_if_include 10.211.37.0/24 \
        --mca btl self,vader,tcp --mca pml ob1 "$@"
}

carried() { # bytes that have left the first
    ip netns exec "$a" cat "/sys/class/net/$a/statistics/tx_bytes"
}

on_both "$mpi_test" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }

printf 'a red apple\na blue star\na yellow smiling face\n' >"$folder/prompts.txt"
printf '{"depth": 1}' >"$folder/student.json"
train() { # OUTPUT options...
    output=$1
    shift
    echo train --teacher_path "$teacher" --data_path "$folder/prompts.txt" --student_config \
        "$folder/student.json" --output_dir "$folder/$output" --height 32 --width 32 --batch_size \
        1 --trajectories 8 --trajectory_steps 4 --num_steps 6 --deterministic_reduce "$@"
}
before=$(carried)
# shellcheck disable=SC2046
on_both "$program" $(train both --distributed) >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
bytes=$(($(carried) - before))
# shellcheck disable=SC2046
"$program" $(train one --gradient_accumulation_steps 4) >"$folder/log" 2>&1 ||
    { cat "$folder/log"; exit 1; }
weights=transformer/diffusion_pytorch_model.safetensors
cmp "$folder/both/$weights" "$folder/one/$weights"

# Six steps carry at least the gradients of each, in one direction.
size=$(wc -c <"$folder/one/$weights")
[ "$bytes" -gt $((6 * size)) ] || { echo "only $bytes bytes went over the cable"; exit 1; }
echo "two machines, four ranks: the student of one; $bytes bytes went over the cable"

#!/bin/sh
# Open MPI starts ranks on two machines over TCP, as on a small cluster, and they train the student
# that one rank trains; one that is stopped while they start ends all of them. Exits with 77 where
# there cannot be two (tests/machines.sh).
# Usage: tests/hosts.sh PROGRAM TEACHER MPI_TEST
set -eu
mpi_test=$3
. "$(dirname "$0")/machines.sh"

# What Open MPI calls instead of ssh: HOST COMMAND...
cat >"$folder/agent" <<END
#!/bin/sh
shift
exec ip netns exec $b unshare --uts sh -c 'hostname $b; exec sh -c "\$1"' sh "\$*"
END
chmod 700 "$folder/agent"
printf '%s slots=2\n%s slots=2\n' "$address_a" "$address_b" >"$folder/hosts"

# on_both ARGUMENTS...: mpirun on the first, with two ranks on each.
on_both() {
    on "$a" mpirun --allow-run-as-root --hostfile "$folder/hosts" --bind-to none \
        --mca plm_rsh_agent "$folder/agent" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include 10.211.37.0/24 --mca btl_tcp_if_include 10.211.37.0/24 \
        --mca btl self,vader,tcp --mca pml ob1 "$@"
}

carried() { # bytes that have left the first
    ip netns exec "$a" cat "/sys/class/net/$a/statistics/tx_bytes"
}

on_both -n 4 "$mpi_test" >"$folder/log" 2>&1 || fail "the communicator's test fails"

# carries OUTPUT TENTHS MAPPING [OPTION]: six steps train OUTPUT, without OPTION, and the first
# machine sends so many tenths of its gradients' bytes in each; what else there is (targets, MPI's
# start) is less than a fifth.
carries() {
    before=$(carried)
    # shellcheck disable=SC2046
    on_both -n 4 --map-by "$3" "$program" \
        $(train "$1" --num_steps 6 --distributed | sed "s/ ${4:-nothing}//") >"$folder/log" 2>&1 ||
        fail "four ranks do not train"
    bytes=$(($(carried) - before))
    least=$((6 * $(wc -c <"$folder/$1/$weights") * $2 / 10))
    [ "$bytes" -gt $((least * 99 / 100)) ] && [ "$bytes" -lt $((least * 6 / 5)) ] ||
        fail "$1: $bytes bytes went over the cable: expected $least, and up to a fifth more"
    echo "two machines, four ranks, $1: $bytes bytes went over the cable"
}

# docs/ranks.md: of both ranks' gradients half, and of the sums half; of the machine's sum half, and
# as much back; and, where ranks do not follow one another, of both ranks' gradients and sums half.
carries both 15 slot
is_that_of_one both
carries by_hosts 10 slot --deterministic_reduce
carries turns 20 node --deterministic_reduce

# Who has too little shared memory starts ranks all the same.
# shellcheck disable=SC2016,SC2046
unshare --mount sh -c 'mount -t tmpfs -o size=2m none /dev/shm && exec "$@"' sh timeout -s KILL 60 \
    "$program" $(train small --num_steps 6 --nproc_per_node 4) >"$folder/log" 2>&1 ||
    fail "with 2 MB of shared memory four ranks do not train"
is_that_of_one small

# The last rank, of the second machine, is stopped: early, as it begins to look for the others and
# is alone on its machine; before the program runs; or while MPI brings the ranks together, which it
# does once they watch one another.
cat >"$folder/stopped" <<'END'
#!/bin/sh
when=$1 pid=$$
shift
is_watched() { grep -qsx wd-watch "/proc/$pid/task/"*/comm; }
has_threads() {
    set -- "/proc/$pid/task/"*
    [ $# -gt 1 ]
}
case $when in
before) kill -STOP $pid ;;
early) (
    until has_threads; do :; done
    kill -STOP $pid
) & ;;
while) (
    until is_watched; do :; done
    kill -STOP $pid
) & ;;
esac
exec "$@"
END
chmod 700 "$folder/stopped"
stops_with() { # OTHERS WHEN
    # shellcheck disable=SC2046
    set -- "$@" "$program" $(train "$2" --num_steps 1000000 --distributed)
    others=$1 when=$2
    shift 2
    begun=$(date +%s)
    on_both -n "$others" "$@" : -n 1 "$folder/stopped" "$when" "$@" >"$folder/log" 2>&1 &&
        fail "a rank that was stopped trains"
    [ "$(grep -c "^wandistiller: \[Rank .* \(was\|is\) stopped" "$folder/log")" = 1 ] ||
        fail "there is not one report that a rank was stopped"
    seconds=$(($(date +%s) - begun))
    [ $seconds -lt 60 ] || fail "it took $seconds s to see a rank that was stopped"
    echo "a rank was stopped $when: all had ended after $seconds s"
}
stops_with 2 early
if ldd "$program" | grep -q libpmix; then # without it both machines report
    stops_with 3 before
    stops_with 3 while
fi

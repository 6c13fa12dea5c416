#!/bin/sh
# Open MPI starts ranks on two machines over TCP, as on a small cluster, and they train the student
# that one rank trains. Exits with 77 where there cannot be two (tests/machines.sh).
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
    on "$a" mpirun --allow-run-as-root -n 4 --hostfile "$folder/hosts" --bind-to none \
        --mca plm_rsh_agent "$folder/agent" --mca plm_rsh_no_tree_spawn 1 \
        --mca oob_tcp_if_include 10.211.37.0/24 --mca btl_tcp_if_include 10.211.37.0/24 \
        --mca btl self,vader,tcp --mca pml ob1 "$@"
}

carried() { # bytes that have left the first
    ip netns exec "$a" cat "/sys/class/net/$a/statistics/tx_bytes"
}

on_both "$mpi_test" >"$folder/log" 2>&1 || fail "the communicator's test fails"

before=$(carried)
# shellcheck disable=SC2046
on_both "$program" $(train both --num_steps 6 --distributed) >"$folder/log" 2>&1 ||
    fail "four ranks do not train"
bytes=$(($(carried) - before))
is_that_of_one both

# Six steps carry at least the gradients of each, in one direction.
size=$(wc -c <"$folder/one/$weights")
[ "$bytes" -gt $((6 * size)) ] || fail "only $bytes bytes went over the cable"
echo "two machines, four ranks: the student of one; $bytes bytes went over the cable"

#!/bin/sh
# A Slurm of its own on two machines (tests/machines.sh), whose srun starts ranks: they train the
# student that one rank trains, end together when one is killed, and go on after a requeue. Exits
# with 77 where there is no Slurm with PMIx (Debian: munge slurmctld slurmd slurm-client).
# Usage: tests/slurm.sh PROGRAM TEACHER
set -eu
. "$(dirname "$0")/machines.sh"
for command in munged slurmctld slurmd srun; do
    command -v $command >/dev/null || skip "there is no $command"
done

# What two machines do not share: names and folders of daemons, and what Slurm calls /tmp.
chmod 755 "$folder"
mkdir "$folder/state" "$folder/spool-$a" "$folder/spool-$b" "$folder/tmp-$a" "$folder/tmp-$b"
head -c 128 /dev/urandom >"$folder/key"
chmod 600 "$folder/key"
echo CgroupPlugin=cgroup/v1 >"$folder/cgroup.conf" # loaded, not used
cat >"$folder/slurm.conf" <<END
ClusterName=wd
SlurmctldHost=$a($address_a)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
TmpFS=$folder/tmp-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1
NodeName=$a NodeAddr=$address_a CPUs=2
NodeName=$b NodeAddr=$address_b CPUs=2
PartitionName=all Nodes=$a,$b Default=YES
END
export SLURM_CONF="$folder/slurm.conf"

on "$a" munged -F --force --key-file "$folder/key" --socket "$folder/munge" --pid-file \
    "$folder/munge.pid" --log-file "$folder/munge.log" --seed-file "$folder/munge.seed" \
    >"$folder/munged.log" 2>&1 &
until_true() { # SECONDS COMMAND...
    turns=$(($1 * 10))
    shift
    until "$@"; do
        turns=$((turns - 1))
        [ $turns -gt 0 ] || return 1
        sleep 0.1
    done
}
until_true 10 test -S "$folder/munge" || skip "munged does not start: $(cat "$folder/munged.log")"
on "$a" slurmctld -D >"$folder/slurmctld.log" 2>&1 &
for name in "$a" "$b"; do on "$name" slurmd -D >"$folder/slurmd-$name.log" 2>&1 & done
both_idle() { [ "$(on "$a" sinfo -h -o '%t %D' 2>/dev/null)" = "idle 2" ]; }
until_true 20 both_idle || skip "Slurm does not start: $(tail -n 3 "$folder"/slurm*.log)"
on "$a" srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no PMIx"

# shellcheck disable=SC2046
on "$a" srun --mpi=pmix -N 2 -n 4 "$program" $(train both --num_steps 6 --distributed) \
    >"$folder/log" 2>&1 || fail "four ranks do not train"
is_that_of_one both

# Without what ranks meet by, none begins.
for without in none pmi2; do
    # shellcheck disable=SC2046
    on "$a" srun --mpi=$without -n 2 "$program" $(train never --distributed) >"$folder/log" 2>&1 &&
        fail "ranks that cannot meet have trained (--mpi=$without)"
    grep -q "srun --mpi=pmix -n 2 wandistiller train" "$folder/log" || fail "no way out is said"
done
[ ! -e "$folder/never" ] || fail "ranks that cannot meet have written"

# Without binding (task/none) ranks have as many threads as Slurm has allocated cores for them.
threads_of() { # COUNT OPTIONS...: of the first rank, with one on each machine, or of one alone
    threads=$1
    shift
    rm -rf "$folder/bound"
    # shellcheck disable=SC2046
    on "$a" srun "$@" "$program" $(train bound --num_steps 1 $distributed) >"$folder/log" 2>&1 ||
        fail "srun $*: the run does not train"
    grep -q "\"device\": \"cpu (.* $threads thread" "$folder/bound/run.json" ||
        fail "srun $*: expected $threads threads, found $(grep 'thread' "$folder/bound/run.json")"
}
all=$(($(nproc) > 1 ? 2 : 1))
distributed=--distributed
threads_of 1 --mpi=pmix -N 2 -n 2
threads_of $all --mpi=pmix -N 2 -n 2 --cpus-per-task=2
distributed=
threads_of 1 -n 1
threads_of $all -n 1 --cpus-per-task=2

# A task that is none of several may start some itself, and all on its machine.
# shellcheck disable=SC2046
on "$a" srun --mpi=pmix -N 1 -n 1 "$program" $(train started --num_steps 6 --nproc_per_node 2) \
    >"$folder/log" 2>&1 || fail "--nproc_per_node does not start ranks in a step"

# One report, whoever is killed.
has_steps() { [ -s "$folder/$1/metrics.jsonl" ]; }
# shellcheck disable=SC2046
on "$a" srun --mpi=pmix -N 2 -n 4 "$program" $(train killed --num_steps 1000000 --distributed) \
    >"$folder/log" 2>&1 &
step=$!
until_true 20 has_steps killed || fail "the run to be killed has not begun"
for pid in $(pgrep -f -- "--output_dir $folder/killed"); do
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qx PMIX_RANK=3 && kill -9 "$pid"
done
wait $step && fail "a rank was killed, and srun calls that success"
[ "$(grep -c '^wandistiller: .*its process is gone' "$folder/log")" = 1 ] || fail "no one report"
nothing_is_shared() {
    for segment in "/dev/shm/vader_segment.$a."* "/dev/shm/vader_segment.$b."*; do
        [ ! -e "$segment" ] || return 1
    done
}
until_true 20 nothing_is_shared || fail "ranks that have ended leave something in /dev/shm"

# A job that is preempted gets SIGTERM, its ranks and srun at once: it ends with a checkpoint, and
# goes on from it. Slurm itself starts it again after two minutes; this does not wait for that.
cat >"$folder/job" <<END
#!/bin/sh
exec srun --mpi=pmix $program $(train preempted --num_steps 1000000 --distributed --resume auto)
END
submit() {
    on "$a" sbatch --parsable --requeue --open-mode=append -N 2 -n 4 -o "$folder/log" "$folder/job"
}
says() { grep -q "^$1" "$folder/log"; }
rm "$folder/log"
job=$(submit)
until_true 20 has_steps preempted || fail "the job has not begun"
on "$a" scontrol requeue "$job"
until_true 20 says "stopped after" || fail "a requeued job does not end cleanly"
on "$a" scancel "$job"
job=$(submit)
until_true 20 says "going on from .*/step-" || fail "the job does not go on"
on "$a" scancel "$job"
until_true 20 nothing_is_shared || fail "a job that was cancelled leaves something in /dev/shm"
echo "two machines, four ranks of srun's: the student of one; killed, preempted and gone on"

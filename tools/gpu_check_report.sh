# What a check of a device requires, and the report that says of each requirement whether it is met.
# tools/gpu_check.sh reads this file.
#
# What a part found is kept in the folder REPORT.parts until that part runs again: parts that are
# run one by one still make one report.

# One requirement a line: part, key, what is measured, and the limit, "at most N" or "at least N".
# A limit of "-" only shows the figure.
requirements() {
    cat <<'END'
first|first-failed|steps that fail|at most 0
first|first-fp32|fp32: different students under four strategies on one GPU|at most 1
first|first-bf16|bf16: different students under four strategies on one GPU|at most 1
first|first-offload|blocks of 14B, offload, window 8: time over the larger of resident and link|-
first|first-pytorch|PyTorch's time over ours, the least of all cases|-
correct|kernels|kernels compared with the processor's: test programs that fail|at most 0
correct|fixtures|networks compared with PyTorch and diffusers: test programs that fail|at most 0
correct|device|copies, events, memory of a device: test programs that fail|at most 0
strategies|students-fp32|fp32: different students under six strategies on one GPU|at most 1
strategies|students-bf16|bf16: different students under six strategies on one GPU|at most 1
strategies|loss-fp32|fp32: % between the last losses with the teacher on GPU and processor|at most 1
strategies|loss-bf16|bf16: % between the last losses with the teacher on GPU and processor|at most 2
gpus|nccl|NCCL with one rank that sends to itself: test programs that fail|at most 0
gpus|peers|copies between two GPUs: test programs that fail|at most 0
gpus|pair-fp32|fp32: different students of one GPU, and of two under four strategies|at most 1
gpus|pair-bf16|bf16: different students of one GPU, and of two under four strategies|at most 1
gpus|ranks|different students of one rank, and of two without NCCL|at most 1
gpus|ranks-nccl|different students of one rank, and of two without NCCL and with it|at most 1
memcheck|memcheck|test programs that fail under compute-sanitizer memcheck|at most 0
racecheck|racecheck|test programs that fail under compute-sanitizer racecheck|at most 0
initcheck|initcheck|test programs that fail under compute-sanitizer initcheck|at most 0
speed|forward-1024|pass of 14B, 1024 tokens: % of the best matrix product|at least 50
speed|forward-1560|pass of 14B, 1560 tokens: % of the best matrix product|at least 50
speed|forward-4096|pass of 14B, 4096 tokens: % of the best matrix product|at least 65
speed|forward-8192|pass of 14B, 8192 tokens: % of the best matrix product|at least 65
speed|step-4096|training step of 1.3B, 4096 tokens: % of the best matrix product|at least 50
pytorch|pytorch|PyTorch's time over ours, the least of all cases|at least 1
offload|offload|14B, offload, window 8: time over the larger of resident and link|at most 1.05
distil|score|agreement of the device's student less the processor's, in points of %|at least -2
steady|idle|% of a 1.3B run without a kernel on the GPU, as the driver samples it|at most 3
steady|flat|the same run: growth of the GPU's used memory after its start, MiB|at most 2
steady|host|the same run: growth of the process' own host memory after its start, MiB|at most 16
steady|plan|the same run: blocks on the device whose size is not the planned one|at most 0
steady|beside|the same run: MiB that contexts and libraries take beside the plan|-
END
}

# ---- what was found ----

note() { # KEY FIGURE RESULT
    printf '%s|%s|%s\n' "$1" "$2" "$3" >>"$kept/$part.found"
}

# Compares a figure with the requirement's limit. What is no number fails, or is not known where no
# figure is required.
found() { # KEY FIGURE
    limit=$(requirements | awk -F'|' -v key="$1" '$2 == key { print $4 }')
    result=$(awk -v figure="$2" -v limit="$limit" 'BEGIN {
        split(limit, word, " ")
        if (figure !~ /^-?[0-9]+([.][0-9]+)?$/) print (limit == "-" ? "not run" : "fail")
        else if (limit == "-") print "shown"
        else if (word[2] == "most") print (figure + 0 <= word[3] + 0 ? "pass" : "fail")
        else print (figure + 0 >= word[3] + 0 ? "pass" : "fail")
    }')
    note "$1" "$2" "$result"
}

not_run() { # KEY WHY
    note "$1" "$2" "not run"
}

# ---- how it ended ----

# Whether `timeout -k 5 MOST` ended a command that took SECONDS: a SIGKILL before is another's.
timed_out() { # STATUS SECONDS MOST
    [ "$1" -eq 124 ] || { [ "$1" -eq 137 ] && [ "$2" -ge "$3" ]; }
}

# Of a command that failed under `timeout -k 5 MOST`, with the last line of its output.
how_it_ended() { # STATUS SECONDS MOST OUTPUT
    how="exit status $1"
    [ "$1" -le 128 ] || how="ended by signal $(($1 - 128))"
    ! timed_out "$1" "$2" "$3" || how="ended after $3 s, since it hangs or is too slow"
    last=$(last_line "$4")
    echo "$how${last:+: $last}"
}

# The last line of an output, for a table: of a command that failed it often says why. What
# `timeout` and the shell add of a signal says less.
last_line() { # FILE
    ended='Aborted|Bus error|Floating point exception|Illegal instruction|Killed|Segmentation fault'
    grep -avxE "|timeout: .* dumped core|($ended)( [(]core dumped[)])?" "$1" |
        tail -n 1 | tr '|' ' ' | cut -c1-240
}

# ---- what was done ----

say() {
    printf '%s\n' "$@" >>"$kept/$part.md"
}

seconds_left() {
    left=$((deadline - $(date +%s)))
    [ "$left" -gt 0 ] || left=0
    echo "$left"
}

# Runs a command until the part's time is over; what it prints goes to the file $out and into the
# report. Returns its exit status.
step() { # TITLE COMMAND...
    title=$1
    shift
    left=$(seconds_left)
    status=124
    : >"$out"
    if [ "$left" -gt 0 ]; then
        write_report # what is known so far, should this script be ended in the step
        timeout -k 5 "$left" "$@" >"$out" 2>&1
        status=$?
    fi
    say "" "### $title" '```'
    tail -c 60000 "$out" >>"$kept/$part.md"
    say '```'
    [ "$status" -eq 0 ] || say "**exit status $status** (124: the part's time was over): \`$*\`"
    return "$status"
}

# ---- the report ----

count() { # RESULT
    awk -F' [|] ' -v result="$1 |" '$5 == result' "$kept/table" | wc -l
}

write_report() {
    requirements | while IFS='|' read -r of key what limit; do
        line=$(grep "^$key|" "$kept/$of.found" 2>/dev/null | tail -n 1)
        [ -n "$line" ] || line="$key|part $of was not run|not run"
        figure=${line#*|}
        result=${figure##*|} figure=${figure%|*}
        echo "| $of | $what | $limit | $figure | $result |"
    done >"$kept/table"
    passed=$(count pass) failed=$(count fail) missing=$(count "not run")
    {
        echo "# Check of $device"
        echo
        echo "$passed requirements are met, $failed are not, $missing were not tested."
        echo
        cat "$kept/machine"
        echo
        echo "| part | measured | wanted | found | result |"
        echo "|---|---|---|---|---|"
        cat "$kept/table"
        for of in first $parts; do [ ! -f "$kept/$of.md" ] || cat "$kept/$of.md"; done
    } >"$report.part" && mv "$report.part" "$report"
    tar -C "$(dirname "$report")" -czf "$report.tar.part" "$(basename "$report")" \
        -C "$(dirname "$kept")" "$(basename "$kept")" 2>/dev/null
    # 1: a file changed meanwhile. A whole archive is not replaced by one that is not.
    [ $? -gt 1 ] && [ -s "$report.tar.gz" ] || mv "$report.tar.part" "$report.tar.gz"
}

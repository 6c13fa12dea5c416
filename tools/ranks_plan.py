#!/usr/bin/env python3
"""Makes the plans of docs/ranks.md: `wandistiller plan --ranks` of Wan2.2-A14B.

    python3 tools/ranks_plan.py build/release/wandistiller docs/ranks.md

Replaces the text between the markers; needs no weights and no GPU."""
import json
import os
import subprocess
import sys
import tempfile

STUDENT = {"hidden_size": 1536, "depth": 20}
RUN = ("--teacher_preset wan2.2-a14b --student_config student.json "
       "--height 512 --width 512 --trajectories 512 --host_memory 512GiB "
       "--devices sim:8xh100@cpu=4TFLOP/s,memory=80GB/s").split()

# Ranks, hosts, pictures of a rank, what else is asked for.
SCALES = [(1, 1, 4, ""), (8, 1, 4, ""), (64, 8, 4, ""), (64, 8, 4, "--shard_optimizer"),
          (64, 8, 16, ""), (64, 8, 4, "--network_bandwidth 100GB/s"),
          (64, 8, 16, "--network_bandwidth 100GB/s --shard_optimizer")]


def plan(program, ranks, hosts, batch, more, *output):
    command = [program, "plan", *RUN, "--batch_size", str(batch), "--ranks", str(ranks), "--hosts",
               str(hosts), *more.split(), *output]
    if ranks == 1:  # one device of such a host
        command = [part.replace("sim:8x", "sim:") for part in command]
    environment = {**os.environ, "WD_CPU_ISA": "avx2"}  # the same workspaces on every machine
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env=environment).stdout


def whole(program):
    yield "    wandistiller plan " + " ".join(RUN[:4]) + " \\"
    yield "        " + " ".join(RUN[4:10]) + " --batch_size 4 \\"
    yield "        " + " ".join(RUN[10:]) + " --ranks 64 --hosts 8"
    yield ""
    yield "```"
    for line in plan(program, 64, 8, 4, "").splitlines():
        if "by what it is" in line:
            break
        yield line.rstrip()
    yield "```"


def scale(program):
    yield "| ranks, hosts | pictures of a rank | | auto | s/step | pictures/s | limited by |"
    yield "|---|---|---|---|---|---|---|"
    for ranks, hosts, batch, more in SCALES:
        said = json.loads(plan(program, ranks, hosts, batch, more, "--json"))
        best = next(s for s in said["strategies"] if s["strategy"] == said["recommended"])
        asked = f"`{more}`" if more else ""
        yield (f"| {ranks}, {hosts} | {batch} | {asked} | `{best['strategy']}` "
               f"| {best['seconds_per_step']:.3g} | {best['samples_per_s']:.3g} "
               f"| {best['limited_by']} |")


def replace(text, name, lines):
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    made = "\n".join(lines).rstrip()
    return f"{before}{begin}\n{made}\n{end}{rest.split(end)[1]}"


def main():
    program, page = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("student.json", "w", encoding="utf-8") as file:
            json.dump(STUDENT, file)
        text = replace(text, "plan", whole(program))
        text = replace(text, "scale", scale(program))
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()

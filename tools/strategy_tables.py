#!/usr/bin/env python3
"""Makes the tables and the picture of docs/strategies.md: `wandistiller plan` of Wan2.2-A14B.

    python3 tools/strategy_tables.py build/release/wandistiller docs/strategies.md

Replaces the text between each pair of markers, and plan.svg in the folder of the page; needs no
weights and no GPU."""
import json
import os
import re
import subprocess
import sys
import tempfile

BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"

STUDENT = {"hidden_size": 1536, "depth": 20}
RUN = ("--teacher_preset wan2.2-a14b --student_config student.json --batch_size 4 --height 512 "
       "--width 512").split()

# Cards that --devices knows by name: memory, what they are, their host's processor.
KINDS = {
    "rtx3090": ("24 GiB", "GeForce RTX 3090, PCIe 4", "2TFLOP/s"),
    "rtx4090": ("24 GiB", "GeForce RTX 4090, PCIe 4", "2TFLOP/s"),
    "l40s": ("48 GiB", "L40S, PCIe 4", "2TFLOP/s"),
    "a100": ("80 GiB", "A100 SXM, PCIe 4", "2TFLOP/s"),
    "h100": ("80 GiB", "H100 SXM, PCIe 5", "4TFLOP/s"),
    "h200": ("140 GiB", "H200 SXM, PCIe 5", "4TFLOP/s"),
}
CPU = "cpu@compute=4TFLOP/s"
BF16 = "--teacher_dtype bfloat16 --mixed_precision bf16"  # the default on GPUs

# Number of devices, their kind, host memory.
MACHINES = [(1, "rtx4090", "64GiB"), (2, "rtx4090", "128GiB"), (4, "rtx4090", "128GiB"),
            (1, "l40s", "128GiB"), (2, "l40s", "128GiB"), (1, "a100", "256GiB"),
            (1, "h100", "256GiB"), (4, "h100", "512GiB"), (8, "h100", "512GiB"),
            (1, "h200", "256GiB"), (0, "", "130GiB")]
WHOLE = [(1, "rtx4090", "64GiB"), (4, "rtx4090", "128GiB"), (0, "", "130GiB")]
DRAWN = (4, "rtx4090", "128GiB")
# Of the largest students: cards, and what of the machine decides the speed of AdamW beside them.
CARDS = ["rtx3060", "4080", "4090", "5090", "l40s", "h100"]
HOSTS = ["32GiB", "64GiB", "128GiB"]
BESIDE = "cpu=2TFLOP/s,memory=30GB/s"
SEARCH = ("--teacher_preset wan2.2-a14b --batch_size 16 --height 512 --width 512 "
          "--largest_student").split()
STRATEGIES = ["cpu", "gpu", "balanced", "sequential", "offload", "disk"]


def devices(machine):
    count, kind, _ = machine
    return f"sim:{count}x{kind}@cpu={KINDS[kind][2]}" if count else CPU


def title(machine):
    count, kind, host = machine
    size = f"{count} x {KINDS[kind][0]} ({kind})" if count else "CPU only"
    return size, host.replace("GiB", " GiB")


def plan(program, machine, *more):
    dtypes = [] if machine[0] else BF16.split()
    return run([program, "plan", *RUN, *dtypes, "--devices", devices(machine), "--host_memory",
                machine[2], *more])


def run(command):
    environment = {"WD_CPU_ISA": "avx2", **os.environ}  # the same workspaces on every machine
    return subprocess.run(command, check=True, capture_output=True, text=True,
                          env=environment).stdout


def without_free_disk(text):
    """The free space of the disk of whoever made the page says nothing about the plan."""
    return re.sub(r", [0-9.]+ [KMGT]iB free.*", "", text)


def seconds(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def cell(strategy, recommended):
    if not strategy["possible"]:
        return ""
    if not strategy["fits"]:
        missing = [strategy["host_missing"]] + [d["missing"] for d in strategy["devices"]]
        return f"lacks {max(missing) / 2**30:.0f} GiB"
    text = seconds(strategy["seconds_per_step"])
    return f"**{text}**" if strategy["strategy"] == recommended else text


def summary(program):
    yield "| devices | host memory | " + " | ".join(STRATEGIES) + " | limited by |"
    yield "|---|---|" + "---|" * (len(STRATEGIES) + 1)
    for machine in MACHINES:
        said = json.loads(plan(program, machine, "--json"))
        by_name = {s["strategy"]: s for s in said["strategies"]}
        best = said["recommended"]
        cells = [cell(by_name[name], best) for name in STRATEGIES]
        cells.append(by_name[best]["limited_by"])
        yield "| " + " | ".join([*title(machine), *cells]) + " |"


def kinds(program):
    yield "| device | memory | such as | bf16 | fp32 | link | processor |"
    yield "|---|---|---|---|---|---|---|"
    for kind, (memory, such_as, processor) in KINDS.items():
        card = json.loads(plan(program, (1, kind, "256GiB"), "--json"))["devices"][0]
        rate = {dtype: f"{r / 1e12:.3g} TFLOP/s" for dtype, r in card["flops_per_s"].items()}
        yield (f"| `sim:{kind}` | {memory} | {such_as} | {rate['bf16']} | {rate['fp32']} "
               f"| {card['link_bytes_per_s'] / 1e9:.3g} GB/s | `cpu={processor}` |")
    yield f"| `{CPU}` | | a server of 64 cores with AVX512-BF16 | | | | |"


def whole(program):
    for machine in WHOLE:
        yield "### {}, {} of host memory".format(*title(machine))
        yield ""
        more = "" if machine[0] else f" {BF16}"
        yield f"`--devices {devices(machine)} --host_memory {machine[2]}{more}`"
        yield ""
        yield "```"
        text = without_free_disk(plan(program, machine))
        yield "\n".join(line.rstrip() for line in text.splitlines())
        yield "```"
        yield ""


def tables(program):
    yield "`student.json` is `" + json.dumps(STUDENT) + "`, and every machine was asked with"
    yield ""
    yield "    wandistiller plan " + " ".join(RUN) + " \\"
    yield "        --devices ... --host_memory ..."
    yield ""
    yield f"the processor alone also with `{BF16}`, which is the default on GPUs."
    yield ""
    yield from kinds(program)
    yield ""
    yield ("A card's speeds are what programs reach: half of the products of its data sheet (bf16 "
           "of dense matrices; fp32 without TF32), four fifths of its link (PCIe, 16 lanes, one "
           "way).")
    yield ""
    yield ("Predicted seconds per training step of four pictures; bold: what `auto` takes; "
           "*lacks*: does not fit, by so much; empty: this machine cannot have it. `gpu0` is `gpu` "
           "here.")
    yield ""
    yield from summary(program)
    yield ""
    yield from whole(program)


def sizes(student):
    return (f"{student['student_parameters'] / 1e9:.3g} B: {student['width']} x "
            f"{student['blocks']}")


def speed(student):
    return [seconds(student["seconds_per_step"]),
            f"{24 * student['days_per_million_samples']:.0f}", student["strategy"]]


def largest(program):
    yield "Every machine was asked with"
    yield ""
    yield "    wandistiller plan " + " ".join(SEARCH) + " \\"
    yield f"        --devices sim:CARD@{BESIDE} --host_memory ..."
    yield ""
    yield ("*Hours* are those of a million samples. On the left is the student with most weights, "
           "and what stops a larger one; on the right the one of Wan2.1-1.3B's sizes, which has 30 "
           "blocks.")
    yield ""
    yield ("| card | host memory | largest: width x blocks | s/step | hours | strategy | none "
           "larger, since | of 1.3B's sizes | s/step | hours | strategy |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for card in CARDS:
        for host in HOSTS:
            said = json.loads(run([program, "plan", *SEARCH, "--json", "--devices",
                                   f"sim:{card}@{BESIDE}", "--host_memory", host]))
            students = said["largest_students"]
            most = students[0]
            cells = [f"`{card}`", host.replace("GiB", " GiB"), sizes(most), *speed(most),
                     most["no_larger_since"]]
            popular = [s for s in students if s["shape"] == "Wan2.1-1.3B's sizes"]
            cells += [sizes(popular[0]), *speed(popular[0])] if popular else [""] * 4
            yield "| " + " | ".join(cells) + " |"


def put(page, name, lines):
    """The page with these lines between the markers of that name."""
    begin, end = BEGIN.format(name), END.format(name)
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    made = "\n".join(lines).rstrip()
    return f"{before}{begin}\n{made}\n{end}{after}"


def main():
    program, page = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("student.json", "w", encoding="utf-8") as file:
            json.dump(STUDENT, file)
        text = put(text, "largest students", largest(program))
        text = put(text, "tables", tables(program))
        plan(program, DRAWN, "--svg", os.path.join(os.path.dirname(page), "plan.svg"))
    with open(page, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures teachers of published sizes on disk and in little memory, which takes minutes.

    bench/placement.py --folder DIR [--program PATH] [--tool PATH] [1.3b] [14b] [mapped]

1.3b     5.7 GB in fp32 under `disk`, in a process that may have 3 GiB, and with the teacher in
         memory: both must give the same student, bit for bit; seconds per target.
14b      8 of the 40 blocks of a 14B expert in bf16 at 512x512, window 2, under `disk` and in
         memory: seconds per target; then one step with all 40, 28.6 GB, under `disk`. Without
         guidance there is half the arithmetic to hide copies behind.
mapped   the 14B expert under `cpu`: private bytes beyond those that were planned.

Random weights are written below DIR, which must be on a real disk, and stay there: 5.7 GB for 1.3b,
35 GB for 14b. The limit is one of private writable memory (RLIMIT_DATA), which the kernel enforces;
it does not bound the page cache, so the pages of the teacher's file in it are measured. Other
programs change the speed of a machine, so runs that are compared alternate, and a time is the best
of all sweeps.
"""
import argparse
import filecmp
import json
import os
import resource
import shutil
import subprocess
import sys
import time

CASES = ("1.3b", "14b", "mapped")
BASE = "models/wan-tiny"
WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"
LIMIT = 3 << 30
GIB = 1 << 30


# ---- runs ----

def make(options, name, *size):
    """The pipeline `name` below the folder, written if it is not there."""
    path = os.path.join(options.folder, name)
    if not os.path.exists(os.path.join(path, "model_index.json")):
        subprocess.run([options.tool, path, BASE, *size], check=True)
    return path


def status_bytes(pid):
    """What a process holds, by /proc: private and shared bytes without mapped files; swapped."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    kib = {key: int(lines.get(key, "0 kB").split()[0])
           for key in ("RssAnon", "RssShmem", "VmSwap")}
    return (kib["RssAnon"] + kib["RssShmem"]) << 10, kib["VmSwap"] << 10


def cached_bytes(path):
    """The bytes of a file in the page cache."""
    done = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES", path],
                          check=True, capture_output=True, text=True)
    return int(done.stdout)


def watch(process, weights):
    """The most of private memory, of swap, and of the file's pages, until the process is done."""
    private = swapped = cached = 0
    looked = 0.0
    while process.poll() is None:
        try:
            own, swap = status_bytes(process.pid)
        except (FileNotFoundError, ProcessLookupError):
            break
        private, swapped = max(private, own), max(swapped, swap)
        if time.monotonic() > looked + 1:
            looked = time.monotonic()
            cached = max(cached, cached_bytes(weights))
        time.sleep(0.05)
    return {"private": private, "swapped": swapped, "cached": cached}


def drop(path):
    """Takes a file out of the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def train(options, teacher, label, student, arguments, limit=None):
    """One run -> its measurements, run.json, and the student's weights file."""
    output = os.path.join(options.folder, label)
    config = os.path.join(options.folder, "student.json")
    shutil.rmtree(output, ignore_errors=True)
    with open(config, "w", encoding="utf-8") as file:
        json.dump(student, file)
    command = [options.program, "train", "--teacher_path", teacher, "--devices", "cpu",
               "--data_path", f"{BASE}/prompts.txt", "--student_config", config,
               "--output_dir", output, "--trajectory_steps", "2", "--target_reuse", "1",
               "--target_replay", "1", *arguments]
    weights = os.path.join(teacher, WEIGHTS)
    drop(weights)

    def confine():
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    with open(os.path.join(options.folder, f"{label}.log"), "w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stderr=log, preexec_fn=confine)
        seen = watch(process, weights)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}; see {log.name}")
    with open(os.path.join(output, "run.json"), encoding="utf-8") as file:
        seen["run"] = json.load(file)
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    seen["target_s"] = best_target(rows)
    seen["student"] = os.path.join(output, WEIGHTS)
    return seen


def best_target(rows):
    """Seconds per target of the fastest step: the first one's sweeps read cold files, the last two
    find their targets made."""
    times = [(b["seconds"] - a["seconds"]) / (b["targets"] - a["targets"])
             for a, b in zip(rows, rows[1:-2])]
    return min(times) if times else float("nan")


def in_turn(options, *sides):
    """The last run of each side, with the best time of all of its rounds."""
    rounds = [[side() for side in sides] for _ in range(options.rounds)]
    for i, last in enumerate(rounds[-1]):
        last["target_s"] = min(seen[i]["target_s"] for seen in rounds)
    return rounds[-1]


def planned_host(seen):
    """Bytes of host memory at the plan's peak, and what the process had before it began."""
    memory = seen["run"]["memory"]
    return memory["bytes_peak"], memory["bytes_before"]


def report(figure, value, wanted):
    print(f"{figure:62} {value:>14}   ({wanted})", flush=True)


def report_memory(name, seen):
    planned, before = planned_host(seen)
    own = seen["private"] - before
    report(f"{name}: private bytes over planned", f"{own / planned:.3f}", "1.03 at most")
    report(f"{name}: private, and of the file in the page cache",
           f"{seen['private'] / GIB:.2f}, {seen['cached'] / GIB:.2f} GiB", "")
    report(f"{name}: swapped", f"{seen['swapped']} B", "none")


# ---- cases ----

def sweep_arguments(window, steps, pixels, dtype):
    size = str(pixels)
    return ["--trajectories", str(window), "--teacher_window", str(window), "--batch_size",
            str(window), "--num_steps", str(steps), "--height", size, "--width", size,
            "--teacher_dtype", dtype]


def case_1_3b(options):
    teacher = make(options, "1.3b", "wan2.1-1.3b", "float32")
    student = {"hidden_size": 512, "depth": 4, "num_heads": 4, "projection_factor": 4}
    arguments = [*sweep_arguments(8, options.steps, options.pixels or 256, "float32"),
                 "--guidance_scale", "1"]
    resident, limited = in_turn(
        options,
        lambda: train(options, teacher, "resident", student,
                      [*arguments, "--teacher_device_strategy", "cpu"]),
        lambda: train(options, teacher, "limited", student,
                      [*arguments, "--teacher_device_strategy", "disk"], LIMIT))
    same = filecmp.cmp(resident["student"], limited["student"], shallow=False)
    report("1.3b: student under disk in 3 GiB and in memory", "the same" if same else "DIFFERENT",
           "the same")
    report("1.3b: time per target under disk over in memory, window 8",
           f"{limited['target_s'] / resident['target_s']:.3f}", "1.10 at most")
    report_memory("1.3b disk", limited)


def case_14b(options):
    student = {"hidden_size": 256, "depth": 2, "num_heads": 2, "projection_factor": 4}
    pixels = options.pixels or 512
    arguments = [*sweep_arguments(2, options.steps, pixels, "bfloat16"), "--guidance_scale", "1"]
    few = make(options, "14b-8", "wan2.1-14b", "bfloat16", "8")
    resident, disk = in_turn(
        options,
        lambda: train(options, few, "resident-8", student,
                      [*arguments, "--teacher_device_strategy", "cpu"]),
        lambda: train(options, few, "disk-8", student,
                      [*arguments, "--teacher_device_strategy", "disk"]))
    report("14b: time per target of 8 blocks under disk", f"{disk['target_s']:.1f} s", "")
    report("14b: the same over in memory, window 2",
           f"{disk['target_s'] / resident['target_s']:.3f}", "1.15 at most")
    report_memory("14b disk, 8 blocks", disk)
    teacher = make(options, "14b", "wan2.1-14b", "bfloat16")
    whole = train(options, teacher, "disk-14b", student,
                  [*sweep_arguments(2, 1, pixels, "bfloat16"), "--guidance_scale", "1",
                   "--teacher_device_strategy", "disk"])
    report_memory("14b disk, 40 blocks", whole)


def case_mapped(options):
    student = {"hidden_size": 256, "depth": 2, "num_heads": 2, "projection_factor": 4}
    teacher = make(options, "14b", "wan2.1-14b", "bfloat16")
    seen = train(options, teacher, "mapped-14b", student,
                 [*sweep_arguments(2, 1, 128, "bfloat16"), "--teacher_device_strategy", "cpu"])
    planned, before = planned_host(seen)
    beyond = seen["private"] - before - planned
    report("14b cpu: private bytes beyond the plan", f"{beyond / (1 << 20):.1f} MiB",
           "64 MiB at most")
    report("14b cpu: of the file in the page cache", f"{seen['cached'] / GIB:.2f} GiB", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--program", default="build/release/wandistiller")
    parser.add_argument("--tool", default="build/release/make_pipeline")
    parser.add_argument("--steps", type=int, default=6, help="4 or more (default: 6)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pixels", type=int, help="default: 256 for 1.3b, 512 for 14b")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.steps < 4:
        parser.error(f"--steps {options.steps}: 4 at least, of which one is timed")
    os.makedirs(options.folder, exist_ok=True)
    run = {"1.3b": case_1_3b, "14b": case_14b, "mapped": case_mapped}
    for case in options.cases or CASES:
        run[case](options)


if __name__ == "__main__":
    main()

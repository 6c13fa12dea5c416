#!/usr/bin/env python3
"""Measures the throughput of several ranks over that of one, and the bytes that they send.

    bench/ranks.py [--program PATH] [--steps N] [--rounds N] [cores] [devices] [bytes]

cores    2 ranks with a thread each over 1 rank with a thread, on processors of their own, and over
         two independent runs of 1 rank at the same time, which show the best possible ratio of
         two cores of this machine, with its memory and its clock.
devices  4 and 8 ranks over 1, each with a simulated device of its own that computes at a fixed
         rate, a small part of what the machine can, so that its cores have time for all of them.
bytes    what 4 ranks have sent of gradients and targets, over the formulas of docs/ranks.md.

Nearly all time is the student's: the teacher computes few targets, which are used repeatedly.
Samples per second are those of the steps after the first few, which make kernels.
Other programs change the speed of a machine, so all sides alternate, and the best round of each
counts. `cores` needs two idle cores, and prints the load of the machine.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial

CASES = ("cores", "devices", "bytes")
TEACHER = "models/wan-tiny"
WARM_UP = 3  # steps
LATENT_BYTES = 16 * 8 * 8 * 4
RATE = "2GFLOP/s"


def train(options, ranks, batch, student, *arguments, name="run"):
    """One run -> rows of its metrics, its run.json, and what it logged."""
    folder = os.path.join(options.folder, name)
    shutil.rmtree(folder, ignore_errors=True)
    config = f"{folder}.json"
    with open(config, "w", encoding="utf-8") as file:
        json.dump(student, file)
    command = [options.program, "train", "--teacher_path", TEACHER, "--data_path",
               f"{TEACHER}/prompts.txt", "--student_config", config, "--output_dir", folder,
               "--batch_size", str(batch), "--num_steps", str(options.steps),
               "--target_reuse", "64", "--trajectories", "8", "--trajectory_steps", "8",
               "--guidance_scale", "1", "--num_threads", "1", "--teacher_dtype", "float32",
               "--mixed_precision", "no", *arguments]
    if ranks > 1:
        command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--allow-run-as-root",
                   "--bind-to", "none", *command, "--distributed"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
        return rows, json.load(file), done.stderr


def samples_per_s(run):
    """A row is written when the step after it has begun, the last two at once."""
    rows = run[0][WARM_UP:-1]
    return (rows[-1]["samples"] - rows[0]["samples"]) / (rows[-1]["seconds"] - rows[0]["seconds"])


def in_turn(options, *sides):
    """The best of each side over all rounds; a side is a list of runs at the same time."""
    best = [0.0] * len(sides)
    for _ in range(options.rounds):
        for i, side in enumerate(sides):
            with ThreadPoolExecutor() as pool:
                runs = [pool.submit(run, name=f"run{k}") for k, run in enumerate(side)]
                best[i] = max(best[i], sum(samples_per_s(run.result()) for run in runs))
    return best


def report(figure, value, wanted):
    print(f"{figure:62} {value:>14}   ({wanted})", flush=True)


# ---- cases ----

def case_cores(options):
    """A rank's step is of 4,096 image tokens, as many as 4 samples at 512x512 have: what is
    computed beside a weight's gradient does not depend on how large the student is."""
    student = {"hidden_size": 160, "depth": 6}
    size = ("--height", "256", "--width", "256")
    load = os.getloadavg()[0]
    alone = partial(train, options, 1, 32, student, *size)
    ranks = partial(train, options, 2, 32, student, *size)
    one, pair, two = in_turn(options, [alone], [alone, alone], [ranks])
    report("samples/s of 1 rank with a thread", f"{one:.1f}", f"load of the machine {load:.1f}")
    report("2 ranks with a thread each, over 1", f"{two / one:.2f}", "1.85 at least")
    report("two runs side by side, over 1", f"{pair / one:.2f}", "what this machine can")
    report("2 ranks with a thread each, over two runs", f"{two / pair:.2f}", "1 at most")


def case_devices(options):
    student = {"hidden_size": 128, "depth": 3}

    def side(ranks):
        devices = f"sim:{ranks}x256MiB@compute={RATE}"
        return [partial(train, options, ranks, 16, student, "--devices", devices,
                        "--teacher_device_strategy", "gpu")]
    one, four, eight = in_turn(options, side(1), side(4), side(8))
    report(f"samples/s of 1 device of {RATE}", f"{one:.1f}",
           f"load of the machine {os.getloadavg()[0]:.1f}")
    report("4 ranks with a device each, over 1", f"{four / one:.2f}", "3.6 at least")
    report("8 ranks with a device each, over 1", f"{eight / one:.2f}", "7 at least")


def case_bytes(options):
    ranks = 4
    rows, run, log = train(options, ranks, 4, {"depth": 2}, "--profile_memory")
    sent = dict(re.findall(r"sent to other ranks: (\w+) +(\d+) B", log))
    gradients = next(i["bytes"] for i in run["memory"]["items"] if i["name"] == "student gradients")
    targets = int(re.search(r"(\d+) targets", log).group(1))
    report("bytes of gradients over the formula",
           f"{int(sent['gradients']) / (rows[-1]['step'] * 2 * (ranks - 1) * gradients):.6f}", "1")
    report("bytes of targets over the formula",
           f"{int(sent['targets']) / (targets * (ranks - 1) * LATENT_BYTES):.6f}", "1")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--program", default="build/release/wandistiller")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    run = {"cores": case_cores, "devices": case_devices, "bytes": case_bytes}
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        for case in options.cases or CASES:
            run[case](options)


if __name__ == "__main__":
    main()

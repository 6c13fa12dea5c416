#!/usr/bin/env python3
"""Checks with TensorBoard's own reader that a run's event files have the figures of the run.

    pip install tensorboard
    python3 tools/check_tensorboard.py FOLDER_OF_A_RUN

Reads the folder with TensorBoard's EventAccumulator and compares every scalar of every step with
metrics.jsonl, and the sheets of samples that it keeps with their files. Of a run that was resumed
both must show each step once."""
import json
import os
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# The tag of a figure of metrics.jsonl.
TAGS = {"loss": "train/loss", "grad_norm": "train/grad_norm", "lr": "train/lr"}


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main(folder):
    board = EventAccumulator(folder, size_guidance={"scalars": 0})
    board.Reload()
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    tags = board.Tags()["scalars"]
    compared = 0
    for name, tag in TAGS.items():
        if tag not in tags:
            sys.exit(f"TensorBoard finds no {tag}; there are {', '.join(tags) or 'none'}")
        found = {event.step: event.value for event in board.Scalars(tag)}
        wanted = {row["step"]: as_float32(row[name]) for row in rows if name in row}
        for step in sorted(found.keys() | wanted.keys()):
            if found.get(step) != wanted.get(step):
                sys.exit(f"{tag} of step {step}: TensorBoard reads {found.get(step)}, "
                         f"metrics.jsonl has {wanted.get(step)}")
            compared += 1
    if not compared:
        sys.exit(f"{folder} has no steps")
    for tag in board.Tags()["images"]:
        for picture in board.Images(tag):
            name = os.path.join(folder, "samples", f"step-{picture.step:08d}.png")
            with open(name, "rb") as file:
                if file.read() != picture.encoded_image_string:
                    sys.exit(f"{tag} of step {picture.step} is not {name}")
    print(f"{compared} values are the same in TensorBoard and metrics.jsonl")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

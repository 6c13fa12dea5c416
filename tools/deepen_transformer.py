#!/usr/bin/env python3
"""Writes a deeper copy of a Wan transformer, as the start of a student: each block comes several
times in a row.

usage: deepen_transformer.py TRANSFORMER OUTPUT TIMES
       deepen_transformer.py models/wan-tiny/transformer_2 deep-start 2

TRANSFORMER is a diffusers folder with one safetensors file in F32 or BF16, OUTPUT the folder to
write. What a copy of a block adds to the stream is divided by TIMES, so that the deep transformer
does about what the shallow one does. Needs nothing but Python.
"""
import array
import json
import os
import re
import struct
import sys

NAME = "diffusion_pytorch_model.safetensors"
BLOCK = re.compile(r"blocks\.(\d+)\.(.+)")
# the layers whose results a block adds to the stream
LAST_LAYERS = ("attn1.to_out.0.", "attn2.to_out.0.", "ffn.net.2.")


def read(path):
    """-> {name: (dtype, shape, bytes)} of a safetensors file"""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


def write(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(data for _, _, data in tensors.values())


def floats(dtype, data):
    """-> array of the values of a tensor, which must be F32 or BF16"""
    if dtype == "BF16":
        return array.array("f", b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2)))
    if dtype != "F32":
        sys.exit(f"a tensor is {dtype}; expected F32 or BF16")
    return array.array("f", data)


def divided(tensor, times):
    dtype, shape, data = tensor
    return "F32", shape, array.array("f", (x / times for x in floats(dtype, data))).tobytes()


def deepen(tensors, times):
    out = {}
    for name, tensor in tensors.items():
        match = BLOCK.fullmatch(name)
        if not match:
            out[name] = tensor
            continue
        block, rest = int(match[1]), match[2]
        new = divided(tensor, times) if rest.startswith(LAST_LAYERS) else tensor
        for i in range(times):
            out[f"blocks.{block * times + i}.{rest}"] = new
    return out


def main():
    if len(sys.argv) != 4 or not sys.argv[3].isdecimal() or int(sys.argv[3]) < 1:
        sys.exit(__doc__)
    if sys.byteorder != "little":
        sys.exit("this needs a machine whose numbers begin with their lowest byte")
    source, output, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(os.path.join(source, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    config["num_layers"] *= times
    os.makedirs(output, exist_ok=True)
    write(os.path.join(output, NAME), deepen(read(os.path.join(source, NAME)), times))
    with open(os.path.join(output, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


main()

#!/usr/bin/env python3
"""Compares what the program reads of quantised transformers with the packages gguf and ml_dtypes.

usage: check_codecs.py WANDISTILLER TRANSFORMER_FOLDER OUTPUT_FOLDER

Writes the transformer of a diffusers folder (models/wan-tiny/transformer) in each form to
OUTPUT_FOLDER/<form>/, with its dequantised twin by the formulas of those packages, has `convert`
make float32 of it, and compares the bits of every tensor. Exits with 1 if any differ. It shares no
code with the program. Needs: pip install gguf ml_dtypes numpy."""
import json
import os
import shutil
import struct
import subprocess
import sys

import gguf
import ml_dtypes
import numpy as np

DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
          "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "I8": np.int8}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
BLOCKS = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q5_0", "Q4_0", "F16", "BF16", "F32"]


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in entry["data_offsets"])
            values = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]])
            out[name] = values.reshape(entry["shape"])
    return out


def save(path, tensors):
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            file.write(t.tobytes())


def is_matrix(name, t):
    return t.ndim == 2 and name.startswith("blocks.") and name.endswith(".weight")


def scaled(weights, dtype, end, groups):
    """groups: 0 one scale for a tensor, 1 one for each row, n for each of n parts of a row."""
    limit = 127 if dtype == "I8" else float(ml_dtypes.finfo(DTYPES[dtype]).max)
    file, twin = {}, {}
    for name, t in weights.items():
        wide = t.astype(np.float32)
        file[name], twin[name] = t, wide
        if not is_matrix(name, t):
            continue
        parts = wide.reshape((1, 1, -1) if not groups else (t.shape[0], groups, -1))
        scale = np.float32(1.01 / limit) * np.abs(parts).max(axis=2, keepdims=True)
        q = np.rint(parts / scale) if dtype == "I8" else parts / scale
        q = q.astype(DTYPES[dtype])
        file[name] = q.reshape(t.shape)
        shape = {0: (), 1: (t.shape[0], 1)}.get(groups, scale.shape)
        file[name[:-len("weight")] + end] = scale.reshape(shape)
        twin[name] = (q.astype(np.float32) * scale).reshape(t.shape)
    return file, twin


def plain(weights, dtype):
    file = {name: t.astype(DTYPES[dtype]) for name, t in weights.items()}
    return file, {name: t.astype(np.float32) for name, t in file.items()}


def blocks_of(t, kind, rng):
    """Bytes of a tensor as rows of 256 values; gguf quantises to K types in no way, so these are
    random bytes with factors that keep them small."""
    rows = t.reshape(-1, 256)
    if not kind.name.endswith("_K"):
        return gguf.quants.quantize(rows, kind)
    bytes_ = gguf.GGML_QUANT_SIZES[kind][1]
    data = rng.integers(0, 256, (rows.shape[0], bytes_), dtype=np.uint8)
    factors = {"Q6_K": [208]}.get(kind.name, [0, 2])
    for at in factors:
        values = rng.uniform(1e-5, 1e-3, rows.shape[0]).astype(np.float16)
        data[:, at:at + 2] = values.view(np.uint8).reshape(-1, 2)
    return data


def write_gguf(path, weights):
    rng, twin = np.random.default_rng(1), {}
    writer = gguf.GGUFWriter(path, "wan")
    for i, (name, t) in enumerate(weights.items()):
        wide = t.astype(np.float32)
        kind = gguf.GGMLQuantizationType[BLOCKS[i % len(BLOCKS)]]
        if t.ndim < 2 or t.size % 256:
            kind = gguf.GGMLQuantizationType.F32
        if kind == gguf.GGMLQuantizationType.F32:
            twin[name] = wide
            writer.add_tensor(name, wide)
            continue
        data = blocks_of(wide, kind, rng)
        twin[name] = gguf.quants.dequantize(data, kind).reshape(t.shape)
        writer.add_array("comfy.gguf.orig_shape." + name, list(t.shape))
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return twin


def check(program, form, path, twin):
    folder = os.path.dirname(path)
    save(os.path.join(folder, "twin.safetensors"), twin)
    out = os.path.join(folder, "float32")
    subprocess.run([program, "convert", "--model", path, "--to", "diffusers", "--dtype", "float32",
                    "--out", out], check=True, stdout=subprocess.DEVNULL)
    read = load(os.path.join(out, "diffusion_pytorch_model.safetensors"))
    wrong = [name for name, t in twin.items()
             if read[name].view(np.uint32).tobytes() != np.ascontiguousarray(t).tobytes()]
    values = sum(t.size for t in twin.values())
    print(f"{form:22} {len(twin)} tensors, {values} values, {len(wrong)} tensors differ",
          *wrong[:3])
    return not wrong


def main():
    program, teacher, output = sys.argv[1:]
    weights = load(os.path.join(teacher, "diffusion_pytorch_model.safetensors"))
    forms = {"fp8_e4m3": lambda: plain(weights, "F8_E4M3"),
             "fp8_e5m2": lambda: plain(weights, "F8_E5M2"),
             "fp8_scaled": lambda: scaled(weights, "F8_E4M3", "scale_weight", 0),
             "fp8_rows": lambda: scaled(weights, "F8_E4M3", "weight_scale", 1),
             "fp8_e5m2_blocks": lambda: scaled(weights, "F8_E5M2", "scale_weight", 4),
             "int8_rows": lambda: scaled(weights, "I8", "weight_scale", 1), "gguf": None}
    good = True
    for form, make in forms.items():
        folder = os.path.join(output, form)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        shutil.copy(os.path.join(teacher, "config.json"), folder)
        path = os.path.join(folder, "wan." + ("safetensors" if make else "gguf"))
        if make:
            file, twin = make()
            save(path, file)
        else:
            twin = write_gguf(path, weights)
        good = check(program, form, path, twin) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()

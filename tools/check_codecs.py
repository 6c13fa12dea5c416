#!/usr/bin/env python3
"""Compares what the program reads and writes of quantised transformers with the packages gguf,
safetensors and ml_dtypes.

usage: check_codecs.py WANDISTILLER TRANSFORMER_FOLDER OUTPUT_FOLDER [LIBGGML]

Reading: writes the transformer of a diffusers folder (models/wan-tiny/transformer) in each form to
OUTPUT_FOLDER/<form>/, with its dequantised twin by the formulas of those packages, has `convert`
make float32 of it, and compares the bits of every tensor.

Writing: has `convert` write the same transformer, and one of random weights with rows of whole
blocks of 256, in each form, and reads the files with those packages. Every tensor must have the
bytes that the packages make of it, but those in Q4_K, which the packages cannot make: their error
is printed. LIBGGML
is a library with ggml's quantize_row_q4_K_ref, whose error is then printed beside the program's.

Exits with 1 if anything differs. It shares no code with the program. Needs: pip install gguf
safetensors ml_dtypes numpy."""
import ctypes
import json
import os
import shutil
import struct
import subprocess
import sys

import gguf
import ml_dtypes
import numpy as np
import safetensors.numpy

DTYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16,
          "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E5M2": ml_dtypes.float8_e5m2, "I8": np.int8}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
BLOCKS = ["Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q5_0", "Q4_0", "Q5_1", "Q4_1", "Q3_K", "Q2_K", "IQ4_NL",
          "IQ4_XS", "F16", "BF16", "F32"]


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
    """Bytes of a tensor as rows of 256 values; gguf quantises to K and IQ types in no way, so these
    are random bytes with factors that keep them small."""
    rows = t.reshape(-1, 256)
    if not kind.name.endswith("_K") and not kind.name.startswith("IQ"):
        return gguf.quants.quantize(rows, kind)
    count, bytes_ = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows.size // count, bytes_), dtype=np.uint8)
    factors = {"Q6_K": [208], "Q3_K": [108], "Q2_K": [80, 82], "IQ4_NL": [0], "IQ4_XS": [0]}
    for at in factors.get(kind.name, [0, 2]):
        values = rng.uniform(1e-5, 1e-3, len(data)).astype(np.float16)
        data[:, at:at + 2] = values.view(np.uint8).reshape(-1, 2)
    return data.reshape(rows.shape[0], -1)


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


# ---- what `convert` writes ----

RENAMED = [(".attn1.", ".self_attn."), (".attn2.", ".cross_attn."), (".to_out.0.", ".o."),
           (".to_q.", ".q."), (".to_k.", ".k."), (".to_v.", ".v."), (".ffn.net.0.proj.", ".ffn.0."),
           (".ffn.net.2.", ".ffn.2."), (".norm2.", ".norm3."), ("proj_out.", "head.head."),
           ("condition_embedder.", ""), ("_embedder.linear_1.", "_embedding.0."),
           ("_embedder.linear_2.", "_embedding.2."), ("time_proj.", "time_projection.1.")]


def original_name(name):
    for ours, theirs in RENAMED:
        name = name.replace(ours, theirs)
    return name.replace("scale_shift_table", "modulation" if "." in name else "head.modulation")


def random_model(folder, template):
    """A transformer of one block with rows of 512 and 1024 values: rows of `template`, repeated."""
    with open(os.path.join(template, "config.json")) as file:
        config = json.load(file)
    width, ffn, text = 512, 1024, config["text_dim"]
    config.update(num_layers=1, num_attention_heads=4, attention_head_dim=128, ffn_dim=ffn)
    rng, out = np.random.default_rng(2), {}

    def put(name, *shape):
        out[name] = (rng.standard_t(5, shape) * 0.02).astype(np.float32)

    def linear(name, rows, row):
        put(name + ".weight", rows, row)
        put(name + ".bias", rows)

    put("patch_embedding.weight", width, config["in_channels"], *config["patch_size"])
    put("patch_embedding.bias", width)
    linear("condition_embedder.time_embedder.linear_1", width, config["freq_dim"])
    linear("condition_embedder.time_embedder.linear_2", width, width)
    linear("condition_embedder.time_proj", 6 * width, width)
    linear("condition_embedder.text_embedder.linear_1", width, text)
    linear("condition_embedder.text_embedder.linear_2", width, width)
    put("blocks.0.scale_shift_table", 1, 6, width)
    for attention in "attn1", "attn2":
        for part in "to_q", "to_k", "to_v", "to_out.0":
            linear(f"blocks.0.{attention}.{part}", width, width)
        for part in "norm_q", "norm_k":
            put(f"blocks.0.{attention}.{part}.weight", width)
    linear("blocks.0.ffn.net.0.proj", ffn, width)
    linear("blocks.0.ffn.net.2", width, ffn)
    put("blocks.0.norm2.weight", width)
    put("blocks.0.norm2.bias", width)
    put("scale_shift_table", 1, 2, width)
    linear("proj_out", config["out_channels"] * int(np.prod(config["patch_size"])), width)
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
    save(os.path.join(folder, "diffusion_pytorch_model.safetensors"), out)
    return out


def read_gguf(path):
    """Name -> (type, values, bytes)."""
    reader, out = gguf.GGUFReader(path), {}
    assert reader.get_field("general.architecture").contents() == "wan"
    for t in reader.tensors:
        values = gguf.quants.dequantize(t.data, t.tensor_type)
        out[t.name] = t.tensor_type.name, values.reshape([int(n) for n in t.shape[::-1]]), t.data
    return out


def read_scaled(path):
    """The same of ComfyUI's scaled fp8; the bytes are of e4m3fn."""
    file = load(path)
    with safetensors.safe_open(path, "np") as handle:  # its reader accepts the file, too
        assert set(handle.keys()) == set(file) and file["scaled_fp8"].size == 2
    out = {}
    for name, t in file.items():
        if name == "scaled_fp8" or name.endswith(".scale_weight"):
            continue
        scale = file.get(name[:-len("weight")] + "scale_weight", np.float32(1))
        out[name] = NAMES[t.dtype], t.astype(np.float32) * scale, t
    return out


def rounded(wide, kind):
    """What the packages make of a tensor; None: they make nothing of this type."""
    if kind == "F8_E4M3":
        scale = np.abs(wide).max() / np.float32(448)
        return (wide / scale).astype(ml_dtypes.float8_e4m3fn)
    if kind == "Q4_K":
        return None
    return gguf.quants.quantize(wide, gguf.GGMLQuantizationType[kind])


def rmse(values, exact):
    return np.sqrt(np.sum((values - exact) ** 2, dtype=np.float64))


def ggml_q4_k(library, wide):
    data = np.zeros(wide.size // 256 * 144, np.uint8)
    library.quantize_row_q4_K_ref(wide.ctypes.data_as(ctypes.c_void_p),
                                  data.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(wide.size))
    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q4_K).reshape(wide.shape)


def check_written(program, folder, weights, form, dtype, output, library):
    path = os.path.join(output, f"{dtype}.{'gguf' if form == 'gguf' else 'safetensors'}")
    subprocess.run([program, "convert", "--model", os.path.dirname(folder), "--to", form, "--dtype",
                    dtype, "--out", path, "--log_level", "error"], check=True)
    read = read_gguf(path) if form == "gguf" else read_scaled(path)
    wrong, kinds, squares, error, theirs = [], {}, 0, 0, 0
    for name, t in weights.items():
        matrix, name = is_matrix(name, t), original_name(name)
        wide = np.ascontiguousarray(t.astype(np.float32))
        kind, values, data = read[name]
        expected = rounded(wide, kind)
        if values.shape != t.shape or (expected is not None
                                       and expected.tobytes() != data.tobytes()):
            wrong.append(name)
        if not matrix:
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        squares += rmse(wide, 0) ** 2
        error += rmse(values, wide) ** 2
        if library and kind == "Q4_K":
            theirs += rmse(ggml_q4_k(library, wide), wide) ** 2
    kept = sum(kind in ("F32", "F16", "BF16") for kind, _, _ in read.values())
    if error > 0.1 ** 2 * squares:
        wrong.append("(the error is too large)")
    beside = f", ggml's {np.sqrt(theirs / squares):.5f}" if theirs else ""
    print(f"written {dtype:14} {kinds}, {kept} kept wide, relative rmse of the matrices "
          f"{np.sqrt(error / squares):.5f}{beside}, {len(wrong)} tensors differ", *wrong[:3])
    return not wrong and len(read) == len(weights)


def main():
    program, teacher, output = sys.argv[1:4]
    library = ctypes.CDLL(sys.argv[4], mode=os.RTLD_LAZY) if sys.argv[4:] else None
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
    large = os.path.join(output, "large")
    shutil.rmtree(large, ignore_errors=True)
    models = {"wan-tiny": (teacher, weights)}
    folder = os.path.join(large, "transformer")
    models["large"] = folder, random_model(folder, teacher)
    for name, (folder, tensors) in models.items():
        place = os.path.join(output, "written-" + name)
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        print(name)
        for form, dtype in (("comfyui", "float8_e4m3fn"), ("gguf", "q8_0"), ("gguf", "q4_k"),
                            ("gguf", "bfloat16"), ("gguf", "float16"), ("gguf", "float32")):
            good = check_written(program, folder, tensors, form, dtype, place, library) and good
    sys.exit(not good)


if __name__ == "__main__":
    main()

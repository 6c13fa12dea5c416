#!/usr/bin/env python3
"""Compares a transformer that `wandistiller convert --teacher_lora` wrote with NumPy's own merge.

usage: check_lora.py BASE.safetensors MERGED.safetensors LORA.safetensors[:STRENGTH] ...

BASE and MERGED are what `convert --to comfyui --dtype float32` wrote without and with the LoRAs.
Prints the largest error, relative to the larger of 1 and the value; exits with 1 above 1e-6. It
reads the files by itself and shares no code with the program."""
import json
import re
import struct
import sys

import numpy as np

TO_ORIGINAL = [
    (r"attn1\.", "self_attn."), (r"attn2\.", "cross_attn."), (r"\.to_out\.0$", ".o"),
    (r"\.to_([qkv])$", r".\1"), (r"\.ffn\.net\.0\.proj$", ".ffn.0"), (r"\.ffn\.net\.2$", ".ffn.2"),
    (r"\.norm2$", ".norm3"), (r"^(blocks\.\d+)\.scale_shift_table$", r"\1.modulation"),
    (r"^scale_shift_table$", "head.modulation"), (r"^proj_out$", "head.head"),
    (r"^condition_embedder\.time_embedder\.linear_1$", "time_embedding.0"),
    (r"^condition_embedder\.time_embedder\.linear_2$", "time_embedding.2"),
    (r"^condition_embedder\.time_proj$", "time_projection.1"),
    (r"^condition_embedder\.text_embedder\.linear_1$", "text_embedding.0"),
    (r"^condition_embedder\.text_embedder\.linear_2$", "text_embedding.2"),
]
PART = r"(.*?)\.(lora_A(?:\.default)?\.weight|lora_down\.weight|diff|diff_b)$"


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + at for at in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[begin:end], "<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(data[begin:end], {"F32": "<f4", "F16": "<f2"}[entry["dtype"]])
        out[name] = values.astype(np.float32).reshape(entry["shape"])
    return out


def add(weights, lora, strength):
    """Adds a LoRA, in float64, to the weights under their original names."""
    flat = {re.sub(r"\.weight$", "", name).replace(".", "_"): name for name in weights}
    for key, value in lora.items():
        match = re.match(PART, key)
        if not match:
            continue
        stem, part = match.groups()
        module = re.sub(r"^(model\.diffusion_model|diffusion_model|transformer)\.", "", stem)
        for pattern, replacement in TO_ORIGINAL:
            module = re.sub(pattern, replacement, module)
        name = flat[re.sub(r"^lora_unet_", "", module).replace(".", "_")]
        if part == "diff_b":
            name = re.sub(r"weight$", "bias", name)
        if part.startswith("diff"):
            weights[name] = weights[name] + strength * value.astype(np.float64)
            continue
        up = lora[stem + "." + part.replace("lora_A", "lora_B").replace("lora_down", "lora_up")]
        rank = value.shape[0]
        scale = strength * float(lora.get(stem + ".alpha", np.float32(rank))) / rank
        product = up.reshape(len(up), rank).astype(np.float64) @ value.reshape(rank, -1)
        weights[name] = weights[name] + scale * product.reshape(weights[name].shape)


def main(base, merged, *loras):
    weights, found = load(base), load(merged)
    for lora in loras:
        path, _, strength = lora.partition(":")
        add(weights, load(path), float(strength or 1))
    errors = {name: float(np.max(np.abs(found[name] - value) / np.maximum(1, np.abs(value))))
              for name, value in weights.items()}
    worst = max(errors, key=errors.get)
    changed = sum(value.dtype == np.float64 for value in weights.values())
    print("%d of %d tensors change; largest error %.3g, of %s" % (changed, len(weights),
                                                                errors[worst], worst))
    return errors[worst] > 1e-6 or set(found) != set(weights)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))

#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: a folder beside this file per target, src/<name>_fuzz.c.

Each seed is small and valid, or nearly so: a fuzzer changes it. A target that reads a folder takes
its files from one input: "@@a", "@@b", ... begin the files that the target names. Run it after a
change here; nothing but Python is needed."""
import json
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def put(target, name, data):
    path = os.path.join(HERE, target, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def dumps(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def files(**named):
    """One input of several files: a=..., b=..."""
    return b"".join(b"@@" + name.encode() + (data if isinstance(data, bytes) else data.encode())
                    for name, data in sorted(named.items()))


def safetensors(tensors, metadata=None, pad=0):
    """tensors: {name: (dtype, shape, data)}, in the order of their data."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = dumps(header) + b" " * pad
    return struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values())


def gguf_text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def gguf(values, tensors, version=3):
    """values: (key, type, bytes); tensors: (name, extents, type, data), in data order."""
    head, data = b"", b""
    for key, kind, value in values:
        head += gguf_text(key) + struct.pack("<I", kind) + value
    for name, extents, kind, content in tensors:
        head += gguf_text(name) + struct.pack("<I", len(extents))
        head += b"".join(struct.pack("<Q", extent) for extent in extents)
        head += struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + head
    return head + bytes(-len(head) % 32) + data


# ---- configurations ----

DIT = {"_class_name": "WanTransformer3DModel", "attention_head_dim": 4, "cross_attn_norm": True,
       "eps": 1e-6, "ffn_dim": 8, "freq_dim": 4, "in_channels": 1, "out_channels": None,
       "num_attention_heads": 1, "num_layers": 1, "patch_size": [1, 2, 2], "text_dim": 4,
       "rope_max_seq_len": 16}
UMT5 = {"model_type": "umt5", "num_layers": 1, "d_model": 4, "d_ff": 8, "d_kv": 2, "num_heads": 2,
        "vocab_size": 8, "torch_dtype": "float16"}
VAE = {"_class_name": "AutoencoderKLWan", "z_dim": 1, "base_dim": 4, "dim_mult": [1, 2],
       "latents_mean": [0], "latents_std": [1], "temperal_downsample": [True],
       "scale_factor_spatial": 2, "scale_factor_temporal": 2, "num_res_blocks": 1}
UNIPC = {"_class_name": "UniPCMultistepScheduler", "use_flow_sigmas": True, "flow_shift": 3.0,
         "prediction_type": "flow_prediction", "solver_type": "bh1", "disable_corrector": [1, 2]}
EULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}
INDEX = {"_class_name": "WanPipeline", "transformer": ["diffusers", "WanTransformer3DModel"],
         "vae": ["diffusers", "AutoencoderKLWan"], "scheduler": ["diffusers", UNIPC["_class_name"]],
         "text_encoder": ["transformers", "UMT5EncoderModel"],
         "tokenizer": ["transformers", "T5TokenizerFast"], "sample_size": [64, 64]}


def dit_tensors(original=False):
    """The tensors of DIT, as diffusers or the original names them: enough for one block."""
    width, shapes = 4, {}
    shapes["patch_embedding.weight"] = [width, 1, 1, 2, 2]
    shapes["patch_embedding.bias"] = [width]
    for name, out, into in (("time_embedder.linear_1", width, 4),
                            ("time_embedder.linear_2", width, width),
                            ("time_proj", 6 * width, width), ("text_embedder.linear_1", width, 4),
                            ("text_embedder.linear_2", width, width)):
        shapes["condition_embedder.%s.weight" % name] = [out, into]
        shapes["condition_embedder.%s.bias" % name] = [out]
    shapes["blocks.0.scale_shift_table"] = [1, 6, width]
    for attention in ("attn1", "attn2"):
        for part in ("to_q", "to_k", "to_v", "to_out.0"):
            shapes["blocks.0.%s.%s.weight" % (attention, part)] = [width, width]
            shapes["blocks.0.%s.%s.bias" % (attention, part)] = [width]
        for part in ("norm_q", "norm_k"):
            shapes["blocks.0.%s.%s.weight" % (attention, part)] = [width]
    shapes["blocks.0.norm2.weight"] = shapes["blocks.0.norm2.bias"] = [width]
    shapes["blocks.0.ffn.net.0.proj.weight"] = [8, width]
    shapes["blocks.0.ffn.net.0.proj.bias"] = [8]
    shapes["blocks.0.ffn.net.2.weight"] = [width, 8]
    shapes["blocks.0.ffn.net.2.bias"] = [width]
    shapes["scale_shift_table"] = [1, 2, width]
    shapes["proj_out.weight"] = [4, width]
    shapes["proj_out.bias"] = [4]
    out = {}
    for name, shape in shapes.items():
        count = 1
        for extent in shape:
            count *= extent
        out[name] = ("BF16", shape, bytes(2 * count))
    return out


def configurations():
    for name, config in (("dit", DIT), ("umt5", UMT5), ("vae", VAE), ("unipc", UNIPC),
                         ("euler", EULER), ("vae-22", dict(VAE, is_residual=True))):
        put("model/tables/config", name, dumps(config))
    put("io/json/json", "empty", "{}")
    put("io/json/json",
        "kinds", '{"a":1,"b":-2.5e3,"c":[1,2,3],"d":null,"e":true,"f":"\\u00e9\\n"}')
    put("io/json/json", "large", '{"big":1000000000000000019884624838656,"deep":[[[[[[[[]]]]]]]]}')
    put("train/network/config",
        "hidden", '{"hidden_size":96,"depth":3,"num_heads":3,"image_size":128}')
    put("train/network/config", "diffusers", dumps(dict(DIT, num_layers=2, attention_head_dim=32,
                                                  num_attention_heads=2, in_channels=16,
                                                  text_dim=96, freq_dim=64, ffn_dim=64)))
    put("train/network/config",
        "factor", '{"projection_factor":2.5,"image_size":[64,32],"patch_size":2}')
    put("api/setup/device_map", "whole", '{"text_encoder":"cpu","vae":0,"transformer":1}')
    put("api/setup/device_map", "parts", dumps({
        "": "cpu", "transformer": {"blocks.0-3": 0, "blocks.4": "1", "patch_embedding": "disk"}}))
    put("api/setup/device_map", "pieces", dumps({
        "text_encoder": "sim:1", "vae": "cpu", "patch_embedding": 0, "condition_embedder": 0,
        "rope": 0, "blocks": "disk", "norm_out": 1, "proj_out": 1, "scale_shift_table": 1}))
    put("api/options/config",
        "options", '{"batch_size":4,"lr":1e-3,"teacher_path":"x","resume":true}')
    put("api/options/config",
        "run", '{"options":{"sample_prompts":["a","b"],"mixed_precision":"bf16"}}')


# ---- files ----

def tensors():
    two = safetensors({"a": ("F32", [2], bytes(8))})
    put("io/tensors/safetensors", "none", safetensors({}))
    put("io/tensors/safetensors", "one", two)
    put("io/tensors/safetensors", "kinds", safetensors({"a": ("BF16", [2, 3], bytes(12)),
                                                "b": ("U8", [], b"\1"),
                                                "c": ("F16", [0, 9], b"")}, {"format": "pt"}))
    put("io/tensors/safetensors", "unaligned", safetensors({"a": ("I32", [1], bytes(4))}, pad=1))
    layers = dumps({"layers": {"a": {"format": "float8_e4m3fn"}}}).decode()
    put("io/tensors/safetensors_scales", "tensor", safetensors({
        "a.weight": ("F8_E4M3", [2, 3], bytes(range(6))), "a.scale_weight": ("F32", [], bytes(4)),
        "a.scale_input": ("F32", [1], bytes(4)), "scaled_fp8": ("F8_E4M3", [2], bytes(2))}))
    put("io/tensors/safetensors_scales", "rows", safetensors({
        "a.weight": ("I8", [2, 3], bytes(range(6))), "a.weight_scale": ("F32", [2, 1], bytes(8))}))
    put("io/tensors/safetensors_scales", "parts", safetensors({
        "a.weight": ("F8_E5M2", [2, 4], bytes(8)), "a.weight_scale": ("BF16", [2, 2, 1], bytes(8)),
        "a.comfy_quant": ("U8", [24], b'{"format":"float8_e5m2"}')}))
    put("io/tensors/safetensors_scales", "metadata", safetensors({
        "a.weight": ("F8_E4M3", [2, 3], bytes(6)), "a.weight_scale": ("F16", [2], bytes(4))},
        {"_quantization_metadata": layers}))
    wan = ("general.architecture", 8, gguf_text("wan"))
    shape = struct.pack("<IQIII", 5, 3, 4, 2, 4)
    put("io/tensors/gguf", "none", gguf([], []))
    put("io/tensors/gguf", "kinds", gguf(
        [wan, ("general.alignment", 4, struct.pack("<I", 32)),
         ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("b")),
         ("comfy.gguf.orig_shape.c", 9, shape)],
        [("a", [32, 2], 8, bytes(68)), ("b", [256], 12, bytes(144)), ("c", [32], 30, bytes(64)),
         ("d", [], 0, bytes(4)), ("e", [32], 2, bytes(18)), ("f", [32], 6, bytes(22)),
         ("g", [256], 13, bytes(176)), ("h", [256], 14, bytes(210)), ("i", [2, 3], 1, bytes(12))]))
    put("io/tensors/gguf", "tokenizer", gguf(
        [("tokenizer.ggml.model", 8, gguf_text("t5")),
         ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 4) + gguf_text("<unk>") +
          gguf_text("</s>") + gguf_text("a") + gguf_text("[PAD3]")),
         ("tokenizer.ggml.scores", 9, struct.pack("<IQ4f", 6, 4, 0, 0, -1, -1e4)),
         ("tokenizer.ggml.token_type", 9, struct.pack("<IQ4i", 5, 4, 2, 3, 1, 5)),
         ("tokenizer.ggml.add_space_prefix", 7, b"\1"),
         ("tokenizer.ggml.remove_extra_whitespaces", 7, b"\1"),
         ("tokenizer.ggml.precompiled_charsmap", 9, struct.pack("<IQ3B", 0, 3, 1, 2, 3))], []))
    index = {"metadata": {"total_size": 12}, "weight_map": {"a": "a.safetensors",
                                                           "b": "b.safetensors"}}
    put("io/tensors/safetensors_index", "two", files(
        a=dumps(index), b=two, c=safetensors({"b": ("F16", [2], bytes(4))})))
    put("io/tensors/safetensors_index", "single", files(d=two))
    put("io/tensors/safetensors_index",
        "up", files(a='{"weight_map":{"a":"../a.safetensors"}}', b=two))


def inputs():
    ids = struct.pack("<4q", 1, 2, 3, 4)
    put("api/jobs/tensor_file", "ids", safetensors({"input_ids": ("I64", [2, 2], ids)}))
    put("api/jobs/tensor_file", "bytes", safetensors({"input_ids": ("BOOL", [1, 2], b"\0\1")}))
    put("api/jobs/tensor_file", "states", safetensors({
        "hidden_states": ("F16", [1, 1, 1, 2, 2], bytes(8))}))
    put("api/jobs/tensor_file", "empty", safetensors({"input_ids": ("I64", [2, 0], b"")}))


def text_cache():
    key = "0123456789abcdef0123456789abcdef"
    rows = {"first": ("I64", [3], struct.pack("<3q", 0, 1, 3)),
            "embeddings": ("F32", [3, 2], bytes(24)),
            "prompt_hash": ("U8", [2, 16], bytes(range(32))),
            # XXH3-128 of the three above; the fuzzer does not find it by itself
            "checksum": ("U8", [16], bytes.fromhex("cd0b23951c4f130ab7cbc7c953cdc6a6"))}
    put("model/text_cache/text_file",
        "two", safetensors(rows, {"format": "wandistiller text cache 1",
                                                   "key": key}, pad=6))


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def charsmap():
    """"a" becomes "b": a double array of 3 x 256 units, which nothing else leads into."""
    unit = [1 << 31] * 768
    unit[0] = 256 << 10
    at = 256 ^ ord("a")
    unit[at] = (at ^ 512) << 10 | 1 << 8 | ord("a")
    array = struct.pack("<768I", *unit)
    return struct.pack("<I", len(array)) + array + b"b\0"


def spiece(map_of_characters=b""):
    pieces = [("<pad>", 0, 3), ("</s>", 0, 3), ("<unk>", 0, 2), ("\u2581", -1, 1), ("a", -2, 1),
              ("b", -2.5, 1), ("\u2581a", -1.5, 1), ("aaaa", -3, 4), ("caf\u00e9", -3, 1)]
    out = b"".join(field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", score) +
                         b"\x18" + varint(kind)) for text, score, kind in pieces)
    out += field(2, b"\x18\1\x20" + varint(len(pieces)))
    return out + field(3, field(1, b"seed") + (field(2, map_of_characters)
                                               if map_of_characters else b""))


def tokenizers():
    config = {"eos_token": "</s>", "pad_token": {"content": "<pad>"}, "unk_token": "<unk>",
              "added_tokens_decoder": {"0": {"content": "<pad>"}, "20": "<a>"},
              "model_max_length": 512}
    put("io/text/tokenizer", "plain", files(a=spiece(), b='{"extra_ids":2}'))
    put("io/text/tokenizer", "config", files(a=spiece(), b=dumps(config)))
    put("io/text/tokenizer", "map", files(a=spiece(charsmap())))


def png(kind, depth, row):
    """Of 2 x 2 pixels, each row with filter 0."""
    def chunk(name, data):
        return (struct.pack(">I", len(data)) + name + data +
                struct.pack(">I", zlib.crc32(name + data)))
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 2, 2, depth, kind, 0, 0, 0))
    if kind == 3:
        out += chunk(b"PLTE", bytes(range(12)))
    return out + chunk(b"IDAT", zlib.compress(2 * (b"\0" + row))) + chunk(b"IEND", b"")


def pictures():
    put("io/picture/png", "grey", png(0, 8, b"\1\2"))
    put("io/picture/png", "colour", png(2, 8, bytes(6)))
    put("io/picture/png", "palette", png(3, 2, b"\x10"))
    put("io/picture/png", "deep", png(6, 16, bytes(16)))
    put("io/picture/sheet", "latin", b"\x40a red fox, \"caf\xc3\xa9\"")
    put("io/picture/sheet", "han", b"\xff" + (30 * "\u4e00\u3002" + " \u0430\u0300 fox").encode())
    put("io/picture/sheet", "boxes", b"\0" + "\u4e00\uac00\u5000\u200d\t".encode() + b"\xff\xc3")


def prompts():
    for name, text in (("plain", "red apple, blue background"),
                       ("references", "&amp;lt;b&GT;&#233;&#x41; &EACUTE;&filig; &notit;"),
                       ("characters", "caf\u00e9 \ufb01 \uff21 \u201cq\u201d\u2026\x1b[31m"),
                       ("mixed", "ΓΌ Ã© â€œ \u0301\u0323a\r\nb\tc")):
        put("io/text/prompt_clean", name, text)
    put("io/text/prompts", "lines", files(a="one\r\ntwo\n\nthr\u00e9e\rfour"))
    put("io/text/prompts",
        "json", files(b='{"prompt":"a"}\n{"caption":"b","x":[1]}\n{"text":"c"}\n'))
    put("io/text/prompts", "folder", files(c="a fox", d='{"text":"c"}'))
    put("io/text/prompts", "mark", files(a=b"\xef\xbb\xbfone", e="two"))
    put("io/text/prompts", "array", files(f='["a", {"prompt": "b", "n": [1, "]"]},\n"c"]'))
    put("io/text/prompts",
        "tables",
        files(g='id,caption\r\n1,"a, ""b""\nc"\r\n2,d\n', h="text\tx\na\tb\n"))


def folders():
    weights = safetensors(dit_tensors())
    put("model/convert/inspect", "incomplete", files(
        a=dumps(INDEX), b=dumps(DIT), e=dumps(VAE), f=dumps(UMT5), h='{"model_max_length":24}',
        i=dumps(UNIPC), j="Sample with 20 steps, 64x64."))
    parts = {name: value for name, value in INDEX.items() if name not in ("vae", "text_encoder",
                                                                          "sample_size")}
    put("model/convert/inspect", "pipeline", files(
        a=dumps(parts), b=dumps(DIT), c=weights, h='{"model_max_length":24}', i=dumps(UNIPC),
        j="Sample with 20 steps, 64x64."))
    sampling = {"height": 64, "width": 64, "num_inference_steps": 2, "max_sequence_length": 24,
                "trained_steps": 9}
    put("model/convert/inspect", "student", files(
        a=dumps(dict(parts, _wandistiller=sampling)), b=dumps(DIT), c=weights, i=dumps(UNIPC)))
    put("model/convert/inspect", "transformer", files(b=dumps(DIT), c=weights))
    put("model/convert/inspect", "experts", files(
        a=dumps(dict(parts, boundary_ratio=0.875,
                     transformer_2=["diffusers", "WanTransformer3DModel"])),
        b=dumps(DIT), c=weights, d=dumps(DIT), h="{}", i=dumps(EULER), m=weights))
    put("model/files/parts", "comfyui", files(a=weights, b=weights, c=dumps(DIT), e=dumps(UMT5),
                                      g=dumps(VAE), k=spiece()))
    put("model/files/parts", "original", files(h='{"_class_name":"WanModel"}', i=weights,
                                       j='{"model_max_length":24}', k=spiece()))
    layer = "encoder.block.0.layer."
    put("model/files/parts", "encoder", files(d=safetensors({
        "shared.weight": ("F32", [2, 2], bytes(16)),
        "encoder.final_layer_norm.weight": ("F32", [2], bytes(8)),
        layer + "0.layer_norm.weight": ("F32", [2], bytes(8)),
        layer + "0.SelfAttention.q.weight": ("F32", [2, 2], bytes(16)),
        layer + "0.SelfAttention.relative_attention_bias.weight": ("F32", [4, 1], bytes(16)),
        layer + "1.DenseReluDense.wi_0.weight": ("F32", [2, 2], bytes(16)),
        "spiece_model": ("U8", [len(spiece())], spiece())}), k=spiece()))
    for style, down, up in (("transformer.blocks.0.attn1.to_q", "lora_A", "lora_B"),
                            ("lora_unet_blocks_0_self_attn_q", "lora_down", "lora_up"),
                            ("diffusion_model.blocks.0.self_attn.q", "lora_down", "lora_up")):
        put("model/files/lora", down + style[:4], files(a=safetensors({
            style + "." + down + ".weight": ("F32", [1, 4], struct.pack("<4f", 1, 2, 3, 4)),
            style + "." + up + ".weight": ("BF16", [4, 1], b"\x80\x3f" * 4),
            style + ".alpha": ("F32", [], struct.pack("<f", 0.5))}),
            b=safetensors({style + ".diff_b": ("F16", [4], bytes(8)),
                           "diffusion_model.blocks.0.modulation.diff": ("F32", [1, 6, 4],
                                                                       bytes(96))}),
            c=dumps({"r": 1, "lora_alpha": 2})))
    product = {"base_model.model.blocks.0.attn1.to_q.lora_" + part + ".weight":
               ("F32", shape, bytes(16)) for part, shape in (("A", [1, 4]), ("B", [4, 1]))}
    peft = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "use_rslora": True, "bias": "none",
            "rank_pattern": {"^blocks.0": 2}, "alpha_pattern": {"attn1.to_q": 4}}
    put("model/files/lora", "peft", files(
        a=safetensors(product, {"lora_adapter_metadata":
                                dumps({"transformer." + k: v for k, v in peft.items()}).decode()}),
        b=safetensors(product), c=dumps(peft)))
    put("model/files/lora", "kohya_alpha", files(a=safetensors(product, {
        "ss_network_alpha": "2", "ss_network_dim": "1", "ss_network_module": "networks.lora_wan",
        "lora_alpha": "2"}), b=safetensors({"blocks.0.diff_m": ("F32", [1, 6, 4], bytes(96))}),
        c=dumps(peft)))
    put("model/convert/convert", "shapes", files(a=weights))
    put("model/convert/convert", "config", files(a=weights, b=dumps(DIT)))
    put("model/convert/inspect",
        "component", files(k=dumps(dict(EULER, _class_name="AutoencoderKLWan"))))
    put("model/convert/inspect", "file", files(l=weights))
    put("model/convert/inspect", "other", files(l=safetensors({"x": ("F32", [1, 2], bytes(8))})))
    state = {"format": "wandistiller checkpoint 1", "step": 2, "run": {"seed": 3}}
    put("train/output/checkpoint", "whole", files(
        a=dumps(state), b=safetensors({"p.x": ("F32", [2], bytes(8))})))
    put("train/output/checkpoint", "snapshot", files(
        a=dumps(state), b=safetensors({"snapshot.p.patch_embedding.weight": (
            "F32", [2, 1, 1, 1, 1], bytes(8)), "snapshot.p.patch_embedding.bias": (
            "F32", [2], bytes(8))}, pad=1)))
    put("train/output/checkpoint", "sums", files(a=dumps(state), b=safetensors({}),
                                            c="0" * 32 + "  state.safetensors\n"))
    put("train/output/checkpoint", "earlier", files(d=dumps(state)))
    stored = {"format": "wandistiller targets 1", "latents": [1, 1, 2], "dtype": "bf16",
              "trajectory": {"seed": 3, "trajectories": 2, "trajectory_steps": 2,
                             "student_steps": 2, "chords": 2, "on_policy_share": 1.0,
                             "diversity_gain": 0.0, "prompts": 3, "flow_shift": 3.0,
                             "num_train_timesteps": 1000, "integer_timesteps": True,
                             "trajectory_sigmas": []}, "run": {"teacher_key": "a"}}
    rows = {"prompt": ("I64", [2], bytes(16)), "sigma": ("F32", [2], struct.pack("<2f", 1, 0.75)),
            "timestep": ("F32", [2], struct.pack("<2f", 999, 750)),
            "targets": ("BF16", [2, 2, 1, 1, 2], bytes(16)), "checksum": ("U8", [2, 8], bytes(16))}
    given = dict(stored["trajectory"], trajectory_sigmas=[1, 0.5], diversity_gain=0.5,
                 trajectories=4)
    put("train/targets/target_store", "two", files(
        a=dumps(stored), b=safetensors(rows), c=safetensors(rows)))
    put("train/targets/target_store", "pairs", files(
        a=dumps(dict(stored, trajectory=given)), b=safetensors(rows)))
    put("train/targets/target_store", "gap", files(a=dumps(stored), c=safetensors(rows)))
    put("train/targets/target_store", "velocities", files(
        a=dumps(dict(stored, trajectory=dict(given, student_steps=0, chords=0, diversity_gain=0,
                                             trajectory_sigmas=[]))), b=safetensors(rows)))
    resumed = {"stream": {"objective": "trajectory", "round": 7, "seed": 3, "trajectories": 4,
                          "trajectory_steps": 4, "prompts": 3, "target_reuse": 4,
                          "replay_targets": 8, "step_samples": 2, "flow_shift": 3.0},
               "seconds": 1.5, "optimizer_steps": 2, "text_tokens": 7, "text_repeat": 18,
               "guidance_scale": 2.0, "teacher_key": "a", "negative_prompt": "",
               "student": {"num_layers": 6, "patch_size": [1, 2, 2]}, "kernels": "generic"}
    put("train/loop/trainer_saved", "resumed", dumps(dict(state, run=resumed)))
    put("train/loop/trainer_saved", "phase", dumps(dict(state, run=dict(
        resumed, phase=1, phase_step=1, phase_seconds=0.5))))
    put("train/loop/trainer_saved", "other", dumps(dict(state, run=dict(resumed, student=[1]))))
    row = '{"step": %d, "loss": 0.5, "grad_norm": null, "lr": 0.001}\n'
    put("train/loop/metrics", "rows", row % 1 + row % 2)
    put("train/loop/metrics", "later", row % 40 + row % 41 + row % 42)
    put("train/loop/metrics", "cut", row % 1 + row[:20] % 2)
    levels = ('{"step": 9, "validation_error": 0.5, "validation_error_by_level": '
              '[{"sigma": 1.0, "error": 0.75}, {"sigma": 0.5, "error": 0.25}]}\n')
    run = {"command": "train", "options": {"data_path": "</script>"},
           "resolved": {"num_steps": 9, "data_path": "a", "sample_prompts": ["\"'<b>&"]},
           "student": {"num_layers": 3, "num_attention_heads": 5, "attention_head_dim": 32},
           "teacher": {"seconds_per_step": 0.5, "limited_by": "compute", "strategy": "cpu"},
           "memory": {"bytes_peak": 1 << 30, "items": [
               {"name": "targets", "where": "host memory", "while": "training", "bytes": 9}]},
           "error": "lost </script>"}
    card = "# A student\n\n## Sampling\n\n```python\nimport torch\n```\n\nor\n"
    put("report/report", "rows", row % 1 + row.replace("}", ', "memory_bytes": 2049}') % 2)
    put("report/report", "long", "".join(row % i for i in range(1, 600)))
    put("report/report", "wrong", row % 2 + row % 1 + "x\n" + row[:20] % 3)
    put("report/report", "extremes", '{"step": 1, "loss": 1e308, "lr": 5e-324}\n'
        '{"step": 9007199254740992, "loss": -1e308, "lr": 1e-320}\n')
    put("report/report", "all", files(a=row % 8 + levels + row % 10, b=dumps(run), c=card, d=dumps(
        {"pictures": 4, "seeds": 2, "psnr_db": 20.5, "student": {"diversity": 0.5,
                                                                 "trained_steps": 9}}),
        e=png(2, 8, bytes(6))))


# ---- what is neither a model nor a run ----

def surroundings():
    put("api/plan/start_blocks", "chosen", '{"blocks": [0, 2, 4, 5]}')
    put("api/plan/start_blocks", "descending", '{"blocks": [0, 4, 2, 5]}')
    put("api/plan/start_blocks", "short", '{"blocks": [0, 5]}')
    put("api/plan/start_blocks", "other", '{"blocks": {"0": 1e400}}')
    put("train/output/best", "kept", dumps({"step": 60,
        "states": "0123456789abcdef", "validation_error": 0.75,
        "validation_error_by_level": [{"sigma": 1.0, "error": 0.75}]}))
    put("train/output/best", "other", '{"step": -1, "validation_error": 1e999}')
    levels = ("F32", [8], bytes(32))
    states = ("F32", [8, 1, 4], bytes(128))
    for name, key in (("states", "key"), ("other", "none")):
        put("train/targets/validation_file", name, safetensors(
            {"latents": states, "target": states, "sigma": levels, "timestep": levels},
            {"format": "wandistiller validation 1", "key": key, "checksum": "0123456789abcdef"}))
    put("api/setup/rate_cache", "known", dumps({"version": 1, "rates": {
        "disk": {"per_s": 2.5e9, "measured": 4000000000}, "x": {"per_s": -1, "measured": 0}}}))
    put("api/setup/rate_cache", "kinds", '{"rates":{"disk":[],"a":{"per_s":"1"}}}')
    for name, text in (("cpu", "cpu@compute=3TFLOP/s"), ("size", "24.5GiB"), ("card", "sim:4xh100"),
                       ("speed", "12.5GB/s"), ("cuda", "cuda:0"),
                       ("fp32", "sim:a100@fp32=8TFLOP/s,compute=200TFLOP/s"),
                       ("mixed", "sim:2x24GiB,48GiB@link=25GB/s,compute=20GFLOP/s,cpu=3TFLOP/s,"
                                 "memory=80GB/s")):
        put("dev/device_list", name, text)
    for name, text in (("one", "chord"), ("two", "velocity,chord"),
                       ("shares", "velocity:3,chord:1")):
        put("train/loop/phases", name, text)
    for name, text in (("sigmas", "1,0.9375,0.8333,0.625"), ("timesteps", "1000,937.5,833.3,625")):
        put("api/setup/train_objective", name, text)
    put("io/file/hub", "main", "org/model\n0123abcd\n")
    put("io/file/hub", "revision", "org/model@0123abcd\n")
    put("io/file/hub", "up", "org/model\n../refs")


def connections():
    def frame(kind, data):
        return struct.pack("<2I", kind, len(data)) + data
    put("job/watch/watch_link", "frames", b"\0" + frame(1, bytes(40)) + frame(4, b"") +
        frame(2, b"no memory") + frame(3, b"x"))
    put("job/watch/watch_link", "damaged", b"\1" + frame(1, bytes(9)) + frame(5, b"y"))
    put("job/watch/watch_link", "long", b"\2" + struct.pack("<2I", 2, 0xffffffff) + bytes(9))

    def deed(caller, what, rank=0):
        return bytes([rank * 64 | what * 4 | caller])
    connect, say, call, close, leave, wait = range(6)
    put("job/watch/watch_connect", "meet", deed(0, connect) + deed(0, call, 2) + deed(0, close) +
        deed(1, connect) + deed(1, call, 1) + deed(1, close))
    put("job/watch/watch_connect", "strangers", deed(2, connect) + deed(2, say) + bytes(16) +
        deed(3, connect) + deed(3, call, 3) + deed(0, wait) + deed(3, close) + deed(2, leave))
    put("job/watch/watch_connect", "twice", deed(0, connect) + deed(0, call, 1) + deed(1, connect) +
        deed(1, call, 1) + deed(0, close) + deed(1, close) + deed(1, close))


if __name__ == "__main__":
    configurations()
    tensors()
    inputs()
    text_cache()
    tokenizers()
    pictures()
    prompts()
    folders()
    surroundings()
    connections()

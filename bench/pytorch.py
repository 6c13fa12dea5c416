#!/usr/bin/env python3
"""Times the same work in wandistiller and in PyTorch + diffusers.

    bench/pytorch.py [--program PATH] [--rounds N] [--threads N]
                     [forward] [train] [tiny] [vae] [distil]

Other programs change the speed of a machine, so both sides alternate, each in its own process; a
figure is the best of all rounds, a ratio is PyTorch's time over ours. Needs torch and diffusers,
which wandistiller itself does not.
"""
import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time

DTYPES = {"F32": "float32", "BF16": "bfloat16"}
TINY = "models/wan-tiny"
CASES = {"forward": ("F32", "BF16"), "train": ("F32", "BF16"), "tiny": ("F32", "BF16"),
         "vae": ("F32",), "distil": ("F32", "BF16")}


# ---- PyTorch's side: one case and dtype in this process -> seconds ----

def wan(layers, heads, head_dim, ffn_dim, text_dim):
    from diffusers import WanTransformer3DModel
    return WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=heads, attention_head_dim=head_dim,
        in_channels=16, out_channels=16, text_dim=text_dim, freq_dim=256, ffn_dim=ffn_dim,
        num_layers=layers, cross_attn_norm=True, eps=1e-6, rope_max_seq_len=1024)


def best(runs, work):
    seconds = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])


def training_step(model, latents, timestep, text, dtype):
    import torch
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    target = torch.randn_like(latents)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "BF16"):
            velocity = model(latents, timestep, text, return_dict=False)[0]
        torch.nn.functional.mse_loss(velocity.float(), target).backward()
        optimizer.step()
        optimizer.zero_grad()
    return step


def large(case, dtype):
    import torch
    kind = getattr(torch, DTYPES[dtype]) if case == "forward" else torch.float32
    model = wan(8, 12, 128, 8960, 4096).to(kind)
    latents, text = torch.randn(1, 16, 1, 64, 64, dtype=kind), torch.randn(1, 512, 4096, dtype=kind)
    timestep = torch.tensor([500])
    if case == "train":
        return best(2, training_step(model, latents, timestep, text, dtype))
    with torch.no_grad():
        return best(3, lambda: model(latents, timestep, text, return_dict=False))


def tiny(dtype):
    import torch
    model = wan(3, 5, 32, 640, 96)
    latents, text = torch.randn(16, 16, 1, 8, 8), torch.randn(16, 32, 96)
    return best(50, training_step(model, latents, torch.randint(0, 1000, (16,)), text, dtype))


def vae():
    import torch
    from diffusers import AutoencoderKLWan
    model, latents = AutoencoderKLWan().eval(), torch.randn(1, 16, 1, 64, 64)
    with torch.no_grad():
        return best(1, lambda: model.decode(latents, return_dict=False))


def distil(dtype):
    """Seconds per target of the teacher, each seen twice by a student of three blocks."""
    import torch
    from diffusers import WanTransformer3DModel
    window, text_tokens = 64, 24
    load = WanTransformer3DModel.from_pretrained
    teachers = [load(TINY, subfolder=folder, torch_dtype=torch.float32).eval()
                for folder in ("transformer", "transformer_2")]
    student = wan(3, 5, 32, 640, 96)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
    text, negative = torch.randn(window, text_tokens, 96), torch.zeros(window, text_tokens, 96)
    latents = torch.randn(window, 16, 1, 8, 8)
    timestep = torch.arange(window) * 1000 // window

    @torch.no_grad()
    def targets():
        out = torch.empty_like(latents)
        for model, rows in ((teachers[0], timestep >= 875), (teachers[1], timestep < 875)):
            guided, plain = (model(latents[rows], timestep[rows], t[rows], return_dict=False)[0]
                             for t in (text, negative))
            out[rows] = plain + 2 * (guided - plain)
        return out

    def sweep():
        target = targets()
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "BF16"):
                velocity = student(latents, timestep, text, return_dict=False)[0]
            torch.nn.functional.mse_loss(velocity.float(), target).backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return best(20, sweep) / window


def worker(case, dtype, threads):
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    seconds = {"tiny": lambda: tiny(dtype), "vae": vae, "distil": lambda: distil(dtype)}.get(
        case, lambda: large(case, dtype))()
    print(json.dumps({"seconds": seconds,
                      "rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-9}))


# ---- both sides in turn ----

def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return done


def ours(program, case, dtype, threads):
    if case == "distil":
        with tempfile.TemporaryDirectory() as folder:
            text = run([program, "train", "--config", "tools/demo.json", "--output_dir", folder,
                        "--num_steps", "400", "--max_minutes", "0",
                        "--teacher_dtype", DTYPES[dtype],
                        "--mixed_precision", "no" if dtype == "F32" else "bf16",
                        "--num_threads", str(threads)]).stderr
        targets, seconds = re.search(r"(\d+) targets, ([\d.]+) s", text).groups()
        return float(seconds) / float(targets)
    text = run([program, "bench", "--only", case, "--num_threads", str(threads)]).stdout
    name = {"tiny": "train tiny", "vae": "VAE"}.get(case, case)
    return float(re.search(rf"^{name}.*\b{dtype}\s+([\d.]+) ms", text, re.M)[1]) * 1e-3


def theirs(case, dtype, threads):
    done = run([sys.executable, __file__, "--worker", case, dtype, "--threads", str(threads)])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--program", default="build/release/wandistiller")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(*options.worker, options.threads)
    unknown = set(options.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    print("case     dtype   wandistiller      PyTorch    ratio   PyTorch's peak memory")
    for case in options.cases or CASES:
        for dtype in CASES[case]:
            rounds = [(ours(options.program, case, dtype, options.threads),
                       theirs(case, dtype, options.threads))
                      for _ in range(options.rounds)]
            mine, other = min(r[0] for r in rounds), min(r[1]["seconds"] for r in rounds)
            memory = max(r[1]["rss_gb"] for r in rounds)
            print(f"{case:8} {dtype:5} {mine * 1e3:10.2f} ms {other * 1e3:9.2f} ms "
                  f"{other / mine:7.2f} {memory:9.2f} GB", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""`wandistiller bench --only models` beside the same networks in PyTorch, on one device.

    bench/pytorch_models.py [--program PATH] [--device cuda:0] [--tokens N,N] [--eager]
                            [--ours FILE]

A forward pass of 4 blocks of the 14B transformer and a training step of 8 blocks of the 1.3B one,
in bf16, compiled by torch.compile unless --eager is given, with fused AdamW. Each side has the
device for itself, in a process of its own, one after the other; a figure is the best of some runs.
--ours: what `wandistiller bench --only models` has printed, which is then not run. Needs torch;
without diffusers the networks are those of pytorch_wan.py.
"""
import argparse
import importlib.util
import re
import sys
import time

from pytorch import run, wan

HAS_DIFFUSERS = importlib.util.find_spec("diffusers") is not None
SIDES = {1024: (64, 64), 1560: (60, 104), 4096: (128, 128), 8192: (128, 256)}
CASES = {"forward 14B, 4 blocks": (4, 40, 13824), "train 1.3B, 8 blocks": (8, 12, 8960)}
RUNS = 5


def best(device, work):
    import torch
    wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None
    seconds = []
    for _ in range(RUNS + 2):  # two to compile and warm up
        wait()
        begun = time.perf_counter()
        work()
        wait()
        seconds.append(time.perf_counter() - begun)
    return min(seconds[2:])


def network(layers, heads, ffn, device, weights):
    import torch
    if HAS_DIFFUSERS:
        return wan(layers, heads, 128, ffn, 4096).to(device, weights)
    from pytorch_wan import WanTransformer
    with torch.device(device):
        return WanTransformer(layers, heads, 128, ffn, 4096).to(weights)


def worker(case, tokens, device, eager):
    """Seconds of one forward pass or training step."""
    import torch
    torch.manual_seed(0)
    layers, heads, ffn = CASES[case]
    forward = case.startswith("forward")
    weights = torch.bfloat16 if forward else torch.float32
    model = network(layers, heads, ffn, device, weights)
    compiled = model if eager else torch.compile(model)
    latents = torch.randn(1, 16, 1, *SIDES[tokens], dtype=weights, device=device)
    text = torch.randn(1, 512, 4096, dtype=weights, device=device)
    timestep = torch.tensor([500], device=device)
    if forward:
        with torch.no_grad():
            return best(device, lambda: compiled(latents, timestep, text, return_dict=False))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    target = torch.randn_like(latents)

    def step():
        with torch.autocast(device.split(":")[0], torch.bfloat16):
            velocity = compiled(latents, timestep, text, return_dict=False)[0]
        torch.nn.functional.mse_loss(velocity.float(), target).backward()
        optimizer.step()
        optimizer.zero_grad()
    return best(device, step)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/wandistiller")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tokens", default=",".join(map(str, SIDES)))
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--ours", metavar="FILE")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(worker(options.worker[0], int(options.worker[1]), options.device, options.eager))
        return
    wanted = [int(tokens) for tokens in options.tokens.split(",")]
    if set(wanted) - set(SIDES):
        parser.error(f"--tokens: there are {', '.join(map(str, SIDES))}")
    if options.ours:
        with open(options.ours, encoding="utf-8") as file:
            text = file.read()
    else:
        text = run([options.program, "bench", "--only", "models", "--device",
                    options.device]).stdout
    print(f"networks of {'diffusers' if HAS_DIFFUSERS else 'bench/pytorch_wan.py'}, "
          f"{'not compiled' if options.eager else 'compiled'}")
    print("case                    tokens   wandistiller      PyTorch    ratio")
    for case in CASES:
        for tokens in wanted:
            found = re.search(rf"^{case}, {tokens} tokens\s+BF16\s+([\d.]+) ms", text, re.M)
            if not found:
                print(f"{case:22} {tokens:7}   left out by wandistiller")
                continue
            ours = float(found[1]) * 1e-3
            eager = ["--eager"] if options.eager else []
            theirs = float(run([sys.executable, __file__, "--device", options.device, *eager,
                                "--worker", case, str(tokens)]).stdout.splitlines()[-1])
            print(f"{case:22} {tokens:7} {ours * 1e3:11.2f} ms {theirs * 1e3:9.2f} ms "
                  f"{theirs / ours:8.2f}", flush=True)


if __name__ == "__main__":
    main()

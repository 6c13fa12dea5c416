#!/usr/bin/env python3
"""Checks that diffusers draws with exported students what `wandistiller sample` draws.

    pip install torch diffusers transformers sentencepiece ftfy safetensors
    python3 tools/check_diffusers.py PROGRAM STUDENT [STUDENT...]

For each student, PROGRAM samples in as many steps as the student's card says, in float32, and
writes what it began and ended with. WanPipeline loads the same folder as it is, with the scheduler
of its own configuration, begins with the same noise, takes as many steps without guidance, and must
end with the same latents."""
import os
import subprocess
import sys
import tempfile

import torch
from diffusers import WanPipeline
from safetensors.torch import load_file

PROMPT = "red apple, blue background"
# Both round otherwise in float32, in each of up to 20 passes; timesteps are the same whole numbers.
TOLERANCE = 1e-3


def sample(program, student, folder):
    """The trace of a picture: latents.0 is the noise, the last one is what is decoded."""
    trace = os.path.join(folder, "trace.safetensors")
    subprocess.run([program, "sample", "--model", student, "--prompt", PROMPT, "--dtype", "float32",
                    "--trace", trace, "--out", os.path.join(folder, "picture.png"),
                    "--log_level", "warning"], check=True)
    tensors = load_file(trace)
    steps = max(int(name.split(".")[1]) for name in tensors if name.startswith("latents."))
    return tensors, steps


def check(program, student):
    with tempfile.TemporaryDirectory() as folder:
        ours, steps = sample(program, student, folder)
    pipe = WanPipeline.from_pretrained(student, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    noise, wanted = ours["latents.0"], ours[f"latents.{steps}"]
    scale = pipe.vae_scale_factor_spatial
    got = pipe(prompt=PROMPT, height=noise.shape[3] * scale, width=noise.shape[4] * scale,
               num_frames=1, num_inference_steps=steps, guidance_scale=1.0, latents=noise.clone(),
               max_sequence_length=ours["input_ids"].shape[1], output_type="latent").frames
    error = ((got - wanted).norm() / wanted.norm()).item()
    order = pipe.scheduler.config.get("solver_order")
    print(f"{student}: {type(pipe.scheduler).__name__} of order {order}, {steps} steps, "
          f"latents differ by {error:.2e} of their norm")
    if not error <= TOLERANCE:
        sys.exit(f"{student}: expected at most {TOLERANCE}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with torch.no_grad():
        for folder in sys.argv[2:]:
            check(sys.argv[1], folder)

#!/usr/bin/env python3
"""Checks that diffusers draws with exported students what `wandistiller sample` draws.

    pip install torch diffusers transformers accelerate sentencepiece ftfy safetensors
    python3 tools/check_diffusers.py PROGRAM STUDENT [STUDENT...]

For each student, PROGRAM samples in as many steps as the student's card says, in float32, and
writes what it began and ended with. WanPipeline loads the same folder as it is, with the scheduler
of its own configuration, begins with the same noise, takes as many steps without guidance, and must
end with the same latents, and draw the same picture. PROGRAM is the command line program, or
"python": then the installed package wandistiller samples, which must also return the picture of
its file."""
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from diffusers import WanPipeline
from PIL import Image
from safetensors.torch import load_file

PROMPT = "red apple, blue background"
# Both round otherwise in float32, in each of up to 20 passes; timesteps are the same whole numbers.
TOLERANCE = 1e-3
# A pixel is rounded to one of 256 values on both sides: a difference of the latents, too.
PIXELS = 2


def sample(program, student, folder):
    """The trace of a picture: latents.0 is the noise, the last one is what is decoded."""
    trace, out = os.path.join(folder, "trace.safetensors"), os.path.join(folder, "picture.png")
    if program == "python":
        import wandistiller
        drawn = wandistiller.sample(model=student, prompt=[PROMPT], dtype="float32", trace=trace,
                                    out=out)
    else:
        subprocess.run([program, "sample", "--model", student, "--prompt", PROMPT, "--dtype",
                        "float32", "--trace", trace, "--out", out, "--log_level", "warning"],
                       check=True)
    picture = numpy.asarray(Image.open(out))
    if program == "python" and not numpy.array_equal(drawn[0].array, picture):
        sys.exit(f"{student}: the package returned another picture than it wrote to the file")
    tensors = load_file(trace)
    steps = max(int(name.split(".")[1]) for name in tensors if name.startswith("latents."))
    return tensors, steps, picture


def draw(pipe, noise, steps, rows, output):
    scale = pipe.vae_scale_factor_spatial
    return pipe(prompt=PROMPT, height=noise.shape[3] * scale, width=noise.shape[4] * scale,
                num_frames=1, num_inference_steps=steps, guidance_scale=1.0, latents=noise.clone(),
                max_sequence_length=rows, output_type=output).frames


def check(program, student):
    with tempfile.TemporaryDirectory() as folder:
        ours, steps, picture = sample(program, student, folder)
    pipe = WanPipeline.from_pretrained(student, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    noise, wanted = ours["latents.0"], ours[f"latents.{steps}"]
    rows = ours["input_ids"].shape[1]
    got = draw(pipe, noise, steps, rows, "latent")
    error = ((got - wanted).norm() / wanted.norm()).item()
    theirs = numpy.asarray(draw(pipe, noise, steps, rows, "pil")[0][0])
    pixels = numpy.abs(theirs.astype(int) - picture.astype(int))
    square = numpy.mean(pixels ** 2)
    psnr = f"{10 * numpy.log10(255 ** 2 / square):.1f} dB" if square else "no difference"
    order = pipe.scheduler.config.get("solver_order")
    print(f"{student}: {type(pipe.scheduler).__name__} of order {order}, {steps} steps, "
          f"latents differ by {error:.2e} of their norm, pixels by {pixels.max()} of 255 at most "
          f"(PSNR {psnr})")
    if not error <= TOLERANCE:
        sys.exit(f"{student}: latents: expected at most {TOLERANCE}")
    if pixels.max() > PIXELS:
        sys.exit(f"{student}: pixels: expected at most {PIXELS}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with torch.no_grad():
        for folder in sys.argv[2:]:
            check(sys.argv[1], folder)

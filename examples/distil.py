# %% [markdown]
# # A student of wan-tiny, from Python
# Distils the small teacher of this repository for a minute, and shows what its student draws. Run
# it in the folder of the source, as a script or cell by cell in a notebook (VS Code and Jupytext
# take it as one), after `pip install .`.

# %%
from pathlib import Path

import wandistiller

OPTIONS = dict(teacher_path="models/wan-tiny", data_path="models/wan-tiny/prompts.txt",
               student_steps=2, trajectory_steps=8, guidance_scale=2, flow_shift=2,
               output_dir="build/student")

# %% What it will take: memory and seconds, under every strategy.
plan = wandistiller.plan(**OPTIONS, num_steps=1000)
print("strategies that fit:", [s["strategy"] for s in plan["strategies"] if s.get("fits")])


# %% A progress bar. In a notebook `tqdm` does as well: bar.update(p.done - bar.n).
def show(p):
    part = p.done / p.total if p.total else min(1, p.seconds / 60)
    loss = f"  loss {p.loss:.3f}" if p.loss is not None else ""
    print(f"\r{p.what:<20} [{'#' * int(30 * part):<30}] {p.unit} {p.done}{loss} ", end="")


result = wandistiller.train(**OPTIONS, max_minutes=1, save_samples=False, progress=show)
print(f"\n{result.steps} steps in {result.seconds:.0f} s, loss {result.loss:.3f}")

# %% Pictures. Notebooks show the last value of a cell; `array` is uint8 [height, width, 3].
pictures = wandistiller.sample(model=result.output_dir, out=Path(result.output_dir, "pictures"),
                               prompt=["red apple, blue background", "fox, white background"])
print(pictures[0].path, pictures[0].height, pictures[0].width)
pictures[0]


# %% The student is a pipeline of diffusers, which needs
# pip install torch diffusers transformers accelerate ftfy
def draw_with_diffusers(prompt):
    import torch
    from diffusers import WanPipeline

    pipe = WanPipeline.from_pretrained(result.output_dir, torch_dtype=torch.float32)
    drawn = pipe(prompt=prompt, height=64, width=64, num_frames=1, num_inference_steps=2,
                 guidance_scale=1.0, max_sequence_length=24, output_type="pil")
    return drawn.frames[0][0]

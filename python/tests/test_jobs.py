"""The jobs, called from Python: results, pictures, progress, log."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import wandistiller
from conftest import digest
from wandistiller import _jobs


@pytest.fixture(scope="module")
def student(small, folder):
    result = wandistiller.train(**small, output_dir=folder / "student")
    assert not result.stopped and result.steps == 4
    assert result.targets > 0 and result.loss > 0 and result.seconds > 0
    assert result.output_dir == folder / "student"
    return result.output_dir


def test_student_has_the_bits_of_the_program(student, small, folder, program):
    command = [program, "train", "--output_dir", str(folder / "by_program")]
    for name, value in small.items():
        text = "false" if value is False else str(value)
        command += [f"--{name}", text]
    subprocess.run(command, check=True, capture_output=True)
    assert digest(student) == digest(folder / "by_program")


def test_sample_gives_arrays(student, folder):
    numpy = pytest.importorskip("numpy")
    options = dict(model=student, steps=2, height=32, width=16, num_threads=1)
    kept = wandistiller.sample(prompt="a red apple", out=folder / "apple.png", **options)
    loose = wandistiller.sample(prompt=["a red apple", "a blue star"], **options)
    assert [picture.path for picture in kept] == [folder / "apple.png"]
    assert [picture.path for picture in loose] == [None, None]
    array = kept[0].array
    assert array.shape == (32, 16, 3) and array.dtype == numpy.uint8 and array.flags.writeable
    assert numpy.array_equal(array, loose[0].array)
    assert not numpy.array_equal(array, loose[1].array)
    assert (folder / "apple.png").read_bytes()[:4] == b"\x89PNG"
    assert loose[0]._repr_png_() == (folder / "apple.png").read_bytes()


def test_plan_inspect_eval_convert(student, teacher, small, folder):
    assert "strategies" in wandistiller.plan(**small, output_dir=folder / "planned")
    assert isinstance(wandistiller.inspect(student), dict)
    shown = []
    figures = wandistiller.eval(teacher=teacher, student=student, prompts=small["data_path"],
                                steps=1, reference_steps=2, height=16, width=16, num_threads=1,
                                out=folder / "eval", pictures=shown.append)
    written = json.loads((folder / "eval/eval.json").read_text())
    assert figures.keys() == written.keys()
    assert figures["velocity_error"] == pytest.approx(written["velocity_error"])
    assert shown[-1].height > 16
    assert shown[-1].path.parent == folder / "eval"
    out = folder / "student.safetensors"
    assert wandistiller.convert(model=student, to="comfyui", out=out) == out
    assert out.stat().st_size > 0


def test_resume_alone(student, small, folder):
    first = wandistiller.train(**small, output_dir=folder / "resumed", stop_at_step=2)
    assert first.stopped and first.steps == 2
    (folder / "resumed").rename(folder / "moved")
    second = wandistiller.train(resume=folder / "moved", stop_at_step=0)
    assert second.steps == 4 and second.output_dir == folder / "moved"
    assert digest(folder / "moved") == digest(student)


def test_an_empty_list_replaces_the_files(folder, teacher):
    (folder / "prompts.json").write_text('{"prompt": ["a red apple"]}')
    with pytest.raises(wandistiller.InvalidArgument, match="prompt"):
        wandistiller.sample(model=teacher, prompt=[], config=folder / "prompts.json")


def test_config_comes_before_keywords(small, folder):
    options = {name: value if isinstance(value, (int, str)) else str(value)
               for name, value in small.items()}
    (folder / "options.json").write_text(json.dumps(options))
    result = wandistiller.train(num_steps=1, config=folder / "options.json",
                                output_dir=folder / "configured")
    assert result.steps == 1


def test_values_are_those_of_the_command_line(small, folder):
    numpy = pytest.importorskip("numpy")

    def seen(**options):
        plan = wandistiller.plan(**{**small, "output_dir": folder / "values", **options})
        training = [part for part in plan["beside"] if part["while"] == "training"]
        return plan["samples_per_step"], training, [s["strategy"] for s in plan["strategies"]]

    assert _jobs._text("lr", numpy.float32(0.5)) == _jobs._text("lr", numpy.float64(0.5)) == b"0.5"
    assert _jobs._text("seed", numpy.uint64(2**64 - 1)) == b"18446744073709551615"
    assert _jobs._text("lr", 1e-7) == b"1e-07"
    assert _jobs._text("out", Path(os.fsdecode(b"\xff"))) == b"\xff"
    assert seen(batch_size=numpy.int64(2), lr=numpy.float32(0.5)) == seen(batch_size=2, lr="0.5")
    assert seen(teacher_on_cpu=False, resume=False, gradient_checkpointing=False) == seen()
    assert seen(batch_size=2) != seen()


def test_a_path_that_is_no_text(small, tmp_path):
    """A path's bytes need not be UTF-8, which JSON is."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xe9"))
    result = wandistiller.train(**small, output_dir=folder)
    assert result.output_dir == folder and digest(result.output_dir)
    out = folder / "student.safetensors"
    assert wandistiller.convert(model=folder, to="comfyui", out=out) == out
    page = wandistiller.report(runs=folder)
    assert page == folder / "report.html" and page.is_file()
    picture, = wandistiller.sample(model=folder, prompt="a fox", steps=1, height=16, width=16,
                                   out=folder / "fox.png")
    assert picture.path == folder / "fox.png" and picture.path.is_file()


def test_progress_and_log(small, folder, caplog):
    told = []
    with caplog.at_level(logging.INFO, "wandistiller"):
        wandistiller.train(**small, output_dir=folder / "told", progress=told.append)
    steps = [p for p in told if p.what == "training"]
    assert [p.done for p in steps][-4:] == [1, 2, 3, 4]
    assert steps[-1].total == 4 and steps[-1].unit == "step" and steps[-1].loss > 0
    assert caplog.records and {r.levelno for r in caplog.records} <= {logging.INFO,
                                                                     logging.WARNING}
    caplog.clear()
    with caplog.at_level(logging.ERROR, "wandistiller"):
        wandistiller.train(**small, output_dir=folder / "quiet")
    assert not caplog.records


def test_options_warn(small, folder):
    """The first thing that a process does, so no earlier job has set where messages go."""
    wandistiller.train(**small, output_dir=folder / "warned")
    (folder / "warned").rename(folder / "warned_moved")
    code = f"""
import wandistiller
wandistiller.train(config={str(folder / "warned_moved/run.json")!r}, num_steps=1)
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "its output folder" in said.stderr


def test_train_iter(small, folder, student):
    with wandistiller.train_iter(**small, output_dir=folder / "iterated") as run:
        steps = [p.done for p in run if p.what == "training"]
    assert steps[-1] == 4 and run.result.steps == 4
    assert digest(folder / "iterated") == digest(student)


def test_a_loop_that_is_left_saves(small, folder):
    endless = {**small, "num_steps": 1000000}
    with wandistiller.train_iter(**endless, output_dir=folder / "left") as run:
        for p in run:
            if p.what == "training" and p.done == 3:
                break
    assert run.result is None
    assert digest(folder / "left") and list((folder / "left/checkpoints").iterdir())
    run = wandistiller.train_iter(**endless, output_dir=folder / "asked")
    for p in run:
        if p.what == "training" and p.done == 3:
            run.stop()
    assert run.result.stopped and 3 <= run.result.steps < 1000


def test_options_are_documented():
    from inspect import getdoc, signature

    for function in (wandistiller.train, wandistiller.sample, wandistiller.plan):
        text = getdoc(function)
        for name in signature(function).parameters:
            assert name == "unknown" or f"\n    {name}: " in text
    assert "num_steps" in signature(wandistiller.train_iter).parameters
    assert wandistiller.features().startswith("GPU kernels: ")


def test_numpy_is_not_needed():
    code = ("import sys; sys.modules['numpy'] = None; import wandistiller; "
            "print(wandistiller.__version__)")
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == wandistiller.__version__

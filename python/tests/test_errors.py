"""Errors as exceptions, and the ends that Ctrl-C and exceptions of callbacks make."""

import gc
import re
import signal
import subprocess
import sys

import pytest

import wandistiller
from conftest import SOURCE, digest
from wandistiller import _errors


def test_every_status_has_its_class():
    header = (SOURCE / "include/wandistiller_status.h").read_text()
    statuses = re.findall(r"X\((\w+), (\d+), ", header)
    codes = {int(code) for _, code in statuses if int(code)}
    assert len(codes) > 10 and set(_errors.OF_STATUS) == codes
    for name, code in statuses:
        if int(code):
            kind = _errors.OF_STATUS[int(code)].__name__
            assert kind.lower().startswith(name.replace("_", "").lower())
            assert getattr(wandistiller, kind) is _errors.OF_STATUS[int(code)]


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(wandistiller.InvalidArgument, match="is --lr meant") as error:
        wandistiller.train(learning_rate=1e-4)
    assert error.value.exit_code == 2 and isinstance(error.value, ValueError)
    with pytest.raises(wandistiller.InvalidArgument, match="train needs --teacher_path"):
        wandistiller.train(num_steps=1)
    with pytest.raises(wandistiller.InvalidArgument, match="expected a whole number"):
        wandistiller.train(num_steps=1.5)
    with pytest.raises(wandistiller.InvalidArgument, match="expected comfyui"):
        wandistiller.convert(to="onnx")
    with pytest.raises(wandistiller.InvalidArgument, match="zero byte"):
        wandistiller.inspect("a\0b")
    with pytest.raises(wandistiller.InvalidArgument, match="teacher_path: expected a text"):
        wandistiller.train(teacher_path=object())
    with pytest.raises(wandistiller.InvalidArgument, match="mixed_precision: expected no"):
        wandistiller.train(mixed_precision=False)
    with pytest.raises(wandistiller.InvalidArgument, match="run.json"):
        wandistiller.train(resume=tmp_path)
    with pytest.raises(wandistiller.InvalidArgument, match="mpirun"):
        wandistiller.train(nproc_per_node=2)
    with pytest.raises(wandistiller.NotFound):
        wandistiller.inspect(tmp_path / "nothing")


def test_a_plan_that_does_not_fit_is_a_plan():
    with pytest.raises(wandistiller.DoesNotFit) as error:
        wandistiller.plan(teacher_preset="wan2.1-14b", host_memory="64MiB",
                          devices="sim:1GiB@link=25GB/s,compute=1TFLOP/s")
    assert error.value.exit_code == 9 and isinstance(error.value.result, dict)


def test_an_exception_of_a_callback_ends_the_run(small, folder):
    class Enough(Exception):
        pass

    def hear(p):
        if p.what == "training" and p.done == 2:
            with pytest.raises(RuntimeError, match="one at a time"):
                wandistiller.inspect(small["teacher_path"])
            raise Enough

    endless = {**small, "num_steps": 1000000}
    with pytest.raises(Enough):
        wandistiller.train(**endless, output_dir=folder / "enough", progress=hear)
    assert digest(folder / "enough")
    wandistiller.inspect(small["teacher_path"])  # the next job runs


def test_a_run_that_is_dropped_ends(small, folder):
    run = wandistiller.train_iter(**{**small, "num_steps": 1000000},
                                  output_dir=folder / "dropped")
    for p in run:
        if p.what == "training":
            break
    del run, p
    gc.collect()
    assert digest(folder / "dropped")
    wandistiller.train_iter(**small)  # never begun
    wandistiller.inspect(small["teacher_path"])


def program_of(small, **more):
    """The options as Python text."""
    options = {**small, **more}
    return {name: value if isinstance(value, int) else str(value)
            for name, value in options.items()}


def test_a_program_that_ends_ends_its_run(small, folder):
    out = folder / "ended"
    options = program_of(small, num_steps=1000000, output_dir=out)
    code = f"""
import wandistiller
run = wandistiller.train_iter(**{options})
for p in run:
    if p.what == "training" and p.done == 2: break
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
    assert digest(out)


@pytest.mark.parametrize("told", [True, False])
def test_ctrl_c_saves(small, folder, told):
    out = folder / f"interrupted_{told}"
    options = program_of(small, num_steps=1000000, output_dir=out)
    code = f"""
import logging, sys, wandistiller
def say(*_): print("goes on", flush=True)
class Say(logging.Handler):
    def emit(self, record):
        if "step" in record.getMessage() and "training" in record.getMessage(): say()
logging.getLogger("wandistiller").addHandler(Say())
logging.getLogger("wandistiller").setLevel(logging.INFO)
def hear(p):
    if p.what == "training" and p.done == 2: say()
try:
    wandistiller.train(**{options}, progress=hear if {told} else None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
"""
    run = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "goes on\n"
    run.send_signal(signal.SIGINT)
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 130 and said.endswith("interrupted\n")
    assert digest(out) and list((out / "checkpoints").iterdir())

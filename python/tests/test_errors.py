"""Errors as exceptions, and the ends that Ctrl-C and exceptions of callbacks make."""

import concurrent.futures
import ctypes
import gc
import multiprocessing
import re
import signal
import subprocess
import sys
import threading

import pytest

import wandistiller
from conftest import SOURCE, digest
from wandistiller import _errors, _library, _run


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


@pytest.mark.parametrize("name, struct", [("wd_err", _library.Err),
                                          ("wd_progress", _library.CProgress),
                                          ("wd_picture", _library.CPicture)])
def test_structs_are_those_of_the_header(name, struct):
    header = (SOURCE / "include/wandistiller_status.h").read_text()
    body = re.search(rf"typedef struct {name} {{\n(.*?)}}", header, re.S)[1]
    expected, found = [], []
    for declared in re.findall(r"^ +([^;]+);", body, re.M):
        kind = re.match(r"(?:const )?(\w+)", declared)[1]
        for field in declared[declared.index(kind) + len(kind):].split(","):
            word, length = re.fullmatch(r"[ *]*(\w+)(?:\[(\d+)])?", field).groups()
            size = 8 if "*" in declared else {"wd_status": 4, "int": 4, "char": 1}.get(kind, 8)
            expected.append((word, size * int(length or 1)))
            assert (kind == "double") == (dict(struct._fields_).get(word) is ctypes.c_double)
    for word, kind in struct._fields_:
        found.append((word, ctypes.sizeof(kind)))
    assert found == expected


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
    with pytest.raises(wandistiller.InvalidArgument, match="out: expected a text"):
        wandistiller.sample(model=".", out=True)
    with pytest.raises(wandistiller.InvalidArgument, match="config: expected a file"):
        wandistiller.plan(config=True)
    for prompt in (b"a fox", 5, {"a fox": 1}):
        with pytest.raises(wandistiller.InvalidArgument, match="prompt: expected a text, or a li"):
            wandistiller.sample(prompt=prompt)
    with pytest.raises(wandistiller.InvalidArgument, match="UTF-8"):
        wandistiller.sample(prompt="a fox \ud800")
    for name in ("num_steps\0", "num_steps\ud800"):
        with pytest.raises(wandistiller.InvalidArgument, match="has no option"):
            wandistiller.train(**{name: 1})
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
            with pytest.raises(wandistiller.Busy, match="one at a time") as error:
                wandistiller.inspect(small["teacher_path"])
            assert isinstance(error.value, wandistiller.Error) and error.value.exit_code == 6
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
        if p.what == "training" and p.done:
            break
    del run, p
    gc.collect()
    assert digest(folder / "dropped")
    wandistiller.train_iter(**small)  # never begun
    wandistiller.inspect(small["teacher_path"])


def test_a_run_that_its_own_thread_drops_ends(small, folder, monkeypatch):
    """Garbage collection runs on any thread, so also on the job's."""
    dropped, wrong = threading.Event(), []
    progress_of = _run._progress_of

    def collect(p):
        if dropped.is_set():
            gc.collect()
        return progress_of(p)

    monkeypatch.setattr(_run, "_progress_of", collect)
    monkeypatch.setattr(sys, "unraisablehook", lambda error: wrong.append(error.exc_value))
    run = wandistiller.train_iter(**{**small, "num_steps": 1000000},
                                  output_dir=folder / "collected")
    for p in run:
        if p.what == "training" and p.done:
            break
    thread, = (t for t in threading.enumerate() if t.name == "wandistiller job")
    gc.disable()
    try:
        run.itself = run
        del run
        dropped.set()
        thread.join(100)
    finally:
        gc.enable()
    assert not wrong and not thread.is_alive()
    assert digest(folder / "collected")
    wandistiller.inspect(small["teacher_path"])


def test_only_its_own_run_is_stopped(small, folder):
    code = f"""
import wandistiller
run = wandistiller.train_iter(**{program_of(small, output_dir=folder / "unbegun")})
run.stop()
wandistiller.inspect({str(small["teacher_path"])!r})
try:
    next(run)
except wandistiller.Interrupted:
    print("not begun")
"""
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                          timeout=100)
    assert said.stdout == "not begun\n"
    ended = wandistiller.train_iter(**small, output_dir=folder / "ended_before")
    assert len(list(ended)) > 4
    for p in (run := wandistiller.train_iter(**small, output_dir=folder / "beside")):
        ended.stop()
    assert not run.result.stopped and run.result.steps == 4


def test_jobs_on_other_threads(small, folder):
    """One runs, the others are refused, and none takes what is the first one's."""
    first = wandistiller.train_iter(**{**small, "num_steps": 1000000},
                                    output_dir=folder / "first")
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        for p in first:
            if p.what == "training" and p.done:
                second = pool.submit(wandistiller.train, **small, output_dir=folder / "second")
                with pytest.raises(RuntimeError, match="one at a time"):
                    second.result(100)
                break
        first.close()
        assert digest(folder / "first")
        third = pool.submit(wandistiller.train, **small, output_dir=folder / "third")
        assert third.result(100).steps == 4


def test_a_process_that_is_forked_while_a_job_runs(small, folder):
    """It says that it can run none, and what can: a process that is spawned."""
    def inspect_in_child(method):
        with multiprocessing.get_context(method).Pool(1) as pool:
            return pool.apply_async(wandistiller.inspect, [small["teacher_path"]]).get(100)

    run = wandistiller.train_iter(**{**small, "num_steps": 1000000},
                                  output_dir=folder / "forked")
    with run:
        for p in run:
            if p.what == "training" and p.done:
                break
        with pytest.raises(wandistiller.Busy, match="forked while a job ran.*spawn"):
            inspect_in_child("fork")
        found = inspect_in_child("spawn")
    assert found == inspect_in_child("fork") == wandistiller.inspect(small["teacher_path"])


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


@pytest.mark.parametrize("told, sent, code", [
    (True, signal.SIGINT, 130), (False, signal.SIGINT, 130), (False, signal.SIGTERM, 143)])
def test_ctrl_c_and_sigterm_save(small, folder, told, sent, code):
    out = folder / f"interrupted_{told}_{code}"
    options = program_of(small, num_steps=1000000, output_dir=out)
    program = f"""
import logging, signal, sys, wandistiller
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
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
    run = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "goes on\n"
    run.send_signal(sent)
    said, _ = run.communicate(timeout=100)
    assert run.returncode == code
    assert said.endswith("interrupted\n") == (sent == signal.SIGINT)
    assert digest(out) and list((out / "checkpoints").iterdir())

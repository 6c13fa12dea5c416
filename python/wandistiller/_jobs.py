"""The jobs behind the functions of _options.py, which is made of the library's option tables."""

from __future__ import annotations

import numbers
import os
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable, Generator, Iterable, Iterator, Mapping, Optional

from . import _errors, _library, _run
from ._run import Event, Picture, Progress

OnProgress = Optional[Callable[[Progress], object]]
OnPicture = Optional[Callable[[Picture], object]]


@dataclass(frozen=True)
class TrainResult:
    """How a run of train has ended."""

    stopped: bool  #: before it was done: by request, or by stop_at_step
    steps: int  #: of the run, including steps before it was resumed
    targets: int  #: velocities that the teacher has computed for the run, or that were stored
    loss: float | None  #: mean of the last hundred steps; None: no step since it was resumed
    seconds: float  #: of training, including seconds before it was resumed
    output_dir: Path  #: the student, a pipeline folder of diffusers


# ---- values of Python as those of the command line ----


def _unusable(name: str, expected: str, value: Any) -> _errors.InvalidArgument:
    return _errors.InvalidArgument(f"--{name}: expected {expected}, found {value!r}")


def _text(name: str, value: Any) -> bytes:
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, (str, os.PathLike)):
        text = os.fsdecode(value)
    elif isinstance(value, numbers.Integral):  # also numpy's
        text = str(int(value))
    elif isinstance(value, numbers.Real):
        text = repr(float(value))
    else:
        raise _unusable(name, "a text, a path, a number or a bool", value)
    if "\0" in text:
        raise _unusable(name, "a text without a zero byte", value)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise _unusable(name, "a text that UTF-8 can encode", value) from None


def _values(name: str, value: Any, option: Mapping[str, Any] | None) -> Iterator[bytes | None]:
    """What the command line would give; None: the option without a value."""
    kind = option["type"] if option else ""
    if kind == "texts" and not isinstance(value, (str, os.PathLike)):
        if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
            raise _unusable(name, "a text, or a list of texts", value)
        texts = [_text(name, item) for item in value]
        yield from texts or [None]  # none: in place of those of a file
    elif isinstance(value, bool) and option and kind in ("text", "choice") and (
            "false" not in (option["choices"] or ())):
        choices = option["choices"] or ["a text"]
        if not option["bare"] or (not value and "no" in choices):
            raise _unusable(name, ", ".join(choices), value)
        if value:  # False: not given
            yield None
    else:
        yield _text(name, value)


def _options(job: str, given: Mapping[str, Any]) -> _library.Options:
    """given: values by name, of which None means not given; "config" comes first."""
    table = _library.table(job)
    if isinstance(given.get("config"), bool):
        raise _unusable("config", "a file", given["config"])
    options = _library.Options(job)
    try:
        for name in sorted(given, key=lambda name: name != "config"):
            if given[name] is not None:
                for value in _values(name, given[name], table.get(name)):
                    options.set(name, value)
    except BaseException:
        options.close()
        raise
    return options


def _resumed(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Where only `resume` says which run goes on, its run.json says the rest, as on the command
    line."""
    resume = given.get("resume")
    has_teacher = given.get("teacher_path") or given.get("transformer")
    if not isinstance(resume, (str, os.PathLike)) or os.fspath(resume) == "auto":
        return given
    if given.get("config") or (has_teacher and given.get("data_path")):
        return given
    folder = Path(os.path.realpath(resume))
    if folder.parent.name == "checkpoints" and not (folder / "run.json").is_file():
        folder = folder.parent.parent
    if not (folder / "run.json").is_file():
        raise _errors.InvalidArgument(
            f"--resume {os.fspath(resume)}: expected a run's folder, which has a run.json, or one "
            "of its checkpoints, found neither; or give teacher_path and data_path, too")
    moved = {"config": folder / "run.json"}
    if given.get("output_dir") is None:
        moved["output_dir"] = folder
    return {**given, **moved}


# ---- jobs ----


def _run_job(job: str, given: Mapping[str, Any], progress: OnProgress = None,
             pictures: OnPicture = None) -> Any:
    running = _run.Job(_options(job, given), progress is not None, pictures is not None)
    events = running.events()
    try:
        while True:
            event = next(events)
            if isinstance(event, Picture):
                if pictures:
                    pictures(event)
            elif progress:
                progress(event)
    except StopIteration as end:
        return end.value
    finally:
        events.close()


def _path(given: Mapping[str, Any], name: str, result: Mapping[str, Any]) -> Path:
    """The path of a result: as it was given, for JSON has no bytes that are not UTF-8."""
    value = given.get(name)
    return Path(result[name] if value is None else os.fsdecode(value))


def _train_result(given: Mapping[str, Any], result: Mapping[str, Any]) -> TrainResult:
    return TrainResult(**{**result, "output_dir": _path(given, "output_dir", result)})


def train(given: Mapping[str, Any], progress: OnProgress, pictures: OnPicture) -> TrainResult:
    given = _resumed(given)
    return _train_result(given, _run_job("train", given, progress, pictures))


class TrainRun:
    """A run that is underway: an iterator of Progress, which has a `result` at its end.

    The run begins with the first step of the loop, and goes on while the loop's body works. A loop
    that is left early ends the run when the iterator is closed or no longer used; `with` does that
    at once. Then it writes its checkpoint and its student, as after stop().
    """

    def __init__(self, given: Mapping[str, Any], pictures: OnPicture) -> None:
        self.result: TrainResult | None = None
        self._given = _resumed(given)
        self._job = _run.Job(_options("train", self._given), True, pictures is not None)
        self._loop = self._events(pictures)

    def _events(self, pictures: OnPicture) -> Generator[Progress, None, None]:
        events: Generator[Event, None, Any] = self._job.events()
        try:
            while True:
                event = next(events)
                if isinstance(event, Progress):
                    yield event
                elif pictures:
                    pictures(event)
        except StopIteration as end:
            self.result = _train_result(self._given, end.value)
        finally:
            events.close()

    def __iter__(self) -> TrainRun:
        return self

    def __next__(self) -> Progress:
        return next(self._loop)

    def stop(self) -> None:
        """Asks the run to stop: the loop ends once its checkpoint and its student are written.

        Before its first step there is none, and the loop raises Interrupted. Any thread may call.
        """
        self._job.stop()

    def close(self) -> None:
        """Stops the run, if it has not ended, and waits for its end."""
        self._loop.close()

    def __enter__(self) -> TrainRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sample(given: Mapping[str, Any], progress: OnProgress) -> list[Picture]:
    drawn: list[Picture] = []
    if given.get("out") is not None:
        _run_job("sample", given, progress, drawn.append)
    else:
        with tempfile.TemporaryDirectory(prefix="wandistiller-") as folder:
            out = Path(folder, "pictures")
            _run_job("sample", {**given, "out": out}, progress, drawn.append)
        drawn = [replace(picture, path=None) for picture in drawn]
    return drawn[:-1] if len(drawn) > 1 else drawn  # the last of several is their contact sheet


def plan(given: Mapping[str, Any]) -> dict[str, Any]:
    return _run_job("plan", given)


def eval(given: Mapping[str, Any], progress: OnProgress, pictures: OnPicture) -> dict[str, Any]:
    return _run_job("eval", given, progress, pictures)


def inspect(given: Mapping[str, Any]) -> dict[str, Any]:
    return _run_job("inspect", given)


def convert(given: Mapping[str, Any], progress: OnProgress) -> Path:
    return _path(given, "out", _run_job("convert", given, progress))


def report(given: Mapping[str, Any]) -> Path:
    runs = given.get("runs")
    if isinstance(runs, (str, os.PathLike)):
        runs = [runs]
    elif isinstance(runs, Iterable):
        runs = list(runs)
    result = _run_job("report", {**given, "runs": runs})
    if runs and given.get("out") is None:
        return Path(os.fsdecode(runs[0]), "report.html")
    return _path(given, "out", result)


def tell(given: Mapping[str, Any]) -> None:
    _run_job("tell", given)

"""A job on a thread of its own, and what it tells meanwhile, as a generator.

The library works on the thread; its callbacks put what they are told into a queue. The caller's
thread takes it from there, so callbacks of the user run where the job was called, their exceptions
end the job, and Ctrl-C and SIGTERM arrive while the job computes.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import math
import os
import queue
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generator, Union

from . import _errors, _library
from ._library import library

_log = logging.getLogger("wandistiller")
_LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)  # wd_log_level
_STACK_BYTES = 8 << 20  # as in src/cli/main.c
_one_at_a_time = threading.Lock()
_forked_while_it_ran = False


def _after_fork() -> None:
    """In a child: a job that runs has no thread here, so it never ends, and its lock stays."""
    global _forked_while_it_ran
    _forked_while_it_ran = _one_at_a_time.locked()


os.register_at_fork(after_in_child=_after_fork)


def _busy() -> _errors.Busy:
    if _forked_while_it_ran:
        return _errors.Busy(
            "this process was forked while a job ran in its parent, so it can run none: expected a "
            "process that was started before the job, or one of its own, as by "
            'multiprocessing.get_context("spawn")')
    return _errors.Busy("a job runs in this process already: expected one at a time")


@dataclass(frozen=True)
class Progress:
    """Which part of its work a job is doing, and how much of that part is done."""

    what: str  #: "training", "encoding prompts"
    unit: str  #: the unit of done and total: "step", "prompt"
    done: int
    total: int | None  #: None: a time limit sets the end, or the end is not known
    seconds: float  #: since this part of the job began
    rate: float | None  #: units per second; None: not known yet
    seconds_left: float | None  #: None: not known yet
    loss: float | None  #: of the last step of training; None elsewhere
    validation_error: float | None  #: of the last validation of training; None: there was none


@dataclass(frozen=True)
class Picture:
    """A picture that a job has drawn. Notebooks show it; `array` needs numpy."""

    path: Path | None  #: its PNG file; None: it was not kept
    height: int
    width: int
    rgb: bytes = field(repr=False)  #: height * width * 3 bytes from the top
    png: bytes = field(repr=False)  #: the file's bytes

    @property
    def array(self) -> Any:
        """uint8 [height, width, 3], a numpy array that can be written to."""
        import numpy

        pixels = numpy.frombuffer(self.rgb, numpy.uint8)
        return pixels.reshape(self.height, self.width, 3).copy()

    def _repr_png_(self) -> bytes:
        return self.png


Event = Union[Progress, Picture]


class _Termination:
    """SIGTERM while a job runs: SystemExit on the caller's thread, as Ctrl-C is KeyboardInterrupt.

    So the job ends as it does then, and the program with it. A second SIGTERM changes nothing. A
    handler that the program has set stays, and only the main thread can set one.
    """

    def __init__(self) -> None:
        self._is_set = (threading.current_thread() is threading.main_thread()
                        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
        self._came = False
        if self._is_set:
            signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        if not self._came:
            self._came = True
            raise SystemExit(128 + signal.SIGTERM)

    def close(self) -> None:
        if (self._is_set and threading.current_thread() is threading.main_thread()
                and signal.getsignal(signal.SIGTERM) == self._end):
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _progress_of(p: _library.CProgress) -> Progress:
    return Progress(p.what.decode(), p.unit.decode(), p.done, p.total or None, p.seconds,
                    _known(p.rate), _known(p.seconds_left), _known(p.loss),
                    _known(p.validation_error))


def _picture_of(p: _library.CPicture) -> Picture:
    path = Path(p.path.decode("utf-8", "surrogateescape"))
    return Picture(path, p.height, p.width, ctypes.string_at(p.rgb, p.height * p.width * 3),
                   path.read_bytes())


@_library.LOG_FN
def _to_logging(_context: None, level: int, message: bytes) -> None:
    _log.log(_LEVELS[level], "%s", message.decode("utf-8", "replace"))


library.wd_log_to(_to_logging, None, 1)  # options may warn; a job sets its level


class _Done:
    """The end of a job: its result, or why there is none."""

    result: Any = None
    error: BaseException | None = None


class Job:
    """A job that runs while its events are taken.

    All that the library uses lives on the job's thread until the job has ended, so the library
    never holds what is gone: however the caller's thread leaves, which Ctrl-C may interrupt between
    any two operations.
    """

    def __init__(self, options: _library.Options, tells: bool, shows: bool) -> None:
        """Without `tells` progress goes to the log."""
        self._options = options
        self._tells, self._shows = tells, shows
        self._told: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._runs = self._stops = False

    # ---- on the job's thread ----

    def _show(self, _context: None, p: Any) -> None:
        try:
            self._told.put(_picture_of(p.contents))
        except Exception as error:  # its file is gone, or there is no memory
            self._told.put(error)

    def _tell(self, _context: None, p: Any) -> None:
        if self._stops:  # a job that only begins forgets what it was asked before
            library.wd_request_stop()
        self._told.put(_progress_of(p.contents))

    def _run(self) -> Any:
        if self._stops:
            raise _errors.Interrupted("the job was stopped before it began")
        if not _one_at_a_time.acquire(blocking=False):
            raise _busy()
        no_progress, no_pictures = _library.PROGRESS_FN(), _library.PICTURE_FN()
        progress_fn = _library.PROGRESS_FN(self._tell) if self._tells else no_progress
        pictures_fn = _library.PICTURE_FN(self._show) if self._shows else no_pictures
        try:
            level = _log.getEffectiveLevel()
            library.wd_log_to(_to_logging, None, max(0, sum(level <= at for at in _LEVELS) - 1))
            library.wd_progress_to(progress_fn, None)
            library.wd_pictures_to(pictures_fn, None)
            self._runs = True
            return self._options.run()
        finally:
            self._runs = False
            library.wd_progress_to(no_progress, None)
            library.wd_pictures_to(no_pictures, None)
            _one_at_a_time.release()

    def work(self) -> None:
        done = _Done()
        try:
            done.result = self._run()
        except BaseException as error:
            done.error = error
        self._options.close()
        self._told.put(done)

    # ---- on others ----

    def stop(self) -> None:
        """Asks the job to stop; a job that has not begun will not."""
        self._stops = True
        if self._runs:
            library.wd_request_stop()

    def stop_and_wait(self, thread: _Thread) -> None:
        if thread is threading.current_thread():  # whose garbage collection found the events
            self.stop()
            return
        while True:
            try:
                self.stop()
                while thread.is_alive():
                    thread.join(0.1)
                    self.stop()
                return
            except KeyboardInterrupt:
                pass  # it is stopping

    def events(self) -> Generator[Event, None, Any]:
        """Runs the job; yields progress and pictures; returns its result.

        Left early, by an exception or by close(), it has the job stop, and waits for its end.
        """
        thread = _Thread(self)
        termination = _Termination()
        try:
            thread.start()
            event: Any = None
            while not isinstance(event, _Done):
                event = self._told.get()
                if isinstance(event, Exception):
                    raise event
                if not isinstance(event, _Done):
                    yield event
        finally:
            self.stop_and_wait(thread)
            termination.close()
        if event.error is not None:
            raise event.error
        return event.result


class _Thread(threading.Thread):
    def __init__(self, job: Job) -> None:
        super().__init__(name="wandistiller job", daemon=True)
        self.job = job

    def run(self) -> None:
        self.job.work()

    def start(self) -> None:
        before = threading.stack_size(_STACK_BYTES)
        try:
            super().start()
        finally:
            threading.stack_size(before)


@atexit.register
def _stop_at_exit() -> None:
    """A loop that was left early may still have its run when the program ends."""
    for thread in threading.enumerate():
        if isinstance(thread, _Thread):
            thread.job.stop_and_wait(thread)

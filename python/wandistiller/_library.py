"""The shared library by ctypes: its functions, the structs of its callbacks, and options by name.

Only functions of wandistiller.h that need no layout of an options struct are used. ctypes releases
the GIL while a function runs, and takes it for a callback.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

from . import _errors

JOBS = ("train", "plan", "sample", "eval", "inspect", "convert", "report", "tell")


class Err(ctypes.Structure):
    """wd_err"""

    _fields_ = [
        ("status", ctypes.c_int),
        ("failed_rank", ctypes.c_int),
        ("message", ctypes.c_char * 2048),
    ]


class CProgress(ctypes.Structure):
    """wd_progress"""

    _fields_ = [
        ("what", ctypes.c_char_p),
        ("unit", ctypes.c_char_p),
        ("done", ctypes.c_int64),
        ("total", ctypes.c_int64),
        ("seconds", ctypes.c_double),
        ("rate", ctypes.c_double),
        ("seconds_left", ctypes.c_double),
        ("loss", ctypes.c_double),
        ("validation_error", ctypes.c_double),
        ("reserved", ctypes.c_uint64 * 7),
    ]


class CPicture(ctypes.Structure):
    """wd_picture"""

    _fields_ = [
        ("path", ctypes.c_char_p),
        ("rgb", ctypes.c_void_p),
        ("height", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("reserved", ctypes.c_uint64 * 4),
    ]


LOG_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
PROGRESS_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(CProgress))
PICTURE_FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(CPicture))

_PROTOTYPES = {
    "wd_version": (ctypes.c_char_p, []),
    "wd_features": (ctypes.c_char_p, []),
    "wd_text_free": (None, [ctypes.c_void_p]),
    "wd_job_find": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
    "wd_options_new": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]),
    "wd_options_set": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p,
                                      ctypes.c_void_p]),
    "wd_options_run": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]),
    "wd_options_free": (None, [ctypes.c_void_p]),
    "wd_options_list": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]),
    "wd_log_to": (None, [LOG_FN, ctypes.c_void_p, ctypes.c_int]),
    "wd_progress_to": (None, [PROGRESS_FN, ctypes.c_void_p]),
    "wd_pictures_to": (None, [PICTURE_FN, ctypes.c_void_p]),
    "wd_request_stop": (ctypes.c_bool, []),
}

# libgomp reads when it is loaded how long its threads spin: see settings of the process in
# wandistiller.h, and limit_spinning in src/cli/main.c.
_SPINNING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES",
             "GOMP_CPU_AFFINITY")


def _load() -> ctypes.CDLL:
    path = Path(__file__).with_name("libwandistiller.so.0")
    limits_spinning = not any(name in os.environ for name in _SPINNING)
    if limits_spinning:
        os.environ["GOMP_SPINCOUNT"] = "2000"
    try:
        library = ctypes.CDLL(str(path))
    finally:
        if limits_spinning:
            del os.environ["GOMP_SPINCOUNT"]
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if sys.prefix != sys.base_prefix:  # NVIDIA's libraries are looked for in this environment
        os.environ.setdefault("VIRTUAL_ENV", sys.prefix)
    return library


library = _load()


def _take_text(text: ctypes.c_void_p) -> Any:
    """The value of a JSON text that the library gave, which is freed; None: it gave none."""
    if not text.value:
        return None
    try:
        return json.loads(ctypes.string_at(text))
    finally:
        library.wd_text_free(text)


def error_of(status: int, err: Err, result: Any = None) -> _errors.Error:
    kind = _errors.OF_STATUS.get(status, _errors.Internal)
    return kind(err.message.decode("utf-8", "replace"), err.failed_rank, result)


def _job_number(job: str) -> int:
    number, err = ctypes.c_int(), Err()
    status = library.wd_job_find(ctypes.byref(number), job.encode(), ctypes.byref(err))
    if status:
        raise error_of(status, err)
    return number.value


@functools.lru_cache(maxsize=None)
def table(job: str) -> dict[str, dict[str, Any]]:
    """The options of a job by name: see wd_options_list."""
    text, err = ctypes.c_void_p(), Err()
    status = library.wd_options_list(ctypes.byref(text), _job_number(job), ctypes.byref(err))
    if status:
        raise error_of(status, err)
    return {option["name"]: option for option in _take_text(text)}


class Options:
    """Options of a job: wd_options."""

    def __init__(self, job: str) -> None:
        err = Err()
        self._handle = ctypes.c_void_p()
        status = library.wd_options_new(ctypes.byref(self._handle), _job_number(job),
                                        ctypes.byref(err))
        if status:
            raise error_of(status, err)

    def set(self, name: str, value: bytes | None) -> None:
        """value: as on the command line; None: the option without a value."""
        err = Err()
        if "\0" in name:  # where the library would see its end
            name = ascii(name)
        status = library.wd_options_set(self._handle, name.encode("utf-8", "replace"), value,
                                        ctypes.byref(err))
        if status:
            raise error_of(status, err)

    def run(self) -> Any:
        text, err = ctypes.c_void_p(), Err()
        status = library.wd_options_run(ctypes.byref(text), self._handle, ctypes.byref(err))
        result = _take_text(text)
        if status:
            raise error_of(status, err, result)
        return result

    def close(self) -> None:
        library.wd_options_free(self._handle)
        self._handle = ctypes.c_void_p()

    def __del__(self) -> None:
        self.close()

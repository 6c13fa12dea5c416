"""One exception for each status of the library: see WD_STATUS_MAP in wandistiller_status.h."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """A job has failed. The text names the object, what was expected and found, and what to do.

    exit_code: with which the command line program ends after the same error.
    failed_rank: 1 + the rank that failed, where another rank of a job did; else 0.
    result: what the job gives nevertheless; `plan` has a plan also where nothing fits.
    """

    exit_code = 12

    def __init__(self, message: str, failed_rank: int = 0, result: Any = None) -> None:
        super().__init__(message)
        self.failed_rank = failed_rank
        self.result = result


class InvalidArgument(Error, ValueError):
    """An option or argument is not usable."""

    exit_code = 2


class NotFound(Error):
    """A file, folder, tensor or component is missing."""

    exit_code = 3


class BadFormat(Error):
    """A file is damaged or not of the format it claims."""

    exit_code = 4


class Mismatch(Error):
    """Two things that must agree do not."""

    exit_code = 5


class Unsupported(Error):
    """Well formed, but not something this library can do."""

    exit_code = 6


class Busy(Unsupported, RuntimeError):
    """A job runs in this process already, or ran in its parent when this process was forked."""


class IOFailed(Error):
    """Reading or writing failed."""

    exit_code = 7


class OutOfMemory(Error, MemoryError):
    """An allocation failed."""

    exit_code = 8


class DoesNotFit(Error):
    """The plan needs more memory, or disk space, than there is."""

    exit_code = 9


class NotFinite(Error):
    """Training diverged, or a model computes values that are not finite."""

    exit_code = 10


class Interrupted(Error):
    """Stopped on request before it was done."""

    exit_code = 11


class Internal(Error):
    """A bug in the library."""

    exit_code = 12


class RankLost(Error):
    """A rank of the job is gone, or does not answer."""

    exit_code = 13


class DeviceFault(Error):
    """A device failed while it was computing."""

    exit_code = 14


OF_STATUS = {kind.exit_code: kind for kind in Error.__subclasses__()}

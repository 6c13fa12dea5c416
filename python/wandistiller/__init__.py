"""WanDistiller: distils Wan video diffusion transformers into small text-to-image students.

    import wandistiller

    result = wandistiller.train(teacher_path="...", data_path="prompts.txt", num_steps=1000)
    picture = wandistiller.sample(model=result.output_dir, prompt="a red apple")[0]
    picture.array  # uint8 [H, W, 3]

Functions have the names of the program's commands, and keyword arguments those of its options.
Errors are exceptions, a class for each exit code. Messages go to the logger "wandistiller". One job
runs at a time in a process, else Busy is raised; Ctrl-C ends it as it ends the program: `train`
writes its checkpoint and its student first.
"""

from ._errors import (BadFormat, Busy, DeviceFault, DoesNotFit, Error, Internal, Interrupted,
                      InvalidArgument, IOFailed, Mismatch, NotFinite, NotFound, OutOfMemory,
                      RankLost, Unsupported)
from ._jobs import TrainResult, TrainRun
from ._library import library as _loaded
from ._options import convert, eval, inspect, plan, report, sample, tell, train, train_iter
from ._run import Picture, Progress

__version__ = _loaded.wd_version().decode()


def features() -> str:
    """What the library was built with, a line for each: "GPU kernels: built"."""
    return _loaded.wd_features().decode()


__all__ = [  # but for `eval`, which would take the place of Python's own
    "BadFormat", "Busy", "DeviceFault", "DoesNotFit", "Error", "Internal", "Interrupted",
    "InvalidArgument", "IOFailed", "Mismatch", "NotFinite", "NotFound", "OutOfMemory", "Picture",
    "Progress", "RankLost", "TrainResult", "TrainRun", "Unsupported", "convert", "features",
    "inspect", "plan", "report", "sample", "tell", "train", "train_iter",
]

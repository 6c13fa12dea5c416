"""Writes _options.py, the functions of the Python package, from the library's option tables.

Usage: make_options.py LIBRARY OUT
A function has a keyword for each option of its command, with type, default and help in hints and
docstring. Options that print JSON have no keyword, for results are values; nor have those that are
kept for scripts of the Python version.
"""

import ctypes
import json
import sys
import textwrap

HEAD = '''"""The jobs: functions with the options of the program's commands as keywords.

Made by python/make_options.py from the library's option tables.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal, NoReturn, Sequence, Union

from . import _jobs
from ._jobs import OnPicture, OnProgress, TrainResult, TrainRun
from ._run import Picture

File = Union[str, "os.PathLike[str]"]
'''

PROGRESS = "progress", "OnProgress", "is called with each Progress; None: progress is logged"
PICTURES = "pictures", "OnPicture", "is called with each Picture, once its file is written"

# name, command, result, arguments beside options, what the docstring says of the result
FUNCTIONS = [
    ("train", "train", "TrainResult", [PROGRESS, PICTURES],
     "Returns how the run has ended. Ctrl-C has the run write its checkpoint and its student "
     "before KeyboardInterrupt is raised. resume=FOLDER alone continues the run in that folder."),
    ("train_iter", "train", "TrainRun", [PICTURES],
     "Returns an iterator of Progress, `for p in train_iter(...)`, whose `result` is that of "
     "train."),
    ("plan", "plan", "dict[str, Any]", [],
     "Returns the plan, as `wandistiller plan --json` prints it. DoesNotFit has it as `result`."),
    ("sample", "sample", "list[Picture]", [PROGRESS],
     "Returns the pictures, in the order of the prompts. Without `out` no file is kept."),
    ("eval", "eval", "dict[str, Any]", [PROGRESS, PICTURES],
     "Returns the figures, as `wandistiller eval --json` prints them."),
    ("inspect", "inspect", "dict[str, Any]", [],
     "Returns what `wandistiller inspect --json` prints."),
    ("convert", "convert", "Path", [PROGRESS], "Returns the path of what it has written."),
    ("report", "report", "Path", [], "Returns the path of the page."),
    ("tell", "tell", "None", [], "Returns when the request is left; the run takes it between two "
     "steps."),
]


def load(path):
    """A function that gives a command's table."""
    library = ctypes.CDLL(path)

    def table(command):
        job, text, err = ctypes.c_int(), ctypes.c_void_p(), ctypes.create_string_buffer(4096)
        for status in (library.wd_job_find(ctypes.byref(job), command.encode(), err),
                       library.wd_options_list(ctypes.byref(text), job, err)):
            if status:
                sys.exit(f"{path}: status {status}: {err.raw[8:].split(bytes(1))[0].decode()}")
        value = json.loads(ctypes.string_at(text))
        library.wd_text_free(text)
        return value

    def summary(command):
        job, err = ctypes.c_int(), ctypes.create_string_buffer(4096)
        library.wd_job_summary.restype = ctypes.c_char_p
        library.wd_job_find(ctypes.byref(job), command.encode(), err)
        return library.wd_job_summary(job).decode()

    return table, summary


def hint(option):
    kind = option["type"]
    if kind == "choice":
        names = "Literal[" + ", ".join(f'"{name}"' for name in option["choices"]) + "]"
        return names + (" | bool" if option["bare"] else "")
    if kind == "int" and option["choices"]:
        return "int | Literal[" + ", ".join(f'"{word}"' for word in option["choices"]) + "]"
    text = "File" if option["file"] else "str"
    return {"flag": "bool", "int": "int", "seed": "int", "float": "float",
            "texts": f"{text} | Sequence[{text}]",
            "text": text + (" | bool" if option["bare"] else "")}[kind]


def describe(option, function):
    notes = []
    if option["required"] and (function, option["name"]) != ("sample", "out"):
        notes.append("required")
    if option["default"] is not None and option["type"] != "flag":
        notes.append("default: " + option["default"])
    return option["help"] + (f" ({', '.join(notes)})" if notes else "")


def paragraph(text, indent, hanging=0):
    return textwrap.fill(text, 88, initial_indent=" " * indent, break_on_hyphens=False,
                         subsequent_indent=" " * (indent + hanging), break_long_words=False)


def function(name, result, extra, says, summary, options):
    options = sorted(options, key=lambda o: not o["positional"])
    words = [f"{o['name']}: {hint(o)} | None = None" for o in options]
    words.insert(sum(o["positional"] for o in options), "*")
    words += [f"{own}: {kind} = None" for own, kind, _ in extra]
    words += ["config: File | None = None", "**unknown: NoReturn"]
    lines = [f"def {name}("] + [f"    {word}," for word in words] + [f") -> {result}:"]
    summary = summary[0].upper() + summary[1:]
    lines += [f'    """{summary}.', "", paragraph(says, 4), "", "    Args:"]
    lines += [paragraph(f"{o['name']}: {describe(o, name)}", 8, 4) for o in options]
    lines += [paragraph(f"{own}: {what}", 8, 4) for own, _, what in extra]
    lines.append(paragraph("config: JSON file with options by name, or a run.json; keywords "
                           "replace its values", 8, 4))
    passed = "".join(f", {own}" for own, _, _ in extra)
    call = "TrainRun(" if name == "train_iter" else f"_jobs.{name}("
    lines += ['    """', "    given = {**locals()}", '    given.update(given.pop("unknown"))']
    lines += [f'    del given["{own}"]' for own, _, _ in extra]
    lines += [f"    return {call}given{passed})", ""]
    return "\n".join(lines)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_options.py LIBRARY OUT")
    table, summary = load(sys.argv[1])
    parts = [HEAD]
    for name, command, result, extra, says in FUNCTIONS:
        options = [o for o in table(command) if not o["legacy"] and o["name"] != "json"]
        text = function(name, result, extra, says, summary(command), options)
        compile(HEAD + text, name, "exec")
        parts.append(text)
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write("\n\n".join(parts))


main()

"""The Python of the pages and of examples/distil.py runs, with runs that are short."""

import re

import pytest

import wandistiller
from conftest import SOURCE


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with what the pages name; runs of two steps, of small pictures."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").symlink_to(SOURCE / "models")
    (tmp_path / "prompts.txt").write_text("a red apple\na blue star\n")
    (tmp_path / "held-out.txt").write_text("a green star\n")
    short = dict(num_steps=2, height=32, width=32, cache_dir=tmp_path / "cache")

    def shortened(name, options):
        job = getattr(wandistiller, name)

        def call(*args, **given):
            if given.get("teacher_path", given.get("teacher")):
                key = "teacher_path" if "teacher_path" in given else "teacher"
                given[key] = SOURCE / "models/wan-tiny"
            return job(*args, **{**given, **options})

        monkeypatch.setattr(wandistiller, name, call)

    for name in ("train", "train_iter", "plan"):
        shortened(name, short)
    shortened("eval", dict(height=32, width=32))
    return tmp_path


@pytest.mark.parametrize("page", ["docs/from-python.md"])
def test_python_of_a_page(page, place):
    blocks = re.findall(r"^```python\n(.*?)^```", (SOURCE / page).read_text(), re.M | re.S)
    assert blocks
    known = {}
    for block in blocks:
        exec(compile(block, page, "exec"), known)


def test_the_example_runs(place, capsys):
    text = (SOURCE / "examples/distil.py").read_text()
    exec(compile(text, "distil.py", "exec"), {})
    said = capsys.readouterr().out
    assert "strategies that fit: ['cpu'" in said and "2 steps in" in said
    assert (place / "build/student/model_index.json").is_file()
    assert (place / "build/student/pictures/0001.png").is_file()

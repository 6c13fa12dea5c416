"""A small run of wan-tiny, for all tests."""

import hashlib
import os
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2]
WEIGHTS = "transformer/diffusion_pytorch_model.safetensors"


def digest(student):
    """The hash of a student's weights."""
    return hashlib.sha256((Path(student) / WEIGHTS).read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def program():
    """The command line program of the same build."""
    return os.environ["WD_PROGRAM"]


@pytest.fixture(scope="session")
def teacher():
    return SOURCE / "models/wan-tiny"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="session")
def small(folder, teacher):
    """Options of a run that takes a second."""
    (folder / "prompts.txt").write_text("a red apple\na blue star\n")
    (folder / "student.json").write_text('{"depth": 1}')
    return {"teacher_path": teacher, "data_path": folder / "prompts.txt",
            "student_config": folder / "student.json", "height": 16, "width": 16,
            "batch_size": 1, "trajectories": 2, "trajectory_steps": 2, "num_steps": 4,
            "num_threads": 1, "cache_dir": folder / "cache", "save_samples": False}

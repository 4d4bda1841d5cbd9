"""Writes a benchmark's result with what it takes to rerun and to judge it."""

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import tensorflow as tf

RESULTS = Path(__file__).parent / "results"
_PACKAGES = (
    "tensorflow",
    "keras",
    "numpy",
    "scikit-learn",
    "tflite-micro",
    "tensorflow-model-optimization",
    "tf_keras",
)


def use_threads(count: int) -> None:
    """Limits TensorFlow; with one thread, processor time is what a quiet machine would take."""
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(count)


def environment() -> dict[str, Any]:
    """Versions and machine, as they belong beside every measured number."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "python": platform.python_version(),
        "versions": versions,
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "command": " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *_arguments()]),
    }


def commit() -> str:
    """The commit that is checked out, with a "+" if files have changed since; "" if unknown."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        name = _answer([*git, "rev-parse", "--short", "HEAD"])
        changed = _answer([*git, "status", "--porcelain", "--", "*.py"])
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name + ("+" if changed else "")


def _answer(command: list[str]) -> str:
    return subprocess.run(  # noqa: S603  (fixed words)
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


_FOLDERS = ("--checkpoints", "--runs", "--seconds")


def _arguments() -> list[str]:
    """The command line without folders and time limits, which change no result."""
    words = iter(sys.argv[1:])
    return [word for word in words if word not in _FOLDERS or next(words, None) is None]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()

"""Files that are written whole or not at all: a temporary file beside the target, then a rename."""

import io
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes `content` to `path`; whoever reads it sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # the rename must not reach the disk before the content
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: str | os.PathLike[str], content: Any, *, allow_nan: bool = False) -> None:
    """Writes JSON, indented."""
    text = json.dumps(content, indent=1, allow_nan=allow_nan)
    write_bytes(path, f"{text}\n".encode())


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes an `.npz` file of plain arrays."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads an `.npz` file; one with anything but plain arrays is refused."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}

"""What a search is about, so that no search continues another one."""

import hashlib
import json
from typing import Any

from keras_sparse.footprint import working_memory as memory

from .hypermodel import SparseCNN
from .parameters import Space
from .project import Project, read_json

FORMAT = 1
"""Of the project folder; a folder of another format is not continued."""


def about_search(
    hypermodel: Any, objectives: list[str], working_memory: Any, model_size: str, seed: int
) -> dict[str, Any]:
    """What a search is about: two with the same answer can continue each other."""
    about: dict[str, Any] = {
        "format": FORMAT,
        "objectives": objectives,
        "working_memory": memory.name_of(memory.get(working_memory)),
        "seed": seed,
    }
    if model_size != "values":  # folders from before there was a choice say nothing
        about["model_size"] = model_size
    if isinstance(hypermodel, SparseCNN):
        about["hypermodel"] = {
            "input_shape": list(hypermodel.input_shape),
            "num_classes": hypermodel.num_classes,
            "pruning": hypermodel.pruning,
            "space": hypermodel.space_name,
            "parameters": fingerprint(hypermodel.space),
        }
    return about


def fingerprint(space: Space) -> str:
    """The same for the same parameters, ranges and conditions."""
    text = json.dumps([repr(parameter) for parameter in space])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_same(project: Project, about: dict[str, Any]) -> None:
    """Raises if the folder has a search that is about something else."""
    known = read_json(project.folder / "project.json")
    if known is None:
        if (project.folder / "oracle.json").exists():
            raise ValueError(
                f"The folder {project.folder} has a search of another program, or its project.json "
                "is broken: choose another project_name, or overwrite=True to delete it."
            )
        return
    if "hypermodel" not in about:  # the space of a user's model is known later
        known = {key: value for key, value in known.items() if key != "hypermodel"}
    different = sorted(key for key in {*known, *about} if known.get(key) != about.get(key))
    if different:
        raise ValueError(
            f"The folder {project.folder} has a search with another {', '.join(different)}: choose "
            "another project_name, or overwrite=True to delete it. "
            f"Received: { ({key: about.get(key) for key in different})!r}"
        )

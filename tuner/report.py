"""The report of a search: one HTML file with everything in it, made from the search's folder.

It needs no network, no data set and no model. A folder is data: all of it gets into the page as
JSON that cannot end the element it is in, the page puts it in as text, and a content policy forbids
every script but the page's own.
"""

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from keras_sparse import __version__
from keras_sparse.drawing import drawing_of
from keras_sparse.files import write_bytes
from keras_sparse.network_facts import NetworkFacts

from .facts import front_facts, hypervolume_facts, lineage_facts
from .goals import violation
from .reading import Search, read_search

_SCRIPTS = ("chart.js", "network.js", "table.js", "report.js")


def write_report(folder: str | Path, path: str | Path | None = None) -> Path:
    """Writes the report of a search.

    Args:
        folder: Of the search, which may still be running, or be somebody else's.
        path: Of the HTML file; None for `report.html` in the folder.

    Returns:
        The path of the file.
    """
    search = read_search(folder)
    path = search.folder / "report.html" if path is None else Path(path)
    write_bytes(path, html_of(search).encode())
    return path


def html_of(search: Search) -> str:
    """The page."""
    style = _asset("report.css")
    script = "\n".join(map(_asset, _SCRIPTS))
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"Search {search.folder.resolve().name}"),
        "style": style,
        "script": script,
        "data": _embedded(report_data(search)),
    }
    head, *rest = _asset("report.html").split("{{")
    # One pass: what is put in is not looked through for more places.
    pieces = [piece.split("}}", 1) for piece in rest]
    return head + "".join(parts[name] + text for name, text in pieces)


def report_data(search: Search) -> dict[str, Any]:
    """All that the page shows, as JSON has it."""
    volumes = hypervolume_facts(search)
    ended = [record.trial_id for record in search.records if record.status != "running"]
    progress = dict(zip(ended, zip(volumes.volumes, volumes.hours, strict=True), strict=True))
    front = [record.trial_id for record in search.front]
    best = search.best
    trials = []
    for record in search.records:
        volume, hours = progress.get(record.trial_id, (None, None))
        error = record.metrics.get("val_error")
        trials.append(
            {
                "id": record.trial_id,
                "number": record.number,
                "status": record.status,
                "stage": record.stage,
                "reference": record.reference,
                "accuracy": None if error is None else 1.0 - error,
                "metrics": record.metrics,
                "configuration": record.configuration,
                "changes": lineage_facts(search, record.trial_id)[-1].changes,
                "reason": record.reason,
                "epochs": record.epochs,
                "seconds": record.seconds,
                "on_front": record.trial_id in front,
                "within": bool(record.metrics) and violation(search.limits, record.metrics) == 0,
                "volume": volume,
                "hours": hours,
            }
        )
    return {
        "version": __version__,
        "name": search.folder.resolve().name,
        "data": search.data,
        "input_shape": search.input_shape,
        "goals": [goal.name for goal in search.goals],
        "budget": search.budget._asdict(),
        "has_budget": bool(search.limits),
        "max_trials": search.max_trials,
        "memory_model": search.memory_model,
        "hours": volumes.hours[-1] if volumes.hours else 0.0,
        "trials": trials,
        "front": front,
        "best": None if best is None else best.trial_id,
        "networks": {trial: _drawn(network) for trial, network in search.networks.items()},
        "published": [row._asdict() for row in front_facts(search).references],
        "deployments": search.deployments,
        "problems": search.problems,
    }


def _drawn(network: NetworkFacts) -> dict[str, Any]:
    drawing = drawing_of(network)
    boxes = [
        {**box._asdict(), "colour": drawing.colours[name], **drawing.layout.nodes[name]._asdict()}
        for name, box in drawing.boxes.items()
    ]
    return {
        "caption": drawing.caption,
        "boxes": boxes,
        "edges": list(drawing.layout.edges.values()),
    }


def _embedded(content: Any) -> str:
    """JSON that cannot end a script element, open a comment in it or be an entity."""
    text = json.dumps(content, allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text("utf-8")

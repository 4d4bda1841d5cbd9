"""Runs one search of the tables: resumable, timed, its trimmed state written every few trials."""

import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras_sparse.tuner.project import Project, read_json
from keras_sparse.tuner.proposer import Stage
from keras_sparse.tuner.reading import records_of
from keras_sparse.tuner.tuner import SparseTuner
from keras_tuner.engine.trial import Trial

from benchmarks.tables_candidates import needed_trials
from benchmarks.tables_places import Places
from benchmarks.tables_settings import Settings, first_configurations, hypermodel_of
from benchmarks.tables_state import restore, save_state
from benchmarks.tables_targets import rows_of
from keras_sparse import datasets
from keras_sparse.files import write_json

SAVE_EVERY = 5
"""Trials between two writings of the trimmed state."""


class CosineRate(keras.callbacks.Callback):
    """Lets the learning rate fall from its start to 0 over the epochs of a trial.

    Args:
        rate: At the start.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        share = (epoch + 0.5) / max(self.params["epochs"], 1)
        self.model.optimizer.learning_rate = self.rate * 0.5 * (1.0 + np.cos(np.pi * share))


class RandomShift(keras.layers.Layer):
    """Moves all images of a batch by the same random whole number of pixels, edges repeated.

    One shift for a batch is a slice, which costs next to nothing; over an epoch all shifts occur.

    Args:
        pixels: At most, both ways.
        seed: Of the shifts.
    """

    def __init__(self, pixels: int, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pixels, self.seed = pixels, seed

    def call(self, x: Any, training: bool = False) -> Any:
        if not training:
            return x
        p, shape = self.pixels, tf.shape(x)
        padded = tf.pad(x, ((0, 0), (p, p), (p, p), (0, 0)), "SYMMETRIC")
        place = tf.random.uniform((2,), 0, 2 * p + 1, tf.int32, seed=self.seed)
        begin = tf.stack([0, place[0], place[1], 0])
        return tf.ensure_shape(tf.slice(padded, begin, shape), x.shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pixels": self.pixels, "seed": self.seed}


class Clock:
    """Wall-clock and processor seconds of a search, however often it was started.

    Args:
        folder: Of the search.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "clock.json"
        known = read_json(self.path) or {}
        self.before = {name: float(known.get(name, 0.0)) for name in ("wall", "cpu")}
        self.starts = int(known.get("starts", 0)) + 1
        self.start = {"wall": time.monotonic(), "cpu": time.process_time()}

    def tick(self) -> None:
        """Writes how long it has taken up to now."""
        now = {"wall": time.monotonic(), "cpu": time.process_time()}
        spent = {n: round(self.before[n] + now[n] - self.start[n], 1) for n in self.before}
        write_json(self.path, {**spent, "starts": self.starts})


class TableTuner(SparseTuner):
    """A `SparseTuner` that keeps the trimmed state of its search up to date."""

    clock: Clock
    state: Path

    def on_trial_end(self, trial: Trial) -> None:
        """Reports, and now and then writes the state."""
        super().on_trial_end(trial)
        self.clock.tick()
        if (int(trial.trial_id) + 1) % SAVE_EVERY == 0:
            save_state(self.project.folder, self.state)


def tuner_of(settings: Settings, data: datasets.Dataset, places: Places) -> TableTuner:
    """The tuner of a search, restored from its trimmed state if its folder is gone."""
    restore(places.state(settings), places.folder(settings))
    model = hypermodel_of(settings, data.input_shape, data.num_classes)
    tuner = TableTuner(
        model,
        settings.objectives,
        budget=settings.budget,
        max_trials=settings.trials,
        stages=(Stage(settings.trials, 0.0),) if settings.variant == "random" else None,
        initial_configurations=first_configurations(settings, model),
        initial_points=min(settings.initial, settings.trials - len(settings.networks)),
        max_trial_seconds=settings.most_seconds,
        directory=places.runs,
        project_name=settings.name,
        seed=settings.seed,
    )
    write_json(tuner.project.folder / "command.json", {"data": settings.data})
    tuner.state = places.state(settings)
    tuner.clock = Clock(tuner.project.folder)
    return tuner


def training_part(settings: Settings, data: datasets.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The training images of a search: all, or a part drawn with a fixed seed."""
    if settings.examples is None:
        return data.x_train, data.y_train
    chosen = np.random.default_rng(0).permutation(len(data.x_train))[: settings.examples]
    return data.x_train[chosen], data.y_train[chosen]


def search(
    settings: Settings, data: datasets.Dataset, places: Places, seconds: float | None = None
) -> bool:
    """Searches until all trials are done or the time is over.

    Returns:
        Whether all trials are done.
    """
    if is_searched(settings, places):
        return True
    deadline = None if seconds is None else time.monotonic() + seconds
    for part in settings.parts:
        if is_searched(part, places):
            continue
        tuner = tuner_of(part, data, places)
        x, y = training_part(part, data)
        tuner.search(
            x,
            y,
            validation_data=None if part.folds else (data.x_val, data.y_val),
            folds=part.folds,
            recovery=part.recovery,
            epochs=part.epochs,
            batch_size=part.batch,
            callbacks=[CosineRate(part.rate)],
            augment=RandomShift(part.shift) if part.shift else None,
            seconds=None if deadline is None else max(0.0, deadline - time.monotonic()),
        )
        tuner.clock.tick()
        if not is_searched(part, places):
            break
    is_done = is_searched(settings, places)
    needed = None
    if is_done:
        needed = needed_trials(settings, tuner.trials(), rows_of(settings, places))
    if is_done and not settings.has_members:
        needed = set()
    save_state(tuner.project.folder, tuner.state, needed)
    return is_done


def is_searched(settings: Settings, places: Places) -> bool:
    """Whether all trials of a search have ended, also those that come late."""
    restore(places.state(settings), places.folder(settings))
    records = records_of(Project(places.folder(settings)))
    return sum(record.status != "running" for record in records) >= settings.parts[-1].trials

"""SparseTuner: the search, as a KerasTuner `Tuner`."""

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_tuner
import numpy as np
from keras_tuner.src.distribute.utils import has_chief_oracle

from keras_sparse.files import write_json
from keras_sparse.footprint import model_sizes
from keras_sparse.footprint import working_memory as memory

from .budget import Budget
from .cost import CostModel
from .domain import CNNDomain
from .goals import goals_of
from .hypermodel import SparseCNN
from .identity import about_search, check_same, fingerprint
from .keras_space import space_of
from .oracle import SparseOracle
from .parameters import Configuration, Space
from .progress import Progress
from .project import Project
from .running import TrialRunner
from .schedule import schedule_of
from .stages import Stage
from .training import Training, checked
from .trial import Blueprint
from .workers import PatientClient, silence_conditions

_SIZES = {"model_size": "nonzeros", "working_memory": "working_memory", "macs": "macs"}
_LONGEST_TRIAL = 600.0


class SparseTuner(TrialRunner):
    """Searches for the most accurate networks for every size, and never loses a result.

    Args:
        hypermodel: A `SparseCNN`, or your own hypermodel or `build(hp)` with layers of
            `keras_sparse.layers` inside.
        objectives: Any of "val_error", "quantized_error" (in int8 on TFLite Micro), "model_size",
            "working_memory" and "macs", or functions of the stripped model, all to be minimised.
            None for the paper's: error and model size, and working memory with structured pruning
            or a RAM budget.
        budget: RAM, flash and accuracy that the network must keep; the search prefers this region
            and "best" means the most accurate within it.
        max_trials: Number of configurations to try.
        working_memory: Model of working memory, by name or as a function; see `measure`.
            "tflm-arena" is the RAM of TFLite Micro, "streamed-c" that of the generated C.
        model_size: What the objective "model_size" counts: "values", the parameters that are not
            zero, "encoded", with indices, or a registered model such as "c-flash", the tables of
            the generated C.
        stages: Parts of the search; None for the paper's three.
        initial_points: Random configurations at the start; None for a tenth of the trials, 5 to 20.
        initial_configurations: Known good values to try first; in a search that goes on, those that
            it has not tried yet come next.
        pruning_parameters: In a space of your own, what stage 2 may change.
        max_trial_seconds: Configurations that would train longer are not proposed. None for twice
            the share of `time_budget`, or ten minutes. For a `SparseCNN`; the cost of other models
            is not known.
        time_budget: Seconds that the whole search may take, for the default of
            `max_trial_seconds`; `search(seconds=...)` stops by the clock.
        cost_model: From `calibrate`; None for rough numbers that are the same on every machine.
        lease_seconds: With several workers: one that was not heard of for so long has died.
        directory: Folder of all searches.
        project_name: Of this one; a search that exists is continued.
        overwrite: Whether to delete an earlier search of that name.
        seed: Of everything that is random.
    """

    oracle: SparseOracle

    def __init__(
        self,
        hypermodel: keras_tuner.HyperModel | Callable[..., keras.Model],
        objectives: Sequence[Any] | None = None,
        budget: Budget | None = None,
        max_trials: int = 100,
        *,
        working_memory: Any = "inputs+weights",
        model_size: str = "values",
        stages: Sequence[Stage] | None = None,
        initial_points: int | None = None,
        initial_configurations: Sequence[Configuration] = (),
        pruning_parameters: Sequence[str] = (),
        max_trial_seconds: float | None = None,
        time_budget: float | None = None,
        cost_model: CostModel | None = None,
        lease_seconds: float = 600.0,
        directory: str | Path = "runs",
        project_name: str = "search",
        overwrite: bool = False,
        seed: int = 0,
    ) -> None:
        budget = (budget or Budget()).checked()
        if objectives is None:
            objectives = _default_objectives(hypermodel, budget)
        goals = goals_of(objectives)
        model_name = memory.name_of(memory.get(working_memory))
        model_sizes.get(model_size)  # known, or an error now
        if isinstance(hypermodel, SparseCNN):
            budget.check_reachable(*hypermodel.least_bytes(with_image=model_name == "live"))
            for configuration in initial_configurations:
                hypermodel.space.check(configuration)
            initial_configurations = [hypermodel.repaired(dict(c)) for c in initial_configurations]
        oracle = SparseOracle(
            goals,
            max_trials,
            budget=budget,
            stages=stages,
            initial_points=initial_points,
            initial_configurations=initial_configurations,
            pruning_parameters=pruning_parameters,
            lease_seconds=lease_seconds,
            seed=seed,
        )
        if isinstance(hypermodel, SparseCNN):
            sizes = [_SIZES.get(goal.name, "") for goal in goals]
            oracle.domain = CNNDomain(hypermodel, sizes, working_memory)
        self.seed, self.lease_seconds = seed, lease_seconds
        self.max_trial_seconds = max_trial_seconds or (
            2.0 * time_budget / max_trials if time_budget else _LONGEST_TRIAL
        )
        self.cost_model = cost_model or CostModel.common()
        names = [goal.name for goal in goals]
        about = about_search(hypermodel, names, working_memory, model_size, seed)
        project = Project(Path(directory) / project_name)
        if not overwrite:
            check_same(project, about)
        project.create()
        with contextlib.redirect_stdout(io.StringIO()):  # KerasTuner tells where it reloads from
            super().__init__(
                oracle=oracle,
                hypermodel=hypermodel,
                directory=str(directory),
                project_name=project_name,
                overwrite=overwrite and not self._is_worker(),
            )
        self._own_oracle = oracle
        self.limits = oracle.limits
        self.project = oracle.project
        self.blueprint = Blueprint(self.hypermodel, goals, working_memory, model_size)
        if not isinstance(hypermodel, SparseCNN):
            about["hypermodel"] = fingerprint(self._initial_space)
            check_same(project, about)
            _check_initial(oracle, self._initial_space, seed)
        if has_chief_oracle():
            silence_conditions()
        if self._is_worker():
            self.oracle = PatientClient(oracle)
        else:
            write_json(self.project.folder / "project.json", about)
            settings = {"budget": budget._asdict(), "max_trials": max_trials}
            write_json(self.project.folder / "settings.json", settings)

    # The search.

    def search(
        self,
        x: Any,
        y: Any = None,
        *,
        validation_data: Any = None,
        epochs: int | None = None,
        batch_size: int = 128,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        augment: Callable[[Any], Any] | None = None,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        folds: int = 0,
        recovery: float = 0.0,
        seconds: float | None = None,
        verbose: int | str = 1,
    ) -> None:
        """Tries configurations until there are `max_trials`; continues an earlier search.

        Args:
            x: Training images, or a batched `tf.data.Dataset`.
            y: Class numbers.
            validation_data: (x, y) or a batched data set, on which trials are compared.
            epochs: Of a trial from scratch; one with inherited weights trains 40 % of them. None
                for each configuration's own schedule, up to 70.
            batch_size: Examples of a step.
            callbacks: As in `fit`; each trial gets copies.
            augment: A function or Keras layer that changes a batch of training images.
            class_weight: As in `fit`.
            sample_weight: As in `fit`.
            folds: Cross-validation with so many folds instead of `validation_data`, for small data.
            recovery: Share of a trial's epochs, its last ones, in which what is left after pruning
                trains without noise and KL term; the paper has none. Short trials need it: they
                prune weights that are not quite noise yet.
            seconds: After so many no trial is started; those that run are finished.
            verbose: 0 for silence.
        """
        training = Training(
            x, y, validation_data, epochs, batch_size, tuple(callbacks), augment, class_weight,
            sample_weight, folds, recovery,
        )  # fmt: skip
        if isinstance(self.hypermodel, SparseCNN):
            training = checked(training, self.hypermodel.num_classes, self.hypermodel.input_shape)
            self._own_oracle.set_accept(self._affordable(self.hypermodel, training))
        else:
            training = checked(training)
        self._own_oracle.stop_after(seconds)
        self._progress = Progress(
            self.oracle.max_trials,
            self.blueprint.goals,
            self.limits,
            verbose=bool(verbose),
        )
        if self._is_worker():
            super().search(training=training)
            # The chief may end before its workers ask it for answers, which are in the folder.
            self.oracle = self._own_oracle
            self.oracle.reload()
        else:
            with self.project.lock():
                super().search(training=training)

    def _affordable(self, model: SparseCNN, training: Training) -> Callable[[Configuration], bool]:
        examples, folds = training.examples, max(training.folds, 1)

        def accept(configuration: Configuration) -> bool:
            epochs = schedule_of(configuration, training.epochs, inherits=False).epochs
            graph = model.graph(configuration)
            epoch = self.cost_model.epoch_seconds(
                graph,
                training.batch_size,
                examples,
                batch_norm=bool(configuration.get("batch-norm")),
            )
            return folds * epochs * epoch <= self.max_trial_seconds

        return accept

    # What KerasTuner calls.

    def _populate_initial_space(self) -> None:
        if isinstance(self.hypermodel, SparseCNN):
            hp = self.oracle.get_space()
            self.hypermodel.declare_hyperparameters(hp)
            self.oracle.update_space(hp)
        else:
            super()._populate_initial_space()
            # Before what earlier trials have declared is added.
            self._initial_space = space_of(self.oracle.hyperparameters)
        if Project(self.project_dir).trial_ids() and not self._is_worker():
            self.oracle.reload()  # even if the process died before KerasTuner's own files

    def reload(self) -> None:
        """Continues an earlier search."""
        self._populate_initial_space()

    def save(self) -> None:
        """KerasTuner's own files; whole or not at all."""
        if not self._is_worker():
            self.oracle.save()
        write_json(self._get_tuner_fname(), self.get_state())


def _default_objectives(hypermodel: Any, budget: Budget) -> tuple[str, ...]:
    is_structured = getattr(hypermodel, "pruning", None) == "structured"
    needs_ram = is_structured or budget.ram is not None
    return ("val_error", "model_size", *(("working_memory",) if needs_ram else ()))


def _check_initial(oracle: SparseOracle, space: Space, seed: int) -> None:
    """Completes known good values of a user's own space."""
    for number, values in enumerate(oracle.initial_configurations):
        unknown = sorted(set(values) - set(space.parameters))
        if unknown:
            raise ValueError(
                "initial_configurations must have hyperparameters of the model. "
                f"Received: {unknown}"
            )
        complete = space.complete(values, np.random.default_rng((seed, number)))
        space.check(complete)
        oracle.initial_configurations[number] = complete

"""SparseTuner: the search, as a KerasTuner `Tuner`."""

import contextlib
import hashlib
import io
import json
import math
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import keras
import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.errors import FailedTrialError
from keras_tuner.src.distribute.utils import has_chief_oracle

from keras_sparse import strip
from keras_sparse.files import write_bytes, write_json
from keras_sparse.footprint import model_sizes
from keras_sparse.footprint import working_memory as memory

from . import answers
from .answers import TrialRecord
from .budget import Budget
from .cost import CostModel
from .domain import CNNDomain
from .goals import goals_of
from .hypermodel import SparseCNN
from .inherit import inherit
from .keras_space import space_of
from .oracle import SparseOracle
from .parameters import Configuration, Space
from .posterior import Posterior
from .progress import EpochProgress, Progress
from .project import Outcome, Project, TrialProposal, read_json
from .proposer import Stage
from .reading import records_of
from .schedule import schedule_of
from .training import Training, checked
from .trial import Blueprint, Reference, fit, run
from .workers import PatientClient, silence_conditions

FORMAT = 1
"""Of the project folder; a folder of another format is not continued."""

_SIZES = {"model_size": "nonzeros", "working_memory": "working_memory", "macs": "macs"}
_LONGEST_TRIAL = 600.0


class SparseTuner(keras_tuner.Tuner):
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
        initial_configurations: Known good values to try first.
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
        self._progress: Progress | None = None
        self._is_idle = False
        self._heartbeat: threading.Event | None = None
        about = _about(hypermodel, [goal.name for goal in goals], working_memory, seed)
        if model_size != "values":
            about["model_size"] = model_size
        project = Project(Path(directory) / project_name)
        if not overwrite:
            _check_same(project, about)
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
            about["hypermodel"] = _fingerprint(self._initial_space)
            _check_same(project, about)
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
            seconds: After so many no trial is started; those that run are finished.
            verbose: 0 for silence.
        """
        training = Training(
            x, y, validation_data, epochs, batch_size, tuple(callbacks), augment, class_weight,
            sample_weight, folds,
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
            epoch = self.cost_model.epoch_seconds(graph, training.batch_size, examples)
            return folds * epochs * epoch <= self.max_trial_seconds

        return accept

    def run_trial(self, trial: Trial, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Trains, prunes and measures one configuration; writes its files."""
        training: Training = kwargs["training"]
        proposal = self._proposal(trial)
        records = self.trials()
        assert self._progress is not None  # noqa: S101  (search has set it)
        self._progress.started(trial.trial_id, proposal.stage, self._ended(records))
        try:
            front = [r.metrics for r in answers.front_of(records, self.blueprint.goals)]
            outcome, posterior = self._train(trial, proposal, training, front)
            self._check_metrics(outcome.metrics)
        except keras_tuner.errors.FatalError:
            raise
        except Exception as error:
            raise FailedTrialError(
                "".join(traceback.format_exception_only(error)).strip()
            ) from error
        if self.project.read_outcome(trial.trial_id) is None:  # else another worker was faster
            self.project.write_posterior(trial.trial_id, posterior)
            self.project.write_outcome(trial.trial_id, outcome)
        values = [goal.value(outcome.metrics) for goal in self.blueprint.goals]
        return {**outcome.metrics, "multi_objective": float(sum(values))}

    def _try_run_and_update_trial(self, trial: Trial, *args: Any, **kwargs: Any) -> None:
        # KerasTuner's own would print the traceback of every failure.
        try:
            self._run_and_update_trial(trial, *args, **kwargs)
            trial.status = TrialStatus.COMPLETED
        except FailedTrialError as error:
            trial.status, trial.message = TrialStatus.FAILED, str(error)
            if self.project.read_outcome(trial.trial_id) is None:
                self.project.write_outcome(trial.trial_id, Outcome({}, str(error)))
        finally:
            if self._heartbeat is not None:
                self._heartbeat.set()

    def _train(
        self,
        trial: Trial,
        proposal: TrialProposal,
        training: Training,
        front: list[dict[str, float]],
    ) -> tuple[Outcome, Posterior]:
        return run(
            self.blueprint,
            proposal.configuration,
            trial.hyperparameters,
            training,
            reference=self._reference(proposal),
            front=front,
            seed=self._trial_seed(trial),
            callbacks=lambda fold: self._callbacks(trial, training, fold),
        )

    def _check_metrics(self, metrics: dict[str, float]) -> None:
        for goal in self.blueprint.goals:
            if goal.name not in metrics:
                raise keras_tuner.errors.FatalValueError(
                    f"The objective {goal.name!r} needs a model that is compiled with "
                    f"metrics=['accuracy']. Received: a model with {sorted(metrics)}"
                )
            if not math.isfinite(metrics[goal.name]):
                raise ValueError(f"{goal.name} is {metrics[goal.name]}")

    def _proposal(self, trial: Trial) -> TrialProposal:
        proposal = self.project.read_proposal(trial.trial_id)
        if proposal is None:
            raise keras_tuner.errors.FatalValueError(
                f"The folder {self.project.folder} must be the same for all workers: it has no "
                f"proposal of trial {trial.trial_id}."
            )
        return proposal

    def _reference(self, proposal: TrialProposal) -> Reference | None:
        if proposal.reference is None:
            return None
        posterior = self.project.read_posterior(proposal.reference)
        parent = self.project.read_proposal(proposal.reference)
        if posterior is None or parent is None:
            return None
        return Reference(parent.configuration, posterior)

    def _trial_seed(self, trial: Trial) -> int:
        state = np.random.SeedSequence((self.seed, int(trial.trial_id))).generate_state(1)
        return int(state[0] % 2**31)

    def _callbacks(
        self, trial: Trial, training: Training, fold: int
    ) -> list[keras.callbacks.Callback]:
        assert self._progress is not None  # noqa: S101
        callbacks = self._deepcopy_callbacks(list(training.callbacks))
        self._configure_tensorboard_dir(callbacks, trial, fold)
        return [*callbacks, EpochProgress(self._progress)]

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

    def on_trial_begin(self, trial: Trial) -> None:
        """Tells the chief from now on that this worker lives."""
        super().on_trial_begin(trial)
        self._is_idle = False
        if self._is_worker():
            self._heartbeat = threading.Event()
            threading.Thread(
                target=self._beat, args=(trial.trial_id, self._heartbeat), daemon=True
            ).start()

    def _beat(self, trial_id: str, ended: threading.Event) -> None:
        while not ended.is_set():
            try:
                self.oracle.update_trial(trial_id, {})
            except grpc.RpcError:
                return  # the chief has ended the search
            ended.wait(min(self.lease_seconds / 4, 30.0))

    def on_trial_end(self, trial: Trial) -> None:
        """Reports and shows the result."""
        super().on_trial_end(trial)
        if self._progress is not None:
            self._progress.ended(trial.trial_id, self._ended(self.trials()))

    def pre_create_trial(self) -> None:
        """A worker for which there is nothing to do asks once a second."""
        if self._is_idle:
            threading.Event().wait(1.0)
        self._is_idle = True

    def load_model(self, trial: Trial) -> keras.Model:
        """The stripped model of a trial."""
        return strip(self.load_sparse_model(trial.trial_id))

    def load_sparse_model(self, trial_id: str) -> keras.Model:
        """The trained model of a trial with its sparse layers, compiled."""
        proposal = self.project.read_proposal(trial_id)
        posterior = self.project.read_posterior(trial_id)
        if proposal is None or posterior is None:
            raise ValueError(f"trial must be one that has completed. Received: {trial_id!r}")
        outcome = self.project.read_outcome(trial_id)
        configuration = {**proposal.configuration, **(outcome.more if outcome else {})}
        keras.backend.clear_session()  # layers without a name get the names that they had
        hp = self._own_oracle.get_space()
        hp.values = dict(configuration)
        model = self.blueprint.build(configuration, hp, self.seed)
        sources = self.blueprint.sources(configuration)
        inherited = inherit(model, posterior, sources, sources)
        if inherited.part or inherited.fresh:
            raise ValueError(
                "The hypermodel must build what it built in the search. Received: other layers "
                f"{[*inherited.part, *inherited.fresh]}"
            )
        return model

    # Answers.

    def trials(self) -> list[TrialRecord]:
        """All trials, in the order of their numbers."""
        return records_of(self.project)

    def _ended(self, records: list[TrialRecord]) -> list[TrialRecord]:
        return [record for record in records if record.status != "running"]

    def pareto_front(self) -> list[TrialRecord]:
        """The trials that no other beats in all objectives, the most accurate first."""
        return answers.front_of(self.trials(), self.blueprint.goals)

    def results_summary(self, num_trials: int = 10) -> None:
        """Prints the front, the most accurate within the budget marked."""
        print(answers.summary_of(self.trials(), self.blueprint.goals, self.limits, num_trials))
        if self.rejected_share:
            print(
                f"{self.rejected_share:.0%} of the configurations considered would have trained "
                f"longer than {self.max_trial_seconds:.0f} s and were not proposed"
            )

    @property
    def rejected_share(self) -> float:
        """Share of the considered configurations that would have taken too long to train."""
        last = self.project.read_proposal((self.project.trial_ids() or [""])[-1])
        state = {} if last is None else last.state
        return float(state.get("rejected", 0) / max(state.get("considered", 0), 1))

    def table(self) -> list[dict[str, Any]]:
        """One flat row per trial: parameters, metrics, lineage."""
        return answers.table_of(self.trials(), self.blueprint.goals)

    def save_table(self, path: str | Path) -> None:
        """Writes the table as a CSV file."""
        write_bytes(path, answers.csv_of(self.table()).encode())

    def hypervolumes(self) -> list[float]:
        """The hypervolume of the front after each trial, from 0 to 1."""
        return answers.hypervolumes(self._ended(self.trials()), self.blueprint.goals)

    def lineage(self, trial: str | TrialRecord) -> list[TrialRecord]:
        """A trial, its reference, the reference of that, and so on."""
        trial_id = trial if isinstance(trial, str) else trial.trial_id
        return answers.lineage_of(self.trials(), trial_id)

    def dominating(
        self, points: Sequence[tuple[float, float]], size: str = "nonzeros"
    ) -> list[TrialRecord | None]:
        """For each published (accuracy, size) the best trial that is as accurate and as small."""
        return answers.dominating(self.trials(), points, size)

    def finetune(
        self,
        trial: str | TrialRecord,
        x: Any,
        y: Any = None,
        *,
        validation_data: Any,
        epochs: int = 30,
        batch_size: int = 128,
        learning_rate: float = 1e-3,
        augment: Callable[[Any], Any] | None = None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
    ) -> tuple[keras.Model, dict[str, float]]:
        """Trains a member of the front for longer, the learning rate falling to 0.

        Args:
            trial: Which one.
            x: Training images, or a batched data set.
            y: Class numbers.
            validation_data: (x, y) or a batched data set.
            epochs: To train, the KL term at full weight.
            batch_size: Examples of a step.
            learning_rate: At the start.
            augment: As in `search`.
            callbacks: As in `fit`.

        Returns:
            The stripped model and its metrics.
        """
        trial_id = trial if isinstance(trial, str) else trial.trial_id
        training = Training(x, y, validation_data, epochs, batch_size, tuple(callbacks), augment)
        training = checked(training)
        model = self.load_sparse_model(trial_id)
        steps = epochs * training.steps
        model.optimizer.learning_rate = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        proposal = self.project.read_proposal(trial_id)
        configuration = {} if proposal is None else proposal.configuration
        plan = schedule_of(configuration, epochs, inherits=True)._replace(epochs=epochs)
        history = fit(model, plan, training, self.seed, callbacks)
        metrics = {name: float(values[-1]) for name, values in history.items()}
        metrics = {**metrics, **self.blueprint.measured(model)}
        return strip(model), metrics


def _default_objectives(hypermodel: Any, budget: Budget) -> tuple[str, ...]:
    is_structured = getattr(hypermodel, "pruning", None) == "structured"
    needs_ram = is_structured or budget.ram is not None
    return ("val_error", "model_size", *(("working_memory",) if needs_ram else ()))


def _about(
    hypermodel: Any, objectives: list[str], working_memory: Any, seed: int
) -> dict[str, Any]:
    """What a search is about: two with the same answer can continue each other."""
    about: dict[str, Any] = {
        "format": FORMAT,
        "objectives": objectives,
        "working_memory": memory.name_of(memory.get(working_memory)),
        "seed": seed,
    }
    if isinstance(hypermodel, SparseCNN):
        about["hypermodel"] = {
            "input_shape": list(hypermodel.input_shape),
            "num_classes": hypermodel.num_classes,
            "pruning": hypermodel.pruning,
            "space": hypermodel.space_name,
            "parameters": _fingerprint(hypermodel.space),
        }
    return about


def _fingerprint(space: Space) -> str:
    text = json.dumps([repr(parameter) for parameter in space])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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


def _check_same(project: Project, about: dict[str, Any]) -> None:
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

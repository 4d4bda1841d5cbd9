"""The part of the tuner that answers: the front, tables, trained models."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import keras_tuner
from keras_tuner.engine.trial import Trial

from keras_sparse import Trimming, strip
from keras_sparse.counting import sparse_layers
from keras_sparse.files import write_bytes
from keras_sparse.layers.spvd import SpVDMixin

from . import answers
from .answers import TrialRecord
from .goals import Limit
from .inherit import inherit
from .oracle import SparseOracle
from .project import Project
from .reading import records_of
from .schedule import schedule_of
from .training import Training, checked
from .trial import Blueprint, fit


class SearchResults(keras_tuner.Tuner):
    """What a search has found, from the files of its trials.

    Attributes:
        project: The folder of the search.
        blueprint: Makes and measures its networks.
        limits: The user's budget.
        max_trial_seconds: Configurations that would train longer are not proposed.
        seed: Of everything that is random.
    """

    project: Project
    blueprint: Blueprint
    limits: tuple[Limit, ...]
    max_trial_seconds: float
    seed: int
    _own_oracle: SparseOracle

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

    # Trained models.

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
        trimming: Trimming | None = None,
    ) -> tuple[keras.Model, dict[str, float]]:
        """Trains a member of the front for longer, the learning rate falling to 0.

        With `trimming=Trimming(flash="2KB")` the plain network trains, without noise and KL term,
        and ends within those limits, wherever the search had ended. Of single weights those
        pruned take part again; feature maps that were removed do not come back.

        Args:
            trial: Which one.
            x: Training images, or a batched data set.
            y: Class numbers.
            validation_data: (x, y) or a batched data set.
            epochs: To train; without trimming the KL term has its full weight.
            batch_size: Examples of a step.
            learning_rate: At the start.
            augment: As in `search`.
            callbacks: As in `fit`.
            trimming: The size that is wanted; None for what the thresholds leave.

        Returns:
            The stripped model and its metrics.
        """
        trial_id = trial if isinstance(trial, str) else trial.trial_id
        training = Training(x, y, validation_data, epochs, batch_size, tuple(callbacks), augment)
        training = checked(training)
        model = self.load_sparse_model(trial_id)
        if trimming is not None:
            model = _plain(model)
            callbacks = [*callbacks, trimming]
        steps = epochs * training.steps
        model.optimizer.learning_rate = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        proposal = self.project.read_proposal(trial_id)
        configuration = {} if proposal is None else proposal.configuration
        plan = schedule_of(configuration, epochs, inherits=True)._replace(epochs=epochs)
        history = fit(model, plan, training, self.seed, callbacks)
        metrics = {name: float(values[-1]) for name, values in history.items()}
        # A callback may have restored the weights of another epoch.
        pair = training.validation if isinstance(training.validation, tuple) else (validation_data,)
        given = dict(zip(("x", "y", "sample_weight"), pair, strict=False))
        found = model.evaluate(**given, return_dict=True, verbose=0)
        metrics |= {f"val_{name}": float(value) for name, value in found.items()}
        return strip(model), {**metrics, **self.blueprint.measured(model)}


def _plain(model: keras.Model) -> keras.Model:
    """The stripped model, compiled in the same way; no single weight of it is zero yet."""
    for layer in sparse_layers(model):
        if isinstance(layer, SpVDMixin):
            layer.threshold = math.inf
    small = strip(model)
    # What was given to `compile` itself: a loss of one's own cannot be made from its name.
    given = dict(model._compile_config.config)
    optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    small.compile(**{**given, "optimizer": optimizer})
    return small

"""An oracle whose trials survive their workers: leases, and a lock that no error leaves held."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras_tuner
import numpy as np
from keras_tuner.engine.trial import Trial, TrialStatus
from keras_tuner.src.engine.oracle import LOCKS, THREADS


class LeasingOracle(keras_tuner.Oracle):
    """KerasTuner's oracle; a trial whose worker is gone goes to the next one.

    Args:
        lease_seconds: A worker that was not heard of for so long is gone.
        **kwargs: As in KerasTuner.
    """

    def __init__(self, *, lease_seconds: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lease_seconds = lease_seconds
        self._heard_of: dict[str, float] = {}
        self._beating: set[str] = set()  # workers that give signs of life; KerasTuner's own do not

    def lease(self, tuner_id: str) -> None:
        """A worker that gives signs of life was heard of."""
        self._heard_of[tuner_id] = time.monotonic()
        self._beating.add(tuner_id)

    def create_trial(self, tuner_id: str) -> Trial:
        """As in KerasTuner; a trial whose worker is gone goes to the next one that asks."""
        with releases_lock_on_error(self):
            self._heard_of[tuner_id] = time.monotonic()
            self._take_back_expired()
            is_full = self.max_trials is not None and len(self.trials) >= self.max_trials
            others = [i for i in self.ongoing_trials if i != tuner_id]
            if is_full and others and not self._retry_queue and tuner_id not in self.ongoing_trials:
                # Not yet the end: the trial of a worker that dies now must go to this one.
                self.tuner_ids.add(tuner_id)
                return Trial(self.get_space(), trial_id="", status=TrialStatus.IDLE)
            return super().create_trial(tuner_id)

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """As in KerasTuner; without metrics a sign of life of the trial's worker."""
        with releases_lock_on_error(self):
            for tuner_id, trial in self.ongoing_trials.items():
                if trial.trial_id == trial_id:
                    self.lease(tuner_id)
            if not metrics or trial_id in self.end_order:
                return self.trials[trial_id]
            return super().update_trial(trial_id, metrics, step)

    def end_trial(self, trial: Trial) -> None:
        """As in KerasTuner; of a trial that two workers ran the first result counts."""
        with releases_lock_on_error(self):
            if trial.trial_id not in self.trials or trial.trial_id in self.end_order:
                for tuner_id, ongoing in list(self.ongoing_trials.items()):
                    if ongoing.trial_id == trial.trial_id:
                        self.ongoing_trials.pop(tuner_id)
                return
            if trial.trial_id in self._retry_queue:
                self._retry_queue.remove(trial.trial_id)
            super().end_trial(trial)

    @property
    def tuner_ids(self) -> set[str]:
        """The workers of which was heard lately; the chief ends when there is none left."""
        limit = time.monotonic() - self.lease_seconds
        gone = {i for i in self._tuner_ids if self._heard_of.get(i, np.inf) < limit}
        self._tuner_ids -= gone
        return self._tuner_ids

    @tuner_ids.setter
    def tuner_ids(self, ids: set[str]) -> None:
        self._tuner_ids = set(ids)

    def _take_back_expired(self) -> None:
        limit = time.monotonic() - self.lease_seconds
        for tuner_id in list(self.ongoing_trials):
            if tuner_id in self._beating and self._heard_of.get(tuner_id, 0.0) < limit:
                self._retry_queue.append(self.ongoing_trials.pop(tuner_id).trial_id)


@contextmanager
def releases_lock_on_error(oracle: LeasingOracle) -> Iterator[None]:
    """KerasTuner's lock stays held after an exception; other threads would wait for ever."""
    try:
        yield
    except BaseException:
        if LOCKS[oracle].locked():
            THREADS[oracle] = None
            LOCKS[oracle].release()
        raise

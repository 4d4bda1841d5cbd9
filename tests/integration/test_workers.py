"""A chief and two workers as real processes."""

import collections
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.tuner.searches import computed


class Cluster:
    """Starts processes of one search and ends them all at the end of a test."""

    def __init__(self, folder, port, trials, seconds):
        self.folder, self.trials = folder, trials
        self.environment = {
            **os.environ,
            "KERASTUNER_ORACLE_IP": "127.0.0.1",
            "KERASTUNER_ORACLE_PORT": str(port),
            "SECONDS_PER_TRIAL": str(seconds),
            "LEASE_SECONDS": "8",
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        self.processes = {}

    def start(self, name):
        command = [sys.executable, "-m", "tests.tuner.searches", str(self.folder), str(self.trials)]
        environment = {**self.environment, "KERASTUNER_TUNER_ID": name}
        self.processes[name] = subprocess.Popen(command, env=environment)

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes.pop(name).wait()

    def runs(self):
        """The (trial, worker) pairs that were begun."""
        file = self.folder / "search" / "runs.txt"
        if not file.is_file():
            return []
        rows = [line.split() for line in file.read_text().splitlines()]
        return [(int(number), worker) for number, worker in rows]

    def wait_for(self, condition, seconds=240):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "the search stands still"
            time.sleep(0.1)

    def finish(self, seconds=300):
        for name, process in self.processes.items():
            assert process.wait(seconds) == 0, name


@pytest.fixture
def cluster(tmp_path):
    made = []

    def make(**kwargs):
        from keras_sparse.tuner.workers import _free_port

        made.append(Cluster(tmp_path, _free_port(), **kwargs))
        return made[-1]

    yield make
    for process in made[0].processes.values():
        if process.poll() is None:
            process.kill()
            process.wait()


def check(cluster):
    trials = computed(cluster.folder, cluster.trials).trials()
    assert [t.status for t in trials].count("running") == 0
    assert len(trials) == cluster.trials
    for trial in trials:
        if trial.reference is not None and trial.metrics:
            assert trial.metrics["inherited_from"] == int(trial.reference)
    return trials


@pytest.mark.slow
def test_two_workers_try_every_trial_once_and_inherit_from_each_other(cluster):
    search = cluster(trials=24, seconds=0.5)
    for name in ("chief", "worker1", "worker2"):
        search.start(name)
    search.finish()
    trials = check(search)
    runs = search.runs()
    assert sorted(number for number, _ in runs) == list(range(24))
    worker = dict(runs)
    assert set(worker.values()) == {"worker1", "worker2"}
    across = [t for t in trials if t.reference and worker[t.number] != worker[int(t.reference)]]
    assert across


@pytest.mark.slow
def test_the_trial_of_a_killed_worker_is_taken_up(cluster):
    search = cluster(trials=8, seconds=3.0)
    for name in ("chief", "worker1", "worker2"):
        search.start(name)
    search.wait_for(lambda: any(worker == "worker1" for _, worker in search.runs()))
    search.kill("worker1")
    lost = [number for number, worker in search.runs() if worker == "worker1"][-1]
    search.finish()
    check(search)
    assert (lost, "worker2") in search.runs()
    counts = collections.Counter(number for number, _ in search.runs())
    assert [number for number, count in counts.items() if count > 1] == [lost]


@pytest.mark.slow
def test_a_restarted_chief_goes_on(cluster):
    search = cluster(trials=10, seconds=1.5)
    for name in ("chief", "worker1", "worker2"):
        search.start(name)
    search.wait_for(lambda: len(search.runs()) >= 4)
    search.kill("chief")
    search.start("chief")
    search.finish()
    check(search)

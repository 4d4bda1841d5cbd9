"""A search that is killed at random instants, again and again, ends as if it had not been."""

import multiprocessing
import os
import random
import signal
import time
from typing import NamedTuple

import pytest

from tests.tuner.searches import computed, search

TRIALS = 14


def run(folder):
    # A child of a fork: it need not import TensorFlow again, and dies a real death.
    search(computed(folder, TRIALS, initial_points=11))


def start(folder):
    child = multiprocessing.get_context("fork").Process(target=run, args=(folder,))
    child.start()
    return child


class Undisturbed(NamedTuple):
    """What a search that nobody kills finds, and how long it runs here, in seconds."""

    trials: list
    seconds: float


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    begin = time.monotonic()
    child = start(folder)
    child.join()
    assert child.exitcode == 0
    seconds = time.monotonic() - begin
    return Undisturbed(computed(folder, TRIALS, initial_points=11).trials(), seconds)


def kill_until_done(folder, kills, seconds, seed):
    """Kills the search up to `kills` times, each within `seconds` of its start; says how often."""
    chance, done = random.Random(seed), 0
    results = {}
    while True:
        child = start(folder)
        if done < kills:
            child.join(chance.uniform(0.0, seconds))
        else:
            child.join()
        if child.exitcode is not None:
            assert child.exitcode == 0
            return done
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        done += 1
        for path, content in results.items():
            assert path.read_bytes() == content  # what was found stays
        results = {path: path.read_bytes() for path in folder.glob("search/trial_*/result.json")}


def kill_searches(folder, undisturbed, wanted):
    """Kills searches until `wanted` kills have hit; each must end as the undisturbed one."""
    kills, searches = 0, 0
    while kills < wanted:
        # On a slow machine one search could take all the kills.
        most = min(wanted - kills, 40)
        # Short lives, so that every search dies several times on quick machines too.
        seconds = 0.5 * undisturbed.seconds
        kills += kill_until_done(folder / str(searches), most, seconds, seed=searches)
        trials = computed(folder / str(searches), TRIALS, initial_points=11).trials()
        assert trials == undisturbed.trials
        assert len(trials) == TRIALS
        searches += 1
        assert searches <= wanted, "the kills come too late to hit a running search"


def test_a_few_kills_change_nothing(tmp_path, undisturbed):
    kill_searches(tmp_path, undisturbed, 5)


@pytest.mark.slow
def test_a_hundred_kills_change_nothing(tmp_path, undisturbed):
    kill_searches(tmp_path, undisturbed, 100)

import json

import numpy as np
import pytest
from keras_sparse.tuner.domain import CNNDomain, SpaceDomain, stepped
from keras_sparse.tuner.hypermodel import SparseCNN
from keras_sparse.tuner.parameters import Parameter, Space
from keras_sparse.tuner.pareto import hypervolume, non_dominated
from keras_sparse.tuner.proposer import Proposer, Result
from keras_sparse.tuner.stages import Stage, default_stages
from threadpoolctl import threadpool_info

from keras_sparse import measure

# ZDT1 whose variables are gated by an integer; what is inactive counts as 0.
SPACE = Space(
    [
        Parameter("x0", low=0.0, high=1.0),
        Parameter("n", low=1, high=5, step=1),
        *(
            Parameter(f"x{i}", low=0.0, high=1.0, conditions=({"n": tuple(range(i, 6))},))
            for i in range(1, 6)
        ),
    ]
)
REFERENCE = np.array([11.0, 11.0])


def zdt1(c):
    g = 1 + 9 * sum(c.get(f"x{i}", 0.0) for i in range(1, 6)) / 5
    return c["x0"], g * (1 - np.sqrt(c["x0"] / g))


STAGES = (Stage(25, 0.9), Stage(25, 0.95, pareto_only=True))


def proposer(seed=0, stages=STAGES, **kwargs):
    return Proposer(SpaceDomain(SPACE, 2), 2, stages, seed=seed, **kwargs)


def search(make, count, values=zdt1):
    results, proposals = [], []
    for _ in range(count):
        proposal = make.propose(results)
        proposals.append(proposal)
        results.append(Result(proposal.configuration, values(proposal.configuration)))
    return results, proposals


def volume(results):
    return hypervolume(np.array([zdt1(r.configuration) for r in results]), REFERENCE)


def test_finds_more_than_random_search_and_learns_from_the_results():
    ours, random, shuffled = [], [], []
    for seed in range(2):
        ours.append(volume(search(proposer(seed), 45)[0]))
        random.append(volume(search(proposer(seed, [Stage(45, 0.0)]), 45)[0]))
        # With results that belong to other configurations there is nothing to learn.
        others = iter([SPACE.sample(np.random.default_rng((seed, 1000 + i))) for i in range(45)])
        noise = search(proposer(seed), 45, lambda c, others=others: zdt1(next(others)))[0]
        shuffled.append(volume(noise))
    assert np.mean(ours) > np.mean(random)
    assert np.mean(ours) > np.mean(shuffled)


def test_a_budget_keeps_the_search_to_its_region():
    # A small part of the front, and far more room beyond it.
    limits = np.array([0.3, 0.7])

    def inside(seed, **kwargs):
        results, _ = search(proposer(seed, **kwargs), 35)
        values = np.array([result.objectives for result in results])
        return int((values <= limits).all(axis=1).sum()), hypervolume(values, limits)

    within, without = inside(0, limits=limits), inside(0)
    assert within[0] > 1.5 * without[0]
    assert within[1] > without[1]


def test_a_resumed_search_proposes_the_same():
    whole, _ = search(proposer(3), 24)
    first = proposer(3)
    results, _ = search(first, 16)
    state = json.loads(json.dumps(first.get_state()))
    second = proposer(3)
    second.set_state(state)
    for _ in range(8):
        configuration = second.propose(results).configuration
        results.append(Result(configuration, zdt1(configuration)))
    assert results == whole


def test_references_belong_to_the_stage():
    results, proposals = search(proposer(1), 45)
    assert [p.stage for p in proposals] == [1] * 25 + [2] * 20
    morphs = 0
    for number, proposal in enumerate(proposals):
        if proposal.reference is None:
            continue
        morphs += 1
        assert proposal.reference < number
        if proposal.stage == 2:
            values = np.array([r.objectives for r in results[:number]])
            assert non_dominated(values)[proposal.reference]
    assert morphs > 20


def test_nothing_is_tried_twice_and_failures_are_survived():
    space = Space([Parameter("a", low=1, high=6, step=1), Parameter("b", (False, True))])
    make = Proposer(SpaceDomain(space, 2), 2, [Stage(12, 0.8)], initial=3, seed=0)
    results = []
    for number in range(12):
        configuration = make.propose(results).configuration
        failed = number % 3 == 0
        value = (float(configuration["a"]), float(configuration["b"]))
        results.append(Result(configuration, None if failed else value))
    assert len({tuple(r.configuration.items()) for r in results}) == 12


def test_configurations_that_are_being_tried_are_not_proposed_again():
    make = proposer(5)
    results, _ = search(make, 15)
    pending = []
    for _ in range(4):
        pending.append(make.propose(results, pending).configuration)
    assert len({json.dumps(c, sort_keys=True) for c in pending}) == 4


def test_stage_2_changes_pruning_parameters_only():
    model = SparseCNN((12, 12, 1), 3, ranges={"num-filters": (1, 8)})
    domain = CNNDomain(model, ("", "nonzeros"))
    stages = [Stage(12, 0.0), Stage(10, 1.0, pruning_only=True)]
    make = Proposer(domain, 2, stages, seed=0)
    rng = np.random.default_rng(0)
    results = []
    for _ in range(18):
        proposal = make.propose(results)
        if proposal.stage == 2:
            old = results[proposal.reference].configuration
            new = proposal.configuration
            assert set(old) == set(new)
            changed = {name for name in old if old[name] != new[name]}
            assert changed and all(c == "alpha" or c.startswith("pruning-thr") for c in changed)
        size = domain.known(proposal.configuration)[1] - rng.uniform(1, 3)
        results.append(Result(proposal.configuration, (rng.random(), size)))


def test_sizes_before_pruning_are_known():
    model = SparseCNN((12, 12, 1), 3)
    domain = CNNDomain(model, ("", "nonzeros", "working_memory"))
    configuration = model.sample(np.random.default_rng(0))
    error, size, memory = domain.known(configuration)
    parameters = sum(op.parameters for op in model.graph(configuration).operators)
    assert error == 0 and size == pytest.approx(np.log(parameters)) and memory > 0
    assert domain.vectors([configuration]).shape == (1, len(domain.column_groups))


def test_known_sizes_are_those_that_are_measured():
    model, rng = SparseCNN((12, 12, 3), 3), np.random.default_rng(1)
    for memory in ("inputs+weights", "inputs+outputs", "live"):
        domain = CNNDomain(model, ("nonzeros", "working_memory", "macs"), memory)
        for _ in range(10):
            configuration = model.sample(rng)
            measured = measure(model.graph(configuration), working_memory=memory)
            sizes = [measured.nonzeros, measured.working_memory, measured.macs]
            np.testing.assert_allclose(np.exp(domain.known(configuration)), sizes)


def test_a_proposal_leaves_the_threads_of_linear_algebra_as_they_were():
    before = threadpool_info()
    make = proposer(2)
    search(make, 12)
    assert threadpool_info() == before


def test_steps_stay_in_the_range_and_change_the_value():
    rng = np.random.default_rng(0)
    for parameter in (
        Parameter("n", low=1, high=9, step=2),
        Parameter("n", low=1, high=1000, step=1, log=True),
        Parameter("n", low=0.0, high=0.5),
        Parameter("n", ("a", "b")),
    ):
        for _ in range(200):
            value = parameter.sample(rng)
            assert parameter.contains(stepped(parameter, value, rng))


def test_default_stages_cover_all_trials():
    for trials in (1, 5, 20, 101):
        assert sum(stage.trials for stage in default_stages(trials)) == trials

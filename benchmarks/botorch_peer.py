"""BoTorch's qLogNParEGO on our problems: all parameters in a unit cube, active or not."""

import math

import numpy as np
import torch
from botorch.acquisition.multi_objective.parego import qLogNParEGO
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import SumMarginalLogLikelihood
from keras_sparse.tuner.parameters import Configuration, Parameter, Space, Value

from benchmarks.problems import Evaluations, Problem

INITIAL = 10


def decoded(space: Space, point: np.ndarray) -> Configuration:
    """The configuration at a point of the unit cube; inactive parameters are left out."""
    configuration: Configuration = {}
    for parameter, share in zip(space, point, strict=True):
        if parameter.is_active(configuration):
            configuration[parameter.name] = _value(parameter, float(share))
    return configuration


def _value(parameter: Parameter, share: float) -> Value:
    if parameter.values:
        return parameter.values[min(int(share * len(parameter.values)), len(parameter.values) - 1)]
    low, high = parameter.low, parameter.high
    if parameter.log:
        return parameter.nearest(math.exp(math.log(low) + share * math.log(high / low)))
    return parameter.nearest(low + share * (high - low))


def parego(problem: Problem, count: int, seed: int) -> list[tuple[float, ...]]:
    """As BoTorch's tutorial has it: a Gaussian process per objective, one new point at a time."""
    torch.manual_seed(seed)
    dimensions = len(problem.space)
    cube = torch.stack([torch.zeros(dimensions), torch.ones(dimensions)]).double()
    x = torch.quasirandom.SobolEngine(dimensions, scramble=True, seed=seed).draw(INITIAL).double()
    evaluate = Evaluations(problem, count)
    values = [evaluate(decoded(problem.space, row)) for row in x.numpy()]
    while not evaluate.is_over:
        y = -torch.tensor(values, dtype=torch.double)  # BoTorch maximises
        models = [
            SingleTaskGP(x, y[:, k : k + 1], outcome_transform=Standardize(1))
            for k in range(y.shape[1])
        ]
        model = ModelListGP(*models)
        fit_gpytorch_mll(SumMarginalLogLikelihood(model.likelihood, model))
        found, _ = optimize_acqf(qLogNParEGO(model, x), cube, q=1, num_restarts=4, raw_samples=128)
        x = torch.cat([x, found.detach()])
        values.append(evaluate(decoded(problem.space, found.detach().numpy()[0])))
    return evaluate.values

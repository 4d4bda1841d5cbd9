"""A Gaussian process over embedded configurations: what an objective will probably be.

scikit-optimize's regressor does the inference. The hyperparameters are found here, because its own
search needs minutes at 300 trials: columns that mean the same share a length scale, distances
within each group are computed once, the search starts where the last one ended, looks at a subset
of the results and runs only when there are a tenth more of them than the last time.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern

_SUBSET = 120
"""Results that the search for hyperparameters looks at."""

_ROOT5 = np.sqrt(5.0)
_JITTER = 1e-8
_NOISE_BOUNDS = (np.log(1e-6), np.log(0.5))
_AMPLITUDE_BOUNDS = (np.log(0.05), np.log(20.0))
_LENGTH_BOUNDS = (np.log(0.05), np.log(200.0))


class Surrogate:
    """A Gaussian process with a Matérn 5/2 kernel, one length scale per group of columns.

    Args:
        column_groups: For each column the number of its group, from 0; shape (columns,).
    """

    def __init__(self, column_groups: np.ndarray) -> None:
        self.column_groups = np.asarray(column_groups, int)
        self.group_count = int(self.column_groups.max()) + 1
        # The prior of length scales grows with the dimension (Hvarfner et al., 2024): without it
        # a process in many dimensions believes that nothing tells it anything about anything.
        self._length_prior = np.sqrt(2.0) + 0.5 * np.log(self.group_count)
        self.theta = np.array([0.0, np.log(1e-2), *[self._length_prior] * self.group_count])
        self.fitted_at = 0

    def get_state(self) -> dict[str, Any]:
        """What a resumed search needs to go on the same; JSON types."""
        return {"theta": self.theta.tolist(), "fitted_at": self.fitted_at}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from `get_state`."""
        self.theta = np.array(state["theta"], float)
        self.fitted_at = int(state["fitted_at"])

    def fit(self, x: np.ndarray, y: np.ndarray, *, tune: bool = True) -> None:
        """Learns from results.

        Args:
            x: Embedded configurations, shape (results, columns).
            y: The objective, shape (results,), finite.
            tune: Whether the hyperparameters may be found anew.
        """
        x, y = np.asarray(x, float), np.asarray(y, float)
        self._mean, self._deviation = float(y.mean()), max(float(y.std()), 1e-9)
        targets = (y - self._mean) / self._deviation
        if tune and len(y) >= max(5, 1.1 * self.fitted_at):
            chosen = _subset(targets)
            self.theta = self._most_likely(x[chosen], targets[chosen])
            self.fitted_at = len(y)
        amplitude, noise = np.exp(self.theta[:2])
        kernel = ConstantKernel(amplitude, "fixed") * Matern(1.0, "fixed", nu=2.5)
        self._process = GaussianProcessRegressor(kernel, alpha=noise + _JITTER, optimizer=None)
        self._process.fit(self._scaled(x), targets)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation at embedded configurations, each of shape (rows,)."""
        mean, deviation = self._process.predict(self._scaled(x), return_std=True)
        return mean * self._deviation + self._mean, deviation * self._deviation

    def sample(
        self,
        x: np.ndarray,
        rng: np.random.Generator,
        given: np.ndarray | None = None,
        spread: float = 1.0,
    ) -> np.ndarray:
        """One function drawn from the posterior, at embedded configurations; shape (rows,).

        Args:
            x: Embedded configurations, shape (rows, columns).
            rng: Source of randomness.
            given: Values of the function at the first rows, from an earlier draw: the same function
                is then drawn further.
            spread: Share of the posterior's deviation that draws have.
        """
        mean, covariance = self._process.predict(self._scaled(x), return_cov=True)
        covariance *= spread**2
        if given is not None:
            fixed = (given - self._mean) / self._deviation
            return np.concatenate([given, self._conditioned(mean, covariance, fixed, rng)])
        return self._drawn(mean, covariance, rng)

    def _conditioned(
        self,
        mean: np.ndarray,
        covariance: np.ndarray,
        fixed: np.ndarray,
        rng: np.random.Generator,
    ) -> np.ndarray:
        count = len(fixed)
        block = covariance[:count, :count]
        block = block + 1e-6 * max(float(np.trace(block)) / count, 1e-8) * np.eye(count)
        gain = np.linalg.solve(block, covariance[:count, count:]).T
        mean = mean[count:] + gain @ (fixed - mean[:count])
        return self._drawn(
            mean, covariance[count:, count:] - gain @ covariance[:count, count:], rng
        )

    def _drawn(
        self, mean: np.ndarray, covariance: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        size = len(mean)
        if not size:
            return mean
        jitter = 1e-8 * max(float(np.trace(covariance)) / size, 1e-8)
        while True:
            try:
                root = np.linalg.cholesky(covariance + jitter * np.eye(size))
                break
            except np.linalg.LinAlgError:
                jitter *= 10
        drawn = mean + root @ rng.standard_normal(size)
        return np.asarray(drawn * self._deviation + self._mean)

    def covariance(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Prior covariance of the objective at two sets of embedded configurations."""
        return np.asarray(self._process.kernel_(self._scaled(a), self._scaled(b)))

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x, float) / np.exp(self.theta[2:])[self.column_groups]

    def _most_likely(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The most probable log (amplitude, noise, length scales), from the last ones on."""
        distances = np.stack(
            [
                cdist(x[:, self.column_groups == g], x[:, self.column_groups == g], "sqeuclidean")
                for g in range(self.group_count)
            ]
        )
        bounds = [_AMPLITUDE_BOUNDS, _NOISE_BOUNDS, *[_LENGTH_BOUNDS] * self.group_count]
        result = minimize(
            self._loss,
            self.theta,
            (distances, y),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 25},
        )
        return np.asarray(result.x)

    def _loss(
        self, theta: np.ndarray, distances: np.ndarray, y: np.ndarray
    ) -> tuple[float, np.ndarray]:
        """Negative log posterior of the hyperparameters and its gradient."""
        amplitude, noise = np.exp(theta[:2])
        inverse = np.exp(-2.0 * theta[2:])
        squared = np.tensordot(inverse, distances, axes=1)
        distance = np.sqrt(squared)
        decay = np.exp(-_ROOT5 * distance)
        matern = (1.0 + _ROOT5 * distance + 5.0 / 3.0 * squared) * decay
        covariance = amplitude * matern + (noise + _JITTER) * np.eye(len(y))
        try:
            factor = cho_factor(covariance, lower=True)
        except np.linalg.LinAlgError:
            return 1e25, np.zeros_like(theta)
        alpha = cho_solve(factor, y)
        loss = 0.5 * y @ alpha + np.log(np.diag(factor[0])).sum()
        # dL/dθ = ½ tr((K⁻¹ − αα') dK/dθ)
        weight = 0.5 * (cho_solve(factor, np.eye(len(y))) - np.outer(alpha, alpha))
        slope = amplitude * 5.0 / 3.0 * (1.0 + _ROOT5 * distance) * decay
        gradient = np.empty_like(theta)
        gradient[0] = amplitude * np.sum(weight * matern)
        gradient[1] = noise * np.trace(weight)
        gradient[2:] = inverse * np.tensordot(distances, weight * slope, axes=([1, 2], [0, 1]))
        # Priors: length scales log-normal, noise and amplitude weakly towards 1e-2 and 1.
        off = (theta[2:] - self._length_prior) / 3.0
        loss += 0.5 * np.sum((theta[2:] - self._length_prior) * off)
        gradient[2:] += off
        for i, centre in ((0, 0.0), (1, np.log(1e-2))):
            loss += 0.5 * (theta[i] - centre) ** 2 / 4.0
            gradient[i] += (theta[i] - centre) / 4.0
        return float(loss), gradient


def _subset(y: np.ndarray) -> np.ndarray:
    """Which results the hyperparameters are fitted to: the best, and the rest evenly."""
    if len(y) <= _SUBSET:
        return np.arange(len(y))
    order = np.argsort(y, kind="stable")
    best, rest = order[: _SUBSET // 2], order[_SUBSET // 2 :]
    evenly = rest[np.linspace(0, len(rest) - 1, _SUBSET - len(best)).astype(int)]
    return np.sort(np.concatenate([best, evenly]))

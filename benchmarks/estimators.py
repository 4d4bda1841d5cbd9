"""Whether the cheap noise and the cheap estimators train as well as fresh normals.

    python -m benchmarks.estimators --method spvd

The same small network is trained on part of MNIST with the same seeds by four ways to draw noise:
`fresh` is TensorFlow's generator with a normal for every activation, the others are the layers' own
estimators. Accuracy is that on the validation set. A run that was stopped goes on where it was.
Results: benchmarks/results/estimators.json.
"""

import argparse
import json
from typing import Any

import keras
import numpy as np

import benchmarks.fresh  # noqa: F401  (registers the estimator)
from benchmarks.layer_speed import small
from benchmarks.record import RESULTS, environment
from keras_sparse import KLAnnealing, datasets, sparsity, strip
from keras_sparse.files import write_json
from keras_sparse.layers import BCConv2D, BCDense, SpVDConv2D, SpVDDense
from keras_sparse.scoring import accuracy

LAYERS = {"spvd": (SpVDConv2D, SpVDDense), "bc": (BCConv2D, BCDense)}
VARIANTS = ("fresh", "local", "mirrored", "auto")
BATCH = 128


def train(
    method: str, variant: str, seed: int, epochs: int, data: datasets.Dataset
) -> dict[str, Any]:
    """Trains once; returns validation accuracy and size of the stripped network."""
    keras.utils.set_random_seed(seed)
    # BC needs more steps than this to lift its variances from e⁻⁹.
    start = {"log_variance_initializer": -6.0} if method == "bc" else {}

    def bound(layer: Any) -> Any:
        return lambda *args, **kwargs: layer(*args, **start, estimator=variant, **kwargs)

    model = small(*map(bound, LAYERS[method]))
    steps = epochs * (len(data.x_train) // BATCH)
    model.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(3e-3, steps)),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    # So short a training prunes few groups at the weight of 1.
    weight = 4.0 if method == "bc" else 1.0
    annealing = KLAnnealing(len(data.x_train), epochs // 6, epochs // 3, weight)
    model.fit(
        data.x_train,
        data.y_train,
        batch_size=BATCH,
        epochs=epochs,
        verbose=0,
        callbacks=[annealing],
    )
    stripped = strip(model)
    return {
        "seed": seed,
        "val_accuracy": round(accuracy(stripped, data.x_val, data.y_val), 4),
        "nonzeros": sparsity(stripped).total.nonzeros,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--method", choices=LAYERS, default="spvd")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--examples", type=int, default=12_800)
    arguments = parser.parse_args()
    data = datasets.load("mnist")
    data = data._replace(
        x_train=data.x_train[: arguments.examples], y_train=data.y_train[: arguments.examples]
    )
    file = RESULTS / "estimators.json"
    results = json.loads(file.read_text()) if file.is_file() else {}
    settings = {"epochs": arguments.epochs, "examples": len(data.x_train), "batch": BATCH}
    known = results.get(arguments.method, {})
    is_same = all(known.get(key) == value for key, value in settings.items())
    runs: dict[str, list[dict[str, Any]]] = (
        known["runs"] if is_same else {variant: [] for variant in VARIANTS}
    )
    for seed in range(arguments.seeds):
        for variant in VARIANTS:
            if any(row["seed"] == seed for row in runs[variant]):
                continue  # done before the benchmark was stopped
            runs[variant].append(train(arguments.method, variant, seed, arguments.epochs, data))
            print(arguments.method, variant, runs[variant][-1], flush=True)
            results[arguments.method] = {
                **settings,
                "summary": summary(runs),
                "runs": runs,
                "environment": environment(),
            }
            write_json(file, results)
    print(json.dumps(summary(runs), indent=1))


def summary(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds."""
    return {
        variant: {
            key: {
                "mean": round(float(np.mean([row[key] for row in rows])), 4),
                "deviation": round(float(np.std([row[key] for row in rows], ddof=1)), 4)
                if len(rows) > 1
                else None,
            }
            for key in ("val_accuracy", "nonzeros")
        }
        for variant, rows in runs.items()
        if rows
    }


if __name__ == "__main__":
    main()

import numpy as np
import pytest
from keras_sparse.tuner import SparseCNN, SparseTuner

from keras_sparse.deploy.c.estimating import streamed_ram, table_bytes
from keras_sparse.footprint import read

from .searches import MODEL


def small_space() -> SparseCNN:
    return SparseCNN(**MODEL, ranges={"num-filters": (1, 4), "total-fc-layer-weights": (50, 200)})


def test_a_search_optimises_what_the_generated_c_takes(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(32, 8, 8, 1)).astype("float32"), np.arange(32) % 4
    tuner = SparseTuner(
        small_space(),
        ("val_error", "model_size", "working_memory"),
        max_trials=1,
        working_memory="streamed-c",
        model_size="c-flash",
        directory=tmp_path,
        seed=2,
    )
    tuner.search(x, y, validation_data=(x, y), epochs=1, verbose=0)
    (trial,) = tuner.pareto_front()
    graph = read(tuner.get_best_models()[0])
    assert trial.metrics["working_memory"] == streamed_ram(graph, 8)[0]
    assert trial.metrics["model_size"] == table_bytes(graph, 8)


def test_an_unknown_model_of_size_is_refused(tmp_path):
    with pytest.raises(ValueError, match="model_size must be one of"):
        SparseTuner(small_space(), model_size="zip", directory=tmp_path)

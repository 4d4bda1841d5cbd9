import numpy as np
import pytest

from keras_sparse.deploy.c.encoding import FORMATS, decoded, encoded, smallest
from keras_sparse.footprint.encodings import encodings


def sparse(shape: tuple[int, ...], density: float, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.integers(-127, 128, shape)
    return np.where(rng.random(shape) < density, values, 0).astype(np.int8)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("density", [0.0, 0.003, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 1000])
def test_what_is_encoded_is_decoded(name: str, density: float, size: int) -> None:
    for seed in range(3):
        values = sparse((size,), density, seed)
        np.testing.assert_array_equal(decoded(encoded(values, name)), values)


@pytest.mark.parametrize("density", [0.02, 0.1, 0.4, 1.0])
def test_the_smallest_is_chosen(density: float) -> None:
    values = sparse((900,), density)
    sizes = [len(encoded(values, name).content) for name in FORMATS]
    assert len(smallest(values).content) == min(sizes)


@pytest.mark.parametrize("density", [0.05, 0.2, 0.5])
def test_bytes_agree_with_those_that_measure_counts(density: float) -> None:
    kernel = sparse((3, 3, 8, 16), density)
    kernel[-1, -1, -1, -1] = 1  # the count leaves out zeros behind the last weight
    counted = {encoding.name: encoding.bytes for encoding in encodings(kernel, 8)}
    stream = kernel.transpose(3, 0, 1, 2).ravel()
    assert len(encoded(stream, "dense").content) == counted["dense"]
    assert len(encoded(stream, "bitmap").content) == counted["bitmap"]
    assert 0 <= len(encoded(stream, "runs").content) - counted["runs"] <= 1

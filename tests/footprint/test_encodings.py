"""Bytes of the sparse formats against writing the formats out."""

import numpy as np
import pytest

from keras_sparse.footprint.encodings import encodings, smallest


def written(values: np.ndarray) -> dict[str, int]:
    """Every format really written, one byte per value, column by column."""
    matrix = values.reshape(-1, values.shape[-1])
    rows, columns = matrix.shape
    flat = matrix.T.ravel()
    nonzeros = [v for v in flat if v]
    sizes = {"dense": len(flat), "bitmap": -(-len(flat) // 8) + len(nonzeros)}

    stored, gap = [], 0
    for value in flat:
        if value or gap == 15:
            # A sixteenth zero in a row is stored; one at the very end is not needed.
            stored.append((gap, value))
            gap = 0
        else:
            gap += 1
    while stored and not stored[-1][1]:
        stored.pop()
    sizes["runs"] = -(-len(stored) // 2) + len(stored)

    options = []
    for lists, other in ((matrix.T, rows), (matrix, columns)):
        if other <= 256:
            counts = [np.count_nonzero(line) for line in lists]
            head = 1 if max(counts, default=0) < 256 else 2
            options.append(sum(head + 2 * count for count in counts))
    if options:
        sizes["lists"] = min(options)
    start, index = (2 if n <= 65_536 else 4 for n in (len(nonzeros) + 1, rows))
    sizes["csr"] = start * (columns + 1) + (index + 1) * len(nonzeros)
    return sizes


@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.8, 0.95, 0.995, 1.0])
@pytest.mark.parametrize("shape", [(3, 3, 4, 8), (64, 256), (300, 5), (300, 400), (5, 5, 7, 1)])
def test_sizes_are_those_of_the_written_formats(shape, sparsity):
    rng = np.random.default_rng(int(100 * sparsity) + len(shape))
    values = rng.integers(1, 100, shape) * (rng.random(shape) >= sparsity)
    expected = written(values)
    assert {e.name: e.bytes for e in encodings(values, 8)} == expected
    assert smallest(values, 8).bytes == min(expected.values())


def test_each_format_is_the_smallest_somewhere():
    rng = np.random.default_rng(0)
    chosen = set()
    for shape in ((64, 256), (16, 64), (9, 16), (400, 300)):
        for sparsity in (0.0, 0.3, 0.8, 0.9, 0.95, 0.98, 0.995, 0.999):
            chosen.add(smallest(rng.random(shape) * (rng.random(shape) >= sparsity), 8).name)
    assert chosen == {"dense", "bitmap", "runs", "lists", "csr"}


@pytest.mark.parametrize("bits, expected", [(4, 50), (8, 100), (32, 400)])
def test_bits_of_a_value_scale_the_dense_bytes(bits, expected):
    assert smallest(np.ones((10, 10)), bits) == ("dense", expected)


def test_a_bias_is_dense_or_a_bitmap():
    assert [e.name for e in encodings(np.zeros(10), 8)] == ["dense", "bitmap"]

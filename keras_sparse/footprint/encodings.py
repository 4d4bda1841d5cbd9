"""How many bytes an array of weights takes in flash, dense or sparse, indices included.

A kernel counts as a matrix with a row per input (height × width × channels) and a column per
output. No format wins everywhere, so `smallest` chooses for each array.
"""

import math
from typing import NamedTuple

import numpy as np

_RUN_LIMIT = 15


class Encoding(NamedTuple):
    """A way to store one array: its name and all bytes it takes."""

    name: str
    bytes: int


def smallest(values: np.ndarray, bits: int) -> Encoding:
    """The format of fewest bytes for `values`; in a tie the simpler one.

    Args:
        values: A kernel or bias.
        bits: Bits of one value.
    """
    return min(encodings(values, bits), key=lambda encoding: encoding.bytes)


def encodings(values: np.ndarray, bits: int) -> list[Encoding]:
    """Bytes of `values` in every format that can hold them; arguments as in `smallest`.

    * dense: all values.
    * bitmap: a bit for every position, and the non-zero values.
    * runs: a value and four bits for the number of zeros before it; a longer run of zeros stores
      zeros in between.
    * lists: for each row (or column, the smaller) the number of its non-zeros in a byte, and an
      index of 8 bits with every value; for matrices whose other side is at most 256.
    * csr: for each column where it starts and an index with every value, 16 bits each (32 where a
      side needs it).
    """
    nonzero = values.reshape(-1, values.shape[-1]) != 0
    rows, columns = nonzero.shape
    count = int(np.count_nonzero(nonzero))
    result = [
        Encoding("dense", dense_bytes(values.size, bits)),
        Encoding("bitmap", math.ceil(values.size / 8) + dense_bytes(count, bits)),
    ]
    if values.ndim == 1:
        return result
    stored = _stored_with_runs(nonzero.T.ravel())
    result.append(Encoding("runs", math.ceil(stored / 2) + dense_bytes(stored, bits)))
    lists = [
        _list_heads(nonzero, axis) for axis, other in ((0, rows), (1, columns)) if other <= 256
    ]
    if lists:
        result.append(Encoding("lists", min(lists) + count + dense_bytes(count, bits)))
    start, index = (2 if limit <= 65_536 else 4 for limit in (count + 1, rows))
    csr = start * (columns + 1) + index * count + dense_bytes(count, bits)
    return [*result, Encoding("csr", csr)]


def dense_bytes(count: int, bits: int) -> int:
    """Bytes of `count` values of `bits` bits, packed."""
    return math.ceil(count * bits / 8)


def _stored_with_runs(nonzero: np.ndarray) -> int:
    """Entries of run-length coding: the non-zeros, and zeros in longer runs."""
    positions = np.flatnonzero(nonzero)
    zeros_before = np.diff(positions, prepend=-1) - 1
    return int(len(positions) + np.sum(zeros_before // (_RUN_LIMIT + 1)))


def _list_heads(nonzero: np.ndarray, axis: int) -> int:
    """Bytes of the numbers of non-zeros, one for each slice across `axis`."""
    counts = np.count_nonzero(nonzero, axis=axis)
    return len(counts) * (1 if counts.max(initial=0) < 256 else 2)

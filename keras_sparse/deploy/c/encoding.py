"""Weights as bytes in flash: per tensor the smallest of four formats, decoded as they are read.

A stream holds the values of a tensor in the order in which the device uses them. What tells where
the values are (a byte of bits, of runs) stands right before them, so that one pointer reads all:

* dense: every value.
* bitmap: for every 8 positions a byte, its lowest bit first, and the values whose bit is set.
* runs: for every two stored values a byte with two times 4 bits, low ones first: how many zeros
  come before; then the two values. A longer run of zeros stores a zero in between.
* bytes: the same with a byte per value.

The bytes of dense, bitmap and runs are those that `keras_sparse.footprint` counts, plus one at most
that ends a stream of runs.
"""

from typing import NamedTuple

import numpy as np


class Stream(NamedTuple):
    """Encoded weights.

    Attributes:
        name: Of the format.
        content: The bytes.
        size: Number of weights.
        nonzeros: How many of them are not zero.
    """

    name: str
    content: bytes
    size: int
    nonzeros: int


FORMATS = ("dense", "bitmap", "runs", "bytes")


def smallest(values: np.ndarray, only: str | None = None) -> Stream:
    """The stream of fewest bytes for int8 `values`, shape (n,); in a tie the simpler one.

    Args:
        values: In the order of use.
        only: Name of a format that is to be used whatever its size.
    """
    names = FORMATS if only is None else (only,)
    return min((encoded(values, name) for name in names), key=lambda s: len(s.content))


def encoded(values: np.ndarray, name: str) -> Stream:
    """int8 `values`, shape (n,), in the format of that name."""
    values = np.asarray(values, np.int8).ravel()
    encoder = {
        "dense": lambda v: v.tobytes(),
        "bitmap": _bitmap,
        "runs": lambda v: _runs(v, 15),
        "bytes": lambda v: _runs(v, 255),
    }[name]
    return Stream(name, encoder(values), values.size, int(np.count_nonzero(values)))


def _bitmap(values: np.ndarray) -> bytes:
    result = bytearray()
    bits = np.packbits(values != 0, bitorder="little").tobytes()
    for group, byte in enumerate(bits):
        part = values[8 * group : 8 * group + 8]
        result.append(byte)
        result += part[part != 0].tobytes()
    return bytes(result)


def _runs(values: np.ndarray, limit: int) -> bytes:
    entries: list[tuple[int, int]] = []
    zeros = 0
    for value in values.tolist():
        if value or zeros == limit:
            entries.append((zeros, value & 255))
            zeros = 0
        else:
            zeros += 1
    # The device reads one run ahead: the last one says that nothing follows.
    result = bytearray()
    if limit == 255:
        for run, value in entries:
            result += bytes((run, value))
        return bytes(result) + b"\xff"
    for i in range(0, len(entries), 2):
        (run, value), *rest = entries[i : i + 2]
        result += bytes((run | (rest[0][0] if rest else limit) << 4, value))
        result += bytes(value for _, value in rest)
    return bytes(result) if len(entries) % 2 else bytes(result) + b"\xff"


def decoded(stream: Stream) -> np.ndarray:
    """The int8 values of a stream, as the device reads them."""
    content = np.frombuffer(stream.content, np.int8)
    result = np.zeros(stream.size, np.int8)
    if stream.name == "dense":
        return content.copy()
    if stream.name == "bitmap":
        place = 0
        for group in range(-(-stream.size // 8)):
            mask = int(content[place]) & 255
            place += 1
            for bit in range(8):
                if mask >> bit & 1:
                    result[8 * group + bit] = content[place]
                    place += 1
        return result
    position, place, entry, byte = 0, 0, 0, 0
    while True:
        if stream.name == "bytes" or entry % 2 == 0:
            byte = int(content[place]) & 255
            place += 1
            run = byte if stream.name == "bytes" else byte & 15
        else:
            run = byte >> 4
        entry += 1
        position += run
        if position >= stream.size:
            return result
        result[position] = content[place]
        position += 1
        place += 1

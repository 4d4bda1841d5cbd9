"""Arguments that are sizes."""

import pytest

from keras_sparse.checking import to_bytes


@pytest.mark.parametrize(
    "size, expected",
    [(2048, 2048), ("2KB", 2048), ("2 kB", 2048), ("1.5KB", 1536), ("512", 512), ("1MB", 1 << 20)],
)
def test_sizes_are_understood(size, expected):
    assert to_bytes("ram", size) == expected

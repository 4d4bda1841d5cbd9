"""The fixed-point arithmetic of TFLite Micro, bit for bit: factors, and rounding twice."""

import math

import numpy as np

from .operators import Rescale


def fixed_point(factor: float) -> tuple[int, int]:
    """A factor as a Q31 number and a power of two (negative: a shift to the right)."""
    if factor == 0.0:
        return 0, 0
    fraction, shift = math.frexp(factor)
    number = math.floor(abs(fraction) * 2**31 + 0.5)
    if number == 2**31:
        number //= 2
        shift += 1
    return (0, 0) if shift < -31 else (number, shift)


def mean_factor(factor: float, count: int) -> tuple[int, int]:
    """`fixed_point` of a factor that also divides by `count`, as TFLite Micro's MEAN rounds it."""
    number, shift = fixed_point(factor)
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (number << extra) // count, shift - extra


def multiplied(x: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Gives x · multiplier · 2^(shift − 31), rounded after the multiplication and after the shift.

    Args:
        x: int64 values within 32 bits; channels last.
        multiplier: Q31, broadcast to `x`.
        shift: Powers of two, broadcast to `x`.
    """
    shift = np.asarray(shift, np.int64)
    right = np.maximum(-shift, 0)
    shifted = ((x << np.maximum(shift, 0)) + 2**31) % 2**32 - 2**31  # 32 bits, as on the device
    high = (shifted * np.asarray(multiplier, np.int64) + (1 << 30)) >> 31
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    return (high + half - ((high < 0) & (right > 0))) >> right


def rescaled(sums: np.ndarray, rescale: Rescale) -> np.ndarray:
    """Sums as int8; channels last."""
    values = multiplied(sums, rescale.multiplier, rescale.shift) + rescale.zero_point
    return np.clip(values, rescale.low, rescale.high).astype(np.int8)

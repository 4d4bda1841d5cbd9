"""Arguments that are numbers, or sizes."""

import numbers
import re
from typing import Any

_UNITS = {"": 1, "B": 1, "KB": 1024, "KIB": 1024, "MB": 1024**2, "MIB": 1024**2}


def check_number(name: str, value: Any, *, whole: bool, minimum: int) -> None:
    """Raises in one sentence unless `value` is a number of at least `minimum`.

    Args:
        name: Of the argument, for the message.
        value: What the user gave.
        whole: Whether it must be a whole number.
        minimum: The least.
    """
    kind = numbers.Integral if whole else numbers.Real
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or not float(value) >= minimum:
        noun = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {noun} of at least {minimum}. Received: {name}={value!r}")


def to_bytes(name: str, size: int | str | None) -> int | None:
    """A number of bytes from an int or a text such as "2KB"; None stays None.

    Args:
        name: Of the argument, for the message.
        size: What the user gave.
    """
    if size is None:
        return None
    value: float | None = None
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", size)
        if match and match[2].upper() in _UNITS:
            value = float(match[1]) * _UNITS[match[2].upper()]
    elif isinstance(size, numbers.Real) and not isinstance(size, bool):
        value = float(size)
    if value is None or not value >= 1:
        raise ValueError(
            f'{name} must be a positive number of bytes or a text such as "2KB". '
            f"Received: {name}={size!r}"
        )
    return int(value)

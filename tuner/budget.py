"""What a user can afford: bytes of RAM and flash, and the accuracy below which it is no use."""

import numbers
import re
from typing import NamedTuple

_UNITS = {"": 1, "B": 1, "KB": 1024, "KIB": 1024, "MB": 1024**2, "MIB": 1024**2}


class Budget(NamedTuple):
    """Limits that a found network should keep.

    Attributes:
        ram: Bytes of working memory, or a text such as "2KB" (1 KB = 1024 B); None for no limit.
        flash: Bytes of model size, likewise.
        accuracy: Validation accuracy, 0 to 1, below which a network is of no interest; None for no
            limit.
    """

    ram: int | str | None = None
    flash: int | str | None = None
    accuracy: float | None = None

    def checked(self) -> "Budget":
        """The same in bytes; raises in one sentence where a value makes no sense."""
        accuracy = self.accuracy
        if accuracy is not None:
            is_number = isinstance(accuracy, numbers.Real) and not isinstance(accuracy, bool)
            if not is_number or not 0 < accuracy < 1:
                raise ValueError(
                    f"accuracy must be a number between 0 and 1. Received: accuracy={accuracy!r}"
                )
        return Budget(to_bytes("ram", self.ram), to_bytes("flash", self.flash), accuracy)

    def check_reachable(self, ram: int, flash: int) -> None:
        """Raises if the budget is below what any network takes.

        Args:
            ram: Bytes of working memory that every network needs.
            flash: Bytes of model size that every network needs.
        """
        for name, most, least in (("ram", self.ram, ram), ("flash", self.flash, flash)):
            if most is not None and int(most) < least:
                raise ValueError(
                    f"budget.{name} must be at least {least} bytes, the least that a network of "
                    f"this space can take. Received: {name}={most}"
                )


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

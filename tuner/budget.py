"""What a user can afford: bytes of RAM and flash, and the accuracy below which it is no use."""

import numbers
from typing import NamedTuple

from keras_sparse.checking import to_bytes


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

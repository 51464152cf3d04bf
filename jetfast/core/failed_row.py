"""The failure of a function of the user on one row of a batch."""

from typing import Any


class FailedRow(Exception):
    """Raised from the function's own error.

    number : of the row in its batch, from 0 on
    row : its columns
    """

    def __init__(self, number: int, row: dict[str, Any]) -> None:
        super().__init__(number, row)
        self.number = number
        self.row = row

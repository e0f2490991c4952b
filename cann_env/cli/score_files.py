"""The CSV file of a comparison: rows go to a file beside it, which takes its name when all are there."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from cann_env.cli.scores import row_of
from cann_env.units import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from cann_env.cli.scores import Score


def partial_path(path: Path) -> Path:
    """Where the rows of an unfinished comparison lie: the file's name with ``.partial`` behind it."""
    return path.with_name(path.name + ".partial")


@contextmanager
def csv_rows(path: Path | None) -> Iterator[Callable[[Sequence[Score]], None]]:
    """Write rows as they come; what is given appends some.

    If the block ends with an error, or is interrupted, the rows so far stay in :func:`partial_path` and
    nothing is written to ``path``.

    Args:
        path: The file; None for none.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        yield lambda _: None
        return
    part = partial_path(path)
    try:
        file = part.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise InputError(f"file {str(part)!r} cannot be written: {error.strerror}") from error
    rows = _Rows(file)
    try:
        with file:
            yield rows
    except BaseException:
        if rows.empty:
            part.unlink()
        raise
    part.replace(path)


class _Rows:
    """Appends scores, under a header that comes with the first.

    Attributes:
        empty: Nothing was appended yet.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._writer = csv.writer(file)
        self.empty = True

    def __call__(self, scores: Sequence[Score]) -> None:
        for score in scores:
            row = row_of(score)
            if self.empty:
                self._writer.writerow(row)
                self.empty = False
            self._writer.writerow(row.values())
        self._file.flush()

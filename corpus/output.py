"""A shard in the making: its lines written aside, and what is noted of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from corpus.folder import MAX_EXAMPLES, Tally
from corpus.formats.table import ShardWriter, open_writer
from corpus.line import FINE, OutputRow, Window
from corpus.plan import Shard, ShardPlan
from engine.api import InvalidRequest


class ShardOutput:
    """A file that is not yet named as the shard's output is."""

    def __init__(self, plan: ShardPlan, shard: Shard, aside: Path) -> None:
        self._job, self._file = plan.job, plan.files[shard.file]
        self.aside, self.tally = aside, Tally()
        self._writer: ShardWriter | None = None

    def open(self) -> None:
        """Make the file. Raises OSError."""
        self._writer = open_writer(self._job, self._file, self.aside)

    def write(self, window: Window, rows: Sequence[OutputRow]) -> None:
        """Write the lines of a window, but for those that the job drops.

        Raises OSError, and InvalidRequest at a line that is not fine, where the job stops at errors.
        """
        assert self._writer
        for number, row in enumerate(rows, window.first + 1):
            self._note(number, row)
        kept = [None if self._job.errors == "drop" and row.status not in FINE else row for row in rows]
        self._writer.write(window, kept)
        self.tally.lines += len(rows)
        self.tally.rows += sum(row is not None for row in kept)

    def close(self) -> None:
        """Write all that is left. Raises OSError."""
        assert self._writer
        self._writer.close()

    def discard(self) -> None:
        """Leave nothing behind."""
        if self._writer:
            with suppress(OSError):  # the disk is full, and what was to be written is not wanted
                self._writer.close()
        self.aside.unlink(missing_ok=True)

    def _note(self, number: int, row: OutputRow) -> None:
        tally = self.tally
        tally.statuses[row.status] = tally.statuses.get(row.status, 0) + 1
        tally.words += row.words
        if row.status in FINE:
            return
        if self._job.errors == "stop":
            raise InvalidRequest(f"{self._file.path}, line {number}: {row.status}: {row.reason}")
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append((number, row.status, row.reason))

"""The unfinished output of a shard, and its counts."""

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
    """The output of a shard before the file gets its final name."""

    def __init__(self, plan: ShardPlan, shard: Shard, draft: Path) -> None:
        self._job, self._file = plan.job, plan.files[shard.file]
        self.draft, self.tally = draft, Tally()
        self._writer: ShardWriter | None = None

    def open(self) -> None:
        """Create the file. Raises OSError."""
        self._writer = open_writer(self._job, self._file, self.draft)

    def write(self, window: Window, rows: Sequence[OutputRow]) -> None:
        """Write the lines of a window, except lines that the job drops.

        Raises OSError, and InvalidRequest at a bad line if the job stops at errors.
        """
        assert self._writer
        for number, row in enumerate(rows, window.first + 1):
            self._count(number, row)
        kept = [None if self._job.errors == "drop" and row.status not in FINE else row for row in rows]
        self._writer.write(window, kept)
        self.tally.lines += len(rows)
        self.tally.rows += sum(row is not None for row in kept)

    def close(self) -> None:
        """Write buffered bytes and close the file. Raises OSError."""
        assert self._writer
        self._writer.close()

    def discard(self) -> None:
        """Close and remove the file."""
        if self._writer:
            with suppress(OSError):  # a full disk: the buffered bytes are not needed
                self._writer.close()
        self.draft.unlink(missing_ok=True)

    def _count(self, number: int, row: OutputRow) -> None:
        """Count a row in the tally; raise InvalidRequest on a bad row if the job stops at errors."""
        tally = self.tally
        tally.statuses[row.status] = tally.statuses.get(row.status, 0) + 1
        tally.words += row.words
        if row.model:
            tally.models[row.model] = tally.models.get(row.model, 0) + 1
        if row.status in FINE:
            return
        if self._job.errors == "stop":
            raise InvalidRequest(f"{self._file.path}, line {number}: {row.status}: {row.reason}")
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append((number, row.status, row.reason))

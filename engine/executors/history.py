"""Decoder state of hypotheses. A step adds one column [beams, dim] to each state of a slot: a ring keeps the
newest columns, a cache keeps all.

State is never permuted when beams change places: small integer arrays name the beam that wrote each column.
All arrays are of one namespace (numpy, or torch by array_api_compat).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from engine.bundle.specs import StateSpec
from engine.search.state import take

# caches have a multiple of this many columns, so that sums over them are bit-equal for any length
COLUMN_MULTIPLE: Final = 32


class SlotPast(NamedTuple):
    """State of the active slots before a step, with the fields of `engine.models.model.Past`."""

    rings: dict[str, Any]
    rows: dict[int, Any]
    caches: dict[str, Any]
    lineage: Any


class History:
    """All decoder state of one lane."""

    def __init__(
        self, specs: Sequence[StateSpec], slots: int, beams: int, xp: Any, device: Any, dtype: Any
    ) -> None:
        lane = slots, beams, xp, device, dtype
        self.rings = Rings([s for s in specs if not s.heads], *lane)
        cached = [s for s in specs if s.heads]
        self.caches = Caches(cached, *lane) if cached else None

    def advance(
        self,
        parents: Any,
        positions: Any,
        columns: int | None = None,
        *,
        rings_advanced: bool = False,
        caches_advanced: bool = False,
    ) -> SlotPast:
        """Advance to the next step, and return the state that it reads.

        parents: int64 [n, beams], beam of the same slot that each hypothesis continues.
        positions: int64 [n, 1], position of the step.
        columns: number of columns of the caches, if the caller has reserved them (`Caches.reserve`); by
            default as many as the longest hypothesis needs.
        rings_advanced: a kernel has advanced the rings already.
        caches_advanced: a kernel advances the caches, and the caller adds their lineage.
        """
        n = parents.shape[0]
        rings, rows = self.rings.view(n)
        if not rings_advanced:
            self.rings.advance(parents)
        if self.caches is None:
            return SlotPast(rings, rows, {}, None)
        columns = columns or self.caches.fit(n)
        lineage = None if caches_advanced else self.caches.advance(parents, positions, columns)
        return SlotPast(rings, rows, self.caches.view(n, columns), lineage)

    def write(self, columns: dict[str, Any], positions: Any) -> None:
        """Store this step's column [n, beams, dim] of each state; enlarge the caches if necessary."""
        if self.caches is not None:
            self.caches.grow(positions.shape[0])
        self.store(columns, positions)

    def store(self, columns: dict[str, Any], positions: Any, *, rings_advanced: bool = False) -> None:
        """Store this step's columns; the caches must have room.

        columns: column [n, beams, dim] of each state, without those that a kernel has written.
        positions: int64 [n, 1], position of the step.
        rings_advanced: a kernel advances the clock of the rings later.
        """
        ring_columns = {name: column for name, column in columns.items() if name in self.rings.rings}
        self.rings.write(ring_columns, rings_advanced=rings_advanced)
        if self.caches is not None:
            self.caches.write(columns, positions)

    def clear(self, slot: int) -> None:
        """Fill a slot with zeros, the padding before a first token."""
        self.rings.clear(slot)
        if self.caches is not None:
            self.caches.clear(slot)

    def move(self, source: Any, target: Any) -> None:
        """Copy slots over other slots, each an int or an int64 array on the device (`Memory.move`)."""
        self.rings.move(source, target)
        if self.caches is not None:
            self.caches.move(source, target)


class Rings:
    """The last columns of each state with a fixed window.

    All slots of a lane share one clock. At clock c each layer writes column c mod window, whatever the step
    of a slot; a slot that was placed later reads zeros for the time before.

    clock: an int, or int64 [1] on the device for captured steps.
    exact: names of the states that are always float32.
    rings: states [slots, window, beams, dim], by name.
    windows: window sizes, ascending.
    ancestors: int64 [slots, beams, longest window]; the last entry is the slot-local beam that held this
        hypothesis one step ago, the entry before it two steps ago, and so on.
    rows: int64 [slots, beams, window] by window: rows of ring.flatten(0, 2) to read, oldest first. These
        arrays are never replaced.
    """

    def __init__(
        self, specs: Sequence[StateSpec], slots: int, beams: int, xp: Any, device: Any, dtype: Any
    ) -> None:
        self.clock: Any = 0
        self.exact = {s.name for s in specs if s.exact}
        self.rings = {
            s.name: xp.zeros(
                (slots, s.window, beams, s.dim), dtype=xp.float32 if s.exact else dtype, device=device
            )
            for s in specs
        }
        self.windows = sorted({s.window for s in specs})
        longest = max(self.windows, default=1)
        self.ancestors = xp.zeros((slots, beams, longest), dtype=xp.int64, device=device)
        self.rows = {w: xp.zeros((slots, beams, w), dtype=xp.int64, device=device) for w in self.windows}
        self._slot = xp.arange(slots, dtype=xp.int64, device=device)[:, None]
        # by window: first row of each slot in ring.flatten(0, 2), and from there the first row of each
        # column, oldest first, at each value of clock % window
        self._bases = {w: self._slot[:, :, None] * (w * beams) for w in self.windows}
        ages = {w: xp.arange(w, dtype=xp.int64, device=device) for w in self.windows}
        self._columns = {w: (age[:, None] + age) % w * beams for w, age in ages.items()}
        self._views: dict[int, tuple[dict[str, Any], dict[int, Any]]] = {}

    def advance(self, parents: Any) -> dict[int, Any]:
        """Update `ancestors` and `rows` of the first n slots, whose hypotheses continue the beams `parents`
        [n, beams]. Return views of these rows."""
        n, longest = parents.shape[0], self.ancestors.shape[2]
        if longest > 1:  # a hypothesis inherits the ancestors of its parent, one step older
            self.ancestors[:n, :, :-1] = take(self._slot[:n], self.ancestors[:n, :, 1:], parents)
        self.ancestors[:n, :, -1] = parents
        _, views = self.view(n)
        for w, rows in views.items():
            offsets = self._bases[w][:n] + self._columns[w][self.clock % w]
            rows[...] = self.ancestors[:n, :, longest - w :] + offsets
        return views

    def view(self, n: int) -> tuple[dict[str, Any], dict[int, Any]]:
        """Return the rings and rows of the first n slots. Calls with an equal n return the same objects, so
        that bindings to them stay valid."""
        if n not in self._views:
            rings = {name: ring[:n] for name, ring in self.rings.items()}
            self._views[n] = rings, {w: rows[:n] for w, rows in self.rows.items()}
        return self._views[n]

    def write(self, columns: dict[str, Any], *, rings_advanced: bool = False) -> None:
        """Store this step's columns, and advance the clock unless a kernel does (`rings_advanced`)."""
        for name, column in columns.items():
            ring = self.rings[name]
            at = self.clock % ring.shape[1]
            # a clock on the device makes `at` an index [1], which keeps its axis
            ring[: column.shape[0], at] = column if isinstance(at, int) else column[:, None]
        if not rings_advanced:
            self.clock += 1

    def clear(self, slot: int) -> None:
        for ring in self.rings.values():
            ring[slot] = 0.0
        self.ancestors[slot] = 0

    def move(self, source: Any, target: Any) -> None:
        for ring in self.rings.values():
            ring[target] = ring[source]
        self.ancestors[target] = self.ancestors[source]


class Caches:
    """Every column since the first token, for states without a window.

    Column p of a slot is its own position p, so that an answer does not depend on when its request joined.

    blocks: states [slots, heads, columns, beams, dim / heads] by name, with as many columns as the longest
        active hypothesis needs.
    writers: int64 [slots, beams, columns], the beam that wrote each column of a hypothesis.
    steps: number of steps of each slot, on the host.
    """

    def __init__(
        self, specs: Sequence[StateSpec], slots: int, beams: int, xp: Any, device: Any, dtype: Any
    ) -> None:
        self.specs, self.slots, self.beams, self.xp = list(specs), slots, beams, xp
        self.device, self.dtype = device, dtype
        self.steps = [0] * slots
        self._beam = xp.arange(beams, dtype=xp.int64, device=device)
        self._slot = xp.arange(slots, dtype=xp.int64, device=device)
        self._allocate(COLUMN_MULTIPLE)

    def fit(self, n: int) -> int:
        """Resize the blocks to the columns that the first n slots need, and return their number."""
        columns = max(-(-max(self.steps[:n]) // COLUMN_MULTIPLE) * COLUMN_MULTIPLE, COLUMN_MULTIPLE)
        if columns != self.writers.shape[2]:
            self._resize(columns, n)
        return columns

    def grow(self, n: int) -> None:
        """Make room for one more column of the first n slots, and count it."""
        if max(self.steps[:n]) >= self.writers.shape[2]:
            self._resize(self.writers.shape[2] + COLUMN_MULTIPLE, n)
        for slot in range(n):
            self.steps[slot] += 1

    def reserve(self, columns: int) -> bool:
        """Give the blocks at least this many columns. Return whether they have moved."""
        if columns <= self.writers.shape[2]:
            return False
        self._resize(columns, self.slots)
        return True

    def advance(self, parents: Any, positions: Any, columns: int) -> Any:
        """Advance to the next step. Return the lineage, an attention mask [n, beams, columns * beams]: 0 at
        cache entries (column, beam) that belong to the hypothesis, -inf at others.

        parents: int64 [n, beams], beam of the same slot that each hypothesis continues.
        positions: int64 [n, 1], position of the step.
        columns: number of columns to read.
        """
        xp, n = self.xp, parents.shape[0]
        writers = take(self._slot[:n, None], self.writers[:n, :, :columns], parents)
        at = self._slot[:n], positions[:, 0]
        # the parents wrote the previous column; at position 0 there is none, and `past` masks column 0
        writers[at[0], :, xp.where(at[1] > 0, at[1] - 1, 0)] = parents
        self.writers[:n, :, :columns] = writers
        return self.lineage(positions, columns)

    def lineage(self, positions: Any, columns: int) -> Any:
        """Return the attention mask of `advance`, after it.

        positions: int64 [n, 1], position of the step.
        columns: number of columns to read.
        """
        xp, n = self.xp, positions.shape[0]
        writers = self.writers[:n, :, :columns]
        column = xp.arange(writers.shape[2], dtype=xp.int64, device=self.device)
        past = (column < positions)[:, None, :, None]  # [n, 1, columns, 1]
        is_own = (writers[:, :, :, None] == self._beam) & past  # entries of the row's own hypothesis
        lineage = xp.zeros(is_own.shape, dtype=self.dtype, device=self.device)
        lineage = xp.where(is_own, lineage, -xp.inf)
        return xp.reshape(lineage, (n, self.beams, writers.shape[2] * self.beams))

    def view(self, n: int, columns: int) -> dict[str, Any]:
        """Return views of the first `columns` columns of the first n slots."""
        return {name: block[:n, :, :columns] for name, block in self.blocks.items()}

    def write(self, columns: dict[str, Any], positions: Any) -> None:
        """Store the column [n, beams, dim] of each given state at its slot's position [n, 1]."""
        n = positions.shape[0]
        slots, at = self._slot[:n], positions[:, 0]
        for spec in (s for s in self.specs if s.name in columns):
            block, column = self.blocks[spec.name], columns[spec.name]
            parts = self.xp.reshape(column, (n, self.beams, spec.heads, spec.dim // spec.heads))
            block[slots, :, at] = self.xp.permute_dims(parts, (0, 2, 1, 3))

    def clear(self, slot: int) -> None:
        """Make a slot empty."""
        self.steps[slot] = 0
        self.writers[slot] = 0
        for block in self.blocks.values():
            block[slot] = 0.0  # masked entries are multiplied by 0, and must not make NaN

    def move(self, source: Any, target: Any) -> None:
        if isinstance(source, int):  # steps are on the host, which does not read device arrays
            self.steps[target] = self.steps[source]
        self.writers[target] = self.writers[source]
        for block in self.blocks.values():
            block[target] = block[source]

    def _allocate(self, columns: int) -> None:
        """Replace blocks and writers by empty ones with this many columns."""
        xp = self.xp
        # allocated first, so that nothing has changed if memory runs out
        self.blocks = {
            s.name: xp.zeros(
                (self.slots, s.heads, columns, self.beams, s.dim // s.heads),
                dtype=self.dtype,
                device=self.device,
            )
            for s in self.specs
        }
        self.writers = xp.zeros((self.slots, self.beams, columns), dtype=xp.int64, device=self.device)

    def _resize(self, columns: int, slots: int) -> None:
        """Change the number of columns, and keep the contents of the first `slots` slots. The others are not
        written, so that the system maps no memory for them.
        """
        writers, blocks = self.writers, self.blocks
        shared = min(columns, writers.shape[2])
        self._allocate(columns)
        self.writers[:slots, :, :shared] = writers[:slots, :, :shared]
        for name, block in self.blocks.items():
            block[:slots, :, :shared] = blocks[name][:slots, :, :shared]

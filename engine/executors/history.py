"""Beam history without reordering: rings of decoder state and one index of ancestors.

All slots of a lane share one clock. At clock c each layer writes its column c mod window, whatever a slot's
own step; a slot placed later reads zeros for the time before. Which row a hypothesis continues is followed
through `ancestors`, so reordering beams moves a few small integers and no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.config import StateSpec


class History:
    """Decoder state of one lane in the array namespace `xp` (numpy, or torch by array_api_compat).

    rings: by name, [slots, window, beams, dim]. ancestors: int64 [slots, beams, longest window]; entry a is
    the slot-local beam that held this hypothesis a + 1 steps ago.
    """

    def __init__(
        self, specs: Sequence[StateSpec], slots: int, beams: int, xp: Any, device: Any, dtype: Any
    ) -> None:
        self.xp, self.beams, self.clock = xp, beams, 0
        self.rings = {
            s.name: xp.zeros((slots, s.window, beams, s.dim), dtype=dtype, device=device) for s in specs
        }
        self.windows = sorted({s.window for s in specs})
        longest = max(self.windows, default=1)
        self.ancestors = xp.zeros((slots, beams, longest), dtype=xp.int64, device=device)
        self._slot = xp.reshape(xp.arange(slots, dtype=xp.int64, device=device), (slots, 1, 1))
        self._age = xp.arange(1, longest + 1, dtype=xp.int64, device=device)

    def advance(self, parents: Any) -> dict[int, Any]:
        """Follow `parents` (int64 [n, beams]) one step. Returns, by window, the rows of ring.flatten(0, 2)
        to read: int64 [n, beams, window], oldest first."""
        xp, n, longest = self.xp, parents.shape[0], self.ancestors.shape[2]
        if longest > 1:
            earlier = self.ancestors[:n, :, : longest - 1]
            index = xp.broadcast_to(parents[:, :, None], earlier.shape)
            earlier = xp.take_along_axis(earlier, index, axis=1)
            self.ancestors[:n, :, 1:] = earlier
        self.ancestors[:n, :, 0] = parents
        return {w: self._rows(n, w) for w in self.windows}

    def write(self, columns: dict[str, Any]) -> None:
        """Store this step's column [n, beams, dim] of each state and let the clock tick."""
        for name, column in columns.items():
            ring = self.rings[name]
            ring[: column.shape[0], self.clock % ring.shape[1]] = column
        self.clock += 1

    def clear(self, slot: int) -> None:
        """Zeros: the padding before a first token, and no trace of who was here before."""
        for ring in self.rings.values():
            ring[slot] = 0.0
        self.ancestors[slot] = 0

    def move(self, source: int, target: int) -> None:
        for ring in self.rings.values():
            ring[target] = ring[source]
        self.ancestors[target] = self.ancestors[source]

    def _rows(self, n: int, window: int) -> Any:
        columns = (self.clock - self._age[:window]) % window
        rows = (self._slot[:n] * window + columns) * self.beams + self.ancestors[:n, :, :window]
        return self.xp.flip(rows, axis=-1)

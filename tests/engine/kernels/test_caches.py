"""Self-attention over caches as CUDA kernels, compared with the torch reference and with `Caches`."""

from __future__ import annotations

from dataclasses import dataclass

import array_api_compat.torch as xp
import pytest
import torch

from engine.bundle.specs import StateSpec
from engine.executors.history import Caches
from engine.kernels import reference
from engine.kernels.reference import QKV
from tests.support.cuda_kernels import BRAIN, FLOAT, HALF, close, normal


@dataclass
class Sizes:
    slots: int
    beams: int
    heads: int
    width: int
    columns: int = 64
    room: int = 96  # columns of the blocks


def caches_of(sizes: Sizes, dtype: torch.dtype) -> Caches:
    dim = sizes.heads * sizes.width
    specs = [StateSpec(name, sizes.room, dim, sizes.heads) for name in ("keys", "values")]
    caches = Caches(specs, sizes.slots, sizes.beams, xp, "cpu", dtype)
    caches.reserve(sizes.room)
    return caches


def random_state(sizes: Sizes, caches: Caches, seed: int) -> None:
    """Fill the caches and the writers, as if hypotheses had changed places at every step."""
    for i, block in enumerate(caches.blocks.values()):
        block.copy_(normal(seed + i, *block.shape).to(block.dtype))
    g = torch.Generator().manual_seed(seed)
    caches.writers.copy_(torch.randint(0, sizes.beams, caches.writers.shape, generator=g))


def parents_of(sizes: Sizes, seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, sizes.beams, (sizes.slots, sizes.beams), generator=g)


def positions_of(sizes: Sizes) -> torch.Tensor:
    """Return positions of slots that joined at other times, the first and the last possible among them."""
    return torch.tensor([[sizes.columns - 1], [0], [1], [5], [33]])[: sizes.slots]


@pytest.mark.parametrize("sizes", [Sizes(5, 3, 1, 4), Sizes(2, 1, 1, 4), Sizes(4, 17, 2, 4, 130, 192)])
def test_hypotheses_take_the_writers_of_their_parents(place, sizes):
    caches = caches_of(sizes, FLOAT)
    random_state(sizes, caches, 3)
    parents, positions = parents_of(sizes, 4), positions_of(sizes)
    before = caches.writers.clone()
    block = place.there(caches.writers.clone())
    caches.advance(parents, positions, sizes.columns)
    place.kernels.advance_caches(block[:, :, : sizes.columns], place.there(parents), place.there(positions))
    found = place.here(block)
    for slot, (position,) in enumerate(positions.tolist()):
        assert torch.equal(found[slot, :, :position], caches.writers[slot, :, :position])
        assert torch.equal(found[slot, :, position:], before[slot, :, position:])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (FLOAT, Sizes(5, 2, 3, 8)),
        (FLOAT, Sizes(2, 9, 1, 5)),  # two groups of beams, and loads of single elements
        (FLOAT, Sizes(1, 1, 2, 160)),  # more loads than lanes
        (FLOAT, Sizes(3, 4, 2, 12, 64, 64)),
        (HALF, Sizes(5, 5, 2, 64)),
        (BRAIN, Sizes(5, 1, 2, 64, 320, 352)),  # several rounds of columns
        (BRAIN, Sizes(3, 4, 1, 96)),  # lanes without a load
        (BRAIN, Sizes(2, 16, 1, 32)),
    ],
)
def test_attention_over_caches_equals_the_reference_and_appends(place, dtype, sizes, biased):
    """Entries of other hypotheses and of later columns are NaN."""
    caches, dim = caches_of(sizes, dtype), sizes.heads * sizes.width
    random_state(sizes, caches, 5)
    positions, columns = positions_of(sizes), sizes.columns
    lineage = caches.lineage(positions, columns)
    qkv = QKV(*(normal(i, sizes.slots, sizes.beams, dim, dtype=dtype) for i in range(3)))
    qkv = qkv._replace(q=qkv.q / sizes.width**0.5)
    by_column = normal(7, sizes.slots, sizes.heads, 1, columns, dtype=dtype).repeat_interleave(
        sizes.beams, -1
    )
    bias = (by_column, normal(8, sizes.slots, sizes.heads, 1, 1, dtype=dtype)) if biased else None
    past = tuple(caches.view(sizes.slots, columns).values())
    want = reference.attend_cached(
        QKV(*(y.float() for y in qkv)),
        (past[0].float(), past[1].float()),
        lineage.float(),
        None if bias is None else (bias[0].float(), bias[1].float()),
    )
    unread = torch.isneginf(lineage).all(1).view(sizes.slots, 1, columns, sizes.beams, 1)
    for block in past:
        block.masked_fill_(unread, torch.nan)
    blocks = [place.there(block.clone()) for block in caches.blocks.values()]
    on_device = tuple(block[:, :, :columns] for block in blocks)
    assert place.kernels.takes_caches(on_device)
    writers = place.there(caches.writers)[:, :, :columns], positions
    before = [block.clone() for block in caches.blocks.values()]
    found = place.attend_cached(qkv, on_device, writers, bias)
    close(found, want, dtype, 4)
    caches.write({"keys": qkv.key, "values": qkv.value}, positions)
    for block, wanted in zip(blocks, caches.blocks.values(), strict=True):
        assert torch.equal(place.here(block).nan_to_num(7.0), wanted.nan_to_num(7.0))
    again = [place.there(block)[:, :, :columns] for block in before]
    scaled = place.attend_cached(qkv._replace(q=qkv.q * 4), tuple(again), writers, bias, scale=0.25)
    assert torch.equal(scaled, found)


def test_attention_over_caches_is_bitwise_independent_of_columns_and_other_slots(place):
    sizes = Sizes(3, 4, 2, 16)
    caches = caches_of(sizes, FLOAT)
    random_state(sizes, caches, 5)
    positions = torch.tensor([[17], [20], [3]])
    qkv = QKV(*(normal(i, 3, 4, 32) for i in range(3)))

    def attend(slots: slice, columns: int) -> torch.Tensor:
        past = tuple(place.there(block)[slots, :, :columns] for block in caches.blocks.values())
        writers = place.there(caches.writers)[slots, :, :columns], positions[slots]
        return place.attend_cached(QKV(*(y[slots].contiguous() for y in qkv)), past, writers)

    whole = attend(slice(0, 3), 96)
    assert torch.equal(attend(slice(0, 3), 32), whole)
    for slot in range(3):
        assert torch.equal(attend(slice(slot, slot + 1), 64), whole[slot : slot + 1])


def test_heads_of_too_many_loads_are_left_to_torch(place):
    def takes(dtype: torch.dtype, width: int) -> bool:
        return place.kernels.takes_caches((torch.zeros(1, 2, 32, 3, width, dtype=dtype),) * 2)

    assert takes(FLOAT, 512)
    assert not takes(FLOAT, 516)
    assert takes(BRAIN, 512)
    assert not takes(BRAIN, 131)
    assert not takes(BRAIN, 520)
    permuted = torch.zeros(1, 2, 3, 32, 8).transpose(2, 3)
    assert not place.kernels.takes_caches((permuted, permuted))

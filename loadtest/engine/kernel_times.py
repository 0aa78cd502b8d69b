"""Times of kernels as an H100 measured them, and as they are predicted of kernels that no device has run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ProductTimes = Mapping[tuple[int, int], tuple[float, float]]  # by (dim, outputs): of 1 row, and of 5 to 8
PRODUCTS_US: Final[ProductTimes] = {  # microseconds of product.cu
    (1024, 2048): (5.6, 26.0),
    (1024, 496): (3.3, 9.5),
    (1024, 1024): (4.3, 11.5),  # the mean of those with a norm and those with a residual
    (1024, 4096): (7.3, 26.5),
    (4096, 1024): (8.2, 58.0),
    (1024, 32768): (30.9, 66.5),
}
# microseconds of the prototype of tiled_product.cu
TILED_US: Final[ProductTimes] = {
    (1024, 2048): (3.1, 5.5),
    (1024, 496): (2.0, 2.6),
    (1024, 1024): (2.5, 4.2),  # likewise
    (1024, 4096): (4.3, 7.2),
    (4096, 1024): (4.5, 6.3),
    (1024, 32768): (24.3, 27.9),
}
PREPARE_US: Final = 1.9  # of a product without a norm that multiplies nothing
ROW_SHARES: Final = {1: 0.0, 2: 0.08, 4: 0.47, 8: 1.0}  # how far between these two, by the kernel's rows
# Predicted: of a product for 9 to 16 rows besides what 8 take. Between 5 and 8 rows the prototype took up to
# 0.13 for each row more; weights are read as often, a warp stages two rows at once, and has two mma for one.
SECOND_EIGHT_US: Final = 1.0
# Of a product of cuBLAS's besides its bytes and operations: the median of six that were measured alone
FOREIGN_US: Final = 4.2
FOREIGN_BANDWIDTH: Final = 3.0e12  # bytes a second of such a product: a part lies in the second-level cache
FOREIGN_RATE: Final = 6.0e14  # operations a second, at 1,024 rows
TORCH_US: Final = 2.5  # of an operator of torch's
BANDWIDTH: Final = 2.41e12  # bytes a second of copies
STREAMED_BANDWIDTH: Final = 2.8e12  # likewise of the logits' weight, by the prototype
EMPTY_US: Final = 1.0  # of a kernel that does nothing
# Assumed, from what others measured on such a device: bytes a second from the second-level cache
CACHE_BANDWIDTH: Final = 5.5e12
# Operators that read what the one in front just wrote, which lies in that cache, and leave theirs there
FROM_CACHE: Final = ("add_norm", "glu")
# The share of windows, counted for each beam, that is read: ncu saw 19.8 MB at 256 x 4, of which inputs and
# taps are 2.7; the windows of six layers are 39.1 on average
DISTINCT_WINDOWS: Final = 0.44


@dataclass(frozen=True, slots=True)
class KernelTimes:
    """Microseconds of kernels.

    attend: of a launch, for each slot, and whether its bytes count beside these.
    convolution: of a launch, and for each row; and what a row takes at least, wherever its window comes from.
    select: of a launch, and for each megabyte of logits.
    search: of `begin_step` and `end_step`, and for each slot.
    fixed: of others, beside their bytes.
    lookup: of a product that looks its rows up, besides.
    bias: of its copy to all rows of queries that cuBLAS makes, of a launch, and for each row.
    ahead: of a norm that asks memory for something, besides.
    merge: of `end_step` where it merges parts of the vocabulary, besides; and for each candidate of 8 beams.
    products: of own ones by tensor cores whose weights were fetched ahead, without and with a norm, and of a
        head's own ones by entry: of 1 row and of 5 to 8. None: `TILED_US`.
    """

    attend: tuple[float, float, bool]
    convolution: tuple[float, float, float]
    select: tuple[float, float]
    search: Mapping[str, tuple[float, float]]
    fixed: Mapping[str, float]
    lookup: float = 0.0
    bias: tuple[float, float] = (0.0, 0.0)
    ahead: float = 0.0
    merge: tuple[float, float] = (0.0, 0.0)
    products: Mapping[str, tuple[float, float]] | None = None


MEASURED: Final = KernelTimes(
    attend=(8.2, 0.227, False),
    convolution=(6.1, 0.0224, 0.0224),
    select=(11.5, 0.74),
    search={"begin_step": (6.3, 0.0), "end_step": (6.0, 0.0087)},
    fixed={"embed": 3.5, "merge_best": 7.6, "add_norm": 2.7},
    bias=(2.5, 0.0029),  # an operator of torch's that took 5.47 at 1,024 rows
)
# Predicted, each as an empty kernel's 1.0, 0.8 for each time that a thread waits for memory before it can go
# on, and what it computes; where that was measured, by what is left of the instructions of a thread.
# - attend_tiled: the mask, keys, values, and what it writes; its bytes at the rate of copies, but those that
#   the norm two kernels in front asked for, which come from the cache: 24 MiB take 10.4 at that rate, and
#   those two take 11.1, in which hardly anything else comes from memory. It asks in 60 instructions (0.3).
# - dynamic_conv_step: taps with indices beside them, inputs, 0.7 at barriers. Of 1,024 rows ncu saw 19.8 MB
#   read, 0.0080 for a row at the rate of copies; their blocks are all resident, and the 700 instructions of
#   a warp take half of that (0.0040). 0.0090 is taken, and 0.0050 where all comes from the cache. The norm in
#   front of its inputs asks for 32 MiB, counted for each beam: what is read of them takes 6.1 at the rate of
#   copies, inputs and taps take 13. It asks in 30 instructions beside the row (0.3).
# - glu: inputs, what it writes. By these figures it takes what torch's took (2.5); it may begin early.
# - select_best: logits no longer wait for bans (0.8), columns are ranked by about 50 comparisons where there
#   were 256 (1.8 for two warps a scheduler), a part's normaliser is added up beside the ranking (0.3). 19
#   instructions for a logit of 40 are less than its bytes take at the rate of copies, which is what counts.
# - merge_best: the parts' lists, what it writes, 1.2 for 32 masses added one after the other.
# - begin_step: two waits of six, what it writes, 0.3 at barriers. end_step: one wait of six, what it writes,
#   1.2 for ranking and what one thread decides; where it merges, 0.2 at barriers, and 240 clocks for a
#   candidate that 5 exchanges of a warp find (0.14).
# - a lookup: tokens are waited for before rows (0.8). add_norm: gain and bias no longer wait for sums (0.8).
# - products: what the prototype took for 1024 x 1024, whose bytes are hidden behind those in front (2.3 and
#   3.0, with a norm 2.8 and 5.3), less 0.2 for the residual, or gain and shift, that no longer wait for the
#   sums; of 5 to 8 rows less 0.3 for rows that are copied 16 bytes at a time, and 1.5 for a norm in fewer
#   instructions (the kernel of 8 rows has 1,800 of 8,200).
# - attend_product: rows, beside which keys and values come (0.8), the norm (0.3; 1.1), the product and its
#   barriers (0.4), what a warp computes of attention (0.8), what it writes (0.8).
# - dynamic_conv_tiled: indices and windows (1.6), beside which rows are multiplied; softmax and barriers
#   0.9, what is applied to the window 0.4.
PREDICTED: Final = KernelTimes(
    attend=(4.2, 0.0, True),
    convolution=(3.3, 0.0090, 0.0050),
    select=(8.6, 0.42),
    search={"begin_step": (3.7, 0.0), "end_step": (3.8, 0.0087)},
    fixed={"embed": 3.5, "merge_best": 3.8, "add_norm": 1.9, "glu": 2.6},
    lookup=0.8,
    ahead=0.3,
    merge=(0.2, 0.14),
    products={
        "plain": (2.1, 2.5),
        "normed": (2.6, 3.6),
        "attend_product": (4.1, 4.9),
        "dynamic_conv_tiled": (3.9, 4.1),
    },
)

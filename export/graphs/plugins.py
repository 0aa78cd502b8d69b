"""Map convolutions to nodes that a TensorRT plugin computes (`engine.kernels.trt_plugin`).

Each node is also a function of the model with a body of standard operators, which other runtimes inline.
TensorRT's parser takes the plugin because of the node's `plugin_namespace`, and its ahead-of-time form, which
needs no library at run time, because of `aot`. Kernels without a softmax stay standard operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import onnx
from onnx.parser import parse_function

from engine.kernels.reference import dynamic_conv, dynamic_conv_step
from export.graphs import ops
from export.graphs.symbols import OPSET, Symbol

DOMAIN: Final = "convoy"

STEP: Final = """
{name} (x, taps, ring, index) => (y) {{
  kernel = Softmax <axis = -1> (taps)
  channels = Shape <start = 2> (x)
  any = Constant <value_ints = [-1]> ()
  flat = Concat <axis = 0> (any, channels)
  columns = Reshape (ring, flat)
  past = Gather <axis = 0> (columns, index)
  two = Constant <value_ints = [2]> ()
  newest = Unsqueeze (x, two)
  window = Concat <axis = 2> (past, newest)
  heads = Shape <start = -2, end = -1> (taps)
  same = Constant <value_ints = [0, 0, 0]> ()
  split = Concat <axis = 0> (same, heads, any)
  parts = Reshape (window, split)
  by_head = Transpose <perm = [0, 1, 3, 2, 4]> (parts)
  last = Constant <value_ints = [-2]> ()
  row = Unsqueeze (kernel, last)
  mixed = MatMul (row, by_head)
  shape = Shape (x)
  y = Reshape (mixed, shape)
}}
"""

# the band matrix of `engine.kernels.reference.dynamic_conv`
WHOLE: Final = """
{name} <left> (x, taps) => (y) {{
  kernel = Softmax <axis = -1> (taps)
  time = Shape <start = 1, end = 2> (x)
  heads = Shape <start = -2, end = -1> (taps)
  width = Shape <start = -1> (taps)
  {rows}
  edge = Constant <value_ints = [0, 0, 0, 0, 0, 0, 0]> ()
  pads = Concat <axis = 0> (edge, time)
  padded = Pad (rows, pads)
  same = Constant <value_ints = [0, 0]> ()
  any = Constant <value_ints = [-1]> ()
  merged = Concat <axis = 0> (same, any)
  flat = Reshape (padded, merged)
  more = Sub (width, one)
  row = Add (time, more)
  begin = Constant <value_ints = [0]> ()
  end = Mul (time, row)
  two = Constant <value_ints = [2]> ()
  trimmed = Slice (flat, begin, end, two)
  apart = Concat <axis = 0> (merged, row)
  bands = Reshape (trimmed, apart)
  offset = Constant <value_int: int = @left> ()
  first = Reshape (offset, any)
  past = Add (first, time)
  three = Constant <value_ints = [3]> ()
  band = Slice (bands, first, past, three)
  split = Concat <axis = 0> (same, heads, any)
  parts = Reshape (x, split)
  of_x = Transpose <perm = [0, 2, 1, 3]> (parts)
  mixed = MatMul (band, of_x)
  back = Transpose <perm = [0, 2, 1, 3]> (mixed)
  shape = Shape (x)
  y = Reshape (back, shape)
}}
"""
KERNEL_ROWS: Final = {
    "DynamicConv": """one = Constant <value_ints = [1]> ()
  rows = Transpose <perm = [0, 2, 1, 3]> (kernel)""",
    "LightConv": """one = Constant <value_ints = [1]> ()
  taken = Concat <axis = 0> (one, heads, time, width)
  axis = Constant <value_ints = [1]> ()
  unmoved = Unsqueeze (kernel, axis)
  rows = Expand (unmoved, taken)""",
}


@cache
def function(name: str) -> onnx.FunctionProto:
    """Return the body of a node in standard operators.

    name: "DynamicConvStep" or "DynamicConv" (taps of every position), "LightConvStep" or "LightConv" (taps
        [heads, K], equal at every position).
    """
    text = (
        STEP.format(name=name) if name.endswith("Step") else WHOLE.format(name=name, rows=KERNEL_ROWS[name])
    )
    return parse_function(f'<domain: "{DOMAIN}", opset_import: ["" : {OPSET}]>{text}')


def _emit_plugin(g: Any, name: str, *inputs: str, **attributes: int) -> str:
    """Append a node of a plugin and register its body; return the name of its output."""
    g.functions.setdefault(name, function(name))
    return str(g.emit(name, *inputs, domain=DOMAIN, aot=1, plugin_namespace=DOMAIN, **attributes))


def _kernels_and_plugin(taps: Symbol) -> tuple[str, str] | None:
    """Return the name of the kernels before their softmax, and of their plugin; None without a softmax."""
    node = taps.graph.producer(taps.name, "Softmax")
    return None if node is None else (node.input[0], "LightConv" if taps.dim() == 2 else "DynamicConv")


def _dynamic_conv(x: Symbol, taps: Symbol, left: int) -> Symbol:
    """Emit the plugin of a convolution, or standard operators if the taps have no softmax."""
    found = _kernels_and_plugin(taps)
    if found is None:
        return ops.STANDARD_OPS[dynamic_conv](x, taps, left)  # type: ignore[no-any-return]
    kernels, plugin = found
    return x.like(_emit_plugin(x.graph, plugin, x.name, kernels, left=left))


def _dynamic_conv_step(x: Symbol, taps: Symbol, ring: Symbol | None, index: Symbol | None) -> Symbol:
    """Emit the plugin of a step, or standard operators without a softmax or earlier inputs."""
    found = _kernels_and_plugin(taps)
    if found is None or ring is None or index is None:
        return ops.STANDARD_OPS[dynamic_conv_step](x, taps, ring, index)  # type: ignore[no-any-return]
    kernels, plugin = found
    return x.like(_emit_plugin(x.graph, f"{plugin}Step", x.name, kernels, ring.name, index.name))


PLUGIN_OPS: Final[dict[Callable[..., Any], Callable[..., Any]]] = ops.STANDARD_OPS | {
    dynamic_conv: _dynamic_conv,
    dynamic_conv_step: _dynamic_conv_step,
}

"""Replacement of torch for tracing models on machines without it: its tensors are only shapes.

Tracing runs the models' torch code on symbols (`export.graphs.symbols`) and computes no numbers. If torch is
not installed, `stand_in` adds modules with torch's names: they hold parameters by name, and pass every
function to the symbols among its arguments, like torch's `__torch_function__`. The graphs equal those of
torch to the byte (`tests/export/graphs/test_shapes.py`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

import numpy as np

MODULE_NAMES: Final = ("torch", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.overrides")


class Tensor:
    """A shape; constants that are computed during tracing also have values."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self.shape: tuple[int, ...] = tuple(values.shape)

    def numpy(self) -> Any:
        return self._values


class Parameter(Tensor):
    def __init__(self, data: Tensor) -> None:
        super().__init__(data.numpy())


class Module:
    """Parameters, buffers and modules by name, in the order of their assignment."""

    training = True

    def __init__(self) -> None:
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})

    def __setattr__(self, name: str, value: Any) -> None:
        """Store parameters and modules in their tables, other values as plain attributes."""
        kinds = ((Parameter, self._parameters), (Module, self._modules))
        store = next((store for kind, store in kinds if isinstance(value, kind)), None)
        if store is None:  # None may replace a module, in its place
            store = self._modules if name in self._modules else self.__dict__
        else:
            self.__dict__.pop(name, None)
        store[name] = value

    def __getattr__(self, name: str) -> Any:
        for store in (self.__dict__.get(key, {}) for key in ("_parameters", "_buffers", "_modules")):
            if name in store:
                return store[name]
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def register_buffer(self, name: str, tensor: Tensor, persistent: bool = True) -> None:
        self._buffers[name] = tensor

    def eval(self) -> Module:
        for module in self.modules():
            module.training = False
        return self

    def named_modules(self, memo: set[int] | None = None, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all modules in it, each once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        memo.add(id(self))
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_parameters(self, recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters, each once."""
        memo: set[int] = set()
        for prefix, module in self.named_modules() if recurse else [("", self)]:
            for name, parameter in module._parameters.items():
                if id(parameter) not in memo:
                    memo.add(id(parameter))
                    yield f"{prefix}.{name}" if prefix else name, parameter

    def named_buffers(self, recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield buffers with their names."""
        for prefix, module in self.named_modules() if recurse else [("", self)]:
            for name, buffer in module._buffers.items():
                yield f"{prefix}.{name}" if prefix else name, buffer


class ModuleList(Module):
    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._modules.update((str(i), module) for i, module in enumerate(modules))

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __len__(self) -> int:
        return len(self._modules)

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]

    def append(self, module: Module) -> None:
        self._modules[str(len(self))] = module


class Sequential(ModuleList):
    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleDict(Module):
    def __init__(self, modules: dict[str, Module]) -> None:
        super().__init__()
        self._modules.update(modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Module:
        module: Module = self._modules[name]
        return module


class Identity(Module):
    def forward(self, x: Any) -> Any:
        return x


class Linear(Module):
    def __init__(self, columns: int, rows: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = Parameter(empty(rows, columns))
        self.bias = Parameter(empty(rows)) if bias else None

    def forward(self, x: Any) -> Any:
        return _function("linear")(x, self.weight, self.bias)


class Embedding(Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.weight = Parameter(empty(rows, columns))

    def forward(self, x: Any) -> Any:
        return _function("embedding")(x, self.weight)


class LayerNorm(Module):
    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.normalized_shape = eps, (dim,)
        self.weight, self.bias = Parameter(empty(dim)), Parameter(empty(dim))

    def forward(self, x: Any) -> Any:
        return _function("layer_norm")(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.eps, self.normalized_shape = eps, (dim,)
        self.weight = Parameter(empty(dim))

    def forward(self, x: Any) -> Any:
        return _function("rms_norm")(x, self.normalized_shape, self.weight, self.eps)


def empty(*shape: int) -> Tensor:
    """Return a tensor without values."""
    return Tensor(np.broadcast_to(np.float32(0), shape))


def has_torch_function(relevant: Iterable[Any]) -> bool:
    """Return whether any of the arguments is a symbol."""
    return any(hasattr(type(value), "__torch_function__") for value in relevant)


def handle_torch_function(
    function: Callable[..., Any], relevant: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Call `__torch_function__` of the first symbol among the arguments.

    function: the called function of torch.
    relevant: unused, like in torch's own signature.
    args: arguments of the call.
    kwargs: keyword arguments of the call.
    """
    arguments = (part for arg in args for part in (arg if isinstance(arg, Sequence) else (arg,)))
    symbol = next(value for value in arguments if has_torch_function([value]))
    return type(symbol).__torch_function__(function, (), args, kwargs)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}


def _function(name: str) -> Callable[..., Any]:
    """Return the replacement of a function of torch, which passes calls to symbols."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return handle_torch_function(call, (), *args, **kwargs)

    call.__name__ = name
    # one function for each name: it is a key of the table of operators
    return _FUNCTIONS.setdefault(name, call)


class _Names(ModuleType):
    """A module in which every missing name is a function."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _function(name)


def stand_in() -> None:
    """Use the replacement in this process if torch is not installed; only tracing works with it."""
    if "torch" in sys.modules or find_spec("torch") is not None:
        return
    modules = {name: _Names(name) for name in MODULE_NAMES}
    for name, module in modules.items():
        parent, _, child_name = name.rpartition(".")
        module.__path__ = []
        if parent:
            setattr(modules[parent], child_name, module)
    classes = (Embedding, Identity, LayerNorm, Linear, Module, ModuleDict, ModuleList, Parameter, RMSNorm)
    modules["torch.nn"].__dict__.update({kind.__name__: kind for kind in (*classes, Sequential)})
    modules["torch"].__dict__.update(
        Tensor=Tensor,
        empty=empty,
        from_numpy=Tensor,
        arange=lambda *bounds, **_: Tensor(np.arange(*bounds)),
        device=nullcontext,
        inf=math.inf,
    )
    modules["torch.overrides"].__dict__.update(
        has_torch_function=has_torch_function, handle_torch_function=handle_torch_function
    )
    sys.modules.update(modules)

"""Read pickles without running code in them: `pickletools` decodes the opcodes, and a closed list of names is
known.

A name in a pickle becomes a `Name`. A pickle can call names of the list only, and their functions return
plain values and stand-ins.
"""

from __future__ import annotations

import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Any, Final

from engine.errors import CheckpointError

Call = Callable[..., Any]

RENAMED: Final = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # modules of Python 2
VALUES: Final = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
# opcodes whose argument is the value
LITERALS: Final = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING"),
        *("STRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    )
)
EMPTY: Final[Mapping[str, Call]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
SHORT_TUPLES: Final = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
PUTS: Final = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
GETS: Final = frozenset({"GET", "BINGET", "LONG_BINGET"})
WITHOUT_EFFECT: Final = frozenset({"PROTO", "FRAME"})
PLAIN_KEYS: Final = (str, bytes, int, float, type(None))


class UnlistedName(CheckpointError):
    """A pickle refers to a class or function that is not on the list."""


class Stateful:
    """Base of stand-ins that receive the state of the object that they stand for."""

    def __setstate__(self, state: Any) -> None:
        """Store a part of the state, or nothing."""


class Name:
    """A class or function that a pickle refers to.

    name: module and name, joined by a dot.
    call: function that is called in its place; None: a value that can't be called.
    """

    __slots__ = ("call", "name")

    def __init__(self, name: str, call: Call | None) -> None:
        self.name, self.call = name, call


_MARK: Final = object()


class PickleReader:
    """Interprets one pickle."""

    def __init__(self, names: Mapping[str, Call | None], persistent: Call) -> None:
        """Prepare an empty stack.

        names: known names, and the function that is called in place of each.
        persistent: function from a persistent id to its object.
        """
        self._names, self._persistent = names, persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, pickle: IO[bytes] | Any) -> Any:
        """Return the object of the pickle that begins at the position of a file.

        Raises UnlistedName, and ValueError, TypeError, IndexError or KeyError if it is damaged.
        """
        for opcode, argument, _ in pickletools.genops(pickle):
            if opcode.name == "STOP":
                return self._stack.pop()
            self._run(opcode.name, argument)
        raise ValueError("the pickle has no end")

    def _run(self, opcode: str, argument: Any) -> None:
        stack = self._stack
        if opcode in LITERALS:
            stack.append(argument)
        elif opcode in PUTS:
            self._memo[argument] = stack[-1]
        elif opcode in GETS:
            stack.append(self._memo[argument])
        elif opcode == "MEMOIZE":
            self._memo[len(self._memo)] = stack[-1]
        elif opcode in EMPTY:
            stack.append(EMPTY[opcode]())
        elif opcode in VALUES:
            stack.append(VALUES[opcode])
        elif opcode == "MARK":
            stack.append(_MARK)
        elif opcode in SHORT_TUPLES:
            stack.append(tuple(self._pop(SHORT_TUPLES[opcode])))
        elif opcode not in WITHOUT_EFFECT:
            action = ACTIONS.get(opcode)
            if action is None:
                raise ValueError(f"the opcode {opcode} is not read")
            action(self, argument)

    def _pop(self, count: int) -> list[Any]:
        """Pop values, in their order on the stack."""
        if len(self._stack) < count:
            raise IndexError("the stack is empty")
        values = self._stack[-count:]
        del self._stack[-count:]
        return values

    def _pop_marked(self) -> list[Any]:
        """Pop the values above the last mark, and the mark."""
        values = []
        while (value := self._stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _push_name(self, module: Any, name: Any) -> None:
        whole = f"{RENAMED.get(module, module)}.{name}"
        if whole not in self._names:
            raise UnlistedName(whole)
        self._stack.append(Name(whole, self._names[whole]))

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._push_name(module, name)

    def _stack_global(self, _: Any) -> None:
        self._push_name(*self._pop(2))

    def _instance(self, argument: str) -> None:
        arguments = tuple(self._pop_marked())
        self._global(argument)
        self._stack.append(arguments)
        self._call(None)

    def _call(self, _: Any) -> None:
        """Call a name with a tuple of arguments."""
        name, arguments = self._pop(2)
        if not isinstance(name, Name) or name.call is None or not isinstance(arguments, tuple):
            raise TypeError("something that is no function is called")
        self._stack.append(name.call(*arguments))

    def _set_state(self, _: Any) -> None:
        """Set the state of a stand-in; an ordered dictionary has attributes that no reader needs."""
        thing, state = self._pop(2)
        if isinstance(thing, Stateful):
            thing.__setstate__(state)
        elif type(thing) is not OrderedDict:
            raise TypeError(f"a {type(thing).__name__} has no state")
        self._stack.append(thing)

    def _extend(self, items: Iterable[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise TypeError("items are appended to something that is no list")
        self._stack[-1].extend(items)

    def _add(self, items: Iterable[Any]) -> None:
        if not isinstance(self._stack[-1], set):
            raise TypeError("items are added to something that is no set")
        self._stack[-1].update(map(plain_key, items))

    def _update(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], dict) or len(values) % 2:
            raise TypeError("values are set in something that is no dictionary")
        self._stack[-1].update(zip(map(plain_key, values[::2]), values[1::2], strict=True))

    def _dictionary(self, _: Any) -> None:
        values = self._pop_marked()
        self._stack.append({})
        self._update(values)

    def _persistent_object(self, _: Any) -> None:
        self._stack.append(self._persistent(self._stack.pop()))


def plain_key(key: Any) -> Any:
    """Return a key whose hash takes little time: a nested tuple of references can take very long."""
    parts = key if type(key) is tuple else (key,)
    if not all(isinstance(part, PLAIN_KEYS) for part in parts):
        raise TypeError("a key is no number or text")
    return key


ACTIONS: Final[Mapping[str, Callable[[PickleReader, Any], object]]] = {
    "TUPLE": lambda reader, _: reader._stack.append(tuple(reader._pop_marked())),
    "LIST": lambda reader, _: reader._stack.append(reader._pop_marked()),
    "DICT": PickleReader._dictionary,
    "FROZENSET": lambda reader, _: reader._stack.append(frozenset(map(plain_key, reader._pop_marked()))),
    "APPEND": lambda reader, _: reader._extend(reader._pop(1)),
    "APPENDS": lambda reader, _: reader._extend(reader._pop_marked()),
    "ADDITEMS": lambda reader, _: reader._add(reader._pop_marked()),
    "SETITEM": lambda reader, _: reader._update(reader._pop(2)),
    "SETITEMS": lambda reader, _: reader._update(reader._pop_marked()),
    "POP": lambda reader, _: reader._stack.pop(),
    "POP_MARK": lambda reader, _: reader._pop_marked(),
    "DUP": lambda reader, _: reader._stack.append(reader._stack[-1]),
    "GLOBAL": PickleReader._global,
    "STACK_GLOBAL": PickleReader._stack_global,
    "INST": PickleReader._instance,
    "REDUCE": PickleReader._call,
    "NEWOBJ": PickleReader._call,
    "BUILD": PickleReader._set_state,
    "BINPERSID": PickleReader._persistent_object,
}

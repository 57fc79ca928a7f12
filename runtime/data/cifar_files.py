"""CIFAR's files, read without running them.

CIFAR-10 and CIFAR-100 are published as Python pickles: programs for a stack machine that may call any function. What
these files hold is flat, a dictionary with an array of pixels and a list of labels, so this reader knows the few
instructions that build such a thing and refuses all others. Nothing is imported, called or constructed that a file
names; the array is cut out of the file by its length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

IMAGE_BYTES = 3 * 32 * 32


class FlatPickleError(ValueError):
    """Something else than the flat content of CIFAR's files."""


@dataclass(frozen=True)
class _Name:
    """A function or class that a file names."""

    module: bytes
    name: bytes


@dataclass
class _Type:
    """An array's element type, such as ``u1``."""

    code: bytes
    order: bytes = b"|"


@dataclass
class _Array:
    """An array, once its state has been set."""

    shape: tuple[int, ...] = ()
    type: _Type | None = None
    data: bytes = b""


_MARK = object()
_MULTIARRAY = (b"numpy.core.multiarray", b"numpy._core.multiarray")
_NUMERIC = (b"numpy.core.numeric", b"numpy._core.numeric")
_ELEMENTS: dict[bytes, np.dtype] = {b"u1": np.dtype("u1"), b"i4": np.dtype("<i4"), b"i8": np.dtype("<i8")}


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise FlatPickleError(what)


def _bytes(value: Any) -> bytes:
    """A short text: a key, a name, a type."""
    _need(isinstance(value, (str, bytes)) and len(value) < 256, "a name is missing")
    return value.encode("latin-1", "replace") if isinstance(value, str) else bytes(value)


class _Machine:
    """The stack machine, reduced to dictionaries, lists, tuples, numbers, bytes and arrays of numbers."""

    def __init__(self, content: bytes):
        self.content = content
        self.at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.room = len(content)  # of bytes that may be copied: a short file cannot ask for much

    def run(self) -> Any:
        while True:
            code = self.take(1)[0]
            if code == 0x2E:  # STOP
                _need(len(self.stack) == 1 and self.at == len(self.content), "it goes on behind its end")
                return self.stack[0]
            step = _STEPS.get(code)
            if step is None:
                raise FlatPickleError(f"instruction 0x{code:02x} at byte {self.at - 1}")
            step(self)

    # What is in the file

    def take(self, count: int) -> bytes:
        _need(0 <= count <= len(self.content) - self.at, "it is cut short")
        self.at += count
        return self.content[self.at - count : self.at]

    def number(self, layout: str) -> int:
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def line(self) -> bytes:
        end = self.content.find(b"\n", self.at)
        _need(end >= 0, "it is cut short")
        return self.take(end + 1 - self.at)[:-1]

    # The stack

    def pop(self) -> Any:
        _need(bool(self.stack), "its stack is empty")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        _need(bool(self.stack) and isinstance(self.stack[-1], kind), f"a {kind.__name__} is missing")
        return self.stack[-1]

    def marked(self) -> list[Any]:
        """Everything above the last mark."""
        for at in range(len(self.stack) - 1, -1, -1):
            if self.stack[at] is _MARK:
                found = self.stack[at + 1 :]
                del self.stack[at:]
                return found
        raise FlatPickleError("a mark is missing")

    def gather(self, count: int) -> None:
        self.stack.append(tuple(reversed([self.pop() for _ in range(count)])))

    def remember(self, key: int) -> None:
        _need(bool(self.stack), "its stack is empty")
        self.memo[key] = self.stack[-1]

    def recall(self, key: int) -> None:
        _need(key in self.memo, "it recalls what it never kept")
        self.stack.append(self.memo[key])

    # Containers

    def set_items(self, items: list[Any]) -> None:
        _need(len(items) % 2 == 0, "a value is missing")
        into = self.top(dict)
        for key, value in zip(items[::2], items[1::2]):
            into[_bytes(key)] = value

    def append(self, items: list[Any]) -> None:
        self.top(list).extend(items)

    # What a file may name

    def reduce(self) -> None:
        """ "Call": one of the four ways in which arrays are written."""
        arguments, function = self.pop(), self.pop()
        _need(isinstance(function, _Name) and isinstance(arguments, tuple), "a name is missing")
        if function.module in _MULTIARRAY and function.name == b"_reconstruct":
            self.stack.append(_Array())
        elif function == _Name(b"numpy", b"dtype") and arguments:
            self.stack.append(_Type(_bytes(arguments[0])))
        elif function == _Name(b"_codecs", b"encode") and len(arguments) == 2:
            text, encoding = arguments
            _need(isinstance(text, str) and _bytes(encoding) == b"latin1", "bytes in an unknown encoding")
            self.room -= len(text)
            _need(self.room >= 0, "it copies more than it holds")
            try:
                self.stack.append(text.encode("latin-1"))
            except UnicodeEncodeError:
                raise FlatPickleError("bytes in an unknown encoding") from None
        elif function.module in _NUMERIC and function.name == b"_frombuffer" and len(arguments) == 4:
            data, element, shape, order = arguments
            _need(_bytes(order) == b"C", "an array in another order")
            self.stack.append(self.array(shape, element, data))
        else:
            name = b".".join((function.module, function.name))[:80].decode("latin-1")
            raise FlatPickleError(f"it calls {name}")

    def build(self) -> None:
        """ "Set the state": of an element type, or of an array."""
        state = self.pop()
        _need(bool(self.stack) and isinstance(state, tuple), "a state is missing")
        target = self.stack[-1]
        if isinstance(target, _Type) and len(state) >= 2:
            target.order = _bytes(state[1])
        elif isinstance(target, _Array) and len(state) == 5:
            _, shape, element, columns_first, data = state
            _need(not columns_first, "an array in another order")
            made = self.array(shape, element, data)
            target.shape, target.type, target.data = made.shape, made.type, made.data
        else:
            raise FlatPickleError("a state of something else than an array")

    @staticmethod
    def array(shape: Any, element: Any, data: Any) -> _Array:
        plain = isinstance(shape, tuple) and all(type(n) is int and 0 <= n < 2**31 for n in shape) and len(shape) <= 4
        _need(plain and isinstance(element, _Type) and isinstance(data, bytes), "an array that is none")
        return _Array(shape, element, data)


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(make(m))


def _text(layout: str) -> Callable[[_Machine], None]:
    return _push(lambda m: m.take(m.number(layout)).decode("utf-8", "surrogatepass"))


def _raw(layout: str) -> Callable[[_Machine], None]:
    return _push(lambda m: m.take(m.number(layout)))


def _named(m: _Machine) -> None:
    name, module = m.pop(), m.pop()
    m.stack.append(_Name(_bytes(module), _bytes(name)))


_STEPS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: _need(2 <= m.take(1)[0] <= 5, "another version of pickle"),  # PROTO
    0x95: lambda m: m.take(8),  # FRAME
    ord("("): _push(lambda m: _MARK),
    ord("}"): _push(lambda m: {}),
    ord("]"): _push(lambda m: []),
    ord(")"): _push(lambda m: ()),
    ord("t"): _push(lambda m: tuple(m.marked())),
    0x85: lambda m: m.gather(1),
    0x86: lambda m: m.gather(2),
    0x87: lambda m: m.gather(3),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.marked()),
    ord("s"): lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    ord("u"): lambda m: m.set_items(m.marked()),
    ord("q"): lambda m: m.remember(m.number("<B")),
    ord("r"): lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),  # MEMOIZE
    ord("h"): lambda m: m.recall(m.number("<B")),
    ord("j"): lambda m: m.recall(m.number("<I")),
    ord("J"): _push(lambda m: m.number("<i")),
    ord("K"): _push(lambda m: m.number("<B")),
    ord("M"): _push(lambda m: m.number("<H")),
    ord("N"): _push(lambda m: None),
    0x88: _push(lambda m: True),
    0x89: _push(lambda m: False),
    ord("U"): _raw("<B"),
    ord("T"): _raw("<I"),
    ord("C"): _raw("<B"),
    ord("B"): _raw("<I"),
    0x8E: _raw("<Q"),
    0x96: _raw("<Q"),  # BYTEARRAY8
    0x8C: _text("<B"),
    ord("X"): _text("<I"),
    0x8D: _text("<Q"),
    ord("c"): _push(lambda m: _Name(m.line(), m.line())),
    0x93: _named,
    ord("R"): _Machine.reduce,
    ord("b"): _Machine.build,
}


def _values(array: _Array) -> np.ndarray:
    if array.type is None or array.type.code not in _ELEMENTS or array.type.order not in (b"|", b"<", b"="):
        raise FlatPickleError("numbers of another type")
    element = _ELEMENTS[array.type.code]
    count = 1
    for size in array.shape:
        count *= size
    _need(len(array.data) == count * element.itemsize, "an array of another length than its shape")
    return np.frombuffer(array.data, element).reshape(array.shape)


def read_cifar(content: bytes, labels: str, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N×32×32×3) and the labels under the key ``labels`` of a CIFAR file; raises :class:`FlatPickleError`."""
    try:
        found = _Machine(content).run()
    except (UnicodeDecodeError, struct.error) as error:
        raise FlatPickleError(str(error)) from None
    key = labels.encode()
    _need(isinstance(found, dict), "no dictionary")
    _need(isinstance(found.get(b"data"), _Array) and key in found, f"no data and {labels}")
    x, given = _values(found[b"data"]), found[key]
    if isinstance(given, _Array):
        y = _values(given)
    else:
        _need(isinstance(given, list) and all(type(n) is int for n in given), f"{labels} are no numbers")
        y = np.array([n if 0 <= n < classes else -1 for n in given], np.int64)
    _need(x.dtype == np.uint8 and x.size == len(y) * IMAGE_BYTES and y.ndim == 1, "not an image for each label")
    _need(bool(len(y)) and 0 <= int(y.min()) and int(y.max()) < classes, f"{labels} outside 0 to {classes - 1}")
    return x.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), y.astype(np.int64)

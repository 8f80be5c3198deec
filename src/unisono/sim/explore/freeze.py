"""Objects as values: frozen, to be compared, and copied, to go on from.

Two members with equal values behave alike for ever, so the explorer follows only one of them. To tell apart too much is merely
slow; to take two different states for one would overlook bugs. So nothing is known about any protocol: a dict is its items in
their order, a heap is the list that it lies in, and a mutable object that is reached in two ways is seen to be one. Sets alone are
in no order. (Sorting dicts and heaps would more than halve the states of three concurrent ABCAST messages.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from operator import is_
from types import MethodType
from typing import Any, TypeAlias

from unisono.core.config import Config
from unisono.core.errors import Misuse
from unisono.core.types import Batch, MemberId, View, ViewId

Frozen: TypeAlias = Any
Shared: TypeAlias = Mapping[int, str]
"""By identity, the names of objects that all members share: they are neither looked into nor copied."""

_PLAIN = frozenset({int, str, bytes, type(None), MemberId, ViewId, View, Config})
_TRUE, _FALSE = ("bool", 1), ("bool", 0)
_IMMUTABLE = _PLAIN | {bool, float, complex, Batch, frozenset}
_CONTAINERS = (list, dict, set, frozenset, deque, bytearray)
_SLOTS: dict[type, tuple[str, ...]] = {}


def freeze(thing: object, shared: Shared | None = None) -> Frozen:
    """Turn an object into a hashable value, which its `repr` tells, too.

    Two objects get equal values only if no code can tell them apart, except by `is` on immutable ones.
    """
    return _freeze(thing, shared or {}, {})


def _freeze(thing: Any, shared: Shared, seen: dict[int, int]) -> Frozen:
    kind = type(thing)
    if kind in _PLAIN or isinstance(thing, type):
        return thing
    if kind is bool:
        return _TRUE if thing else _FALSE
    name = kind.__qualname__
    if kind is Batch:
        return (name, thing.origin, thing.first, thing.payloads, thing.to, thing.count, thing.service, bool(thing.safe))
    if isinstance(thing, tuple):
        return (name, *[_freeze(item, shared, seen) for item in thing])
    if kind is float or kind is complex or isinstance(thing, Enum):
        return (name, repr(thing))  # True, 1 and 1.0 are equal, and yet not the same
    key = id(thing)
    if key in shared:
        return (shared[key],)
    if kind is frozenset:
        return (name, *sorted([repr(_freeze(item, shared, seen)) for item in thing]))
    number = seen.get(key)
    if number is not None:
        return ("again", number)  # the very object that was met before: changing one will change the other
    seen[key] = len(seen)
    if kind is set:
        return (name, *sorted([repr(_freeze(item, shared, seen)) for item in thing]))
    if kind is list or kind is deque:
        return (name, *[_freeze(item, shared, seen) for item in thing])
    if kind is dict:
        return (name, *[(_freeze(k, shared, seen), _freeze(value, shared, seen)) for k, value in thing.items()])
    if kind is MethodType:
        return (name, thing.__name__, _freeze(thing.__self__, shared, seen))
    return (name, *[(attribute, _freeze(value, shared, seen)) for attribute, value in attributes_of(thing)])


def copy(thing: Any, shared: Shared) -> Any:
    """A deep copy, in which what was reached twice is one thing again. What is immutable or shared is not copied."""
    return _copy(thing, shared, {})


def _copy(thing: Any, shared: Shared, seen: dict[int, Any]) -> Any:
    kind = type(thing)
    if kind in _IMMUTABLE or isinstance(thing, type | Enum) or id(thing) in shared:
        return thing
    if kind is MethodType:
        return MethodType(thing.__func__, _copy(thing.__self__, shared, seen))
    if isinstance(thing, tuple):
        items = [_copy(item, shared, seen) for item in thing]
        if all(map(is_, items, thing)):
            return thing
        return tuple(items) if kind is tuple else kind(*items)
    known = seen.get(id(thing))
    if known is not None:
        return known
    if kind is set:
        return seen.setdefault(id(thing), {_copy(item, shared, seen) for item in thing})
    if kind is list or kind is deque:
        result: Any = kind()
        seen[id(thing)] = result
        result.extend([_copy(item, shared, seen) for item in thing])
        return result
    if kind is dict:
        copied = seen[id(thing)] = {}
        for key, value in thing.items():
            copied[_copy(key, shared, seen)] = _copy(value, shared, seen)
        return copied
    twin = seen[id(thing)] = object.__new__(kind)
    for name, value in attributes_of(thing):
        object.__setattr__(twin, name, _copy(value, shared, seen))
    return twin


def attributes_of(thing: object) -> Iterator[tuple[str, object]]:
    """What a slotted or plain object holds. What keeps its state elsewhere cannot be looked into, and is refused."""
    kind = type(thing)
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = _slots(kind)
    attributes = getattr(thing, "__dict__", None)
    if isinstance(thing, _CONTAINERS) or (not slots and attributes is None):
        raise Misuse(f"the explorer cannot compare two objects of type {kind.__name__}: hold plain data instead.")
    for name in slots:
        if hasattr(thing, name):
            yield name, getattr(thing, name)
    yield from (attributes or {}).items()


def _slots(kind: type) -> tuple[str, ...]:
    """The names of all slots, as they are reached from outside of the class."""
    names = []
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            hidden = name.startswith("__") and not name.endswith("__")
            names.append(f"_{base.__name__.lstrip('_')}{name}" if hidden else name)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))

"""States as integers: the situations of each member, numbered as they are met, and what arrives at them.

A **situation** is a local state and what is on its way to that member. A state has the number of one situation a member, each
in its own bits; what a step changes is a difference, so that a step of the whole is a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from unisono.core.errors import Misuse
from unisono.sim.explore.search import State

BITS = 24
"""Bits of the number of a situation: one member has at most 16 million, more than memory has room for."""
MASK = (1 << BITS) - 1

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W", bound=Hashable)
"""What is on its way to a member."""
A = TypeVar("A")
"""What can happen to it."""

Sends: TypeAlias = Iterable[tuple[int, int]]
"""The number of a receiver, and of the letter to it."""


class Table(Generic[K, V]):
    """Numbers values by their keys, from 0, as they are met."""

    __slots__ = ("_numbers", "values")

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self.values: list[V] = []

    def __len__(self) -> int:
        return len(self.values)

    def find(self, key: K) -> int | None:
        return self._numbers.get(key)

    def number(self, key: K, value: V) -> int:
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Situations(Generic[W, A]):
    """The situations of one member, and what can happen in each."""

    def __init__(self, place: int, receive: Callable[[int, W, int], W], find: Callable[[int], list[A]]) -> None:
        self.shift = BITS * place
        self.values: list[tuple[int, W]] = []
        """By situation: its local state, and what is on its way."""
        self.actions: list[list[A] | None] = []
        """By situation, once asked for."""
        self.arrivals: dict[int, int] = {}
        """By letter and situation: what the letter adds to the state."""
        self._numbers: dict[tuple[int, W], int] = {}
        self._receive = receive
        self._find = find

    def number(self, local: int, wire: W) -> int:
        key = (local, wire)
        number = self._numbers.setdefault(key, len(self.values))
        if number == len(self.values):
            if number > MASK:
                raise Misuse("the case is too large to be searched: take fewer messages or members.")
            self.values.append(key)
            self.actions.append(None)
        return number

    def delta(self, before: int, local: int, wire: W) -> int:
        """What it adds to the state that one situation takes the place of another."""
        return self.number(local, wire) - before << self.shift

    def find(self, situation: int) -> list[A]:
        """All that can happen to this member in a situation, found once."""
        actions = self.actions[situation]
        if actions is None:
            actions = self.actions[situation] = self._find(situation)
        return actions

    def arrive(self, situation: int, letter: int) -> int:
        """What it adds to the state that a letter is on its way to this member."""
        local, wire = self.values[situation]
        delta = self.delta(situation, local, self._receive(local, wire, letter))
        self.arrivals[letter << BITS | situation] = delta
        return delta


def deliver(members: Sequence[Situations[Any, Any]], state: State, sends: Sends) -> State:
    """The state after these letters were sent."""
    for to, letter in sends:
        one = members[to]
        situation = state >> one.shift & MASK
        added = one.arrivals.get(letter << BITS | situation)
        state += one.arrive(situation, letter) if added is None else added
    return state

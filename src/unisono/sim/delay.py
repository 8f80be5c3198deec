"""How long a packet is under way: models of one-way delay, named as on the command line.

| written                    | delay                                                                           |
|----------------------------|---------------------------------------------------------------------------------|
| constant:1ms               | always 1 ms                                                                     |
| uniform:0.5ms:2ms          | evenly between the two                                                          |
| exponential:1ms            | exponential with that mean                                                      |
| lognormal:1ms:0.5          | log-normal with that median and sigma                                           |
| bimodal:1ms:20ms:0.1       | the first, or with that probability the second, each exponential about its value |
| wan or wan:3               | by a built-in matrix between regions, 5 % jitter; `wan:3` uses three regions    |
| file:PATH                  | drawn from measured delays, a duration a line                                   |

A model is made once a run with its own source of random numbers, and asked for one delay at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from unisono.core.errors import Misuse
from unisono.core.types import Rank
from unisono.sim.units import parse_duration
from unisono.trace.files import read_text

Sampler: TypeAlias = Callable[[Rank, Rank], int]
"""One-way delay in ns from one member to another, always at least 1."""

SIMPLEST_DELAY = "constant:1ms"
REGIONS = ("eu-west", "us-east", "us-west", "ap-south", "sa-east")
WAN_MS = (
    (0.4, 38.0, 68.0, 60.0, 92.0),
    (38.0, 0.4, 31.0, 95.0, 58.0),
    (68.0, 31.0, 0.4, 110.0, 88.0),
    (60.0, 95.0, 110.0, 0.4, 150.0),
    (92.0, 58.0, 88.0, 150.0, 0.4),
)
"""One-way delays between five continents' regions, of the size that public clouds show; the diagonal is one data centre."""


class Draws(Protocol):
    """Where a model takes random numbers from: a stream of them, or `lots.Lots`."""

    def random(self) -> float: ...
    def gauss(self, mu: float, sigma: float) -> float: ...


class Delay:
    """A delay model: its text, its mean, and how to make a sampler from a random stream."""

    __slots__ = ("between_links", "make", "mean_ns", "text")

    def __init__(self, text: str, mean_ns: int, make: Callable[[Draws], Sampler], between_links: bool = False) -> None:
        self.text = text
        self.mean_ns = mean_ns
        self.make = make
        self.between_links = between_links  # True if the delay depends on who sends to whom


def parse_delay(text: str) -> Delay:
    """The model that a text names; a wrong text is the caller's mistake, answered with the right forms."""
    name, _, rest = text.partition(":")
    arguments = rest.split(":") if rest and name != "file" else ([rest] if rest else [])
    if name not in _MODELS:
        raise Misuse(f"there is no delay model {name!r}: choose among {', '.join(_MODELS)}, such as uniform:0.5ms:2ms.")
    make, counts, form = _MODELS[name]
    if len(arguments) not in counts:
        raise Misuse(f"the delay {text!r} does not fit its form {form}.")
    return make(text, arguments)


def _constant(text: str, arguments: list[str]) -> Delay:
    value = _positive(text, arguments[0])
    return Delay(text, value, lambda rng: lambda src, dst: value)


def _uniform(text: str, arguments: list[str]) -> Delay:
    low, high = _positive(text, arguments[0]), _positive(text, arguments[1])
    if low > high:
        raise Misuse(f"the delay {text!r} goes from more to less: write the smaller duration first.")
    span = high - low

    def make(rng: Draws) -> Sampler:
        draw = rng.random
        return lambda src, dst: low + int(span * draw())

    return Delay(text, (low + high) // 2, make)


def _exponential(text: str, arguments: list[str]) -> Delay:
    mean = _positive(text, arguments[0])

    def make(rng: Draws) -> Sampler:
        draw, log = rng.random, math.log
        return lambda src, dst: 1 + int(-mean * log(1.0 - draw()))

    return Delay(text, mean, make)


def _lognormal(text: str, arguments: list[str]) -> Delay:
    median, sigma = _positive(text, arguments[0]), _number(text, arguments[1], 0.0, 5.0)

    def make(rng: Draws) -> Sampler:
        return lambda src, dst: 1 + int(median * math.exp(sigma * rng.gauss(0.0, 1.0)))

    return Delay(text, round(median * math.exp(sigma * sigma / 2)), make)


def _bimodal(text: str, arguments: list[str]) -> Delay:
    near, far = _positive(text, arguments[0]), _positive(text, arguments[1])
    share = _number(text, arguments[2], 0.0, 1.0)

    def make(rng: Draws) -> Sampler:
        draw = rng.random
        return lambda src, dst: 1 + int(-(far if draw() < share else near) * math.log(1.0 - draw()))

    return Delay(text, round(near * (1 - share) + far * share), make)


def _wan(text: str, arguments: list[str]) -> Delay:
    count = round(_number(text, arguments[0], 1, len(REGIONS))) if arguments else len(REGIONS)
    matrix = [[round(ms * 1e6) for ms in row[:count]] for row in WAN_MS[:count]]
    mean = sum(map(sum, matrix)) // count**2

    def make(rng: Draws) -> Sampler:
        draw = rng.random

        def sample(src: Rank, dst: Rank) -> int:
            return round(matrix[src % count][dst % count] * (1.0 + 0.05 * draw()))

        return sample

    return Delay(text, mean, make, between_links=True)


def _from_file(text: str, arguments: list[str]) -> Delay:
    path = Path(arguments[0])
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"the delays of {path} cannot be read: {error}.") from None
    values = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                values.append(max(1, parse_duration(line)))
            except Misuse as error:
                raise Misuse(f"{path}, line {number}: {error}") from None
    if not values:
        raise Misuse(f"{path} holds no delays: write a duration a line, such as 1.5ms.")

    def make(rng: Draws) -> Sampler:
        draw, count = rng.random, len(values)
        return lambda src, dst: values[int(draw() * count)]

    return Delay(text, sum(values) // len(values), make)


def _positive(text: str, argument: str) -> int:
    try:
        value = parse_duration(argument)
    except Misuse as error:
        raise Misuse(f"in the delay {text!r}: {error}") from None
    if value < 1:
        raise Misuse(f"the delay {text!r} must be longer than nothing.")
    return value


def _number(text: str, argument: str, low: float, high: float) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise Misuse(f"in the delay {text!r}, {argument!r} must be a number from {low:g} to {high:g}.")
    return value


_MODELS: dict[str, tuple[Callable[[str, list[str]], Delay], tuple[int, ...], str]] = {
    "constant": (_constant, (1,), "constant:1ms"),
    "uniform": (_uniform, (2,), "uniform:0.5ms:2ms"),
    "exponential": (_exponential, (1,), "exponential:1ms"),
    "lognormal": (_lognormal, (2,), "lognormal:1ms:0.5"),
    "bimodal": (_bimodal, (3,), "bimodal:1ms:20ms:0.1"),
    "wan": (_wan, (0, 1), "wan or wan:3"),
    "file": (_from_file, (1,), "file:PATH"),
}

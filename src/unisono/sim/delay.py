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

A delay is decided by a key (`lots`): the same one each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

from unisono.core.errors import Misuse
from unisono.core.types import Rank
from unisono.sim.lots import FOLD, FRACTION, LEAST, number, pick
from unisono.sim.units import parse_duration
from unisono.trace.files import read_text

Sampler: TypeAlias = Callable[[Rank, Rank, int], int]
"""One-way delay in ns from one member to another for a key, always at least 1."""

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


class Delay(NamedTuple):
    """A delay model."""

    mean_ns: int
    sample: Sampler


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
    return Delay(value, lambda src, dst, key: value)


def _uniform(text: str, arguments: list[str]) -> Delay:
    low, high = _positive(text, arguments[0]), _positive(text, arguments[1])
    if low > high:
        raise Misuse(f"the delay {text!r} goes from more to less: write the smaller duration first.")
    span = (high - low) * LEAST

    def sample(src: Rank, dst: Rank, key: int) -> int:  # `number` written out: most runs spend much of their time here
        product = key * (key ^ FOLD)
        return low + int(span * ((product >> 64 ^ product) & FRACTION))

    return Delay((low + high) // 2, sample)


def _exponential(text: str, arguments: list[str]) -> Delay:
    mean = _positive(text, arguments[0])
    return Delay(mean, lambda src, dst, key: _exponential_ns(mean, key))


def _lognormal(text: str, arguments: list[str]) -> Delay:
    median, sigma = _positive(text, arguments[0]), _number(text, arguments[1], 0.0, 5.0)
    deviation = NormalDist().inv_cdf
    return Delay(
        round(median * math.exp(sigma * sigma / 2)),
        lambda src, dst, key: 1 + int(median * math.exp(sigma * deviation(number(key) or LEAST))),
    )


def _bimodal(text: str, arguments: list[str]) -> Delay:
    near, far = _positive(text, arguments[0]), _positive(text, arguments[1])
    share = _number(text, arguments[2], 0.0, 1.0)
    return Delay(
        round(near * (1 - share) + far * share),
        lambda src, dst, key: _exponential_ns(far if number(key) < share else near, key + 1),
    )


def _wan(text: str, arguments: list[str]) -> Delay:
    count = round(_number(text, arguments[0], 1, len(REGIONS))) if arguments else len(REGIONS)
    matrix = [[round(ms * 1e6) for ms in row[:count]] for row in WAN_MS[:count]]
    mean = sum(map(sum, matrix)) // count**2
    return Delay(mean, lambda src, dst, key: round(matrix[src % count][dst % count] * (1.0 + 0.05 * number(key))))


def _from_file(text: str, arguments: list[str]) -> Delay:
    path = Path(arguments[0])
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"the delays of {path} cannot be read: {error}.") from None
    values = []
    for row, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                values.append(max(1, parse_duration(line)))
            except Misuse as error:
                raise Misuse(f"{path}, line {row}: {error}") from None
    if not values:
        raise Misuse(f"{path} holds no delays: write a duration a line, such as 1.5ms.")
    return Delay(sum(values) // len(values), lambda src, dst, key: values[pick(key, len(values))])


def _exponential_ns(mean: int, key: int) -> int:
    return 1 + int(-mean * math.log(1.0 - number(key)))


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

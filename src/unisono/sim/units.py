"""Durations and sizes as people write them: `1.5ms`, `2s`, `64kB`. Inside, whole numbers of nanoseconds and of bytes."""

from __future__ import annotations

import math
import re

from unisono.core.errors import Misuse

_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_FORM = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(ns|us|µs|ms|min|s)\s*", re.IGNORECASE)
_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "kib": 1 << 10, "mib": 1 << 20}
_SIZE_FORM = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(kb|mb|kib|mib|b|)\s*", re.IGNORECASE)
LONGEST_NS = 10**18


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration with its unit; anything else is the caller's mistake."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise Misuse(f"{text!r} is not a duration: write a number and a unit, such as 1.5ms, 200us or 2s.")
    value = float(match[1]) * _UNITS[match[2].lower()]
    if not math.isfinite(value) or value > LONGEST_NS:
        raise Misuse(f"{text!r} is too long: the longest duration is {LONGEST_NS // 10**9} s.")
    return round(value)


def parse_size(text: str) -> int:
    """Bytes of a size with or without its unit."""
    match = _SIZE_FORM.fullmatch(text)
    if match is None:
        raise Misuse(f"{text!r} is not a size: write bytes, or a number and a unit, such as 64, 64kB or 1MiB.")
    return round(float(match[1]) * _SIZES[match[2].lower()])


def format_duration(ns: float) -> str:
    """A duration for people: three significant figures and a unit."""
    size = abs(ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if size >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.3g} ns"

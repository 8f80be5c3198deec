"""Every setting refuses what is outside its range, by name, and says what would be allowed."""

from __future__ import annotations

from typing import Any

import pytest

from unisono.core.config import MILLISECOND, SECOND, Config
from unisono.core.errors import ConfigError, Misuse, UnisonoError

RANGES = [
    ("members_max", 1, 65_535),
    ("payload_bytes_max", 1, 2_147_483_647),
    ("batch_messages_max", 1, 65_535),
    ("batch_bytes_max", 1, 2_147_483_647),
    ("window_messages", 1, 2_147_483_647),
    ("ack_delay_ns", 1, 3_600 * SECOND),
]


def make(name: str, value: Any) -> Config:
    return Config(**{name: value})


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_both_ends_of_the_range_are_allowed(name: str, low: int, high: int) -> None:
    assert getattr(make(name, low), name) == low
    assert getattr(make(name, high), name) == high


@pytest.mark.parametrize(("name", "low", "high"), RANGES)
def test_beyond_the_range_is_refused_with_the_range(name: str, low: int, high: int) -> None:
    for value in (low - 1, high + 1, -(10**30), 10**30):
        with pytest.raises(ConfigError) as refused:
            make(name, value)
        assert str(refused.value) == f"{name} = {value} is out of range: choose {low} to {high}."


@pytest.mark.parametrize("name", [name for name, _, _ in RANGES])
@pytest.mark.parametrize("value", [True, False, 1.0, 2.5, "7", b"7", (), float("nan")])
def test_what_is_no_whole_number_is_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        make(name, value)
    assert str(refused.value) == f"{name} must be a whole number, not {value!r}."


def test_only_the_acknowledgement_delay_may_be_none() -> None:
    assert Config(ack_delay_ns=None).ack_delay_ns is None
    for name, _, _ in RANGES:
        if name != "ack_delay_ns":
            with pytest.raises(ConfigError, match=f"^{name} must be a whole number, not None"):
                make(name, None)


@pytest.mark.parametrize("phi", [True, "4", (), b""])
def test_a_phi_that_is_no_number_is_refused(phi: object) -> None:
    with pytest.raises(ConfigError) as refused:
        make("phi", phi)
    assert str(refused.value) == f"phi must be a number, not {phi!r}."


@pytest.mark.parametrize(("members", "expected"), [(1, 0.5), (2, 1), (3, 1.5), (8, 4)])
def test_the_default_threshold_is_half_of_the_members(members: int, expected: float) -> None:
    assert Config().threshold(members) == expected


@pytest.mark.parametrize(("phi", "members"), [(0.5, 1), (1, 2), (1.5, 3), (2.99, 3), (4, 8), (7.5, 8)])
def test_a_threshold_from_half_to_all_is_allowed(phi: float, members: int) -> None:
    assert Config(phi=phi).threshold(members) == phi


@pytest.mark.parametrize(
    ("phi", "members"),
    [(1, 1), (0.4, 1), (1, 3), (3, 3), (3.9, 8), (8, 8), (-4, 8), (float("inf"), 8), (float("nan"), 8)],
)
def test_a_threshold_outside_is_refused_with_the_range(phi: float, members: int) -> None:
    with pytest.raises(ConfigError) as refused:
        Config(phi=phi).threshold(members)
    half = members / 2
    assert str(refused.value) == (
        f"phi = {phi:g} is out of range for {members} members: "
        f"choose {half:g} <= phi < {members}, or leave it out for {half:g}."
    )


@pytest.mark.parametrize(("phi", "members", "fitted"), [(None, 5, None), (3, 5, 3), (3, 3, None), (3, 7, None)])
def test_a_threshold_that_no_longer_fits_gives_way(phi: float | None, members: int, fitted: float | None) -> None:
    config = Config(phi=phi, window_messages=7)
    assert config.fitted(members).phi == fitted
    assert config.fitted(members).window_messages == 7
    assert config.phi == phi


def test_settings_come_from_names_and_values() -> None:
    assert Config.from_mapping({}) == Config()
    assert Config.from_mapping({"window_messages": 3, "phi": 2.5}) == Config(window_messages=3, phi=2.5)
    with pytest.raises(ConfigError, match=r"^window_messages = 0 is out of range"):
        Config.from_mapping({"window_messages": 0})


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping({"windows": 3})
    text = str(refused.value)
    assert text.startswith("there is no setting 'windows': choose among ack_delay_ns, batch_bytes_max, ")
    assert "window_messages" in text


def test_a_wrong_setting_is_the_callers_mistake() -> None:
    assert issubclass(ConfigError, Misuse)
    assert issubclass(Misuse, UnisonoError)


def test_settings_do_not_change() -> None:
    with pytest.raises(AttributeError):
        Config().phi = 3  # type: ignore[misc]


def test_the_defaults() -> None:
    config = Config()
    assert config.ack_delay_ns == 5 * MILLISECOND
    assert config.phi is None
    assert config.batch_bytes_max <= config.payload_bytes_max

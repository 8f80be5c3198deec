"""What members must have in common: each difference is told in words, and observers keep members with other hooks apart."""

from __future__ import annotations

from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from tests.group_tools import settles, with_membership
from unisono.core.config import CONFIG_NAMES, SECOND, Config, describe_numbers
from unisono.core.errors import ConfigError, Misuse
from unisono.core.membership.agreement import Agreement, describe_difference
from unisono.core.membership.discovery import REASON_LETTERS_MAX
from unisono.core.membership.membership import Membership
from unisono.core.membership.primary import restore
from unisono.core.membership.settings import MembershipSettings, Policy
from unisono.core.types import MemberId, ViewId
from unisono.core.wire.codec import VERSION
from unisono.core.wire.control import (
    ControlCodec,
    EarlierQuorum,
    EarlierStanding,
    GroupSettings,
    Hello,
    HookSet,
    Quorum,
    Standing,
)
from unisono.sim.group_world import GroupWorld

A = MemberId("a")
NO_HOOKS = MembershipSettings()
STATE = MembershipSettings(has_state=True)
MERGE = MembershipSettings(has_state=True, has_merge=True)
ANSWER = MembershipSettings(has_answer=True)
ALL_HOOKS = MembershipSettings(has_state=True, has_merge=True, has_answer=True)
OBSERVER = MembershipSettings(is_observer=True)


def agreed(membership: MembershipSettings = NO_HOOKS, order: str = "fifo", **config: Any) -> GroupSettings:
    return membership.agreed(order, Config(**config))


# Settings.

DIFFERENT: dict[str, tuple[Any, str, str]] = {
    "members_max": (7, "members_max=7", "members_max=1024"),
    "payload_bytes_max": (7, "payload_bytes_max=7", "payload_bytes_max=16777216"),
    "batch_messages_max": (7, "batch_messages_max=7", "batch_messages_max=4096"),
    "batch_bytes_max": (7, "batch_bytes_max=7", "batch_bytes_max=1048576"),
    "window_messages": (7, "window_messages=7", "window_messages=65536"),
    "ack_delay_ns": (None, "ack_delay_ns=None", "ack_delay_ns=5000000"),
    "hold_batches_max": (7, "hold_batches_max=7", "hold_batches_max=64"),
    "safe": (True, "safe=True", "safe=False"),
    "phi": (2.5, "phi=2.5", "phi=None"),
}


def test_every_setting_has_its_sentence() -> None:
    assert DIFFERENT.keys() == {field.name for field in fields(Config)}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_setting_that_differs_is_named_with_both_values(name: str) -> None:
    value, mine, theirs = DIFFERENT[name]
    said = describe_difference(agreed(**{name: value}), agreed())
    assert said == f"the group uses {mine}, this member {theirs}; join with the same settings."


def test_several_differences_are_told_together() -> None:
    group = agreed(replace(MERGE, policy=Policy.PRIMARY), "causal", safe=True)
    assert describe_difference(group, agreed()) == (
        "the group uses order='causal', policy='primary' and safe=True, this member order='fifo', policy='partitionable' and "
        "safe=False; join with the same settings. The group carries its state with `snapshot`, `restore` and `merge`, this member "
        "has no `snapshot`, `restore` and `merge` hooks: give them, or join as an observer."
    )


def test_equal_settings_are_no_difference_whatever_the_type_of_a_number() -> None:
    assert not describe_difference(agreed(phi=2), agreed(phi=2.0))
    assert "phi=2.0, this member phi=2.0000001;" in describe_difference(agreed(phi=2), agreed(phi=2.0000001))
    assert not describe_difference(agreed(ALL_HOOKS), agreed(replace(ALL_HOOKS, retry_ns=5, members_min=3)))


def test_another_version_is_told_before_anything_else() -> None:
    said = describe_difference(agreed(safe=True), agreed()._replace(version=99))
    assert said == (
        f"the group speaks version {VERSION} of the wire format, this member version 99: run the same version of unisono."
    )


def test_the_order_of_the_settings_is_part_of_the_wire_format() -> None:
    """A greeting carries values without names: whoever changes these names must change VERSION."""
    assert VERSION == 3
    assert tuple(DIFFERENT) == CONFIG_NAMES


@pytest.mark.parametrize("phi", [None, 0.5, 3, 10**400, float("inf"), float("nan"), -4])
def test_every_phi_can_travel(phi: float | None) -> None:
    (number,) = [n for name, n in zip(CONFIG_NAMES, Config(phi=phi).as_numbers(), strict=True) if name == "phi"]
    assert 0 <= number < 2**64


def test_the_longest_refusal_is_shown_whole() -> None:
    group = agreed(replace(ALL_HOOKS, policy=Policy.PRIMARY), "o" * 40)
    group = group._replace(config=tuple(2**31 - 1 for _ in CONFIG_NAMES))
    joiner = agreed(order="p" * 65_000)._replace(config=tuple(2**31 - 2 for _ in CONFIG_NAMES), policy="q" * 65_000)
    said = describe_difference(group, joiner)
    assert all(said.count(f"{name}=") == 2 for name in CONFIG_NAMES)
    assert said.endswith("or join as an observer.")
    assert len(said) <= REASON_LETTERS_MAX


def test_any_greeting_that_can_be_read_can_be_compared() -> None:
    random = Random(1)
    for _ in range(300):
        numbers = tuple(random.choice((0, 1, 2, 2**63, 2**64 - 1, random.getrandbits(64))) for _ in CONFIG_NAMES)
        hooks = random.choice((None, HookSet(*(random.random() < 0.5 for _ in range(3)))))
        strange = GroupSettings(VERSION, "\x1b" * 70, "", hooks, random.random() < 0.5, numbers)
        assert len(describe_numbers(numbers)) == len(CONFIG_NAMES)
        for membership in (ALL_HOOKS, OBSERVER):
            assert describe_difference(agreed(membership), strange).isprintable()


def test_a_greeting_with_more_or_fewer_settings_or_an_impossible_hook_cannot_be_read() -> None:
    codec = ControlCodec(Config())
    settings = agreed(ALL_HOOKS)
    data = codec.encode(Hello(settings, None, "fifo", (), A, (), (), False))
    hooks_at = data.index(b"partitionable") + len("partitionable")
    assert data[hooks_at : hooks_at + 5] == b"\1\1\1\1\0"  # they are there, all three; no observer
    for at in range(hooks_at, hooks_at + 5):
        assert codec.read(data[:at] + b"\2" + data[at + 1 :]) is None
    numbers_end = hooks_at + 5 + 8 * len(CONFIG_NAMES)
    assert codec.read(data[:numbers_end] + bytes(8) + data[numbers_end:]) is None
    assert codec.read(data[: numbers_end - 8] + data[numbers_end:]) is None


# Hooks.


@pytest.mark.parametrize(
    ("group", "joiner", "said"),
    [
        (
            MERGE,
            STATE,
            "the group carries its state with `snapshot`, `restore` and `merge`, this member has no `merge` hook: give it, or join "
            "as an observer.",
        ),
        (
            STATE,
            NO_HOOKS,
            "the group carries its state with `snapshot` and `restore`, this member has no `snapshot` and `restore` hooks: give "
            "them, or join as an observer.",
        ),
        (STATE, MERGE, "this member gives `merge`, the group does not: leave it out, or give it at all members."),
        (
            NO_HOOKS,
            STATE,
            "this member gives `snapshot` and `restore`, the group does not: leave them out, or give them at all members.",
        ),
        (
            ANSWER,
            NO_HOOKS,
            "the group answers clients with `answer`, this member has no `answer` hook: give it, or join as an observer.",
        ),
        (
            ANSWER,
            STATE,
            "the group answers clients with `answer`, this member has no `answer` hook: give it, or join as an observer. "
            "This member gives `snapshot` and `restore`, the group does not: leave them out, or give them at all members.",
        ),
    ],
)
def test_hooks_at_some_members_only_are_told(group: MembershipSettings, joiner: MembershipSettings, said: str) -> None:
    assert describe_difference(agreed(group), agreed(joiner)) == said


@pytest.mark.parametrize("hooks", [NO_HOOKS, STATE, MERGE, ANSWER, ALL_HOOKS], ids=repr)
def test_that_an_observer_gives_no_hooks_is_no_difference(hooks: MembershipSettings) -> None:
    assert not describe_difference(agreed(hooks), agreed(OBSERVER))
    assert not describe_difference(agreed(OBSERVER), agreed(hooks))
    assert describe_difference(agreed(hooks, safe=True), agreed(OBSERVER)), "its settings still count"


def test_two_groups_with_observers_that_speak_for_them_are_told_apart() -> None:
    group = agreed(OBSERVER)._replace(hooks=HookSet(True, True, False))
    other = agreed(OBSERVER)._replace(hooks=HookSet(False, False, False))
    assert describe_difference(group, other) == (
        "this member observes a group whose members give no hooks, and the members here give `snapshot`, `restore` and `merge`: "
        "give the same hooks at all members."
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"has_merge": True},
        {"is_observer": True, "has_state": True},
        {"is_observer": True, "has_answer": True},
        {"has_state": 1},
        {"is_observer": None},
    ],
)
def test_hooks_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MembershipSettings(**wrong)


# Records.


def test_a_record_of_the_version_before_is_read() -> None:
    codec = ControlCodec(Config())
    quorum = EarlierQuorum(ViewId(3, A), (A,))
    record = b"\2" + codec.encode(EarlierStanding(quorum, (quorum,)))[1:]
    assert restore(codec, record) == Standing(Quorum(*quorum, has_state=None), (Quorum(*quorum, has_state=None),))
    with pytest.raises(Misuse, match="cannot be read"):
        restore(codec, b"\1" + record[1:])


# In a group.


def gathered(**roles: MembershipSettings) -> GroupWorld:
    """A group whose members came one after the other, the first named first."""
    world = GroupWorld("fifo")
    for name, role in roles.items():
        start(world, seeds="".join(roles), **{name: role})
        settles(world, world.processes)
    world.run(0.2)
    return world


def start(world: GroupWorld, seeds: str, **roles: MembershipSettings) -> None:
    for name, role in roles.items():
        hooks = {hook: getattr(role, hook) for hook in ("has_state", "has_merge", "has_answer", "is_observer")}
        world.start(name, seeds=seeds, settings=with_membership(refused_probe_ns=2 * SECOND, **hooks))


def come(world: GroupWorld, **roles: MembershipSettings) -> None:
    start(world, "".join(sorted(world.processes)), **roles)
    world.run(5)


def membership_of(world: GroupWorld, name: str) -> Membership:
    return world.processes[name].member._membership


def mixed(world: GroupWorld) -> list[str]:
    """Views with members whose hooks differ."""
    views = {view.id: view for process in world.lives for view in process.views}
    return [
        str(view.id)
        for view in views.values()
        if len({_hooks_of(world, member) for member in view.members} - {None}) > 1
    ]


def _hooks_of(world: GroupWorld, member: MemberId) -> HookSet | None:
    settings = world.processes[member.address].member.settings
    return settings.membership.agreed("fifo", settings.config).hooks


def test_g5_a_joiner_with_other_hooks_is_refused_and_founds_no_group() -> None:
    world = gathered(a=MERGE, b=MERGE)
    come(world, c=STATE)
    assert world.processes["c"].view is None
    assert world.is_one("ab")
    assert "this member has no `merge` hook: give it, or join as an observer." in world.processes["c"].refusals[0]
    assert any("has no `merge` hook" in one.sentence for one in membership_of(world, "c").waiting())


def test_observers_come_and_go_in_a_group_with_hooks() -> None:
    world = gathered(b=ALL_HOOKS, o=OBSERVER, a=OBSERVER, c=ALL_HOOKS)
    assert world.is_one("abco")
    world.crash("b")
    settles(world, "aco")
    come(world, d=ALL_HOOKS)
    assert world.is_one("acdo")


@pytest.mark.parametrize("joiner", [STATE, NO_HOOKS, ANSWER], ids=["state", "none", "answer"])
def test_an_observer_that_coordinates_refuses_other_hooks_than_its_members_give(joiner: MembershipSettings) -> None:
    world = gathered(a=OBSERVER, b=MERGE)
    assert membership_of(world, "b").coordinator.address == "a"
    come(world, c=joiner)
    assert world.processes["c"].view is None
    assert world.is_one("ab")
    assert world.processes["c"].refusals


def test_an_observer_that_coordinates_only_because_a_member_crashed_knows_the_hooks_of_the_rest() -> None:
    """It came in by another observer, and nobody whose hooks count has ever greeted it."""
    world = gathered(m=OBSERVER, n=OBSERVER, z=MERGE, y=MERGE)
    world.crash("m")
    world.crash("z")
    settles(world, "ny")
    assert membership_of(world, "n").coordinator.address == "n"
    come(world, x=STATE)
    assert world.processes["x"].view is None
    assert any("no `merge` hook" in reason for reason in world.processes["x"].refusals)
    come(world, w=MERGE)
    assert world.is_one("nyw")
    assert not mixed(world)


def test_observers_that_are_left_alone_take_any_member_in() -> None:
    world = gathered(a=OBSERVER, b=OBSERVER, m=MERGE)
    world.crash("m")
    settles(world, "ab")
    come(world, c=STATE)
    settles(world, "abc")
    assert not mixed(world)


@pytest.mark.parametrize("seed", range(20))
def test_of_two_joiners_that_come_to_an_observer_at_once_one_is_taken_in(seed: int) -> None:
    world = GroupWorld("fifo", seed)
    start(world, "bc", a=OBSERVER)
    world.run(3)
    start(world, "a", b=MERGE, c=STATE)
    world.run(6)
    assert not mixed(world)
    assert any(len(process.view or ()) == 2 for process in world.up)


def test_an_observer_that_goes_by_nothing_would_mix_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: what keeps members with other hooks apart is what an observer remembers and asks for."""
    monkeypatch.setattr(Agreement, "hear", lambda *_: None)
    monkeypatch.setattr(Agreement, "unknown", lambda *_: [])
    world = gathered(a=OBSERVER, b=MERGE)
    come(world, c=STATE)
    assert mixed(world)


def test_an_observer_that_asks_nobody_would_mix_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: an observer that nobody has greeted must ask before it judges."""
    monkeypatch.setattr(Agreement, "unknown", lambda *_: [])
    world = gathered(m=OBSERVER, n=OBSERVER, z=MERGE, y=MERGE)
    membership_of(world, "n")._discovery.agreement._told.clear()
    membership_of(world, "n")._discovery.agreement._hooks = None
    world.crash("m")
    world.crash("z")
    settles(world, "ny")
    come(world, x=STATE)
    assert mixed(world)

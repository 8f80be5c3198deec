"""The directory of names: claims on a network that loses, delays and doubles messages, and what planted faults do to it."""

from __future__ import annotations

from random import Random

import pytest

from tests.papers.directory_net import SETTINGS, Net, colliding
from unisono.core.config import SECOND
from unisono.core.errors import ConfigError, Misuse
from unisono.core.types import MemberId
from unisono.papers.directory.directory import (
    Claimed,
    ClaimRefused,
    Directory,
    DirectorySettings,
    Lost,
    Outcome,
    hash_into,
)
from unisono.papers.directory.messages import (
    WIRE,
    Announce,
    Message,
    NameTaken,
    Probe,
    Query,
    Release,
    make_directory_codec,
)

# The paper's way.


def test_a_claim_is_asked_some_number_of_times_then_taken_and_announced() -> None:
    one = Directory(MemberId("a"), SETTINGS)
    one.claim("weather", 0)
    at = hash_into("weather", 16)
    said: list[Message] = []
    for step in range(4):
        one.tick(step * SETTINGS.probe_ns)
        messages, events = one.drain()
        said += messages
        assert events == ([Claimed("weather", at)] if step == 3 else [])
    assert said == [Probe("weather", at)] * 3 + [Announce("weather", at)]
    assert one.lookup("weather") == at
    assert one.owned == {"weather": at}


def test_everyone_learns_the_address() -> None:
    net = Net(3)
    net.claim("b", "weather")
    net.run(1)
    assert net.happened["b"] == [Claimed("weather", hash_into("weather", 16))]
    assert {one.lookup("weather") for one in net.managers.values()} == {hash_into("weather", 16)}


def test_on_a_collision_the_next_address_is_taken() -> None:
    net = Net(3)
    x, y, z = colliding(3, at=15)
    for manager, name in (("a", x), ("b", y), ("c", z)):
        net.claim(manager, name)
        net.run(2)
    assert (net["a"].owned, net["b"].owned, net["c"].owned) == ({x: 15}, {y: 0}, {z: 1}), "round the end of the pool"


def test_managers_defend_what_is_taken_for_a_newcomer_that_knows_nothing() -> None:
    net = Net(2)
    x, y = colliding(2)
    net.claim("a", x)
    net.run(1)
    net.start("c")
    net.claim("c", y)
    net.run(1)
    assert net["c"].owned == {y: 1}
    net.claim("c", x)
    assert isinstance(net.happened["c"][-1], ClaimRefused)
    assert net.owners(x) == ["a"]


def test_a_non_owner_defends_too() -> None:
    """The owner does not hear the newcomer; another manager objects for it."""
    net = Net(2)
    x, y = colliding(2)
    net.claim("a", x)
    net.run(1)
    net.start("c")
    net.cut = {frozenset("ac")}
    net.claim("c", y)
    net.run(1)
    assert net["c"].owned == {y: 1}


def test_permanent_groups_need_no_asking() -> None:
    net = Net(2, permanent={"alarm": 3})
    net.claim("a", "alarm")
    assert net.happened["a"] == [Claimed("alarm", 3)]
    assert net.sent == 0
    assert net["b"].lookup("alarm") == 3
    (x,) = colliding(1, at=3)
    net.claim("b", x)
    net.run(1)
    assert net["b"].owned == {x: 4}, "a permanent address is never given away"


def test_a_permanent_address_is_defended_against_those_without_the_table() -> None:
    net = Net(1, permanent={"alarm": 3})
    net.permanent = None
    net.start("b")
    (x,) = colliding(1, at=3)
    net.claim("b", x)
    net.run(1)
    assert net["b"].owned == {x: 4}
    assert net["b"].lookup("alarm") == 3, "as the objection said"


def test_a_lookup_asks_the_others() -> None:
    net = Net(2)
    net.claim("a", "x")
    net.run(1)
    net.start("c")
    assert net["c"].lookup("x") is None
    net.flush("c")
    net.run(1)
    assert net["c"].lookup("x") == hash_into("x", 16)


def test_what_is_released_is_free() -> None:
    net = Net(2)
    x, y = colliding(2)
    net.claim("a", x)
    net.run(1)
    net["a"].release(x)
    net.flush("a")
    net.run(1)
    assert net["b"].lookup(x) is None
    net.claim("b", y)
    net.run(1)
    assert net["b"].owned == {y: 0}


def test_a_claim_can_be_given_up() -> None:
    net = Net(2)
    net.claim("a", "x")
    net["a"].release("x")
    net.run(2)
    assert net.addresses() == []


# Gap: two creators at once.


class SilentOnPending(Directory):
    """As printed: managers reply for what is taken, and say nothing of what they are about to take."""

    def _defend(self, sender: MemberId, probe: Probe, now: int) -> None:
        claims, self._claims = self._claims, {}
        super()._defend(sender, probe, now)
        self._claims = claims


@pytest.mark.parametrize(("kind", "twice"), [(SilentOnPending, True), (Directory, False)])
def test_two_creators_claim_one_address_at_once(kind: type[Directory], twice: bool) -> None:
    net = Net(3, kind=kind)
    x, y = colliding(2)
    net.claim("b", x)
    net.claim("a", y)
    net.run(0.62)  # both have taken it, and neither announcement has arrived
    assert (net.addresses() == [0, 0]) == twice
    net.run(3)
    if not twice:
        assert (net["a"].owned, net["b"].owned) == ({y: 0}, {x: 1}), "the lower manager wins, the other goes on"


def test_two_creators_claim_one_name_at_once() -> None:
    net = Net(3)
    net.claim("b", "x")
    net.claim("a", "x")
    net.run(2)
    assert net.owners("x") == ["a"]
    (refusal,) = net.happened["b"]
    assert refusal == ClaimRefused("x", "'x' cannot be claimed: a has it, or claimed it at the same time.")


def test_two_owners_find_out_after_a_partition() -> None:
    net = Net(2)
    net.cut = {frozenset("ab")}
    net.claim("a", "x")
    net.claim("b", "x")
    net.run(2)
    assert net.owners("x") == ["a", "b"]
    net.cut = set()
    net.run(12)
    assert net.owners("x") == ["a"]
    assert Lost("x", hash_into("x", 16), MemberId("a")) in net.happened["b"]
    assert net["b"].lookup("x") == net["a"].lookup("x")


# Loss, death, restart.


@pytest.mark.seconds
@pytest.mark.parametrize("loss", [0.0, 0.2, 0.5])
def test_in_the_end_no_address_and_no_name_has_two_owners(loss: float) -> None:
    doubled = 0
    for seed in range(60):
        net = Net(5, loss=loss, seed=seed)
        random = Random(seed)
        names = [*colliding(3), "x", "y", "x"]
        claims = [(random.choice("abcde"), name) for name in names]
        for manager, name in dict.fromkeys(claims):
            if net[manager].lookup(name) is None and name not in net[manager].claiming:
                net.claim(manager, name)
            net.run(random.choice((0.0, 0.0, 0.3)))
        net.run(1.5)
        doubled += len(net.addresses()) - len(set(net.addresses()))
        net.run(60)
        assert len(set(net.addresses())) == len(net.addresses()), f"seed {seed}"
        lost = {one.name for happened in net.happened.values() for one in happened if isinstance(one, Lost)}
        for name in names:
            assert len(net.owners(name)) == 1 or (not net.owners(name) and name in lost), f"seed {seed}"
        assert not lost or loss
        assert not any(one.claiming for one in net.managers.values())
    assert doubled == 0 or loss >= 0.5, "probing some number of times finds it before, unless half of all is lost"


class OneProbe(Directory):
    def __init__(self, manager: MemberId, settings: DirectorySettings, permanent: dict[str, int] | None) -> None:
        once = DirectorySettings(settings.pool, 1, settings.probe_ns, settings.announce_ns, settings.expiry_ns)
        super().__init__(manager, once, permanent)


def test_asking_once_is_not_enough() -> None:
    def doubled(kind: type[Directory]) -> int:
        count = 0
        for seed in range(200):
            net = Net(2, kind=kind, loss=0.3, seed=seed)
            x, y = colliding(2)
            net.claim("a", x)
            net.run(1)
            net["b"]._by_address.clear()  # it has missed the announcement
            net["b"]._by_name.clear()
            net.claim("b", y)
            net.run(0.7)
            count += net.addresses() == [0, 0]
        return count

    assert doubled(OneProbe) > 3 * doubled(Directory)


def test_a_manager_that_died_does_not_keep_its_names() -> None:
    net = Net(3)
    net.claim("a", "x")
    net.run(1)
    del net.managers["a"]
    net.claim("b", "x")
    assert isinstance(net.happened["b"][-1], ClaimRefused), "known, and not yet expired"
    net.run(21)
    net.claim("b", "x")
    net.run(2)
    assert net.owners("x") == ["b"]


class KeepsQuotes(Directory):
    """Remembers what others say of a third."""

    def _learn_taken(self, sender: MemberId, message: NameTaken, now: int) -> None:
        super()._learn_taken(message.owner, message, now)


@pytest.mark.parametrize(("kind", "alive"), [(KeepsQuotes, True), (Directory, False)])
def test_others_cannot_keep_a_dead_owners_name_alive(kind: type[Directory], alive: bool) -> None:
    """B and C quote A, which is dead, to D, whoever of them still remembers: every question would start the clock anew."""
    net = Net(4, kind=kind)
    net.claim("a", "x")
    net.run(1)
    del net.managers["a"]
    for _ in range(40):
        net.run(1)
        for manager in "bcd":
            net[manager].receive(MemberId("z"), Query("x"), net.now)
            net.flush(manager)
    assert any(one.lookup("x") is not None for one in net.managers.values()) == alive


def test_a_restarted_manager_may_have_its_name_again() -> None:
    net = Net(3)
    net.claim("a", "x")
    net.run(1)
    net.start("a", incarnation=1)
    net.claim("a", "x")
    net.run(2)
    assert net.owners("x") == ["a"]
    assert net["b"].owner_of("x") == MemberId("a", 1)
    net["b"].receive(MemberId("a", 0), Release("x", hash_into("x", 16)), net.now)
    assert net["b"].lookup("x") is not None, "the earlier life has nothing to say any more"


# Limits and mistakes.


def test_an_exhausted_pool_is_a_sentence() -> None:
    net = Net(2, DirectorySettings(pool=3))
    for name in ("p", "q", "r"):
        net.claim("a", name)
        net.run(2)
    assert net.addresses() == [0, 1, 2]
    net.claim("b", "s")
    assert net.happened["b"] == [ClaimRefused("s", "'s' cannot be claimed: all 3 addresses of the pool are taken.")]
    net.start("c")  # which does not know it yet, and finds out address by address
    net.claim("c", "s")
    net.run(3)
    assert net.happened["c"] == [ClaimRefused("s", "'s' cannot be claimed: all 3 addresses of the pool are taken.")]
    net["a"].release("q")
    net.flush("a")
    net.run(1)
    net.claim("b", "s")
    net.run(2)
    assert len(net["b"].owned) == 1


def test_misuse_is_a_sentence() -> None:
    one = Directory(MemberId("a"), DirectorySettings(pool=8, claims_max=2))
    one.claim("x", 0)
    with pytest.raises(Misuse, match="this manager has claimed 'x' already: release it first"):
        one.claim("x", 0)
    one.claim("y", 0)
    with pytest.raises(Misuse, match="2 claims are under way"):
        one.claim("z", 0)
    with pytest.raises(Misuse, match="'z' is not a name of this manager"):
        one.release("z")
    with pytest.raises(Misuse, match="is not text"):
        one.lookup("\udcff")
    for name in ("", "é" * 128):
        with pytest.raises(Misuse, match="a name has 1 to 255 bytes"):
            one.claim(name, 0)


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match="probes = 0 is out of range"):
        DirectorySettings(probes=0)
    with pytest.raises(ConfigError, match="pool = 4294967297 is out of range"):
        DirectorySettings(pool=2**32 + 1)
    with pytest.raises(ConfigError, match="names would vanish"):
        DirectorySettings(announce_ns=10, expiry_ns=10)
    for table in ({"p": 16}, {"p": 1, "q": 1}):
        with pytest.raises(ConfigError, match="permanent group"):
            Directory(MemberId("a"), SETTINGS, table)


def test_tables_and_answers_are_bounded() -> None:
    one = Directory(MemberId("a"), DirectorySettings(pool=8, messages_max=4))
    for number in range(100):
        one.receive(MemberId(f"m{number}"), Announce(f"n{number}", number % 16), 0)
    assert 0 < len(one.entries()) <= 8
    assert one.dropped >= 48, "addresses beyond the pool"
    for number in range(100):
        one.receive(MemberId("z"), Query(f"n{number}"), 0)
    assert len(one.drain()[0]) <= 4
    one.tick(10**15)
    assert one.entries() == []
    assert one.deadline is None


def test_random_words_do_no_harm() -> None:
    """Whatever managers say, tables stay whole and own names are lost to a lower manager only."""
    random = Random(7)
    one = Directory(MemberId("m"), DirectorySettings(pool=4))
    ids = [MemberId(name, life) for name in "azm" for life in (0, 1)]
    now = 0
    for _ in range(5_000):
        now += random.randint(0, SECOND)
        name, address = random.choice("pqrs"), random.randrange(5)
        kind = random.randrange(7)
        if kind == 0 and name not in one.claiming and name not in one.owned:
            one.claim(name, now)
        elif kind == 1 and name in one.owned:
            one.release(name)
        else:
            words: list[Message] = [
                Probe(name, address),
                NameTaken(name, address, random.choice(ids), random.random() < 0.5),
                Announce(name, address),
                Release(name, address),
                Query(name),
            ]
            one.receive(random.choice(ids), random.choice(words), now)
        one.tick(now)
        for event in one.drain()[1]:
            assert not isinstance(event, Lost) or event.owner < one.id
        entries = one.entries()
        assert len({entry.name for entry in entries}) == len({entry.address for entry in entries}) == len(entries)
        assert all(one.lookup(entry.name) == entry.address for entry in entries)
        assert len(entries) <= 4


def test_every_message_survives_the_wire() -> None:
    codec = make_directory_codec()
    owner = MemberId("10.0.0.1:7000", 3)
    messages: list[Message] = [
        Probe("x", 1),
        NameTaken("é", 2, owner, True),
        Announce("x", 3),
        Release("x", 4),
        Query("x"),
    ]
    assert {type(message) for message in messages} == {layout.type for layout in WIRE}
    for message in messages:
        data = codec.encode(message)
        assert codec.decode(data, 0, 1) == message
        for end in range(len(data)):
            assert codec.decode(data[:end], 0, 1) is None


def test_the_same_seed_is_the_same_run() -> None:
    def events(seed: int) -> tuple[int, list[list[Outcome]]]:
        net = Net(4, loss=0.3, seed=seed)
        for manager, name in zip("abcd", colliding(4), strict=True):
            net.claim(manager, name)
        net.run(10)
        return net.sent, list(net.happened.values())

    assert events(3) == events(3)

"""Looking at a member after its turns. Who observes pays for it; a member that nobody observes pays nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from unisono.core.events import Happening
from unisono.runtime.named_peers import NamedPeers

if TYPE_CHECKING:
    from unisono.runtime.group import Group

Observer = Callable[[list[Happening], int], None]


def observe_turns(group: Group, observer: Observer) -> None:
    """After each turn, tell the observer what it showed and when, by the member's clock."""
    driver = group._driver
    show = driver._show

    def show_and_tell(events: list[Happening], now: int) -> None:
        show(events, now)
        observer(events, now)

    driver._show = show_and_tell


def call_at_end(group: Group, end: Callable[[], None]) -> None:
    """When the group is over, call this besides whatever is called then."""
    before = group._end

    def both() -> None:
        before()
        end()

    group._at_end(both)


def explain_peers(group: Group) -> list[str]:
    """What keeps the peers away that this member was told to look for, a sentence each."""
    return [] if group._driver.peers is None else group._driver.peers.sentences()


def named_peers(group: Group) -> NamedPeers | None:
    """What is known of the peers that a member was told to look for."""
    return group._driver.peers


def explain_strangers(group: Group) -> list[str]:
    """Who else seems to be near and has another key, group or version of the wire format, a sentence each."""
    seal = group._driver.seal
    said = [] if group._driver.peers is None else group._driver.peers.strangers()
    dropped = group._driver.member.counters.dropped
    versions = (dropped.get("frame: version", 0), dropped.get("control: version", 0), seal.refused.get("version", 0))
    foreign = sum(versions) - (0 if group._driver.peers is None else group._driver.peers.sealed)
    if foreign > 0:
        said.append(
            f"{foreign} messages came in another version of the wire format: run the same version of unisono at all members."
        )
    return said


def count_drops(group: Group) -> dict[str, int]:
    """What was refused or lost at this member so far, also on its disk, by layer and reason; only what happened at all."""
    driver = group._driver
    drops = dict(driver.member.counters.dropped)
    drops |= {f"{driver.seal.name}: {reason}": count for reason, count in driver.seal.refused.items()}
    counted = driver._port.counters()
    drops |= {name: count for name, count in counted.items() if name.startswith("socket ")}
    if driver.recorder is not None:
        drops["trace: rows not written"] = driver.recorder.gaps
    if group._journal is not None:
        drops["journal: deliveries not written"] = group._journal.missing_messages
    return {reason: count for reason, count in drops.items() if count}

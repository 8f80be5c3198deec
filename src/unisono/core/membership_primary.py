"""Which view is primary: a majority of the last primary *and* of every later one that a respondent confirmed.

Why confirmed ones count: whoever confirmed a primary may be the only one left who knows of it, while another member has
installed it and goes on. Two primaries that follow the same one would each need a majority of it, so they share a member;
that member confirmed the lower one first, says so in its answer, and the higher one then needs a majority of the lower one
too. So primaries form a chain (P20).

Members are counted by address: a process that restarts with its record is as good a witness as before. That is why
the record is persisted before the confirmation leaves. A life that confirms no primary writes nothing, so the record is the
last that *any* life at the address wrote, not the last life's. One that lost its record must come back under a new address.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unisono.core.control import ControlCodec, Quorum, Standing
from unisono.core.errors import Misuse
from unisono.core.types import MemberId, ViewId

NOTHING = Standing(None, ())


def judge(
    members: Sequence[MemberId], standings: Iterable[Standing], peers: Sequence[str], bootstrap: bool
) -> tuple[bool, tuple[ViewId, ...]]:
    """Whether a view of these members is primary, and which views it then comes after, the latest first."""
    known = tuple(standings)
    lasts = [standing.last for standing in known if standing.last is not None]
    last = max(lasts) if lasts else None
    attempts = sorted({one for s in known for one in s.attempts if last is None or one.view > last.view}, reverse=True)
    addresses = {member.address for member in members}
    owed = [[member.address for member in quorum.members] for quorum in attempts]
    if last is not None:
        owed.append([member.address for member in last.members])
    elif not bootstrap:
        if not peers:
            return False, ()
        owed.append(list(peers))
    supersedes = tuple(quorum.view for quorum in attempts) + ((last.view,) if last is not None else ())
    return all(2 * len(addresses.intersection(quorum)) > len(quorum) for quorum in owed), supersedes


def confirmed(standing: Standing, quorum: Quorum) -> Standing:
    """The record of one that is about to confirm a primary view."""
    return standing if quorum in standing.attempts else Standing(standing.last, (*standing.attempts, quorum))


def installed(standing: Standing, quorum: Quorum) -> Standing:
    """The record of one that installs a primary view: what came before it is settled."""
    return Standing(quorum, tuple(one for one in standing.attempts if one.view > quorum.view))


def restore(codec: ControlCodec, record: bytes | None) -> Standing:
    """What an earlier life persisted."""
    if not record:
        return NOTHING
    standing = codec.read(record)
    if not isinstance(standing, Standing):
        raise Misuse("the record of this member cannot be read: restore it, or start under a new address.")
    return standing

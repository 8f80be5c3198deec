"""What views cost: a storm of joins from cold, and one view change after a crash, by the size of the group. Virtual time.

    ./dev bench views [--members 2 --members 4 …] [--collect star --collect ring] [--seed 1] [--json]

All members start within 10 ms and know each other's addresses. Datagrams and bytes are those of the whole group. A crash is
measured on an idle group: how long until the change begins, which is the detector's patience, and what the change itself takes:
the messages of its ballot alone. Reports travel by star or by ring (decision 0015).
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any

from unisono.core.config import MILLISECOND, Config
from unisono.core.member import Settings
from unisono.core.membership import MembershipSettings
from unisono.core.types import MemberId
from unisono.core.wire.control import ControlCodec, Hello, Notice
from unisono.core.wire.frame import ControlFrame, Frames
from unisono.sim.group_world import GroupWorld

SIZES = (2, 3, 4, 8, 16, 32, 64)


def storm(members: int, seed: int, collect: str = "star") -> dict[str, Any]:
    """Everyone starts at once; then one crashes."""
    settings = Settings(membership=MembershipSettings(collect=collect))
    world = GroupWorld("sequencer", seed, settings=settings, delay="uniform:0.2ms:2ms")
    names = [f"m{number:02}" for number in range(members)]
    rng = world.stream("starts")
    for name in names:
        world.at(rng.randrange(10 * MILLISECOND), partial(world.start, name, seeds=names))
    assert world.run(60, lambda: len(world.processes) == members and world.is_one(names)), world.story()
    found: dict[str, Any] = {
        "members": members,
        "collect": collect,
        "virtual_ms": round(world.now / 1e6, 1),
        "views": max(len(process.views) for process in world.up),
        "datagrams": world.network.sent,
        "bytes": world.network.sent_bytes,
    }
    world.run(2)
    if members > 2:
        found["crash"] = _crash(world, names)
    return found


def _crash(world: GroupWorld, names: list[str]) -> dict[str, Any]:
    """The cost of one change: what is sent from the first suspicion until everyone has the new view."""
    rest = names[:-1]
    frames, codec = Frames(world.group, MemberId("onlooker")), ControlCodec(Config())
    send, sent = world.send, [0, 0]

    def count(src: str, dst: str, datagram: bytes) -> None:
        frame = frames.open(datagram)
        if isinstance(frame, ControlFrame) and not isinstance(codec.read(frame.message), Hello | Notice):
            sent[0] += 1
            sent[1] += len(datagram)
        send(src, dst, datagram)

    world.send = count  # type: ignore[method-assign]
    world.crash(names[-1])
    begun = world.now
    assert world.run(30, lambda: any(process.member.state.is_blocked for process in world.up)), world.story()
    suspected = world.now
    assert world.run(30, lambda: world.is_one(rest)), world.story()
    return {
        "detected_ms": round((suspected - begun) / 1e6, 1),
        "change_ms": round((world.now - suspected) / 1e6, 1),
        "datagrams": sent[0],
        "bytes": sent[1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench views", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--members", type=int, action="append")
    parser.add_argument("--collect", choices=("star", "ring"), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    ways = options.collect or ("star", "ring")
    rows = [storm(members, options.seed, way) for members in options.members or SIZES for way in ways]
    if options.json:
        print(json.dumps(rows))
        return
    print("members  way   views  virtual ms  datagrams       bytes | crash: detected ms  change ms  datagrams    bytes")
    for row in rows:
        line = f"{row['members']:>7}  {row['collect']:4}  {row['views']:>5}  {row['virtual_ms']:>10}  "
        line += f"{row['datagrams']:>9,}  {row['bytes']:>10,} | "
        if "crash" in row:
            crash = row["crash"]
            line += (
                f"{crash['detected_ms']:>18}  {crash['change_ms']:>9}  {crash['datagrams']:>9,}  {crash['bytes']:>7,}"
            )
        print(line)


if __name__ == "__main__":
    main()

"""The options that several commands share, and how they become a scenario."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from unisono.core.errors import Misuse
from unisono.sim.faults import Fault
from unisono.sim.scenario import FAULTS, Scenario, Source, name_of
from unisono.sim.units import parse_duration

_LOAD, _NETWORK, _ORDER = "Load", "Network and faults", "Order"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def refuse_other_storage(path: Path | None) -> Path | None:
    """Refuse the address of other storage: as a path it would name a local folder `s3:`."""
    if path is not None and path.parts and _SCHEME.fullmatch(path.parts[0]):
        address = f"{path.parts[0]}//{'/'.join(path.parts[1:])}"  # `Path` has taken one slash away
        raise Misuse(
            f"{address} is not a local path, and this is written to local paths only: give one, and copy it later."
        )
    return path


Order = Annotated[
    str, typer.Option("--order", "-o", help="The order; `unisono sim orders` lists them.", rich_help_panel=_ORDER)
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master: local[*], spark://host:7077. Default: UNISONO_SPARK_MASTER, or this machine."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark: spark.executor.memory=4g. May be repeated."),
]
Members = Annotated[int, typer.Option("--members", "-n", help="Number of members.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness. The same seed gives the same run.")]
From = Annotated[
    str | None, typer.Option("--from", help="Start of the window, counted from the beginning of the run, as in 5ms.")
]
To = Annotated[str | None, typer.Option("--to", help="End of the window.")]
SourceKind = Annotated[
    str, typer.Option("--source", help="periodic, poisson, bursts or saturating.", rich_help_panel=_LOAD)
]
Rate = Annotated[float, typer.Option(help="Messages per second of the whole group.", rich_help_panel=_LOAD)]
Messages = Annotated[
    int, typer.Option("--messages", "-m", help="Number of messages that the group casts.", rich_help_panel=_LOAD)
]
Size = Annotated[str, typer.Option(help="Bytes of a payload: 64, or from-to as in 10-1000.", rich_help_panel=_LOAD)]
Burst = Annotated[int, typer.Option(help="Messages in a burst.", rich_help_panel=_LOAD)]
Depth = Annotated[
    int, typer.Option(help="With --source saturating: messages under way per member.", rich_help_panel=_LOAD)
]
CausalShare = Annotated[
    float, typer.Option(help="Share of causal messages (toto and all-ack carry both).", rich_help_panel=_LOAD)
]
SubsetShare = Annotated[float, typer.Option(help="Share of messages addressed to a subset.", rich_help_panel=_LOAD)]
Phi = Annotated[float | None, typer.Option(help="ToTo's threshold, n/2 <= phi < n.", rich_help_panel=_ORDER)]
AckDelay = Annotated[
    str,
    typer.Option(
        help="Delay after which an idle member acknowledges explicitly; `none`: never.", rich_help_panel=_ORDER
    ),
]
Delay = Annotated[
    str,
    typer.Option(
        help="One-way delay: constant:1ms, uniform:0.5ms:2ms, exponential:1ms, lognormal:1ms:0.5, bimodal:1ms:20ms:0.1, "
        "wan, wan:3, file:PATH.",
        rich_help_panel=_NETWORK,
    ),
]
Loss = Annotated[float, typer.Option(help="Share of packets lost (and retransmitted later).", rich_help_panel=_NETWORK)]
Duplicate = Annotated[float, typer.Option(help="Share of packets duplicated.", rich_help_panel=_NETWORK)]
Reorder = Annotated[float, typer.Option(help="Share of packets that are reordered.", rich_help_panel=_NETWORK)]
Turn = Annotated[str, typer.Option(help="Time that a member spends on one turn.", rich_help_panel=_NETWORK)]
Faults = Annotated[
    list[str] | None,
    typer.Option(
        "--fault",
        help="KIND:WHO@WHEN[+DURATION][=AMOUNT], may be repeated: crash:b@30ms, pause:c@10ms+50ms, partition:a,b@5ms+40ms, "
        "clog:a,c@0ms+9ms, slow:a,b@0ms+1s=10, lossy:a,b@0ms+1s=0.5, drift:a@0ms=0.1.",
        rich_help_panel=_NETWORK,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

_FAULT = re.compile(r"([a-z]+):([a-z0-9,]+)@([^+=]+)(?:\+([^=]+))?(?:=(.+))?")
_SIZE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def scenario_from(
    *,
    order: str,
    members: int,
    seed: int,
    source: str = "poisson",
    rate: float = 100.0,
    messages: int = 1_000,
    size: str = "64",
    burst: int = 10,
    depth: int = 8,
    causal_share: float = 0.0,
    subset_share: float = 0.0,
    phi: float | None = None,
    ack_delay: str = "5ms",
    delay: str = "uniform:0.5ms:2ms",
    loss: float = 0.0,
    duplicate: float = 0.0,
    reorder: float = 0.0,
    turn: str = "0ms",
    faults: list[str] | None = None,
) -> Scenario:
    """Build the scenario that the options describe; what does not fit is said by the scenario itself."""
    sizes = _SIZE.fullmatch(size)
    if sizes is None:
        raise Misuse(f"{size!r} is not a size: write bytes as 64, or a range as 10-1000.")
    config: dict[str, Any] = {"ack_delay_ns": None if ack_delay == "none" else parse_duration(ack_delay)}
    if phi is not None:
        config["phi"] = phi
    if members < 1:
        raise Misuse(f"a group of {members} members is none: choose at least 1.")
    return Scenario(
        order=order,
        members=members,
        seed=seed,
        source=Source(
            kind=source,
            rate=rate,
            messages=messages,
            burst=burst,
            depth=depth,
            size_bytes_min=int(sizes[1]),
            size_bytes_max=int(sizes[2] or sizes[1]),
            causal_share=causal_share,
            subset_share=subset_share,
        ),
        delay=delay,
        loss=loss,
        duplicate=duplicate,
        reorder=reorder,
        turn_ns=parse_duration(turn),
        faults=tuple(parse_fault(text, members) for text in faults or ()),
        config=config,
    )


def parse_fault(text: str, members: int) -> Fault:
    """A fault as people write it on the command line."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise Misuse(f"{text!r} is not a fault: write KIND:WHO@WHEN, such as crash:b@30ms or pause:c@10ms+50ms.")
    kind, who, at, duration, amount = match.groups()
    if kind not in FAULTS:
        raise Misuse(f"there is no fault {kind!r}: choose among {', '.join(FAULTS)}.")
    names = [name_of(number) for number in range(members)]
    named = tuple(who.split(","))
    for name in named:
        if name not in names:
            raise Misuse(f"the fault {text!r} names {name!r}: the members are {names[0]} to {names[-1]}.")
    try:
        value = float(amount) if amount else 0.0
    except ValueError:
        raise Misuse(f"the fault {text!r} has the amount {amount!r}, which is not a number.") from None
    lasts = parse_duration(duration) if duration else 0
    if kind == "partition":  # of those named from the rest
        return Fault(kind, parse_duration(at), (), lasts, value, (named, tuple(n for n in names if n not in named)))
    return Fault(kind, parse_duration(at), named, lasts, value)

"""The options that several commands share, and how they become a scenario."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from unisono.core.errors import Misuse
from unisono.orders.registry import DEFAULT_ORDER
from unisono.sim.faults import Fault
from unisono.sim.scenario import FAULTS, Scenario, Source, name_of
from unisono.sim.units import parse_duration

_LOAD, _NETWORK, _ORDER = "Load", "Network and faults", "Order"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def taking(
    model: type, but: str = "", options: Mapping[str, Any] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let the fields of `model` be options of a command, which gets them as one object: its parameter of that type.

    The command has all fields as options but those named in `but`, or those in `options` (their `Annotated` types by name, for a
    model that has none). `defaults` are its own.
    """
    usual = {field.name: field.default for field in fields(model)} | defaults
    shown = dict(options or get_type_hints(model, include_extras=True))
    for name in but.split():
        del shown[name]

    def dress(command: Callable[..., None]) -> Callable[..., None]:
        own = signature(command, eval_str=True)
        taker = next(one.name for one in own.parameters.values() if one.annotation is model)

        @wraps(command)
        def run(**values: Any) -> None:
            asked = model(**defaults | {name: values.pop(name) for name in shown})
            command(**values, **{taker: asked})

        parameters: list[Parameter] = []
        for one in own.parameters.values():
            if one.name == taker:
                parameters += (
                    Parameter(name, Parameter.KEYWORD_ONLY, default=usual[name], annotation=kind)
                    for name, kind in shown.items()
                )
            else:
                parameters.append(one.replace(kind=Parameter.KEYWORD_ONLY))
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return dress


def refuse_other_storage(path: Path | None) -> Path | None:
    """Refuse the address of other storage: as a path it would name a local folder `s3:`."""
    if path is not None and path.parts and _SCHEME.fullmatch(path.parts[0]):
        address = f"{path.parts[0]}//{'/'.join(path.parts[1:])}"  # `Path` has taken one slash away
        raise Misuse(
            f"{address} is not a local path, and this is written to local paths only: give one, and copy it later."
        )
    return path


Out = Annotated[Path, typer.Option("--out", help="File to write.", callback=refuse_other_storage)]
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
Phi = Annotated[float | None, typer.Option(help="ToTo's threshold, n/2 <= phi < n.", rich_help_panel=_ORDER)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

_FAULT = re.compile(r"([a-z]+):([a-z0-9,]+)@([^+=]+)(?:\+([^=]+))?(?:=(.+))?")
_SIZE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def _load(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_LOAD)


def _network(*names: str, help: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_NETWORK)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options that describe one simulated run of an order."""

    order: Order = DEFAULT_ORDER
    members: Members = 3
    seed: Seed = 1
    source: Annotated[str, _load(help="periodic, poisson, bursts or saturating.")] = "poisson"
    rate: Annotated[float, _load(help="Messages per second of the whole group.")] = 100.0
    messages: Annotated[int, _load("--messages", "-m", help="Number of messages that the group casts.")] = 1_000
    size: Annotated[str, _load(help="Bytes of a payload: 64, or from-to as in 10-1000.")] = "64"
    burst: Annotated[int, _load(help="Messages in a burst.")] = 10
    depth: Annotated[int, _load(help="With --source saturating: messages under way per member.")] = 8
    causal_share: Annotated[float, _load(help="Share of causal messages (toto and all-ack carry both).")] = 0.0
    subset_share: Annotated[float, _load(help="Share of messages addressed to a subset.")] = 0.0
    phi: Phi = None
    ack_delay: Annotated[
        str,
        typer.Option(
            help="Delay after which an idle member acknowledges explicitly; `none`: never.", rich_help_panel=_ORDER
        ),
    ] = "5ms"
    delay: Annotated[
        str,
        _network(
            help="One-way delay: constant:1ms, uniform:0.5ms:2ms, exponential:1ms, lognormal:1ms:0.5, "
            "bimodal:1ms:20ms:0.1, wan, wan:3, file:PATH.",
        ),
    ] = "uniform:0.5ms:2ms"
    loss: Annotated[float, _network(help="Share of packets lost (and retransmitted later).")] = 0.0
    duplicate: Annotated[float, _network(help="Share of packets duplicated.")] = 0.0
    reorder: Annotated[float, _network(help="Share of packets that are reordered.")] = 0.0
    turn: Annotated[str, _network(help="Time that a member spends on one turn.")] = "0ms"
    faults: Annotated[
        list[str] | None,
        _network(
            "--fault",
            help="KIND:WHO@WHEN[+DURATION][=AMOUNT], may be repeated: crash:b@30ms, pause:c@10ms+50ms, "
            "partition:a,b@5ms+40ms, clog:a,c@0ms+9ms, slow:a,b@0ms+1s=10, lossy:a,b@0ms+1s=0.5, drift:a@0ms=0.1.",
        ),
    ] = None

    def scenario(self) -> Scenario:
        """Build the scenario that the options describe; what does not fit is said by the scenario itself."""
        sizes = _SIZE.fullmatch(self.size)
        if sizes is None:
            raise Misuse(f"{self.size!r} is not a size: write bytes as 64, or a range as 10-1000.")
        config: dict[str, Any] = {"ack_delay_ns": None if self.ack_delay == "none" else parse_duration(self.ack_delay)}
        if self.phi is not None:
            config["phi"] = self.phi
        if self.members < 1:
            raise Misuse(f"a group of {self.members} members is none: choose at least 1.")
        return Scenario(
            order=self.order,
            members=self.members,
            seed=self.seed,
            source=Source(
                kind=self.source,
                rate=self.rate,
                messages=self.messages,
                burst=self.burst,
                depth=self.depth,
                size_bytes_min=int(sizes[1]),
                size_bytes_max=int(sizes[2] or sizes[1]),
                causal_share=self.causal_share,
                subset_share=self.subset_share,
            ),
            delay=self.delay,
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
            turn_ns=parse_duration(self.turn),
            faults=tuple(parse_fault(text, self.members) for text in self.faults or ()),
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

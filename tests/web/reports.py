"""Reports to look at: stories that are broken on purpose, names that are hostile, and more runs than anyone reads."""

from __future__ import annotations

from unisono.pipeline.report.collect import findings, size_of, timelines_of
from unisono.pipeline.report.model import (
    Latency,
    MessageCost,
    ReportData,
    ReportedViolation,
    RunReport,
    Tau,
    Waits,
    overall,
)
from unisono.trace.checks.judge import Observer
from unisono.trace.checks.properties import place_of
from unisono.trace.promises import promises
from unisono.trace.schema import Event
from unisono.trace.story import tell

TWO_ORDERS = """
all VIEW 1@a a b c
a CAST x
b CAST y
a DELIVER x
a DELIVER y
b DELIVER y
b DELIVER x
c DELIVER x
c DELIVER y
c CAST z
a,b,c DELIVER z
all END
""".replace("all VIEW", "a,b,c VIEW")

LOST_IN_A_CRASH = """
a,b,c VIEW 1@a a b c
a CAST x
b CAST y
a DELIVER x
b DELIVER x
b DELIVER y
a CRASH
b,c VIEW 2@b b c from b c
c CAST z
b,c DELIVER z
all END
"""

UNFINISHED = """
a,b VIEW 1@a a b
a CAST x
a,b DELIVER x
a END
"""

FINE = """
a,b,c VIEW 1@a a b c
a CAST x
b CAST y
a,b,c DELIVER x
a,b,c DELIVER y
all END
"""

HOSTILE = (
    "<script>window.hacked=1</script>",
    "\"><img src=x onerror='window.hacked=1'>",
    "</style><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    r"$\frac{1}{0$ {{ 7*7 }} {% if %}",
    "\u202egnp.exe\u0000\ud800" + "w" * 300,
)


def judged(name: str, story: str, protocol: str = "causal-total") -> tuple[RunReport, list[Event]]:
    """The run that a story tells, as the report would get it."""
    events = tell(story, protocol=protocol, run=name)
    observer = Observer(promises(protocol))
    observer.write(events)
    verdict = observer.finish()
    owed = tuple(sorted(verdict.owed, key=place_of))
    broken = dict(sorted(verdict.counts.items(), key=lambda pair: place_of(pair[0])))
    run = RunReport(
        name, "g", protocol, str(verdict.result), size_of(events), owed,
        findings(verdict.violations, broken, events), broken, verdict.unknown,
    )  # fmt: skip
    return run, events


def figures(protocols: tuple[str, ...] = ("sequencer", "all-ack", "toto")) -> dict[str, object]:
    """Made-up measures of some protocols, in groups of eight."""
    curve = tuple((i / 20, 1e6 * (1 + (i / 20) ** 2 * 4)) for i in range(21))
    return {
        "latency": tuple(Latency(p, 8, "all", 4000, 2.4e6, curve, 5e6) for p in protocols),
        "waits": tuple(Waits(p, 8, 4000, 1.5e6 + i * 4e5, 2e5 * i) for i, p in enumerate(protocols)),
        "tau": tuple(
            Tau(p, 8, source, ((5, 900), (6, 700), (8, 400)))
            for p in protocols[-2:]
            for source in ("periodic", "poisson")
        ),
        "cost": tuple(
            MessageCost(p, 8, 4000, 7.0 * i + 6, 7.0 * i + 7, 400.0 + i, i > 1) for i, p in enumerate(protocols)
        ),
    }


def mixed() -> ReportData:
    """A bit of everything: two broken runs, one that stops in the middle, and one that is fine."""
    pairs = [
        judged("two-orders", TWO_ORDERS),
        judged("lost-in-a-crash", LOST_IN_A_CRASH),
        judged("unfinished", UNFINISHED),
        judged("fine", FINE, "sequencer"),
    ]
    runs = tuple(sorted((run for run, _ in pairs), key=lambda run: run.rank))
    return ReportData(
        overall(run.result for run in runs),
        runs,
        "A bit of everything",
        timelines=tuple(line for _, events in pairs for line in timelines_of(events)),
        quarantined=3,
        problems=("the digest is not a number", "the file ends in the middle of a line"),
        notes=("These figures are made up.",),
        **figures(),  # type: ignore[arg-type]
    )


def clean() -> ReportData:
    run, events = judged("fine", FINE, "sequencer")
    return ReportData("PASS", (run,), timelines=timelines_of(events))


def hostile() -> ReportData:
    """Every text that comes from a trace is an attack."""
    runs = []
    for text in HOSTILE:
        finding = ReportedViolation("P1", f"{text} delivered {text}:0 (local 1).", (text,))
        runs.append(RunReport(text, text, text, "FAIL", 3, ("P1",), (finding,), {"P1": 1}, {text: text}))
    events = [event for text in HOSTILE for event in _hostile_events(text)]
    return ReportData(
        "FAIL",
        tuple(runs),
        HOSTILE[0],
        timelines=timelines_of(events),
        quarantined=1,
        problems=HOSTILE,
        notes=HOSTILE,
        **figures(HOSTILE),  # type: ignore[arg-type]
    )


def _hostile_events(text: str) -> list[Event]:
    return [
        Event(text, text, text, text, 0, 0, 0, "simulated", "VIEW", f"1@{text}", (text,)),
        Event(text, text, text, text, 0, 1, 5, "simulated", "CRASH", f"1@{text}"),
    ]


def many(runs: int = 500) -> ReportData:
    """A long night's work; one run in twelve is broken."""
    bad, _ = judged("bad", TWO_ORDERS)
    good, _ = judged("good", FINE)
    made = []
    for number in range(runs):
        one = bad if number % 12 == 5 else good
        told = tuple(
            ReportedViolation(
                f.property, f"Run {number}: {f.sentence}", f.members, f.follows_from, f.diagram if number < 30 else None
            )
            for f in one.findings
        )
        made.append(
            RunReport(
                f"night-{number:04}",
                "g",
                one.protocol,
                one.result,
                3,
                one.owed,
                told,
                one.broken,
            )
        )
    return ReportData(overall(run.result for run in made), tuple(made), "A long night")

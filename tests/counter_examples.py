"""A small trace for each property that breaks it: what `docs/properties.md` tells and draws, and `unisono properties` shows."""

from __future__ import annotations

from tests.shown_stories import shown
from tests.unit import test_checks_shown as of_shown
from tests.unit import test_checks_views as of_views
from tests.view_stories import Trace, told
from unisono.trace.checks import CHECKERS, Violation
from unisono.trace.checks.p24_determinism import judge_twins

STORIES = {
    "P0": """
        a,b VIEW 1@a a b
        a CAST x
        a,b DELIVER x
        b END
        a CAST y
        a,b DELIVER y
        a END
    """,
    "P1": """
        a,b,c VIEW 1@a a b c
        a CAST x to a,c
        a,b,c DELIVER x
        all END
    """,
    "P2": """
        a,b VIEW 1@a a b
        a CAST x
        a,b DELIVER x
        b DELIVER x
        all END
    """,
    "P3": """
        a,b,c VIEW 1@a a b
        a CAST x
        a,b,c DELIVER x
        all END
    """,
    "P4": """
        a,b VIEW 1@a a b
        a CAST x
        b DELIVER x
        all END
    """,
    "P5": """
        a,b,c VIEW 1@a a b c
        a CAST x
        a,b DELIVER x
        a,b,c VIEW 2@a a b c from a b c
        all END
    """,
    "P6": """
        a,b VIEW 1@a a b
        a CAST x
        a CAST y
        a DELIVER x
        a DELIVER y
        b DELIVER y
        b DELIVER x
        all END
    """,
    "P7": """
        a,b VIEW 1@a a b
        a CAST x
        a CAST y
        a DELIVER x
        a,b DELIVER y
        all END
    """,
    "P8": """
        a,b,c VIEW 1@a a b c
        a CAST x
        a,b DELIVER x
        b CAST y
        a,b,c DELIVER y
        c DELIVER x
        all END
    """,
    "P8c": """
        a,b VIEW 1@a a b
        a CAST x vector 0,0
        a,b DELIVER x
        b CAST y vector 0,0
        a,b DELIVER y
        all END
    """,
    "P9a": """
        a,b VIEW 1@a a b
        a CAST x
        b CAST y
        a DELIVER x
        b DELIVER y
        a DELIVER y
        b DELIVER x
        all END
    """,
    "P9b": """
        a,b,c VIEW 1@a a b c
        a CAST x to a,c
        b CAST y to a,b
        c CAST z to b,c
        a DELIVER x
        b DELIVER y
        c DELIVER z
        a DELIVER y
        b DELIVER z
        c DELIVER x
        all END
    """,
    "P9c": """
        a,b VIEW 1@a a b
        a CAST x to a
        b CAST y
        a DELIVER x
        a,b DELIVER y
        b PLACE x
        all END
    """,
    "P10": """
        a,b VIEW 1@a a b
        a CAST x
        b CAST y
        a DELIVER x
        a CRASH
        b BLOCK
        b DELIVER y
        b DELIVER x
        b VIEW 2@b b from b
        b END
    """,
    "P11": """
        a,b VIEW 1@a a b c
        c VIEW 1@a a c
        all END
    """,
    "P12": """
        a,b VIEW 2@a a b
        b VIEW 1@b b from b
        all END
    """,
    "P13": """
        a,b VIEW 1@a a b
        a CAST x
        a DELIVER x
        a,b VIEW 2@a a b from a b
        b DELIVER x
        all END
    """,
    "P14": """
        a,b VIEW 1@a a b
        a CAST x
        a DELIVER x
        a,b VIEW 2@a a b from a b
        all END
    """,
    "P15": """
        a,b,c VIEW 1@a a b c
        c CRASH
        a VIEW 2@a a b from a b
        b VIEW 2@a a b from b
        all END
    """,
    "P16": """
        a,b VIEW 1@a a b
        a CAST x
        a DELIVER x
        a,b VIEW 2@a a b from a b
        b RECEIVE x view=1@a
        all END
    """,
    "P17": """
        a,b,c VIEW 1@a a b c
        a CAST x safe=true
        b RECEIVE x
        a,b STABLE x
        a,b DELIVER x
        all END
    """,
    "P22": """
        a,b VIEW 1@a a b
        a,b HEAL bound_ns=50 at=100
        a CAST x
        a DELIVER x
        b DELIVER x at=180
        all END
    """,
    "P25": """
        a,b VIEW 1@a a b
        a,b SHOW
        a CAST x
        a DELIVER x
        a,b VIEW 2@a a b from a b
        a,b TRANSITION
        a,b SHOW
        all END
    """,
    "P26": """
        a,b VIEW 1@a a b
        a CAST x
        a DELIVER x
        a RECEIPT x stable
        all END
    """,
    "P27": """
        a,b VIEW 1@a a b primary=true
        a,b SHOW
        a CAST x safe=true
        a DELIVER x
        a,b BLOCK
        a,b VIEW 2@a a b from a b primary=true previous_primary=1@a
        all END
    """,
    "P28": """
        a,b VIEW 1@a a b
        a CAST x
        a RECEIPT x delivered
        a,b DELIVER x
        all END
    """,
}
PLANTED = {
    "P18": "a commit against a vote",
    "P19": "another one has another state",
    "P20": "two primaries",
    "P21": "an attack that was not counted",
    "P23": "over a limit",
    "P29": "the state of the minority is carried on",
}
"""In the tables of planted faults."""


def events_of(property: str) -> Trace:
    """A trace in which the property is broken."""
    if property in STORIES:
        return shown(STORIES[property])
    if property == "P24":
        one = "a VIEW 1@a a twin=same\na CAST x\na DELIVER x\na END"
        return told(one, "one") + told(one.replace("a CAST x\n", "a CAST x\na CAST y\n"), "two")
    fault = PLANTED[property]
    if fault in of_views.PLANTED:
        story, old, new, _ = of_views.PLANTED[fault]
        return told(of_views.STORIES[story].replace(old, new))
    story, old, new, _ = of_shown.PLANTED[fault]
    return shown(of_shown.STORIES[story].replace(old, new))


def violation_of(property: str, events: Trace) -> Violation:
    """The first violation that the checker finds."""
    if property == "P24":
        return judge_twins(events)[0]
    checker = CHECKERS[property]()
    for event in events:
        checker.observe(event)
    return checker.finish()[0]

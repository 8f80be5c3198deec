"""One hash for a whole trace."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

from unisono.trace.digest import TraceDigest, digest_of_trace
from unisono.trace.story import tell

STORY = "a,b VIEW 1@a a b\na CAST x vector 0,0\na,b DELIVER x\nb CRASH\na END"


def test_neither_interleaving_nor_the_name_of_the_run_matter() -> None:
    events = tell(STORY)
    assert digest_of_trace(events) == digest_of_trace(sorted(events, key=lambda event: event.member))
    assert digest_of_trace(events) == digest_of_trace(tell(STORY, run="another"))


def test_every_other_change_matters() -> None:
    events = tell(STORY)
    digests = {digest_of_trace(events), digest_of_trace(events[:-1]), digest_of_trace([])}
    digests.add(digest_of_trace([replace(events[0], time_ns=99), *events[1:]]))
    digests.add(
        digest_of_trace([events[0], events[1], replace(events[2], attributes={"vector": "[1,0]"}), *events[3:]])
    )
    digests.add(digest_of_trace([replace(events[0], incarnation=1), *events[1:]]))
    assert len(digests) == 6


def test_the_order_in_which_attributes_were_set_does_not_matter() -> None:
    event = tell("a JOIN")[0]
    one = replace(event, attributes={"a": "1", "b": "2"})
    other = replace(event, attributes={"b": "2", "a": "1"})
    assert digest_of_trace([one]) == digest_of_trace([other])


def test_it_is_a_sink() -> None:
    events = tell(STORY)
    digest = TraceDigest()
    digest.write(events[:2])
    digest.write(events[2:])
    digest.close()
    assert digest.hexdigest() == digest_of_trace(events)


def test_it_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "from unisono.trace.digest import digest_of_trace\n"
        "from unisono.trace.story import tell\n"
        f"print(digest_of_trace(tell({STORY!r})))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert digests == {digest_of_trace(tell(STORY)) + "\n"}

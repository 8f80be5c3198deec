"""Compare the runs of many seeds with what was recorded; `python -m tests.digests --help` says how."""

from __future__ import annotations

import argparse
import sys

from tests.digests.runs import GROUP_SEEDS, KINDS, ORDER_SEEDS, Run, compute, differences, load, save, select
from unisono.sim.pool import fan_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.digests", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the digests instead of comparing them")
    parser.add_argument("--order", help="only this order")
    parser.add_argument("--kind", choices=KINDS, help="only simulated orders, or only whole groups")
    parser.add_argument("--seeds", type=int, help="only the first N seeds of each order")
    parser.add_argument("--workers", type=int, help="processes; one a core if not given")
    chosen = parser.parse_args()
    work = select(chosen.kind, chosen.order, chosen.seeds)
    found: dict[str, Run] = {}

    def seen(run: Run) -> bool:
        found[run.name] = run
        if sys.stderr.isatty():
            print(f"\r{len(found)}/{len(work)}", end="", file=sys.stderr, flush=True)
        return True

    fan_out(compute, work, seen, chosen.workers)
    recorded = load()
    if chosen.record:
        save({**recorded, **{name: (run.trace, run.shown) for name, run in found.items()}})
        print(
            f"recorded {len(found)} runs ({ORDER_SEEDS} seeds of each order, {GROUP_SEEDS} of whole groups when complete)"
        )
        return 0
    changed = differences(found.values(), recorded)
    for sentence in changed:
        print(sentence)
    print(f"{len(found)} runs, {len(changed)} changed")
    return min(len(changed), 1)


if __name__ == "__main__":
    sys.exit(main())

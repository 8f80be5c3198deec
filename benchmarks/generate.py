"""A fast maker of large clean traces: total order, n members, everything written column by column.

python -m benchmarks.generate FOLDER --deliveries 100M [--members 8] [--order sequencer]
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unisono.trace.parquet import arrow_schema

MESSAGES_A_FILE = 1_750_000


def parse_count(text: str) -> int:
    """100M, 16M, 5k or a plain number."""
    scale = {"k": 10**3, "M": 10**6, "G": 10**9}.get(text[-1:], 1)
    return round(float(text[:-1] if scale > 1 else text) * scale)


def generate(
    folder: Path,
    deliveries: int,
    members: int = 8,
    order: str = "sequencer",
    run: str = "large",
    seed: int = 7,
    processes: int = 1,
) -> int:
    """Write a run in which every member delivers the same sequence; returns how many DELIVER rows there are.

    Message k of the sequence is cast by a pseudo-random origin, right before it delivers it. Nothing is kept in memory
    but the messages of one file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    total = deliveries // members
    names = [chr(ord("a") + i) for i in range(members)]
    lives = [(folder, run, order, names, rank, total, seed) for rank in range(members)]
    if processes == 1:
        for life in lives:
            _write_life(*life)
    else:
        with get_context("spawn").Pool(processes) as pool:
            pool.starmap(_write_life, lives, chunksize=1)
    return total * members


def generate_runs(folder: Path, runs: int, faulty: int = 30, members: int = 3, deliveries: int = 120) -> frozenset[str]:
    """Write many small clean runs, and return the few in which one member delivers two messages in the other order."""
    folder.mkdir(parents=True, exist_ok=True)
    every = max(1, runs // faulty)
    swapped: set[str] = set()
    for number in range(runs):
        run = f"run-{number:06d}"
        generate(folder, deliveries, members, "fifo-total", run, seed=number)
        if number % every == every // 2 and len(swapped) < faulty:
            _swap(folder / f"{run}.a.0.000000.parquet")
            swapped.add(run)
    return frozenset(swapped)


def _swap(path: Path) -> None:
    """Let a life deliver two neighbouring messages of different origins in the other order."""
    table = pq.read_table(path, schema=arrow_schema())
    rows = table.to_pylist()
    delivered = [row for row in rows if row["kind"] == "DELIVER"]
    one, other = next((x, y) for x, y in pairwise(delivered[3:]) if x["origin"] != "a" != y["origin"] != x["origin"])
    for name in ("origin", "first", "digest"):
        one[name], other[name] = other[name], one[name]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)


def _write_life(folder: Path, run: str, order: str, names: list[str], rank: int, total: int, seed: int) -> None:
    """One member's rows: VIEW, then for each message of the sequence a DELIVER, own ones right after their CAST, then END."""
    name = names[rank]
    cast_so_far = np.zeros(len(names), np.int64)
    local = 1  # the VIEW is row 0
    for number, start in enumerate(range(0, max(1, total), MESSAGES_A_FILE)):
        stop = min(total, start + MESSAGES_A_FILE)
        rng = np.random.default_rng([seed, number])
        origin = rng.integers(0, len(names), stop - start, dtype=np.int16)
        digest = rng.integers(-(2**62), 2**62, stop - start, dtype=np.int64)
        index = np.empty(stop - start, np.int64)
        for one in range(len(names)):
            theirs = origin == one
            index[theirs] = cast_so_far[one] + np.arange(int(theirs.sum()))
            cast_so_far[one] += int(theirs.sum())
        # A CAST stands before the DELIVER of each own message: rows are the sequence with own messages doubled.
        mine = origin == rank
        at = np.arange(stop - start) + np.cumsum(mine)
        rows = stop - start + int(mine.sum())
        sequence = np.empty(rows, np.int64)  # which message a row is about
        is_cast = np.zeros(rows, bool)
        sequence[at] = np.arange(stop - start)
        sequence[at[mine] - 1] = np.flatnonzero(mine)
        is_cast[at[mine] - 1] = True
        table = _table(run, order, names, name, sequence, is_cast, local, start, origin, index, digest)
        local += rows
        if start == 0:
            table = pa.concat_tables([_single(run, order, name, 0, "VIEW", names), table])
        if stop == total:
            table = pa.concat_tables([table, _single(run, order, name, local, "END", names)])
        path = folder / f"{run}.{name}.0.{number:06d}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1)


def _table(
    run: str,
    order: str,
    names: list[str],
    name: str,
    some: Any,
    casts: Any,
    first_index: int,
    first_ordinal: int,
    origin: Any,
    index: Any,
    digest: Any,
) -> pa.Table:
    count = len(some)
    codes = pa.array(origin[some].astype(np.int32))
    ordinal = pa.array(some + first_ordinal, pa.int64(), mask=casts)
    local = np.arange(first_index, first_index + count)
    known: dict[str, Any] = {
        "run": _constant(run, count),
        "group": _constant("generated", count),
        "protocol": _constant(order, count),
        "member": _constant(name, count),
        "incarnation": pa.array(np.zeros(count, np.int64)),
        "local_index": pa.array(local),
        "time_ns": pa.array(local * 1_000),
        "clock": _constant("simulated", count),
        "kind": pa.DictionaryArray.from_arrays(pa.array(casts.astype(np.int32)), pa.array(["DELIVER", "CAST"])),
        "view": _constant(f"1@{names[0]}", count),
        "origin": pa.DictionaryArray.from_arrays(codes, pa.array(names)),
        "origin_incarnation": pa.array(np.zeros(count, np.int64)),
        "first": pa.array(index[some]),
        "count": pa.array(np.ones(count, np.int64)),
        "service": _constant("total", count),
        "ordinal": ordinal,
        "position": ordinal,
        "digest": pa.array(digest[some]),
    }
    return _complete(known, count)


def _single(run: str, order: str, name: str, local: int, kind: str, names: list[str]) -> pa.Table:
    known: dict[str, Any] = {
        "run": [run],
        "group": ["generated"],
        "protocol": [order],
        "member": [name],
        "incarnation": [0],
        "local_index": [local],
        "time_ns": [local * 1_000],
        "clock": ["simulated"],
        "kind": [kind],
        "view": [f"1@{names[0]}"],
    }
    if kind == "VIEW":
        known["members"] = [names]
    else:
        known["reason"] = ["done"]
    return _complete({key: pa.array(value) for key, value in known.items()}, 1)


def _constant(value: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def _complete(known: dict[str, Any], count: int) -> pa.Table:
    schema = arrow_schema()
    arrays = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(count, field.type) for field in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--deliveries", type=parse_count, default=1_000_000)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--order", default="sequencer")
    options = parser.parse_args()
    rows = generate(options.folder, options.deliveries, options.members, options.order)
    print(f"{rows:,} DELIVER rows in {options.folder}")


if __name__ == "__main__":
    main()

"""How fast traces are judged: a clean total-order trace, all owed properties, this machine.

    ./dev bench pipeline --deliveries 100M [--members 8] [--cores 2] [--peers] [--straight 2M] [--runs 10k] [--folder DIR] [--json]

`--deliveries` may be given several times to see how cost grows. `--peers` runs the same digests in plain DuckDB on the same files.
`--straight N` runs the straightforward formulation (windows and joins over all rows, four properties) on a trace of N
deliveries, and ours on the same.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.generate import generate, generate_runs, parse_count
from unisono.pipeline.session import open_session
from unisono.pipeline.verify import verify

MEMORY = "3g"
MEMORY_ALL = "8GB"
"""What DuckDB may take: as much as all of our processes together are meant to."""


def trace_of(folder: Path, deliveries: int, members: int) -> Path:
    """The generated trace of that size, made once."""
    target = folder / f"{deliveries}-{members}"
    if not (target / "done").exists():
        generate(target, deliveries, members, processes=2)
        (target / "done").touch()
    return target


def small_runs(spark: Any, folder: Path, runs: int) -> dict[str, Any]:
    """Judge `runs` small runs, a few of them faulty."""
    target = folder / f"runs-{runs}"
    if not (target / "done").exists():
        (target / "done").write_text(json.dumps(sorted(generate_runs(target, runs))))
    faulty = set(json.loads((target / "done").read_text()))
    start = perf_counter()
    judgement = verify(spark, [target])
    seconds = perf_counter() - start
    assert {run.run for run in judgement.runs if run.result == "FAIL"} == faulty
    assert sum(judgement.count.values()) == runs
    return {"runs": runs, "seconds": round(seconds, 2), "faulty": len(faulty)}


def judge(spark: Any, path: Path) -> float:
    start = perf_counter()
    judgement = verify(spark, [path])
    seconds = perf_counter() - start
    assert judgement.result == "PASS", judgement
    assert {run.by for run in judgement.runs} == {"digests"}
    return seconds


def in_duckdb(path: Path, cores: int) -> float:
    """The same digests in plain DuckDB: blocks of the sequence, deliveries by origin, casts."""
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {cores}")
    connection.execute(f"SET memory_limit = '{MEMORY_ALL}'")
    start = perf_counter()
    files = f"read_parquet('{path}/*.parquet')"
    blocks = connection.execute(
        f"""
        SELECT run, view, service, ordinal // 4096 AS block, member, count(*) AS n,
               bit_xor(hash(ordinal, origin, origin_incarnation, first, count)) AS x,
               sum(hash(origin, origin_incarnation, first, count, ordinal)::HUGEINT) AS s
        FROM {files} WHERE kind = 'DELIVER' GROUP BY ALL
        """
    ).fetchall()
    origins = connection.execute(
        f"""
        SELECT run, view, kind, member, origin, sum(count) AS n, bit_xor(hash(origin, first, count, digest)) AS x,
               sum(hash(digest, origin, first, count)::HUGEINT) AS s
        FROM {files} WHERE kind IN ('DELIVER', 'CAST') GROUP BY ALL
        """
    ).fetchall()
    seconds = perf_counter() - start
    assert len({(row[3], row[5], row[6], row[7]) for row in blocks}) == len({row[3] for row in blocks})
    assert origins
    return seconds


def straightforward(spark: Any, path: Path) -> float:
    """Windows and joins over all rows: same sequence, no duplicates, FIFO without gaps, no creation."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    start = perf_counter()
    rows = spark.read.parquet(str(path / "*.parquet"))
    deliveries, casts = rows.where("kind = 'DELIVER'"), rows.where("kind = 'CAST'")
    message = ["run", "origin", "origin_incarnation", "first"]
    places = deliveries.groupBy("run", "view", "ordinal").agg(F.countDistinct("origin", "first").alias("different"))
    broken = places.where("different > 1").count()
    broken += deliveries.groupBy("member", *message).count().where("count > 1").count()
    line = Window.partitionBy("run", "member", "view", "origin").orderBy("local_index")
    broken += deliveries.withColumn("before", F.lag("first").over(line)).where("first != before + 1").count()
    cast = casts.select(*message, F.col("digest").alias("cast_digest"))
    joined = deliveries.join(cast, message, "left")
    broken += joined.where(F.col("cast_digest").isNull() | (F.col("cast_digest") != F.col("digest"))).count()
    assert broken == 0
    return perf_counter() - start


class MemoryWatch:
    """The most memory that this process and all below it held at once, looked at five times a second."""

    def __init__(self) -> None:
        self._peak_kb = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def peak_mb(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak_kb // 1024

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self._peak_kb = max(self._peak_kb, sum(map(self._proportional_kb, self._family())))

    @staticmethod
    def _family() -> list[int]:
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        family = [os.getpid()]
        for one in family:
            family += parents.get(one, [])
        return family

    @staticmethod
    def _proportional_kb(process: int) -> int:
        """What is shared between processes counts once."""
        with suppress(OSError):
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().split("\n"):
                if line.startswith("Pss:"):
                    return int(line.split()[1])
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench pipeline", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--deliveries", type=parse_count, action="append")
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--straight", type=parse_count)
    parser.add_argument("--runs", type=parse_count, help="small runs instead, such as 10k")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "unisono-bench")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memory = MemoryWatch()
    spark = open_session(f"local[{options.cores}]", settings={"spark.driver.memory": MEMORY})
    judge(spark, trace_of(options.folder, 100_000, options.members))  # warm the JVM and the workers
    results: dict[str, Any] = {"cores": options.cores, "members": options.members, "sizes": {}}
    if options.runs:
        results["runs"] = small_runs(spark, options.folder, options.runs)
        if not options.json:
            print(", ".join(f"{name} {value:,}" for name, value in results["runs"].items()), flush=True)
    for size in options.deliveries or ([] if options.runs else [1_000_000]):
        path = trace_of(options.folder, size, options.members)
        seconds = judge(spark, path)
        entry = {"seconds": round(seconds, 2), "deliveries_per_second": round(size / seconds)}
        if options.peers:
            entry["duckdb_seconds"] = round(in_duckdb(path, options.cores), 2)
            entry["times_duckdb"] = round(seconds / entry["duckdb_seconds"], 2)
        results["sizes"][size] = entry
        if not options.json:
            print(
                f"{size:>13,} deliveries: " + ", ".join(f"{name} {value:,}" for name, value in entry.items()),
                flush=True,
            )
    if options.straight:
        path = trace_of(options.folder, options.straight, options.members)
        ours, theirs = judge(spark, path), straightforward(spark, path)
        entry = {
            "seconds": round(ours, 2),
            "straightforward_seconds": round(theirs, 2),
            "times_faster": round(theirs / ours, 1),
        }
        results["straight"] = {"deliveries": options.straight, **entry}
        if not options.json:
            print(
                f"{options.straight:>13,} deliveries: "
                + ", ".join(f"{name} {value:,}" for name, value in entry.items())
            )
    results["peak_mb"] = memory.peak_mb()
    if options.json:
        print(json.dumps(results))
    else:
        print(f"peak memory of all processes together, Java and workers included: {results['peak_mb']:,} MB")


if __name__ == "__main__":
    main()

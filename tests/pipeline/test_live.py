"""A live group in Spark: real members in processes of their own, real queries, and one of them killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.journal_tools import A, batch, entered
from tests.runtime.ports import free_addresses

pytest.importorskip("pyspark")

from unisono.pipeline import live
from unisono.pipeline.live_cast import StreamCaster
from unisono.pipeline.live_options import Options
from unisono.pipeline.session import PipelineError, reason
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, read
from unisono.runtime.journal_format import Delivered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMBER = """
import asyncio, json, sys
import unisono

async def main(listen, peers, folder):
    journal = unisono.Journal(folder, deliveries=True, fsync="never") if folder else None
    state = dict(snapshot=lambda: b"", restore=lambda state: None)  # of which observers have none
    group = await unisono.join("chat", listen=listen, peers=peers.split(","), journal=journal, **state)
    delivered = []

    async def take():
        async for batch in group.batches():
            if isinstance(batch, list):
                delivered.extend(one.payload.decode() for one in batch)
            elif isinstance(batch, unisono.View):
                print("view", len(batch.members), flush=True)

    taking = asyncio.create_task(take())
    loop = asyncio.get_running_loop()
    while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        if words[0] == "cast":
            for number in range(int(words[1])):
                receipt = await group.cast(f"{listen} {number} of {words[1]}".encode())
                if number % 20 == 19:
                    await receipt.delivered()
            await receipt.stable()
        while len(delivered) < int(words[2]):
            await asyncio.sleep(0)  # the taking task goes on
        print(words[0], json.dumps(delivered), flush=True)
    await group.leave()
    await taking

asyncio.run(main(*sys.argv[1:]))
"""

QUERY = """
import sys
from unisono.pipeline import live
from unisono.pipeline.session import open_session
from tests.pipeline.conftest import SMALL

spark = open_session("local[2]", settings=SMALL)
live.register(spark)
journal, out, checkpoint = sys.argv[1:]
rows = spark.readStream.format("unisono").option("journal", journal).option("maxRowsPerBatch", "40").load()
sink = rows.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
sink.start().awaitTermination()
"""


class Member:
    """A member in a process of its own, which does what it is told: `cast` so many, or `tell`; and answers when it has delivered
    so many in all."""

    def __init__(self, listen: str, peers: list[str], journal: Path | None = None) -> None:
        command = [sys.executable, "-c", MEMBER, listen, ",".join(peers), str(journal or "")]
        self.peers = ",".join(peers)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()

    def hear(self, words: str) -> str:
        """The next line that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(words):
                return line
        raise AssertionError(f"the member ended before it said {words!r}")

    def ask(self, words: str) -> list[str]:
        """Have something done; all that was delivered until then."""
        self.tell(words)
        verb = words.split()[0]
        delivered: list[str] = json.loads(self.hear(verb).removeprefix(verb))
        return delivered

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """A caster and an observer with a journal."""
    peers = free_addresses(2)
    caster = Member(peers[0], peers)
    observer = Member(peers[1], peers, tmp_path / "journal")
    try:
        caster.hear("view 2")
        observer.hear("view 2")
        yield caster, observer
    finally:
        caster.end()
        observer.end()


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait for something that a process does."""
    for _ in range(1_200):
        if condition():
            return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError("the query ended too soon")
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError("the query did not get there within a minute")


def payloads(spark: SparkSession, out: Path) -> list[str]:
    """What the sink holds, in the order of the journal."""
    rows = spark.read.parquet(str(out)).orderBy("position").collect()
    return [bytes(row["payload"]).decode() for row in rows]


def test_a_killed_query_resumes_without_loss_or_duplicate(
    spark: SparkSession, members: tuple[Member, Member], tmp_path: Path
) -> None:
    caster, observer = members
    places = [str(tmp_path / name) for name in ("journal", "out", "checkpoint")]
    caster.ask("cast 400 400")
    with subprocess.Popen([sys.executable, "-c", QUERY, *places], start_new_session=True, text=True) as query:
        commits = tmp_path / "checkpoint" / "commits"
        until(lambda: commits.exists() and len([one for one in commits.iterdir() if one.name.isdigit()]) >= 2, query)
        os.killpg(query.pid, signal.SIGKILL)
    assert len(payloads(spark, tmp_path / "out")) < 400, "killed in the middle"
    delivered = caster.ask("cast 60 460")
    assert len(delivered) == 460
    assert observer.ask("tell 0 460") == delivered, "its journal has them before it shows them"
    live.register(spark)
    rows = spark.readStream.format("unisono").option("journal", places[0]).load()
    sink = rows.writeStream.format("parquet").option("path", places[1]).option("checkpointLocation", places[2])
    sink.trigger(availableNow=True).start().awaitTermination()
    assert payloads(spark, tmp_path / "out") == delivered


def test_a_query_observes_a_group_itself_and_another_casts_to_it(
    spark: SparkSession, members: tuple[Member, Member], tmp_path: Path
) -> None:
    """Group to Spark to group: what was read of `chat` a second query casts to `chat` again."""
    caster, observer = members
    live.register(spark)
    peers = caster.peers
    own = tmp_path / "own"
    rows = (
        spark.readStream.format("unisono")
        .options(journal=str(own), group="chat", peers=peers, views="true", fsync="never")
        .load()
    )
    query = rows.writeStream.format("memory").queryName("seen").start()
    try:
        caster.hear("view 3")
        delivered = caster.ask("cast 30 30")
        query.processAllAvailable()
        seen = spark.table("seen").orderBy("position").collect()
    finally:
        query.stop()
    assert [row["kind"] for row in seen] == ["view"] + ["delivery"] * 30
    assert len(seen[0]["members"]) == 3
    assert [bytes(row["payload"]).decode() for row in seen[1:]] == delivered[-30:]
    assert [row["ordinal"] for row in seen[1:]] == list(range(30))
    caster.hear("view 2")

    texts = spark.range(0, 10, 1, 1).selectExpr("concat('row ', id) as payload")
    texts.write.format("unisono").options(group="chat", peers=peers).mode("append").save()
    again = spark.readStream.format("unisono").option("journal", str(own)).load().select("payload")
    sink = again.writeStream.format("unisono").options(group="chat", peers=peers)
    sink.option("checkpointLocation", str(tmp_path / "again")).trigger(availableNow=True).start().awaitTermination()
    assert caster.ask("tell 0 70") == observer.ask("tell 0 70")
    assert caster.ask("tell 0 70")[-40:] == [f"row {number}" for number in range(10)] + delivered


# Without Spark's engine.


def journal_of(path: Path, messages: int) -> list[str]:
    journal = Journal(path, deliveries=True, fsync="never")
    journal.begin_life(1)
    journal.deliver([entered(1, A)])
    for number in range(messages):
        journal.deliver([batch(0, number, b"%d" % number)])
    journal.close()
    return [str(number) for number in range(messages)]


def read_parts(reader: live.GroupReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [
        payload.decode()
        for part in reader.partitions(start, end)
        for rows in reader.read(part)
        for payload in rows.column("payload").to_pylist()
    ]


def test_every_range_of_offsets_reads_the_same_rows_every_time(tmp_path: Path) -> None:
    from pyspark.sql.streaming.datasource import ReadMaxRows

    expected = journal_of(tmp_path, 12)
    reader = live.GroupReader(Options({"journal": str(tmp_path), "partitionBytes": "200"}))
    offsets = [reader.initialOffset()]
    limit = ReadMaxRows(2)
    while (end := json.loads(json.dumps(reader.latestOffset(offsets[-1], limit)))) != offsets[-1]:
        offsets.append(end)
    for first in range(len(offsets)):
        for last in range(first, len(offsets)):
            fresh = live.GroupReader(Options({"journal": str(tmp_path), "partitionBytes": "200"}))
            rows = read_parts(fresh, offsets[first], offsets[last])
            assert rows == expected[max(0, 2 * first - 1) : max(0, 2 * last - 1)]
    assert read_parts(reader, offsets[0], reader.latestOffset(offsets[0])) == expected
    assert live.GroupReader(Options({"journal": str(tmp_path), "start": "latest"})).initialOffset() == offsets[-1]
    assert live.GroupReader(Options({"journal": str(tmp_path)})).latestOffset() == offsets[-1], "as Spark 4.0 asks"


def test_an_offset_of_another_journal_is_refused(tmp_path: Path) -> None:
    journal_of(tmp_path / "long", 5)
    journal_of(tmp_path / "short", 2)
    end = live.GroupReader(Options({"journal": str(tmp_path / "long")})).latestOffset()
    short = live.GroupReader(Options({"journal": str(tmp_path / "short")}))
    with pytest.raises(JournalError, match="it was cut or replaced"):
        short.latestOffset(end)
    with pytest.raises(JournalError, match=r"does not reach ordinal 4 .* start with a new checkpoint"):
        short.partitions(short.initialOffset(), end)


def test_a_beginning_that_was_removed_is_not_another_beginning(tmp_path: Path) -> None:
    """A first batch that was planned and not finished must not lose rows to retention when it is planned again."""
    journal_of(tmp_path, 5)
    reader = live.GroupReader(Options({"journal": str(tmp_path)}))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    (tmp_path / "deliveries.0000000001.journal").rename(tmp_path / "deliveries.0000000002.journal")
    with pytest.raises(JournalError, match="was removed before it was read"):
        live.GroupReader(Options({"journal": str(tmp_path)})).partitions(start, end)


def test_a_reader_with_a_name_tells_how_far_it_is(tmp_path: Path) -> None:
    journal_of(tmp_path, 3)
    reader = live.GroupReader(Options({"journal": str(tmp_path), "reader": "spark"}))
    reader.commit(reader.latestOffset(reader.initialOffset()))
    assert (tmp_path / "readers" / "spark").read_text() == "1"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r'needs \.option\("journal", …\): the folder where a member journals'),
        ({"jurnal": "x"}, "has no option 'jurnal': choose from advertise, fsync"),
        ({"journal": "x", "gaps": "hide"}, "the option gaps is 'hide': choose raise or show"),
        ({"journal": "x", "maxRowsPerBatch": "many"}, "is 'many': give a number above 0"),
        ({"journal": "x", "group": "chat"}, r'needs \.option\("peers"'),
    ],
)
def test_a_wrong_option_gets_a_sentence(options: dict[str, str], sentence: str) -> None:
    def ask() -> None:
        reader = live.GroupReader(Options(options))
        reader.getDefaultReadLimit()
        reader.initialOffset()

    with pytest.raises(PipelineError, match=sentence):
        ask()


def test_a_group_that_nobody_is_in_gets_a_sentence(tmp_path: Path) -> None:
    options = {
        "journal": str(tmp_path),
        "group": "chat",
        "peers": free_addresses(1)[0],
        "timeout": "0.3",
        "pace": "0.1",
    }
    reader = live.GroupReader(Options(options))
    with pytest.raises(PipelineError, match=r"no view of 2 or more members of 'chat' .* Are the peers up"):
        reader.initialOffset()
    reader.stop()


def test_rows_without_a_payload_column_are_refused() -> None:
    from pyspark.sql.types import LongType, StructType

    with pytest.raises(PipelineError, match="need a column payload of type binary or string"):
        StreamCaster(Options({"group": "chat", "peers": "127.0.0.1:1"}), StructType().add("payload", LongType()))


def test_what_a_worker_raises_is_one_sentence() -> None:
    said = 'Traceback (most recent call last):\n  File "x"\nunisono.runtime.journal_reader.GapError: the journal has a gap.\n'
    assert reason(Exception(said)) == "the journal has a gap"


def test_journals_of_live_members_hold_what_they_delivered(members: tuple[Member, Member], tmp_path: Path) -> None:
    caster, observer = members
    caster.ask("cast 50 50")
    delivered = observer.ask("tell 0 50")
    rows = [row for row in read(tmp_path / "journal") if isinstance(row, Delivered)]
    assert [row.payload.decode() for row in rows] == delivered

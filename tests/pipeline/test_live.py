"""A live group in Spark: real members in processes of their own, real queries, and one of them killed in the middle."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import unisono
from tests.journal_tools import A, batch, entered
from tests.runtime.ports import free_addresses

pytest.importorskip("pyspark")

from unisono.pipeline import live
from unisono.pipeline.live_cast import StreamCaster
from unisono.pipeline.live_journal import JournalStream, JournalTable
from unisono.pipeline.live_journals import JournalsStream, JournalsTable
from unisono.pipeline.live_options import Options
from unisono.pipeline.live_repeats import Repeats, RowId, split_id, with_id
from unisono.pipeline.session import PipelineError, reason
from unisono.runtime.errors import JournalError
from unisono.runtime.journal import Journal, read
from unisono.runtime.journal.format import Delivered

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
        async with asyncio.timeout(60):
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
folder = sys.argv[1]
for source in ("journal", "journals"):
    rows = spark.readStream.format("unisono").option(source, f"{folder}/journal").option("maxRowsPerBatch", "40").load()
    sink = rows.writeStream.format("parquet").option("path", f"{folder}/{source}.out")
    sink.option("checkpointLocation", f"{folder}/{source}.checkpoint").start()
spark.streams.awaitAnyTermination()
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
    for _ in range(2_400):
        if condition():
            return
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError("the query ended too soon")
    os.killpg(process.pid, signal.SIGKILL)
    raise AssertionError("the query did not get there within two minutes")


def payloads(spark: SparkSession, out: Path) -> list[str]:
    """What the sink holds, in the order of the journal."""
    rows = spark.read.parquet(str(out)).orderBy("position").collect()
    return [bytes(row["payload"]).decode() for row in rows]


def test_a_killed_query_resumes_without_loss_or_duplicate(
    spark: SparkSession, members: tuple[Member, Member], tmp_path: Path
) -> None:
    """One journal by itself, and as the only one of several."""
    caster, observer = members
    sources = ("journal", "journals")
    caster.ask("cast 400 400")

    def has_committed(source: str) -> bool:
        commits = tmp_path / f"{source}.checkpoint" / "commits"
        return commits.exists() and len([one for one in commits.iterdir() if one.name.isdigit()]) >= 2

    with subprocess.Popen([sys.executable, "-c", QUERY, str(tmp_path)], start_new_session=True, text=True) as query:
        until(lambda: all(map(has_committed, sources)), query)
        os.killpg(query.pid, signal.SIGKILL)
    counts = [len(payloads(spark, tmp_path / f"{source}.out")) for source in sources]
    assert min(counts) < 400, "killed in the middle"
    delivered = caster.ask("cast 60 460")
    assert len(delivered) == 460
    assert observer.ask("tell 0 460") == delivered, "its journal has them before it shows them"
    live.register(spark)
    for source in sources:
        rows = spark.readStream.format("unisono").option(source, str(tmp_path / "journal")).load()
        sink = rows.writeStream.format("parquet").option("path", str(tmp_path / f"{source}.out"))
        sink = sink.option("checkpointLocation", str(tmp_path / f"{source}.checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()
        assert payloads(spark, tmp_path / f"{source}.out") == delivered


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
    again = spark.readStream.format("unisono").options(journal=str(own), maxRowsPerBatch="21").load().select("payload")
    sink = again.writeStream.format("unisono").options(group="chat", peers=peers)
    sink.option("checkpointLocation", str(tmp_path / "again")).trigger(availableNow=True).start().awaitTermination()
    assert caster.ask("tell 0 70") == observer.ask("tell 0 70")
    cast = [split_id(message.encode()) for message in caster.ask("tell 0 70")[-40:]]
    assert [payload.decode() for _, payload in cast] == [f"row {number}" for number in range(10)] + delivered
    saved, streamed = ([row for row, _ in some if row is not None] for some in (cast[:10], cast[10:]))
    assert [row[1:] for row in saved] == [(0, 0, number) for number in range(10)]
    assert len({row.query for row in saved}) == 1
    query = json.loads((tmp_path / "again" / "metadata").read_text())["id"]
    assert streamed == [RowId(query, number // 20, 0, number % 20) for number in range(30)]


def test_two_journals_are_one_stream_though_one_member_is_killed_and_its_disk_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The last micro-batch is run again after one of the journals is gone: as if the driver had been killed in it."""
    peers = free_addresses(3)
    first, second = tmp_path / "first", tmp_path / "second"
    caster = Member(peers[0], peers)
    others = [Member(peers[1], peers, first), Member(peers[2], peers, second)]
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    live.register(spark)

    def take_what_is_there() -> list[int]:
        rows = spark.readStream.format("unisono").options(journals=f"{first},{second}", maxRowsPerBatch="70").load()
        sink = rows.writeStream.format("parquet").option("path", str(out)).option("checkpointLocation", str(checkpoint))
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    try:
        for member in (caster, *others):  # a member that still waits for its state would take over what is cast
            member.hear("view 3")
        caster.ask("cast 100 100")
        others[0].process.kill()
        caster.hear("view 2")
        caster.ask("cast 100 200")
        others[0].end()
        others[0] = Member(peers[1], peers, first)
        for member in (caster, others[0]):
            member.hear("view 3")
        delivered = caster.ask("cast 100 300")
        assert others[1].ask("tell 0 300") == delivered
        assert max(take_what_is_there()) <= 70
    finally:
        for member in (caster, *others):
            member.end()
    assert payloads(spark, out) == delivered
    alone = JournalStream(Options({"journal": str(first)}))
    before_the_gap = alone.latestOffset(alone.initialOffset())
    with pytest.raises(JournalError, match="this member was away until view"):
        alone.latestOffset(before_the_gap)

    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    for done in (checkpoint / "commits" / str(last), out / "_spark_metadata" / str(last)):
        done.unlink()
        (done.parent / f".{done.name}.crc").unlink(missing_ok=True)
    assert len(payloads(spark, out)) < 300
    plan = json.loads((checkpoint / "offsets" / str(last)).read_text().splitlines()[-1])["plan"]
    Path(plan[0][0]).rename(tmp_path / "lost")
    take_what_is_there()
    assert payloads(spark, out) == delivered


def test_limits_hold_when_a_query_takes_what_is_available_now(spark: SparkSession, tmp_path: Path) -> None:
    """One batch of the group has more messages than a micro-batch may have."""
    expected = journal_of(tmp_path / "journal", 100, each=25)
    live.register(spark)
    for name, value, most in (("maxRowsPerBatch", 20, 20), ("maxBytesPerBatch", 400, 25)):
        rows = spark.readStream.format("unisono").option("journal", str(tmp_path / "journal")).option(name, value)
        out = tmp_path / name
        sink = rows.load().writeStream.format("parquet").option("path", str(out))
        query = sink.option("checkpointLocation", f"{out}.checkpoint").trigger(availableNow=True).start()
        query.awaitTermination()
        assert payloads(spark, out) == expected
        counts = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        assert max(counts) <= most
        assert len(counts) >= 100 / most


def test_a_batch_read_takes_what_the_journal_holds(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    journal_of(folder, 50, each=25)
    live.register(spark)
    both = spark.read.format("unisono").option("journals", f"{folder},{tmp_path}/*").option("partitionBytes", "200")
    assert both.load().count() == 50
    assert both.option("from", "7").option("to", "9").load().count() == 2
    source = spark.read.format("unisono").option("journal", str(folder)).option("partitionBytes", "200")
    assert source.load().count() == 50
    some = source.option("from", "10").option("to", "30").option("views", "true").load().orderBy("position").collect()
    assert [row["position"] for row in some] == list(range(10, 30))
    assert source.option("from", "500").option("to", "600").load().count() == 0
    for name, value, sentence in (
        ("from", "700", "the option to is 600, before from, 700: swap them"),
        ("start", "latest", "the option start is for streams"),
    ):
        with pytest.raises(Exception, match=sentence) as caught:
            source.option(name, value).load().collect()
        assert "Traceback" not in str(caught.value)
    with pytest.raises(Exception, match=r'needs \.option\("journal", …\): the folder where a member') as caught:
        spark.read.format("unisono").load().collect()
    assert "Traceback" not in str(caught.value)
    assert reason(caught.value).startswith("the format unisono needs .option")


def test_rows_that_were_cast_are_known_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    row = RowId("0a-f", 7, 2, 3)
    journal = Journal(tmp_path, deliveries=True, fsync="never")
    journal.begin_life(1)
    journal.deliver([entered(1, A), batch(0, 0, with_id(row, b"\xff\nx"), b"\xfe\n", with_id(row, b""))])
    journal.close()
    live.register(spark)
    rows = live.with_row_ids(spark.read.format("unisono").option("journal", str(tmp_path)).load())
    found = rows.orderBy("position").select("query", "batch", "partition", "row", "payload").collect()
    assert [(*one[:4], bytes(one["payload"])) for one in found] == [
        (*row, b"\xff\nx"),
        (None, None, None, None, b"\xfe\n"),
        (*row, b""),
    ]


def test_the_examples_of_the_page_work(
    spark: SparkSession, members: tuple[Member, Member], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In their order, with addresses of a group that runs."""
    caster, observer = members
    caster.ask("cast 60 60")
    monkeypatch.setattr("unisono.pipeline.session.open_session", lambda: spark)
    for name in ("first.journal", "second.journal"):
        journal_of(tmp_path / name, 20)
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text()
    page = page.replace("127.0.0.1:7400,127.0.0.1:7401", caster.peers).replace("127.0.0.1:7400", caster.peers)
    page = re.sub(r"\b(\w+\.journal|checkpoint)\b(?=[\",])", rf"{tmp_path}/\1", page)  # Spark runs in another folder
    names: dict[str, Any] = {"unisono": unisono, "peers": free_addresses(1)}

    def show(example: str) -> int:
        """What a source of the page gives."""
        sink = names[example].writeStream.format("memory").queryName(example)
        sink.trigger(availableNow=True).start().awaitTermination()
        return spark.table(example).count()

    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        code = compile(block, "live.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
            assert list(read(tmp_path / "member.journal"))
        else:
            exec(code, names)
        if "chat =" in block:
            assert show("chat") == 0
            shutil.rmtree(tmp_path / "chat.journal")
            journal_of(tmp_path / "chat.journal", 300)
        elif "spark.read." in block:
            assert names["rows"].count() == 100
            names["rows"] = spark.readStream.format("unisono").option("journal", f"{tmp_path}/first.journal").load()
        elif "together =" in block:
            assert show("together") == 20
        elif "query =" in block:
            names["query"].processAllAvailable()
            names["query"].stop()
    assert observer.ask("tell 0 80") == caster.ask("tell 0 80")
    payload = split_id(caster.ask("tell 0 80")[-1].encode())[1]
    assert json.loads(payload)["index"] == 19


# Without Spark's engine.


def journal_of(path: Path, messages: int, each: int = 1) -> list[str]:
    """One life that delivers batches of `each` messages in one view."""
    journal = Journal(path, deliveries=True, fsync="never")
    journal.begin_life(1)
    journal.deliver([entered(1, A)])
    for number in range(0, messages, each):
        journal.deliver([batch(0, number, *(b"%d" % one for one in range(number, number + each)))])
    journal.close()
    return [str(number) for number in range(messages)]


def read_parts(reader: JournalStream, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [
        payload.decode()
        for part in reader.partitions(start, end)
        for rows in reader.read(part)
        for payload in rows.column("payload").to_pylist()
    ]


@pytest.mark.parametrize("each", [1, 3, 12])
def test_every_range_of_offsets_reads_the_same_rows_every_time(tmp_path: Path, each: int) -> None:
    """Also if a micro-batch ends in the middle of a batch of the group."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    expected = journal_of(tmp_path, 12, each)
    reader = JournalStream(Options({"journal": str(tmp_path), "partitionBytes": "200"}))
    offsets = [reader.initialOffset()]
    limit = ReadMaxRows(2)
    while (end := json.loads(json.dumps(reader.latestOffset(offsets[-1], limit)))) != offsets[-1]:
        offsets.append(end)
    for first in range(len(offsets)):
        for last in range(first, len(offsets)):
            fresh = JournalStream(Options({"journal": str(tmp_path), "partitionBytes": "200"}))
            rows = read_parts(fresh, offsets[first], offsets[last])
            assert rows == expected[max(0, 2 * first - 1) : max(0, 2 * last - 1)]
    assert read_parts(reader, offsets[0], reader.latestOffset(offsets[0])) == expected
    assert JournalStream(Options({"journal": str(tmp_path), "start": "latest"})).initialOffset() == offsets[-1]
    assert JournalStream(Options({"journal": str(tmp_path)})).latestOffset() == offsets[-1], "as Spark 4.0 asks"


def test_a_member_that_comes_back_leaves_a_gap(tmp_path: Path) -> None:
    """The same folder, another life: what the group delivered in between is nowhere."""
    journal_of(tmp_path, 5)
    reader = JournalStream(Options({"journal": str(tmp_path)}))
    end = reader.latestOffset(reader.initialOffset())
    journal = Journal(tmp_path, deliveries=True, fsync="never")
    journal.begin_life(2)
    journal.deliver([entered(7, A), batch(0, 470, b"470")])
    journal.close()
    for source in ({"journal": str(tmp_path)}, {"journals": str(tmp_path)}):
        table = (JournalsTable if "journals" in source else JournalTable)(Options(source))
        with pytest.raises(JournalError, match=r"missing from ordinal 5 of view 1@"):
            table.partitions()
    for stream in (reader, JournalStream(Options({"journal": str(tmp_path)}))):
        with pytest.raises(JournalError, match=r"missing from ordinal 5 of view 1@.* was away until view 7@"):
            stream.latestOffset(end)
    shows = JournalStream(Options({"journal": str(tmp_path), "gaps": "show"}))
    rows = [
        row
        for part in shows.partitions(end, shows.latestOffset(end))
        for batches in shows.read(part)
        for row in batches.to_pylist()
    ]
    assert [row["kind"] for row in rows] == ["missing", "delivery"]
    assert rows[0]["note"].startswith("an unknown number of deliveries are missing from ordinal 5 of view 1@")


def test_an_offset_of_another_journal_is_refused(tmp_path: Path) -> None:
    journal_of(tmp_path / "long", 5)
    journal_of(tmp_path / "short", 2)
    end = JournalStream(Options({"journal": str(tmp_path / "long")})).latestOffset()
    short = JournalStream(Options({"journal": str(tmp_path / "short")}))
    with pytest.raises(JournalError, match="it was cut or replaced"):
        short.latestOffset(end)
    with pytest.raises(JournalError, match=r"does not reach ordinal 4 .* start with a new checkpoint"):
        short.partitions(short.initialOffset(), end)


def test_a_beginning_that_was_removed_is_not_another_beginning(tmp_path: Path) -> None:
    """A first batch that was planned and not finished must not lose rows to retention when it is planned again."""
    journal_of(tmp_path, 5)
    reader = JournalStream(Options({"journal": str(tmp_path)}))
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    (tmp_path / "deliveries.0000000001.journal").rename(tmp_path / "deliveries.0000000002.journal")
    with pytest.raises(JournalError, match="was removed before it was read"):
        JournalStream(Options({"journal": str(tmp_path)})).partitions(start, end)


def test_a_reader_with_a_name_tells_how_far_it_is(tmp_path: Path) -> None:
    journal_of(tmp_path, 3)
    reader = JournalStream(Options({"journal": str(tmp_path), "reader": "spark"}))
    reader.commit(reader.latestOffset(reader.initialOffset()))
    assert (tmp_path / "readers" / "spark").read_text() == "1"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, r'needs \.option\("journal", …\): the folder where a member journals'),
        ({"jurnal": "x"}, "has no option 'jurnal': choose from advertise, from, fsync"),
        ({"journal": "x", "gaps": "hide"}, "the option gaps is 'hide': choose raise or show"),
        ({"journal": "x", "maxRowsPerBatch": "many"}, "is 'many': give a number above 0"),
        ({"journal": "x", "group": "chat"}, r'needs \.option\("peers"'),
        ({"journal": "x", "from": "3"}, r"the option from is for batch reads \(spark\.read\)"),
        ({"journals": "x", "group": "chat"}, "the option group goes with one journal, and journals with several"),
        ({"journals": "x", "gapWait": "no"}, "the option gapWait is 'no': give a number above 0"),
    ],
)
def test_a_wrong_option_gets_a_sentence(options: dict[str, str], sentence: str) -> None:
    def ask() -> None:
        reader = (JournalsStream if "journals" in options else JournalStream)(Options(options))
        reader.getDefaultReadLimit()
        reader.latestOffset(reader.initialOffset())

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
    reader = JournalStream(Options(options))
    with pytest.raises(PipelineError, match=r"no view of 2 or more members of 'chat' .* Are the peers up"):
        reader.initialOffset()
    reader.stop()


def test_rows_without_a_payload_column_are_refused() -> None:
    from pyspark.sql.types import LongType, StructType

    with pytest.raises(PipelineError, match="need a column payload of type binary or string"):
        StreamCaster(Options({"group": "chat", "peers": "127.0.0.1:1"}), StructType().add("payload", LongType()))


def test_a_message_without_a_row_is_as_it_was() -> None:
    for message in (b"", b"unisono:row", b"unisono:row a b c d\nx", b"unisono:row q 1 2 3"):
        assert split_id(message) == (None, message)
        assert Repeats().take(message) == message
    row = RowId("0a-f", 7, 2, 10**9)
    assert split_id(with_id(row, b"a\nb")) == (row, b"a\nb")


def attempts(seed: int) -> tuple[list[RowId], list[RowId]]:
    """Rows as a group delivers them when tasks fail, are run again, run twice, or are given up and go on; and each once."""
    random = Random(seed)
    delivered, wanted = [], []
    zombies: list[list[RowId]] = []
    for number in range(6):
        tries = []
        for partition in range(random.randrange(1, 4)):
            rows = [RowId("q", number, partition, row) for row in range(random.randrange(8))]
            wanted += rows
            failed = [rows[: random.randrange(len(rows) + 1)] for _ in range(random.randrange(3))]
            tries += [*failed, rows]
            zombies.append(list(rows))
        while any(tries):
            delivered.append(random.choice([one for one in tries if one]).pop(0))
            late = [one for one in zombies if one and one[0].batch < number]
            if late and random.random() < 0.2:
                delivered.append(random.choice(late).pop(0))
    return delivered, wanted


def test_repeats_are_dropped_and_nothing_else() -> None:
    dropped = 0
    for seed in range(200):
        delivered, wanted = attempts(seed)
        repeats = Repeats()
        kept = []
        for number, row in enumerate(delivered):
            if number == len(delivered) // 2:  # another member goes on with what this one knows
                snapshot = repeats.snapshot()
                dropped += repeats.dropped
                repeats = Repeats()
                repeats.restore(snapshot)
            if repeats.take(with_id(row, b"")) is not None:
                kept.append(row)
        assert sorted(kept) == sorted(wanted)
        dropped += repeats.dropped
    assert dropped > 1_000


@pytest.mark.parametrize("fault", [lambda row: row._replace(batch=0), lambda row: row._replace(row=0)])
def test_a_sink_that_gives_rows_wrong_names_is_found_out(fault: Callable[[RowId], RowId]) -> None:
    delivered, wanted = attempts(1)
    repeats = Repeats()
    assert sum(repeats.is_new(fault(row)) for row in delivered) != len(wanted)


def test_a_receiver_remembers_some_queries_only() -> None:
    repeats = Repeats(queries_max=2)
    rows = [RowId(query, 0, 0, 0) for query in ("a", "b", "a", "c", "a", "b")]
    assert [repeats.is_new(row) for row in rows] == [True, True, False, True, False, True]


def test_what_a_worker_raises_is_one_sentence() -> None:
    said = 'Traceback (most recent call last):\n  File "x"\nunisono.runtime.journal.reader.GapError: the journal has a gap.\n'
    assert reason(Exception(said)) == "the journal has a gap"


def test_journals_of_live_members_hold_what_they_delivered(members: tuple[Member, Member], tmp_path: Path) -> None:
    caster, observer = members
    caster.ask("cast 50 50")
    delivered = observer.ask("tell 0 50")
    rows = [row for row in read(tmp_path / "journal") if isinstance(row, Delivered)]
    assert [row.payload.decode() for row in rows] == delivered

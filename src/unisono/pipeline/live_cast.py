"""Rows of a DataFrame as messages to a group: each task is a member for as long as it casts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

import unisono
from unisono.pipeline.live_observer import listen
from unisono.pipeline.live_options import Options
from unisono.pipeline.live_plain import plainly
from unisono.pipeline.live_repeats import RowId, with_id
from unisono.pipeline.session import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Under these names Spark tells a task of which query and micro-batch it is."""


class CastCommit(WriterCommitMessage):
    """A task's rows are stable in the group."""

    def __init__(self, messages: int) -> None:
        self.messages = messages


class RowCaster:
    """What both kinds of writers do."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._group = options.require("group", "the name of the group to cast to")
        self._wishes = options.joining()
        self._has_ids = options.choose("ids", ("true", "false")) == "true"
        self._save = uuid4().hex  # all tasks of one save get a copy of this object
        types = {field.name: field.dataType.typeName() for field in schema.fields}
        if types.get("payload") not in ("binary", "string"):
            raise PipelineError(
                "rows that are cast need a column payload of type binary or string: select(to_json(struct(…)).alias('payload'))."
            )

    @plainly
    def write(self, iterator: Iterator[Row]) -> CastCommit:
        messages = self._messages(iterator)
        first = next(messages, None)
        if first is None:
            return CastCommit(0)
        return CastCommit(asyncio.run(self._cast(chain((first,), messages))))

    def _messages(self, rows: Iterator[Row]) -> Iterator[bytes]:
        """What is cast for rows, those without a payload left out."""
        given = (row["payload"] for row in rows)
        payloads = (one.encode() if isinstance(one, str) else bytes(one) for one in given if one is not None)
        if not self._has_ids:
            return payloads
        query, batch, partition = self._task()
        return (with_id(RowId(query, batch, partition, row), one) for row, one in zip(count(), payloads, strict=False))

    def _task(self) -> tuple[str, int, int]:
        """The query, the micro-batch and the partition whose rows this task casts, the same in every attempt."""
        context = TaskContext.get()
        if context is None:
            raise PipelineError("rows are cast by Spark's tasks: use df.write or df.writeStream.")
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        if query is None or batch is None:
            query, batch = self._save, "0"
        return query, int(batch), context.partitionId()

    async def _cast(self, messages: Iterator[bytes]) -> int:
        """With two members at least: a member that is alone would cast to itself."""
        cast = 0
        receipt = None
        async with unisono.join(self._group, min_members=2, role="observer", **self._wishes) as group:
            listening = asyncio.ensure_future(listen(group))
            for message in messages:
                receipt = await group.cast(message)
                cast += 1
            if receipt is not None:
                await receipt.stable(self._wishes["timeout"])
            listening.cancel()
        return cast


class BatchCaster(RowCaster, DataSourceWriter):
    """For `df.write`."""

    def commit(self, messages: Sequence[Any]) -> None: ...

    def abort(self, messages: Sequence[Any]) -> None: ...


class StreamCaster(RowCaster, DataSourceStreamWriter):
    """For `df.writeStream`."""

    def commit(self, messages: Sequence[Any], batchId: int) -> None: ...

    def abort(self, messages: Sequence[Any], batchId: int) -> None: ...

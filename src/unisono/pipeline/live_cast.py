"""Rows of a DataFrame as messages to a group: each task is a member for as long as it casts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

import unisono
from unisono.pipeline.live_observer import listen
from unisono.pipeline.live_options import Options
from unisono.pipeline.session import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType


class Cast(WriterCommitMessage):
    """A task's rows are stable in the group."""

    def __init__(self, messages: int) -> None:
        self.messages = messages


class Caster:
    """What both kinds of writers do."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._group = options.require("group", "the name of the group to cast to")
        self._wishes = options.joining()
        types = {field.name: field.dataType.typeName() for field in schema.fields}
        if types.get("payload") not in ("binary", "string"):
            raise PipelineError(
                "rows that are cast need a column payload of type binary or string: select(to_json(struct(…)).alias('payload'))."
            )

    def write(self, iterator: Iterator[Row]) -> Cast:
        first = next(iterator, None)
        if first is None:
            return Cast(0)
        return Cast(asyncio.run(self._cast(chain((first,), iterator))))

    async def _cast(self, rows: Iterator[Row]) -> int:
        """Two members at least: one that nobody else is with would cast to itself."""
        messages = 0
        receipt = None
        async with unisono.join(self._group, min_members=2, role="observer", **self._wishes) as group:
            listening = asyncio.ensure_future(listen(group))
            for row in rows:
                payload = row["payload"]
                if payload is not None:
                    receipt = await group.cast(payload.encode() if isinstance(payload, str) else bytes(payload))
                    messages += 1
            if receipt is not None:
                await receipt.stable(self._wishes["timeout"])
            listening.cancel()
        return messages


class BatchCaster(Caster, DataSourceWriter):
    """For `df.write`."""

    def commit(self, messages: Sequence[Any]) -> None: ...

    def abort(self, messages: Sequence[Any]) -> None: ...


class StreamCaster(Caster, DataSourceStreamWriter):
    """For `df.writeStream`."""

    def commit(self, messages: Sequence[Any], batchId: int) -> None: ...

    def abort(self, messages: Sequence[Any], batchId: int) -> None: ...

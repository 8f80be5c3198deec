"""The writing side of a journal, and its files.

| file | what |
|---|---|
| `lock` | held by the process that writes |
| `records` | which life this is, what membership confirmed, votes and decisions: before anything leaves (`records`) |
| `deliveries.<number>.journal` | if wanted, every delivery and view in order (`deliveries`), for `read` and `Reader` |
| `gap` | room for the note that deliveries could not be written |
| `readers/<name>` | which segments a registered reader has passed |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time_ns
from typing import Any, Final

from unisono.core.errors import Misuse
from unisono.core.member import Happening
from unisono.core.outbox import VoteWatermark
from unisono.core.types import Batch
from unisono.runtime.errors import JournalError
from unisono.runtime.journal.deliveries import Deliveries, Retention
from unisono.runtime.journal.disk import Disk, Lock, why
from unisono.runtime.journal.records import Records, Undecided
from unisono.trace.files import make_private_folder

SEGMENT_BYTES_MAX: Final = 64 << 20
FSYNC: Final = ("always", "turn", "never")


class Journal:
    """One member's journal. Give its path to `unisono.join`, or a `Journal` to have deliveries in it too; `join` closes it.

    `fsync` is for deliveries alone: `always` after each batch, `turn` once for all that a turn delivers, `never` leaves it to the
    system. Records are always synced.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        deliveries: bool = False,
        retention: Retention | None = None,
        fsync: str = "turn",
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        disk: Disk | None = None,
        wall: Callable[[], int] = time_ns,
    ) -> None:
        if fsync not in FSYNC:
            raise Misuse(f"there is no fsync {fsync!r}: choose {', '.join(FSYNC)}.")
        self.path = Path(path)
        self._wants_deliveries = deliveries
        self._options: dict[str, Any] = {
            "retention": retention,
            "fsync": fsync,
            "segment_bytes_max": segment_bytes_max,
            "disk": disk or Disk(),
            "wall": wall,
        }
        self._deliveries: Deliveries | None = None
        self._is_closed = False
        try:
            make_private_folder(self.path)
            self._lock = Lock(self.path / "lock")
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be opened ({why(error)}): give a folder that this process may write to."
            ) from error
        try:
            self._records = Records(self.path / "records", self._options["disk"])
        except BaseException:
            self._lock.release()
            raise

    @property
    def record(self) -> bytes | None:
        """What an earlier life persisted last, for `Member`."""
        return self._records.record

    @property
    def undecided(self) -> Undecided | None:
        """Positions that an earlier life voted for without recording the decision. Only the order `rmp` votes."""
        return self._records.undecided

    @property
    def torn_bytes(self) -> int:
        """Bytes of an incomplete write by a killed process. They were cut off; no reader had seen them."""
        return self._records.torn_bytes + (0 if self._deliveries is None else self._deliveries.torn_bytes)

    @property
    def missing_messages(self) -> int:
        """How many deliveries of this life could not be written."""
        return 0 if self._deliveries is None else self._deliveries.missing_messages

    def begin_life(self, wall_ns: int, group: str = "") -> int:
        """Return the incarnation of the new life, higher than all before it and already on stable storage."""
        if self._is_closed:
            raise Misuse(f"the journal {self.path} was closed with its member; create another `Journal` for this path.")
        incarnation = self._records.begin_life(wall_ns, group)
        if self._wants_deliveries:
            self._deliveries = Deliveries(self.path, incarnation, **self._options)
        return incarnation

    def again(self) -> Journal:
        """Another journal with the same folder and settings, once this one is closed."""
        return Journal(self.path, deliveries=self._wants_deliveries, **self._options)

    def keep(self, records: Sequence[bytes]) -> None:
        """Put records on stable storage. Raises `JournalError` if that is not certain; the member must then stop."""
        self._records.keep(records)

    def keep_votes(self, watermark: VoteWatermark) -> None:
        """Write down votes and decisions; a new vote is on stable storage when this returns. Raises `JournalError` like `keep`."""
        self._records.keep_votes(watermark)

    def deliver(self, events: Sequence[Happening]) -> None:
        """Journal the deliveries and views of a turn, if enabled. Never raises: what cannot be written becomes a gap."""
        if self._deliveries is not None and not self._is_closed:
            self._deliveries.write(events)

    def skip(self, batch: Batch) -> None:
        """Note a gap for a batch that is not delivered because the transferred state already contains it."""
        if self._deliveries is not None and not self._is_closed:
            self._deliveries.skip(batch)

    def abandon(self) -> None:
        """Close the files without writing anything more, as if the process had been killed. For simulations."""
        self._is_closed = True
        self._records.close()
        if self._deliveries is not None:
            self._deliveries.abandon()
        self._lock.release()

    def close(self) -> None:
        self._is_closed = True
        self._records.close()
        if self._deliveries is not None:
            self._deliveries.close()  # kept: `missing_messages` asks it
        self._lock.release()

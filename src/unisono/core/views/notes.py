"""What an engine tells the recorder: written beside the steps, which are the same without it. Call these only if `noting`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from unisono.core.outbox import Note, NoteKind, Outbox
from unisono.core.types import Batch, MemberId, Packet, Rank, View, ViewId


def note_view(
    out: Outbox,
    view: View,
    previous: View | None,
    transitional: Sequence[MemberId],
    parts: Sequence[ViewId],
    attributes: Mapping[str, object] | None,
) -> None:
    """A view was installed, and where its members came from."""
    origin: dict[str, object] = dict(attributes or {})
    if previous is not None:
        origin |= {"previous_view": str(previous.id), "transitional": [str(m) for m in transitional]}
    if parts:
        origin["parts"] = [str(part) for part in parts]
    out.notes.append(Note(NoteKind.VIEW, view=view, attributes=origin or None))


def note_cast(out: Outbox, mark: int, batch: Batch) -> None:
    """A batch was cast: before what the ordering has noted of it, from `mark` on."""
    packets = out.to_all  # none, if the batch must wait
    vector = getattr(packets[-1], "vector", None) if packets else None
    attributes: dict[str, object] = {} if vector is None else {"vector": list(vector)}
    if batch.safe:
        attributes["safe"] = "true"
    out.notes.insert(mark, Note(NoteKind.CAST, batch, attributes=attributes or None))


def note_received(out: Outbox, mark: int, packets: Iterable[Packet]) -> None:
    """Note the batches that were received, at their place among the notes."""
    batches = (getattr(packet, "batch", None) for packet in packets)
    out.notes[mark:mark] = [Note(NoteKind.RECEIVE, batch) for batch in batches if batch is not None]


def note_shown(out: Outbox, batch: Batch, rank: Rank) -> None:
    """A batch is delivered at this rank: the application is shown it, or a placeholder is passed over."""
    if batch.safe:
        out.notes.append(Note(NoteKind.STABLE, batch))
    mine = batch.to is None or rank in batch.to
    out.notes.append(Note(NoteKind.DELIVER, batch if mine else batch.placeholder()))

"""Numbers that count for as long as a group lives have the bits for it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from unisono.core.wire.codec import LIST, RANK, ROW, SLOT, U32, Layout
from unisono.core.wire.fields import Field, Many, Row, Scalar
from unisono.orders.registry import FLUSH_LAYOUTS, LAYOUTS


@pytest.mark.parametrize("layout", LAYOUTS + FLUSH_LAYOUTS, ids=lambda it: f"{it.type.__module__}.{it.type.__name__}")
def test_no_number_of_an_order_ends_while_a_group_lives(layout: Layout) -> None:
    """Found by reading: slots had 32 bits, which a busy origin uses up within weeks, and then its members stopped."""
    assert not narrow_fields(layout.fields)


def test_a_narrow_number_is_found() -> None:
    assert narrow_fields((SLOT, LIST(ROW(RANK, U32)))) == [U32]


def narrow_fields(fields: Iterable[Field]) -> list[Field]:
    """Numbers, ranks apart, that have less than 64 bits."""
    found: list[Field] = []
    for field in fields:
        match field:
            case Scalar() if not field.ranks and field.least < 8:
                found.append(field)
            case Row():
                found += narrow_fields(field.fields)
            case Many():
                found += narrow_fields((field.item,))
    return found

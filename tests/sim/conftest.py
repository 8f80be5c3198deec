"""Membership by both ways in which reports travel."""

from __future__ import annotations

import pytest

from tests.membership_harness import World


@pytest.fixture(params=["star", "ring"])
def collect(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every story of a module that uses this is told twice."""
    monkeypatch.setattr(World, "collect", request.param)
    return str(request.param)

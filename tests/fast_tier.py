"""Keeps the fast tests fast: a plugin of `./dev fast` that fails if one of them takes a large share of the time of all.

It compares shares, not seconds, so that a slow or busy machine changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

SHARE_MAX = 1 / 20
ENOUGH = 1_000
"""Fewer tests than this are a selection by hand, of which one may well take most of the time."""


class Shares:
    """How long each test took, with its fixtures."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if len(self._seconds) >= ENOUGH and too_long(self._seconds) and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self._seconds) >= ENOUGH:
            for sentence in too_long(self._seconds):
                terminalreporter.write_line(sentence, red=True)


def too_long(seconds: Mapping[str, float]) -> list[str]:
    """A sentence for each test that takes more than its share."""
    total = sum(seconds.values())
    return [
        f"{name} took {spent / total:.0%} of the time of all fast tests; mark it with `pytest.mark.seconds`"
        for name, spent in sorted(seconds.items(), key=lambda item: -item[1])
        if spent > SHARE_MAX * total
    ]


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the workers' reports come to the main process
        config.pluginmanager.register(Shares())

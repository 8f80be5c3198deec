"""Checkers in plain Python, one file a property (docs/properties.md): the oracle for simulator, explorer and pipeline."""

from unisono.trace.checks.checker import Checker, Violation
from unisono.trace.checks.history import History
from unisono.trace.checks.judge import CHECKERS, IMPLIES, Observer, Result, Verdict, judge, judge_all

__all__ = [
    "CHECKERS",
    "IMPLIES",
    "Checker",
    "History",
    "Observer",
    "Result",
    "Verdict",
    "Violation",
    "judge",
    "judge_all",
]

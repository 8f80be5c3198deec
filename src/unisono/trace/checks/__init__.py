"""Checkers in plain Python, one file a property (docs/properties.md): the oracle for simulator, explorer and pipeline."""

from unisono.trace.checks.checker import Checker
from unisono.trace.checks.history import History
from unisono.trace.checks.judge import Observer, Result, Verdict, judge, judge_all
from unisono.trace.checks.properties import CHECKERS, IMPLIES, PROPERTIES
from unisono.trace.checks.property import PropertyRecord, Violation

__all__ = [
    "CHECKERS",
    "IMPLIES",
    "Checker",
    "History",
    "Observer",
    "PROPERTIES",
    "PropertyRecord",
    "Result",
    "Verdict",
    "Violation",
    "judge",
    "judge_all",
]

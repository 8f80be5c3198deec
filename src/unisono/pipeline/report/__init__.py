"""The report: one page that says at a glance whether every promise was kept, and shows how fast and at what cost.

`collect` brings the pipeline's verdicts and measures together as `ReportData`; `build` draws them as one HTML file that needs
no network, no server and no JavaScript.
"""

from __future__ import annotations

from unisono.pipeline.report.collect import collect
from unisono.pipeline.report.model import ReportData
from unisono.pipeline.report.page import build

__all__ = ["ReportData", "build", "collect"]

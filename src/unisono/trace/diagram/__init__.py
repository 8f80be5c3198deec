"""A run as a space-time diagram.

- `render`      draws the events of one group as SVG
- `cut_window`  turns a window of the run, counted from its beginning, into what `render` takes
- `LIGHT`, `DARK` and `Palette` are the colours, for pages that show more than the diagram
"""

from unisono.trace.diagram.drawing import cut_window as cut_window
from unisono.trace.diagram.drawing import render as render
from unisono.trace.diagram.events import Highlight as Highlight
from unisono.trace.diagram.svg import DARK as DARK
from unisono.trace.diagram.svg import LIGHT as LIGHT
from unisono.trace.diagram.svg import Palette as Palette
from unisono.trace.diagram.svg import Theme as Theme

__all__ = ["DARK", "LIGHT", "Highlight", "Palette", "Theme", "cut_window", "render"]

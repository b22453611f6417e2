"""Colours, style and rendering of plots: PNG beside a page, or inline SVG in a page that needs nothing beside it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): told apart with any colour vision; black is kept for what the plot is about.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
_DOTS_AN_INCH = 150
_PALETTE = 128  # colours: a plot has few, and takes a third of the bytes
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "skysail",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
}


def panels(count: int, size_inches: tuple[float, float] = (8.6, 2.9)) -> tuple[Figure, list[Axes]]:
    """Return a figure with panels side by side."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size_inches, layout="constrained")
        found = figure.subplots(1, count, squeeze=False)
    return figure, list(found[0])


def svg(figure: Figure) -> str:
    """Render; the XML declaration is cut so that the picture can stand inside a page."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def png(figure: Figure) -> bytes:
    """Render small enough for a repository; the same figure gives the same bytes."""
    drawn, out = io.BytesIO(), io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=_DOTS_AN_INCH)
    picture = Image.open(drawn).convert("RGB").quantize(_PALETTE, dither=Image.Dither.NONE)
    picture.save(out, format="png", optimize=True)
    return out.getvalue()

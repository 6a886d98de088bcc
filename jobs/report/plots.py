"""Plots of the report and of the notebooks, in one style: direct labels, units, honest axes.

An SVG stands in the page itself, its ink drawn in the page's own colour, so that it can be read in the dark as well. A
notebook shows the PNG.
"""

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

INK, KEPT, DROPPED, PALE = "#24292f", "#1f6fb4", "#c2571a", "#8a929c"
STYLE = {
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "shardmill",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
LINES = (KEPT, DROPPED, "#3d8b5f", PALE)
DPI = 144
MOST_BARS = 40


class Drawn(dict[str, bytes]):
    """A plot's files by suffix; what a notebook shows."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The PNG, at the size in which it would be printed."""
        (width,) = struct.unpack(">I", self["png"][16:20])
        return self["png"], {"width": width * 96 // DPI}


def drawn(draw: Callable[["Axes"], None], height: float = 3.4) -> Drawn:
    """A plot as PNG and as SVG, the same bytes for the same figures.

    Parameters
    ----------
    draw
        Draws on the axes that it is given.
    height
        In inches; the width is 7.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, height))  # not pyplot's, whose backend is the notebook's own
        draw(figure.subplots())
        return Drawn(
            png=_saved(figure, "png", {"Software": None}, facecolor="white"),
            svg=_saved(figure, "svg", {"Date": None}, transparent=True),
        )


def plain(colour: str) -> "ListedColormap":
    """A colour map of one colour, whose opacity says how much."""
    from matplotlib.colors import ListedColormap

    return ListedColormap([colour])


def _saved(figure: "Figure", suffix: str, metadata: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, dpi=DPI, metadata=metadata, **options)
    return buffer.getvalue()


def inline(svg: bytes, label: str) -> str:
    """An SVG as an element of a page, in the page's ink, with a text in its place for who cannot see it."""
    text = svg.decode()
    element = text[text.index("<svg") :].replace(INK, "currentColor")
    # Definitions are shared by all plots of a page unless each has ids of its own.
    name = "".join(c if c.isalnum() else "-" for c in label.lower())
    for mark in ('id="', "#"):
        element = element.replace(f"{mark}DejaVu", f"{mark}{name}-DejaVu")
    return element.replace("<svg", f'<svg role="img" aria-label="{_escaped(label)}"', 1)


def _escaped(label: str) -> str:
    return label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def bars(
    names: Sequence[str],
    values: Sequence[float],
    unit: str,
    colours: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> Drawn:
    """Horizontal bars from the first name down, each with its figure or another label."""

    def draw(axes: "Axes") -> None:
        places = np.arange(len(names))
        axes.barh(places, values, color=colours or KEPT, height=0.72)
        told = labels or [f"{value:,.0f}" for value in values]
        for place, value, label in zip(places, values, told, strict=True):
            axes.annotate(label, (value, place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        longest = max(map(len, told), default=0)
        axes.set_xlim(0, (1.05 + 0.014 * longest) * (max(values, default=0) or 1))
        axes.xaxis.set_major_formatter("{x:,.10g}")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    return drawn(draw, height=0.9 + 0.28 * len(names))


def histogram(
    edges: Sequence[float],
    counts: Sequence[float],
    what: str,
    unit: str,
    logarithmic: bool = False,
    marks: Mapping[str, float] | None = None,
) -> Drawn:
    """Counts between edges, one more edge than counts; marks are upright lines by their label."""

    def draw(axes: "Axes") -> None:
        axes.stairs(counts, edges, fill=True, color=KEPT)
        axes.set_xlabel(what)
        axes.set_ylabel(unit)
        axes.set_ylim(0, 1.05 * max([*counts, 1]))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        if logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_xticks(edges, [f"{edge:,.0f}" for edge in edges], rotation=45, ha="right")
            axes.minorticks_off()
        _mark(axes, marks or {})

    return drawn(draw)


def lines(
    x: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    what: str,
    unit: str,
    marks: Mapping[str, float] | None = None,
    logarithmic: bool = False,
) -> Drawn:
    """Curves over the same x, named in their colours; marks are upright lines by their label."""

    def draw(axes: "Axes") -> None:
        for (name, y), colour in zip(curves.items(), LINES, strict=False):
            axes.plot(x, y, color=colour, linewidth=1.8, label=name)
        axes.set_xlabel(what)
        axes.set_ylabel(unit)
        if logarithmic:
            axes.set(xscale="log", yscale="log")
        else:
            axes.set_xlim(x[0], x[-1])
            axes.set_ylim(0, 1.05 * (max(map(max, curves.values())) or 1))
        if len(curves) > 1:
            axes.legend(frameon=False, handlelength=0, handletextpad=0, labelcolor="linecolor")
        _mark(axes, marks or {})

    return drawn(draw)


def _mark(axes: "Axes", marks: Mapping[str, float]) -> None:
    """Lines from the axis up, their labels above the plot, where nothing is drawn."""
    for i, (label, x) in enumerate(marks.items()):
        axes.axvline(x, color=DROPPED, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(label, (x, 1 + 0.07 * i), xycoords=("data", "axes fraction"), ha="center", va="bottom",
                      color=DROPPED, fontsize=9)  # fmt: skip


def s_curve(found: dict[str, Any], bands: int, rows: int) -> Drawn:
    """How often pairs of a similarity are flagged: measured with its interval, over the formula."""

    def draw(axes: "Axes") -> None:
        s = np.linspace(0, 1, 400)
        axes.plot(s, 100 * (1 - (1 - s**rows) ** bands), color=PALE, linewidth=1.5, zorder=1)
        for one in found["bins"]:
            colour = KEPT if one["within_joint_interval"] else DROPPED
            low, high = (100 * bound for bound in one["interval"])
            axes.plot([one["similarity"]] * 2, [low, high], color=colour, alpha=0.35, linewidth=6)
            axes.plot(one["similarity"], 100 * one["flagged"], "o", color=colour, markersize=5)
        axes.set_xlabel("exact Jaccard similarity of the shingles")
        axes.set_ylabel("pairs flagged (%)")
        axes.set(xlim=(0, 1), ylim=(-2, 102))
        axes.annotate(
            "grey: formula\nbars: 95 % interval", (0.02, 0.84), xycoords="axes fraction", fontsize=9
        )

    return drawn(draw, height=4)

"""The report's plots, in one style: direct labels, units, honest axes.

An SVG stands in the page itself, its ink drawn in the page's own colour, so that it can be read in the dark as well.
"""

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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
DPI = 144
MOST_BARS = 40


def drawn(draw: Callable[["Axes"], None], height: float = 3.4) -> dict[str, bytes]:
    """A plot as PNG and as SVG, the same bytes for the same figures.

    Parameters
    ----------
    draw
        Draws on the axes that it is given.
    height
        In inches; the width is 7.
    """
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    with matplotlib.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(7, height))
        draw(axes)
        files = {
            "png": _saved(figure, "png", {"Software": None}, facecolor="white"),
            "svg": _saved(figure, "svg", {"Date": None}, transparent=True),
        }
        plt.close(figure)
    return files


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
    names: Sequence[str], values: Sequence[float], unit: str, colours: Sequence[str] | None = None
) -> dict[str, bytes]:
    """Horizontal bars from the first name down, each with its figure."""

    def draw(axes: "Axes") -> None:
        places = np.arange(len(names))
        axes.barh(places, values, color=colours or KEPT, height=0.72)
        for place, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:,.0f}", (value, place), (4, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.set_xlim(0, 1.12 * max([*values, 1]))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0)

    return drawn(draw, height=0.9 + 0.28 * len(names))


def histogram(
    edges: Sequence[float], counts: Sequence[float], what: str, unit: str, logarithmic: bool = False
) -> dict[str, bytes]:
    """Counts between edges, one more edge than counts."""

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

    return drawn(draw)


def s_curve(found: dict[str, Any], bands: int, rows: int) -> dict[str, bytes]:
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

"""What sections of the report page are made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.report import plots
from jobs.report.examples import Piece


@dataclass(frozen=True)
class Table:
    """Rows under headings; figures are set to the right."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Plot:
    """PNG and SVG by suffix, with a text in its place."""

    name: str
    label: str
    files: dict[str, bytes]

    @property
    def element(self) -> str:
        """The SVG as it stands in a page."""
        return plots.inline(self.files["svg"], self.label)


@dataclass(frozen=True)
class Pair:
    """A removed document beside the one kept in its place."""

    heading: str
    removed: str
    kept: str
    left: list[Piece]
    right: list[Piece]


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    title: str
    text: str = ""
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    pairs: Sequence[Pair] = ()


def percent(part: float, whole: float) -> str:
    """A part of a whole, nothing of nothing."""
    return f"{part / whole:.1%}" if whole else ""


def share(value: float | None) -> str:
    """A share in percent, nothing where there is none."""
    return "" if value is None else f"{value:.1%}"


def cells(row: Iterable[Any]) -> list[tuple[str, bool]]:
    """Cells of a table as text, and whether each is a figure."""
    return [(_cell(value), isinstance(value, int | float) or _is_figure(value)) for value in row]


def _cell(value: Any) -> str:
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
    )


def _is_figure(value: Any) -> bool:
    return isinstance(value, str) and value[:1].isdigit() and value[-1:] in "%0123456789"

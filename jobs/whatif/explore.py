"""Thresholds to move, in a notebook: a page that needs neither a server nor a kernel, and nothing from elsewhere."""

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jobs.report.notebook import Html
from jobs.report.plots import DROPPED, INK, KEPT, PALE
from jobs.whatif.curves import Curve

if TYPE_CHECKING:
    from bokeh.document import Document

HEIGHT = 480  # pixels
# What a chosen rule and a moved slider change; `chosen` says whether the rule has just been chosen.
_UPDATE = """
const curve = curves[select.value]
const [x, own] = [curve.settings, curve.threshold]
if (chosen) {
  const distances = x.map((one) => Math.abs(one - own))
  source.data = {x, documents: curve.documents, bytes: curve.bytes}
  slider.end = x.length - 1
  slider.value = own === null ? 0 : distances.indexOf(Math.min(...distances))
  run.location = own
  run.visible = own !== null
}
const i = Math.min(slider.value, x.length - 1)
const shown = (n) => Number(n.toPrecision(6)).toLocaleString("en")
const [documents, bytes] = [curve.documents[i].toFixed(1), curve.bytes[i].toFixed(1)]
mark.location = x[i]
slider.title = `threshold ${shown(x[i])}`
said.text = `<b>${select.value} = ${shown(x[i])}</b> would remove ${documents} % of the documents and `
  + `${bytes} % of the bytes.` + (own === null ? "" : ` This run has ${shown(own)}, the dashed line.`)
"""


def explore(curves: Sequence[Curve]) -> Html:
    """A rule to choose, a slider for its threshold, and what it would remove alone."""
    from bokeh.embed import file_html
    from bokeh.resources import INLINE

    page = file_html(_document(curves), INLINE, "Thresholds")
    return Html(
        f'<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {HEIGHT + 20}px; border: 0" '
        'title="Thresholds and what they would remove"></iframe>'
    )


def _document(curves: Sequence[Curve]) -> "Document":
    from bokeh.document import Document
    from bokeh.layouts import column, row
    from bokeh.models import ColumnDataSource, CustomJS, Div, Select, Slider, Span
    from bokeh.plotting import figure

    source = ColumnDataSource({"x": [], "documents": [], "bytes": []})
    plot = figure(height=HEIGHT - 120, width=760, y_range=(-2, 102), toolbar_location=None,
                  x_axis_label="threshold", y_axis_label="removed (%)")  # fmt: skip
    for name, colour in (("documents", KEPT), ("bytes", DROPPED)):
        plot.line("x", name, source=source, color=colour, line_width=2, legend_label=name)
    run = Span(dimension="height", line_color=PALE, line_dash="dashed")
    mark = Span(dimension="height", line_color=INK)
    plot.add_layout(run)
    plot.add_layout(mark)
    plot.add_layout(plot.legend[0], "right")
    select = Select(title="rule", options=[one.rule for one in curves], value=curves[0].rule, width=420)
    slider = Slider(start=0, end=len(curves[0].settings) - 1, value=0, step=1, show_value=False, width=320)
    said = Div(text="", width=760)
    parts = {"select": select, "slider": slider, "source": source, "run": run, "mark": mark, "said": said}
    known = {
        one.rule: {
            "threshold": one.threshold,
            **{name: getattr(one, name).tolist() for name in ("settings", "documents", "bytes")},
        }
        for one in curves
    }
    choose, move = (
        CustomJS(args={**parts, "curves": known, "chosen": is_chosen}, code=_UPDATE)
        for is_chosen in (True, False)
    )
    select.js_on_change("value", choose)
    slider.js_on_change("value", move)
    document = Document()
    document.add_root(column(row(select, slider), said, plot))
    document.js_on_event("document_ready", choose)
    return document

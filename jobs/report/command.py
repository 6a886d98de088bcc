"""`python -m jobs.report`: the page of a finished run again, or two finished runs beside each other."""

import argparse
from typing import TYPE_CHECKING

from jobs.cli import add_cluster, guarded
from jobs.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from jobs.runtime.console import Console

DESCRIPTION = """\
Make the report's page of a finished run again, from report.json, the ledger and the sources; or say what a changed
setting did: the settings of two finished runs that differ, their counts by fate, where the documents of each fate went,
and some of those whose fate changed."""

EXAMPLES = """\
examples:
  python -m jobs.report out/web                            the same bytes, or this version's page of an older run
  python -m jobs.report out/web --no-texts --output page   the page without any document's text, elsewhere
  python -m jobs.report --compare out/web out/web-strict   to out/web-strict-compared-with-web/index.html

Documents are the same if they have the same source, by its name, path below it and place in the file.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.report`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.report",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", metavar="OUT", nargs="?", help="output folder of a finished run, or its URL")
    add("--compare", nargs=2, metavar=("OUT_A", "OUT_B"), help="two finished runs instead of one")
    add("--output", metavar="DIR",
        help="folder for the page (default: OUT/report; of a comparison OUT_B-compared-with-A)")  # fmt: skip
    add("--no-texts", action="store_true", help="show no document's text, as where the sources are gone")
    add("--samples", type=int, default=5, metavar="N",
        help="of a comparison: documents shown of those that went from one fate to another (default: 5)")  # fmt: skip
    add_cluster(parser)  # for a comparison
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.report OUT`, or `--compare OUT_A OUT_B`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    from jobs.runtime.console import Console

    if (options.out is None) == (options.compare is None):
        raise UserError("name one finished run, or two with --compare")
    if options.samples < 0:
        raise UserError(f"--samples is {options.samples}; it should be 0 or more")
    return _compare(options, Console()) if options.compare else _again(options, Console())


def _again(options: argparse.Namespace, console: "Console") -> int:
    from jobs.report import again
    from jobs.runtime import folders

    out = folders.reached(options.out)
    elsewhere = _empty(options.output) if options.output else None
    folder = again.render(out, elsewhere, texts=not options.no_texts)
    console.line(f"{folder}/index.html")
    return 0


def _compare(options: argparse.Namespace, console: "Console") -> int:
    from jobs.report import comparison, comparison_page
    from jobs.runtime import folders
    from jobs.runtime.cluster import connected

    names = [name.rstrip("/") for name in options.compare]
    outs = [folders.reached(name) for name in names]
    folder = _empty(
        options.output or f"{names[1]}-compared-with-{names[0].rpartition('/')[2]}", comparison.FILE
    )
    a, b = (comparison.finished(out, name) for out, name in zip(outs, names, strict=True))
    with connected(options.scheduler, options.workers, options.memory_limit) as client:
        found = comparison.compare(a, b, options.samples, client, console)
    comparison_page.write(folder, found, comparison.examples(found, a, b, texts=not options.no_texts))
    comparison_page.show(console, found)
    console.line(f"{folder}/index.html")
    return 0


def _empty(name: str, ours: str | None = None) -> "Path":
    """A folder that is empty, new, or holds an earlier page of the same kind, by its file `ours`."""
    from jobs.runtime import folders

    folder = folders.reached(name)
    present = [path for path, _ in zip(folders.files(folder), range(1), strict=False)]
    if folder.is_file() or (present and not (ours and (folder / ours).exists())):
        raise UserError(f"--output {name} holds something already; give a new or empty folder")
    return folder

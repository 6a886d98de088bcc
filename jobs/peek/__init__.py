"""Documents in the terminal: what is in them, and why each was kept or dropped."""

import argparse

from jobs.cli import guarded

DESCRIPTION = """\
Show documents of a finished run with the reason why each was kept or dropped, and the beginning of its text; of a
dropped duplicate, the words in which it differs from the document that was kept in its place. The sample is the same
each time; --seed draws another."""

EXAMPLES = """\
examples:
  python -m jobs.peek out/web --fate near_duplicate            what was removed, and how it differs from what was kept
  python -m jobs.peek out/web --fate quality --source web -n 3 all rules of quality together
  python -m jobs.peek out/web --fate kept --chars 2000
  python -m jobs.peek out/web --id https://example.org/1       a doc_id, or an id or URL that came with the document

In a difference, [-these words-] are in the dropped document alone and {+these+} in the kept one alone.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.peek`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.peek",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output folder of a finished run, or its URL")
    add("--fate", metavar="FATE",
        help="of this fate, such as near_duplicate or quality.c4.min_lines; a step's name, such as quality, stands for "
        "all that begin so, kept and dropped for all of a kind")  # fmt: skip
    add("--source", metavar="NAME", help="of this source")
    add("--id", metavar="ID", help="with this doc_id, id or URL")
    add("-n", type=int, default=5, metavar="N", help="so many documents (default: 5)")
    add("--chars", type=int, default=600, metavar="N", help="of the beginning of each text (default: 600)")
    add("--seed", type=int, default=0, metavar="N", help="of the sample (default: 0)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.peek OUT --fate near_duplicate`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    from jobs.peek.documents import Wanted, chosen, with_texts
    from jobs.peek.show import show
    from jobs.runtime.console import Console
    from jobs.runtime.folders import reached

    out, console = reached(options.out), Console()
    wanted = Wanted(options.fate, options.source, options.id, options.n, options.seed)
    documents = chosen(out, wanted)
    for document in with_texts(out, documents, console.warn):
        show(console, document, options.chars)
    return 0

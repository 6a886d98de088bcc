"""What other thresholds would remove, from the statistics that a finished run recorded.

Nothing is measured again: a rule is a comparison with a column of the ledger, so a million documents take seconds.
"""

import argparse

from jobs.cli import guarded

DESCRIPTION = """\
Say what other thresholds would remove from a finished run: documents, bytes and tokens by each rule alone (it would
drop them), by each rule only (no other would), and by all in their order, before the change and after it, by source
and by crawl, with a few of the documents that would go. Computed from the ledger; texts are read for those few only.
Without a change it says so of the run's own rules."""

EXAMPLES = """\
examples:
  python -m jobs.whatif out/web --set gopher_quality.min_words=100 --set gopher_quality.max_hashes_per_word=null
  python -m jobs.whatif out/web --set additions.max_boilerplate_lines=0.3    a rule that the run did not use
  python -m jobs.whatif out/web --min score=3.5 --max language_score=0.99    any number in the ledger
  python -m jobs.whatif out/web --set "thresholds=[{column: score, min: 3.5}]"   before all other rules, as in a run
  python -m jobs.whatif out/web --min score=3.5 --samples 0 --json what.json

What is said, and what is not:
  - Documents that were dropped before the quality rules have no statistics; they are counted as not judged. With
    --set thresholds=…, those that a threshold dropped are judged by the thresholds alone.
  - Near-duplicates are not searched again, and the floor of length is not applied again: a document that one of these
    dropped is counted like any other, and where a kept document goes, its duplicate does not come back.
  - A document without a value is not dropped by --min and --max, and is counted as such.
  - Bytes are of the text as the ledger has it: what C4's rules left of it, where the run kept the document.
  - Documents that the run dropped before tokenizing have no tokens: these are estimated from their bytes, at the
    source's tokens per byte.
  - What changes a statistic itself (stop words, C4's rules about lines, word lists) takes a run, and is refused.
"""


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.whatif`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.whatif",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output folder of a finished run, or its URL")
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="a setting of `quality` or `thresholds`, for sources that have it; repeatable, YAML values")  # fmt: skip
    add("--min", action="append", default=[], metavar="COLUMN=NUMBER", dest="least",
        help="drop documents with less in this column of the ledger, such as score=3.5; repeatable")  # fmt: skip
    add("--max", action="append", default=[], metavar="COLUMN=NUMBER", dest="most",
        help="drop documents with more; repeatable")  # fmt: skip
    add("--samples", type=int, default=3, metavar="N", help="documents to show for each rule (default: 3)")
    add("--measure", choices=("documents", "bytes", "tokens"), default="documents",
        help="what the table of rules counts (default: documents); the JSON has all three")  # fmt: skip
    add("--json", metavar="FILE", help="write every figure to this file")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.whatif OUT --set KEY=VALUE …`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from jobs.runtime.console import Console
    from jobs.runtime.folders import reached
    from jobs.whatif.answer import answer
    from jobs.whatif.change import Change
    from jobs.whatif.show import show

    change = Change(options.settings, options.least, options.most)
    found = answer(reached(options.out), change, options.samples)
    show(Console(), found, options.measure)
    if options.json:
        Path(options.json).write_text(
            json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    return 0

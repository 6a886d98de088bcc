"""Write a finished run's tokens in another format, from its shards: nothing is read or tokenized again."""

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from jobs.cli import add_cluster, guarded

if TYPE_CHECKING:
    from jobs.runtime.context import Run

OPTIONS = {
    r"shards\.rows\.length": "--rows",
    r"shards\.formats(\.\d+)?": "--format",
    r"shards: rows": "--rows",
}

EXAMPLES = """\
examples:
  python -m jobs.export out/web --format mds                          documents, to out/web-exports/mds/train and val
  python -m jobs.export out/web --format mds,webdataset --rows 2049   rows of the stream
  python -m jobs.export out/web --format parquet --rows 4097 --policy best_fit --to /data/packed
"""


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.export`."""
    from jobs.settings.formats import Format, Policy

    known = ", ".join(name for name in get_args(Format) if name != "llmc")
    parser = argparse.ArgumentParser(
        prog="python -m jobs.export",
        description="Write a finished run's tokens in other formats, from its shards: nothing is tokenized again. The "
        "same command continues where it stopped.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output folder of a finished run, or its URL")
    add("--format", required=True, metavar="FORMAT[,…]", help=known)
    add("--to", metavar="DIR|URL", help="a folder in which each format has its own (default: OUT-exports)")
    add("--rows", type=int, metavar="LENGTH", help="rows of so many tokens in the place of documents")
    add("--policy", choices=get_args(Policy), help="how rows are made of documents (default: stream)")
    add_cluster(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.export OUT --format mds`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options), commits=True)


def _main(options: argparse.Namespace) -> int:
    from jobs.runtime.checkpoint import locked
    from jobs.runtime.cluster import configure
    from jobs.runtime.finished import refuse_foreign_folder
    from jobs.runtime.folders import reached

    configure()  # before anything imports `distributed`
    run = finished_run(options)
    to = reached(options.to or f"{str(options.out).rstrip('/')}-exports")
    refuse_foreign_folder(to, run.out)
    with locked(to), run:
        for name in run.config.shards.formats:
            export_format(run, to / name)
    return 0


def finished_run(options: argparse.Namespace) -> "Run":
    """The run, with the formats and rows that are asked for now.

    Raises
    ------
    UserError
        It is not finished, or there are no such formats or rows.
    """
    from pydantic import ValidationError

    from jobs.config import Shards, said
    from jobs.errors import UserError
    from jobs.runtime.finished import run_with
    from jobs.runtime.folders import reached
    from jobs.trace import configuration

    out = reached(options.out)
    config = configuration(out)
    if options.policy and options.rows is None:
        raise UserError(f"--policy {options.policy} is of rows; say how long they are with --rows 2049")
    names = options.format.split(",")
    if "llmc" in names:
        raise UserError(f"llmc is what the run has written already, in {out / 'shards'}")
    rows = None if options.rows is None else {"length": options.rows, "policy": options.policy or "stream"}
    asked = config.shards.model_dump() | {"formats": names, "rows": rows}
    try:
        shards = Shards.model_validate(asked)
    except ValidationError as error:
        raise UserError(_as_options(said(error, ("shards",)))) from None
    run = run_with(config.model_copy(update={"shards": shards}), out, options)
    run.refuse_unfit_formats(run.vocab_size)
    return run


def _as_options(sentence: str) -> str:
    """A sentence on settings, about the options that they were given by."""
    for setting, option in OPTIONS.items():
        sentence = re.sub(setting, option, sentence)
    return sentence


def export_format(run: "Run", folder: Path) -> None:
    """Write one format into its folder, unless that was done before, and say what is there."""
    from jobs.pipeline import exports
    from jobs.runtime.checkpoint import Checkpoint

    name = folder.name
    task_fingerprint = exports.task_fingerprint(run)
    job = Checkpoint(folder, task_fingerprint)
    manifest = job.manifest()
    if manifest is None:
        manifest = job.commit(exports.export(run, job, {name: folder}, task_fingerprint))  # type: ignore[dict-item]
    for split, held in manifest["figures"][name].items():
        samples = f"{held['samples']:,} samples, {held['tokens']:,} tokens, {held['n_bytes']:,} bytes"
        run.console.line(f"{folder}: {split} {samples}")


if __name__ == "__main__":
    sys.exit(main())

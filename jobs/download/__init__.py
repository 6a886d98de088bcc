"""Sample a large Parquet data set without downloading it: every n-th row group, by byte ranges.

The first files of a data set are no sample of it. FineWeb-Edu's files hold 6 to 12 of its 95 crawls each, so the
first three of them would have trained a model on a fraction of the web's years; every fourth row group of all files
is as much data and has them all.
"""

import argparse
from pathlib import Path

from jobs.cli import guarded

DESCRIPTION = """\
Download every n-th row group of every Parquet file of a data set, so that the sample spans all of it. Fetches the
footers and the row groups by byte ranges and nothing else, and says how many crawls the sample spans.
The same command again continues where it stopped, and does nothing when all is there."""

EXAMPLES = """\
examples:
  python -m jobs.download hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT --every 4 --output data
  python -m jobs.download s3://bucket/prefix --documents 1000000 --columns text,id,dump,url --output data
  python -m jobs.download https://host/a.parquet https://host/b.parquet --bytes 2GB --output data
  python -m jobs.download --urls urls.txt --every 10 --offset 3 --output data
"""


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.download",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "sources",
        nargs="*",
        metavar="SOURCE",
        help="a Parquet file, a folder, a glob, or a URL of one (https://, s3://, gs://, hf://); "
        "HTTP servers cannot list, so give them file by file",
    )
    add("--urls", type=Path, metavar="FILE", help="a file with one SOURCE on each line")
    add(
        "--output",
        required=True,
        metavar="DIR",
        help="folder for the sample, a new one or one that the same command began",
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--every", type=_positive, metavar="N", help="take every N-th row group of each file")
    choice.add_argument(
        "--documents",
        type=_positive,
        metavar="N",
        help="take row groups with at least so many, evenly spaced over all files",
    )
    choice.add_argument(
        "--bytes",
        type=_bytes,
        metavar="SIZE",
        help="take row groups of at least this size as stored, such as 500MB, evenly spaced over all files",
    )
    add("--offset", type=int, metavar="K", help="with --every: begin at row group K (default: 0)")
    add(
        "--columns",
        type=lambda text: [name.strip() for name in text.split(",") if name.strip()],
        metavar="A,B,…",
        help="fetch these columns (default: all)",
    )
    add("--crawl", default="dump", metavar="COLUMN", help="the column that names the crawl (default: dump)")
    add(
        "--local",
        type=Path,
        metavar="DIR",
        help="read originals of which this folder has whole copies (same name, size and footer) from there",
    )
    add("--connections", type=_positive, default=8, metavar="N", help="requests at a time (default: 8)")
    add(
        "--retries",
        type=_count,
        default=6,
        metavar="N",
        help="further attempts when a request fails, each after twice the wait (default: 6, about half a minute)",
    )
    return parser


def _count(text: str, least: int = 0) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return int(text)


def _positive(text: str) -> int:
    return _count(text, 1)


def _bytes(text: str) -> int:
    from dask.utils import parse_bytes

    try:
        return _positive(str(parse_bytes(text)))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size, such as 500MB or 2GiB") from None


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.download SOURCE… --output DIR (--every N | --documents N | --bytes SIZE)`."""
    options = parser().parse_args(arguments)

    def command() -> int:
        from jobs.download.command import run  # Arrow is not needed for --help

        return run(options)

    return guarded(command, commits=True)

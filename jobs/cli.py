"""Command lines. Nothing heavy is imported here, so that `--help` answers at once."""

import argparse
import contextlib
import errno
import importlib
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.errors import UserError, said

COMMANDS = {
    "run": "documents to verified token shards, the whole pipeline",
    "download": "sample a large Parquet data set by byte ranges, evenly over all its files",
    "corpus": "write the built-in corpus, the documentation of installed packages, as Parquet",
    "tokenizer": "train a tokenizer on a sample of the sources",
    "train_quality": "train a classifier of quality on labelled documents",
    "train_perplexity": "train an n-gram model whose perplexity says how usual a text is",
    "bands": "recommend bands and rows, and say how often they flag a pair",
    "scurve": "measure how often near-duplicates are flagged, against the formula",
    "export": "write a finished run's tokens in another format",
    "mix": "mix the groups of a finished run in shares of tokens, in stages",
    "verify": "prove a finished run from its files alone",
    "whatif": "say what other thresholds would remove from a finished run",
    "feed": "say whether the loader feeds the GPU: tokens/s eaten, tokens/s served here",
    "contamination": "look for an evaluation set in a finished run",
    "report": "make the report's page again, or compare the reports of two finished runs",
    "reference": "print every setting with its type, default and meaning",
    "peek": "show documents with why each was kept or dropped",
    "trace": "name the document that a token of a shard comes from",
}

# Libraries behind URLs whose errors are no OSError.
STORES = {"aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google"}

RUN_DESCRIPTION = """\
Turn documents into verified token shards: near-duplicates removed, tokenized, shuffled, split and packed.
The same command again continues where it stopped, and does nothing when all is done."""

RUN_EXAMPLES = """\
examples:
  python -m jobs.run                                        the built-in corpus, to out/sample
  python -m jobs.run --config my.yaml --output /data/out    your own configuration
  python -m jobs.run --set 'sources=[{name: web, format: parquet, path: data/*.parquet}]' --output out/web
  python -m jobs.run --scheduler tcp://host:8786            on a Dask cluster that is already there
"""


def module_of(command: str) -> Any:
    """The module with a command's `parser` and `main`: its own, or `command` in its package."""
    module = importlib.import_module(f"jobs.{command}")
    return module if hasattr(module, "parser") else importlib.import_module(f"jobs.{command}.command")


def presets() -> list[str]:
    """Names of the built-in presets."""
    return sorted(path.stem for path in (Path(__file__).parent / "presets").glob("*.yaml"))


def run_parser(
    jobs: Iterable[str], program: str = "python -m jobs.run", description: str | None = None
) -> argparse.ArgumentParser:
    """Options of the main job."""
    parser = argparse.ArgumentParser(
        prog=program,
        description=description or RUN_DESCRIPTION,
        epilog=RUN_EXAMPLES if description is None else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--config",
        default="sample",
        metavar="PRESET|FILE[,…]",
        help=f"presets ({', '.join(presets())}) or YAML files with commas between, each over those before "
        "(default: sample)",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="one setting, such as length.min_tokens=128 or sources.0.path=data; repeatable, YAML values")  # fmt: skip
    add(
        "--output",
        metavar="DIR|URL",
        help="output folder, here or behind a URL such as s3://bucket/out (default: out/NAME after the preset or file)",
    )
    add_cluster(parser)
    add("--against", action="append", default=[], metavar="OUT",
        help="output of a finished run; duplicates of its documents are dropped; repeatable")  # fmt: skip
    add("--until", metavar="JOB", help=f"stop after this job: {', '.join(jobs)} (default: go to the end)")
    add("--fresh", action="store_true", help="remove what earlier runs left in the output folder first")
    add("--dry-run", action="store_true", help="print the configuration, the splits and the jobs, and stop")
    add(
        "--allow-bad-files",
        type=int,
        metavar="N",
        help="unreadable files that do not fail the run (default: 0)",
    )
    add(
        "--performance-reports",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="keep Dask's performance report of each job that takes so long; inf: of none (default: 10)",
    )
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument(
        "--quiet", action="store_true", help="print what is wrong and the result, and nothing else"
    )
    loudness.add_argument("--verbose", action="store_true", help="print which jobs were done before, too")
    add("--log-format", choices=("text", "json"), default="text",
        help="json: an object a line, with progress in numbers, for programs (default: text)")  # fmt: skip
    return parser


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Options on where a command computes."""
    add = parser.add_argument
    add(
        "--scheduler",
        metavar="ADDRESS",
        help="a Dask scheduler, such as tcp://host:8786 (default: a LocalCluster)",
    )
    add(
        "--workers",
        type=_positive,
        metavar="N",
        help="worker processes of the LocalCluster (default: one for each core)",
    )
    add("--memory-limit", default="auto", metavar="SIZE",
        help="memory of each worker, such as 2GiB (default: auto, the machine's memory shared out)")  # fmt: skip


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return value


class Terminated(KeyboardInterrupt):
    """SIGTERM, which a scheduler of jobs or a container sends; it stops a command as Ctrl-C does."""


def guarded(main: Callable[[], int], commits: bool = False, log_format: str = "text") -> int:
    """Run a command: a user's mistake is one sentence on standard error and status 2, without a traceback.

    A command that `commits` says that what it committed stays when it is stopped or the disk is full. With
    `log_format` json the sentence stands in an object.
    """

    def say(sentence: str, kind: str = "error: ") -> None:
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "error",
            "text": sentence,
        }
        print(json.dumps(record) if log_format == "json" else f"{kind}{sentence}", file=sys.stderr)

    stays = "; what is committed stays, and the same command continues from there" if commits else ""
    try:
        with _terminated_in_words():
            return main()
    except UserError as error:
        say(str(error))
        return 2
    except OSError as error:
        kept = stays if error.errno in _OUT_OF_ROOM else ""
        where = f": {error.filename}" if error.filename else ""
        say(f"{error.strerror or error}{where}{kept}")
        return 2
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in STORES:
            raise
        say(f"a store failed: {said(error)}{stays}")
        return 2
    except KeyboardInterrupt as stop:
        say(f"stopped{stays}", kind="")
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


_OUT_OF_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO}


@contextlib.contextmanager
def _terminated_in_words() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only there can a handler be set
        yield
        return

    def stop(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

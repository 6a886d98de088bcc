"""The order of a download: plan, fetch, account; what is there already is not done again."""

import argparse
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.download import plan as plans
from jobs.download.choice import Choice
from jobs.download.plan import Plan, Request, Staging
from jobs.download.ranges import Fetcher
from jobs.download.sample import Download, is_there
from jobs.errors import UserError
from jobs.runtime import checkpoint
from jobs.runtime.console import Console, counted


def run(options: argparse.Namespace) -> int:
    """Carry out a command line.

    Raises
    ------
    UserError
        The output holds something else, or the data set cannot be read as asked.
    """
    if "://" in options.output:
        raise UserError(
            f"--output {options.output} is a URL; a sample is written to a folder of this machine"
        )
    out, console = Path(options.output), Console()
    request = _request(options)
    with checkpoint.locked(out):
        manifest = _finished(out, request)
        if manifest is None:
            manifest = _download(out, request, options, console)
        else:
            console.line(f"{out} is complete and whole; nothing to fetch")
    for line in summary(manifest):
        console.line(line)
    return 0


def _request(options: argparse.Namespace) -> Request:
    sources = list(options.sources)
    if options.urls:
        try:
            lines = options.urls.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--urls {options.urls} cannot be read: {error}") from None
        sources += [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not sources:
        raise UserError("name a SOURCE, or a file of URLs with --urls")
    if options.columns == []:
        raise UserError("--columns names no column")
    if options.offset is not None and options.every is None:
        raise UserError("--offset goes with --every")
    if options.every and not 0 <= (options.offset or 0) < options.every:
        raise UserError(
            f"--offset {options.offset} is not one of 0 to {options.every - 1}, which --every {options.every} allows"
        )
    choice = Choice(
        every=options.every,
        offset=options.offset or 0,
        documents=options.documents,
        n_bytes=options.bytes,
    )
    columns = tuple(options.columns) if options.columns else None
    return Request(sources=tuple(sources), choice=choice, columns=columns, crawl=options.crawl)


def _finished(out: Path, request: Request) -> dict[str, Any] | None:
    """The manifest of a finished sample; None where there is something to do.

    Where files of a finished sample are missing or damaged, it becomes an unfinished one without these.
    """
    staging = Staging(out / plans.STAGING)
    path = out / plans.MANIFEST
    if not path.is_file():
        if not staging.folder.is_dir():
            _refuse_foreign(out)
        return None
    manifest = checkpoint.read_json(path)
    _refuse_other(out, manifest.get("plan", {}), request)
    whole = {name: record for name, record in manifest["files"].items() if is_there(out / name, record)}
    if len(whole) == len(manifest["files"]):
        return manifest
    for name, record in whole.items():
        checkpoint.write_json(staging.record(name), record)
    checkpoint.write_json(staging.plan, manifest["plan"])
    path.unlink()
    return None


def _refuse_foreign(out: Path) -> None:
    """What is not of this sample would later be read as part of it."""
    foreign = sorted(path.name for path in out.iterdir() if path.name != checkpoint.LOCK)
    if foreign:
        raise UserError(f"{out} holds {foreign[0]!r}, which this command did not write; give a new folder")


def _refuse_other(out: Path, plan: dict[str, Any], request: Request) -> None:
    before = plan.get("request")
    if before is None:
        raise UserError(f"{out} holds something that this command did not write; give a new folder")
    if before != request.model_dump(mode="json"):
        was = Request.model_validate(before)
        raise UserError(
            f"{out} holds another sample ({was.choice}; columns {', '.join(was.columns or ('all',))}; "
            f"{', '.join(was.sources[:3])}{', …' if len(was.sources) > 3 else ''}); give a new --output"
        )


def _download(out: Path, request: Request, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    staging, fetcher = Staging(out / plans.STAGING), Fetcher(options.retries, console.warn)
    with _threads(options.connections, fetcher) as pool:
        plan = _plan(out, staging, request, fetcher, pool, console)
        download = Download(plan, out, staging, fetcher, options.local)
        records = download.run(pool, options.connections, console)
    manifest = {"plan": plan.model_dump(mode="json"), "files": records, "figures": figures(plan, records)}
    checkpoint.write_json(out / plans.MANIFEST, manifest)
    shutil.rmtree(staging.folder)
    failed = f"; {fetcher.repeated:,} more failed and were repeated" if fetcher.repeated else ""
    is_remote = any("://" in source for source in request.sources)
    requests = f" in {counted(fetcher.requests, 'request')}{failed}" if is_remote else ""
    console.line(f"{'fetched' if is_remote else 'read'} {fetcher.n_bytes / 1e6:,.1f} MB{requests}")
    return manifest


@contextmanager
def _threads(connections: int, fetcher: Fetcher) -> Iterator[ThreadPoolExecutor]:
    """A pool whose threads stop at the next request when something goes wrong, instead of finishing their work."""
    pool = ThreadPoolExecutor(connections)
    try:
        yield pool
    except BaseException:
        fetcher.stopped.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _plan(
    out: Path,
    staging: Staging,
    request: Request,
    fetcher: Fetcher,
    pool: ThreadPoolExecutor,
    console: Console,
) -> Plan:
    """The plan of an earlier run, or a new one."""
    if staging.plan.is_file():
        found = checkpoint.read_json(staging.plan)
        _refuse_other(out, {"request": found["request"]}, request)
        return Plan.model_validate(found)
    plan = plans.make(request, staging, fetcher, pool, console)
    groups = sum(len(file.row_groups) for file in plan.files)
    console.line(
        f"{request.choice}: {groups:,} of {counted(plan.row_groups, 'row group')}, "
        f"{counted(sum(file.documents for file in plan.files), 'document')}, "
        f"{sum(file.n_bytes for file in plan.files) / 1e6:,.1f} MB, "
        f"from {sum(bool(file.row_groups) for file in plan.files):,} of {counted(len(plan.files), 'file')}"
    )
    _warn(plan, console)
    return plan


def _warn(plan: Plan, console: Console) -> None:
    """Say where a sample is not what its command line seems to say."""
    choice = plan.request.choice
    empty = sum(not file.row_groups for file in plan.files)
    groups = sum(len(file.row_groups) for file in plan.files)
    if choice.every and empty:
        console.warn(f"{empty:,} of {len(plan.files):,} files have no row group {choice.offset}")
    if choice.every and groups * choice.every > 1.5 * plan.row_groups:
        console.warn(
            f"files of fewer than {choice.every} row groups give one each, so the sample is {groups:,} of "
            f"{plan.row_groups:,}; --documents and --bytes space row groups over all files together"
        )
    held = sum(file.documents if choice.unit == "documents" else file.n_bytes for file in plan.files)
    if choice.target and held < choice.target:
        console.warn(f"the whole data set holds less than {choice}; all of it is taken")


def figures(plan: Plan, records: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the sample holds, all files together."""
    crawls: Counter[str] = Counter()
    for record in records.values():
        crawls.update(record["crawls"])
    return {
        "documents": sum(file.documents for file in plan.files),
        "n_bytes": sum(file.n_bytes for file in plan.files),
        "row_groups": sum(len(file.row_groups) for file in plan.files),
        "crawls": dict(sorted(crawls.items())),
    }


def summary(manifest: dict[str, Any]) -> list[str]:
    """A finished sample in a few lines."""
    plan, totals = Plan.model_validate(manifest["plan"]), manifest["figures"]
    lines = [
        f"{counted(totals['documents'], 'document')} in {counted(totals['row_groups'], 'row group')} of "
        f"{counted(len(manifest['files']), 'file')}"
    ]
    column, first = plan.request.crawl, plan.first_files
    if first is None or not totals["crawls"]:
        return [*lines, f"crawls not counted: no column {column!r} names them (tell which with --crawl)"]
    files = "the first file" if first.files == 1 else f"the first {first.files:,} files"
    least = "" if first.exact else "at least "
    return [
        *lines,
        f"crawls: {len(totals['crawls']):,} in the sample, {least}{first.crawls:,} in as many bytes from {files}",
    ]

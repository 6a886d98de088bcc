"""What the sources hold: every file with its size, version and blocks, looked into once.

`OUT/inventory/files.json` records it. A file that has the same size and version in a later run is not looked into
again, which saves a pass over the files of formats that have no index (JSON lines, WARC).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import sources
from jobs.runtime import checkpoint, fingerprint
from jobs.runtime.compute import RETRIES
from jobs.sources.inventory import Inventory, from_json, to_json

if TYPE_CHECKING:
    from distributed import Client

    from jobs.config import Source
    from jobs.runtime.context import Run

NAME = "inventory"
FILE = "files.json"
# Above this many bytes or files, looking into them is work for the cluster.
ALONE_BYTES, ALONE_FILES = 256 * 2**20, 256


def take(of: Sequence["Source"], out: Path, client: "Callable[[], Client]") -> Inventory:
    """List the files of several sources, in the order of their names; reuse what an earlier run recorded.

    Parameters
    ----------
    of
        The sources.
    out
        The run's output.
    client
        Connects to the cluster where many or large files are looked into.
    """
    known = recorded(out)
    by_name = sorted(of, key=lambda source: source.name)
    return sum(
        (
            sources.list_files(
                source,
                known=known.get(reading(source), ()),
                look=lambda source, entries: _look(source, entries, client),
            )
            for source in by_name
        ),
        Inventory(),
    )


def reading(source: "Source") -> str:
    """Digest of what decides how a source's files are read."""
    return fingerprint.fingerprint(
        "jobs.sources", source=[source.name, source.format, source.path, source.columns, source.extra]
    )


def _look(
    source: sources.SourceSettings, entries: Sequence[sources.Entry], client: "Callable[[], Client]"
) -> list[sources.Found]:
    size = sum(entry.size or 0 for entry in entries)
    if size < ALONE_BYTES and len(entries) < ALONE_FILES:
        return sources.look_into_each(source, entries)
    looked = client().map(sources.look_into, [source] * len(entries), entries, pure=False, retries=RETRIES)
    return list(client().gather(looked))


def recorded(out: Path) -> dict[str, list[sources.File]]:
    """Files of each source that a run recorded, by `reading` of the source; none where there is no record."""
    try:
        content = checkpoint.read_json(out / NAME / FILE)
    except (FileNotFoundError, checkpoint.DamagedFileError):
        return {}
    return {
        digest: [file for file in from_json(group["inventory"]).files if file.source == name]
        for group in content["groups"]
        for name, digest in group["reading"].items()
    }


def of_sources(out: Path) -> Inventory:
    """What a finished run recorded of its sources."""
    return from_json(checkpoint.read_json(out / NAME / FILE)["groups"][0]["inventory"])


def blocks(
    source: "Source", path: str, known: dict[str, list[sources.File]]
) -> tuple[sources.Block, ...] | None:
    """Blocks of a file as they were recorded; None where it was not, or has changed since."""
    found = next((file for file in known.get(reading(source), ()) if file.path == path), None)
    return found.blocks if found and not sources.change(source, found) else None


def job_fingerprint(run: "Run") -> str:
    """Covers the files as they are now."""
    return fingerprint.fingerprint(
        __name__,
        reading=[reading(source) for source in (*run.sources, *run.reference_sources)],
        inventory=[asdict(run.inventory), asdict(run.reference_inventory)],
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Record the inventory of the sources and the reference sets."""
    job.begin()
    groups = [(run.sources, run.inventory), (run.reference_sources, run.reference_inventory)]
    described = [
        {"reading": {source.name: reading(source) for source in of}, "inventory": to_json(inventory)}
        for of, inventory in groups
    ]
    checkpoint.write_json(job.folder / FILE, {"groups": described})
    every = run.inventory + run.reference_inventory
    return {
        "files": len(every.files),
        "records": every.records,
        "passed_over": len(every.skipped),
        "bad": len(every.bad),
    }

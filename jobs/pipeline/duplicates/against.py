"""Earlier corpora: finished runs whose documents stand before all of this one's, as if they came first in one corpus.

The files that an earlier run left in `annotate`, `url_duplicates`, `exact_duplicates` and `near_duplicates` are the
index; nothing is written there. Each document that took part in a step there takes part here:

- URL and exact: what the step kept there, since equality carries over to what it dropped.
- Near: what it dropped, too. A new document that is like a dropped one is in its cluster, and the one that was kept for
  that cluster is kept for the new document as well.

So a new document is kept if and only if `keep.policy: first` would keep it of all batches so far at once. It may link
two documents that were both kept before, in different clusters. At once only the first of them would be kept; here both
stay, and the other one is listed in `near_duplicates/linked.parquet`.

With `near_duplicates.verify` this holds as far as buckets have at most `verification.ALL_PAIRS` members: which pairs
of a larger one are compared depends on who else is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pydantic import ValidationError

from jobs.config import Config, Source
from jobs.errors import UserError
from jobs.pipeline import inventory
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import fingerprint, folders
from jobs.runtime.checkpoint import MANIFEST, DamagedFileError, read_json, why_unfinished
from jobs.sources import Block
from kernels.words import unicode_version

if TYPE_CHECKING:
    from jobs.runtime.context import Run

INDEX = ("annotate", "url_duplicates", "exact_duplicates", "near_duplicates")  # jobs that make it up
LEFT = ("fingerprint", "files", "figures")  # of a manifest: what is the same however the job was run
NO_MATTER = {"tree_edges"}  # settings that change nothing that comes out


@dataclass(frozen=True)
class Earlier:
    """A finished run.

    Attributes
    ----------
    name
        As `against` has it; the ledger's `kept_in`.
    out
        Its folder.
    config
        What it was made with.
    figures
        Of the jobs in `INDEX`.
    identity
        Digest of what these jobs left.
    """

    name: str
    out: Path
    config: Config
    figures: dict[str, dict[str, Any]]
    identity: str

    @property
    def splits(self) -> list[SplitPaths]:
        """Where each split's files are, in the ledger's order."""
        return [SplitPaths(self.out / "annotate", key) for key in self.figures["annotate"]["splits"]]

    @property
    def first_rows(self) -> list[int]:
        """Place of each split's first row in its ledger."""
        counts = self.figures["annotate"]["documents_of_splits"]
        return [int(n) for n in np.cumsum(counts) - counts]

    @property
    def made_against(self) -> dict[str, str]:
        """Name -> identity of the runs that it was itself made against."""
        return dict(self.figures["near_duplicates"].get("against", {}))

    @cached_property
    def _files(self) -> dict[str, Any]:
        return inventory.recorded(self.out)

    def text_source(self, paths: SplitPaths) -> tuple[Source, str, tuple[Block, ...]]:
        """Source, path and blocks of the file that a split is of, to read its texts again.

        Raises
        ------
        UserError
            The file is not what it was.
        """
        rows = folders.read_table(paths.rows, columns=["source", "path"]).slice(0, 1).to_pylist()[0]
        source = next(one for one in self.config.sources if one.name == rows["source"]).resolved(self.out)
        blocks = inventory.blocks(source, rows["path"], self._files)
        if blocks is None:
            raise UserError(
                f"near_duplicates.verify is exact, which needs the texts of {self.name}, but {rows['path']} of its "
                f"source {source.name!r} is gone or has changed; use verify: signature"
            )
        return source, rows["path"], blocks


def read(name: str) -> Earlier:
    """A finished run as an index.

    Raises
    ------
    UserError
        It is not finished, damaged, or of another version.
    """
    out = folders.reached(name)
    try:
        root = read_json(out / MANIFEST)
        manifests = {job: read_json(out / job / MANIFEST) for job in INDEX}
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"against names {name}, but {why_unfinished(out)}") from None
    except DamagedFileError as error:
        raise UserError(f"against names {name}, but {error}") from None
    stale = [job for job in INDEX if manifests[job]["fingerprint"] != root["jobs"].get(job)]
    if stale:
        raise UserError(
            f"against names {name}, but its {stale[0]} is of another run than its {MANIFEST}; run it again"
        )
    try:
        settings = Config.model_validate(root["config"])
    except ValidationError:
        raise UserError(
            f"against names {name}, which another version made, with settings that this one does not know; run it again"
        ) from None
    left = {job: {key: manifest[key] for key in LEFT} for job, manifest in manifests.items()}
    identity = fingerprint.digest(left)
    return Earlier(name, out, settings, {job: manifests[job]["figures"] for job in INDEX}, identity)


def read_all(config: Config, out: Path) -> tuple[Earlier, ...]:
    """The runs that `against` names, each fit to be an index for this one.

    Raises
    ------
    UserError
        One is unfinished, is this very run, is named twice, was made with other settings or under another version of
        Unicode, or was itself made against a run that is not named before it.
    """
    found: list[Earlier] = []
    for name in config.against:
        one = read(name)
        if one.out == out:
            raise UserError(
                f"against names {name}, which is the output of this very run; choose another --output"
            )
        known = {other.identity for other in found}
        if one.identity in known:
            raise UserError(f"against names {name}, which is another one of them once more; remove it")
        missing = [other for other, identity in one.made_against.items() if identity not in known]
        if missing:
            raise UserError(f"against names {name}, which was made against {missing[0]}; name that before it")
        _refuse_other_settings(config, one)
        _refuse_other_unicode(config, one)
        found.append(one)
    return tuple(found)


def _refuse_other_settings(config: Config, earlier: Earlier) -> None:
    ours, theirs = (_settings(one) for one in (config, earlier.config))
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            raise UserError(
                f"against names {earlier.name}, which was made with {key}: {_said(theirs.get(key))}, but here it is "
                f"{_said(ours.get(key))}; the two must be equal"
            )


def _refuse_other_unicode(config: Config, earlier: Earlier) -> None:
    """Words and normal forms follow the tables that Python brings along."""
    used = config.near_duplicates.enabled or config.exact_duplicates.normalised
    theirs = earlier.figures["annotate"].get("unicode", "of an unknown version")
    if used and theirs != unicode_version():
        raise UserError(
            f"against names {earlier.name}, which was made with Unicode {theirs}, but this Python has "
            f"{unicode_version()}, so that words and normalised texts may differ; run one of the two again with the "
            "other's Python"
        )


def _said(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settings(config: Config) -> dict[str, Any]:
    """What two runs must have in common, by key; of a step that is off only that it is."""
    found: dict[str, Any] = {}
    for section in INDEX[1:]:
        values = getattr(config, section).model_dump(mode="json")
        if not values["enabled"]:
            values = {"enabled": False}
        if values.get("verify") == "none":
            del values["threshold"]
        found |= {f"{section}.{key}": value for key, value in _flat(values) if key not in NO_MATTER}
    return found


def _flat(values: dict[str, Any]) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        below = _flat(value) if isinstance(value, dict) else None
        flat += [(f"{key}.{name}", one) for name, one in below] if below else [(key, value)]
    return flat


def refuse_same_documents(run: "Run") -> None:
    """Refuse files that two of the runs have under one name of a source: their documents would have the same doc_ids.

    Raises
    ------
    UserError
        One sentence with the first such file.
    """
    known = {(file.source, file.path): "this run" for file in run.inventory.files}
    for earlier in run.earlier:
        for file in inventory.of_sources(earlier.out).files:
            other = known.setdefault((file.source, file.path), earlier.name)
            if other != earlier.name:
                raise UserError(
                    f"{file.path} of source {file.source!r} is a file of {other} and of {earlier.name}, which against "
                    "names, and a doc_id is a hash of the two; give the source another name, or remove the file"
                )


def identity(run: "Run") -> list[list[str]]:
    """For fingerprints: names, which the ledger holds, and what they stand for."""
    return [[earlier.name, earlier.identity] for earlier in run.earlier]


def splits(run: "Run") -> list[tuple[SplitPaths, int, int]]:
    """Every split of the earlier runs, the place of its first row in its ledger, and the number of its run."""
    return [
        (paths, first_row, number)
        for number, earlier in enumerate(run.earlier)
        for paths, first_row in zip(earlier.splits, earlier.first_rows, strict=True)
    ]


def names_of(numbers: np.ndarray, names: Sequence[str]) -> pa.Array:
    """The ledger's `kept_in`: names by their numbers, null for any other number."""
    indices = pa.array(numbers.astype(np.int32), pa.int32(), mask=numbers >= len(names))
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string())).cast(pa.string())


def counted(numbers: np.ndarray, names: Sequence[str]) -> dict[str, int]:
    """How many of the numbers stand for each name."""
    counts = np.bincount(numbers[numbers < len(names)].astype(np.int64), minlength=len(names))
    return {name: int(n) for name, n in zip(names, counts, strict=True)}

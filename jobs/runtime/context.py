"""One run: its configuration, its output folder, and what its jobs have in common."""

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs import steps
from jobs.config import Config, Source, Tokenizer, with_absolute_sets
from jobs.errors import UserError
from jobs.mixture.columns import check_column
from jobs.pipeline import inventory
from jobs.pipeline.duplicates import against, keep
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import cluster, folders, performance
from jobs.runtime.checkpoint import Checkpoint
from jobs.runtime.compute import refuse_absent
from jobs.runtime.console import Console
from jobs.settings import formats
from jobs.settings.duplicates import RepeatedPassages
from jobs.sources import Block, Inventory, Split, notices_of, splits
from jobs.tokens import encoder
from kernels import accelerate

if TYPE_CHECKING:
    from distributed import Client


@dataclass
class Run:
    """What a job is given; files are listed and the cluster is started when first asked for."""

    config: Config
    out: Path
    console: Console
    scheduler: str | None = None
    workers: int | None = None
    memory_limit: str = "auto"
    reports_from: float = performance.WORTH  # seconds of a job of which Dask's performance report is kept
    fingerprints: dict[str, str] = field(default_factory=dict)  # of the jobs so far, by name
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.close()

    @cached_property
    def client(self) -> "Client":
        """The Dask client; a LocalCluster starts here unless a scheduler was given."""
        return self._closing.enter_context(
            cluster.connected(self.scheduler, self.workers, self.memory_limit, self._say_where)
        )

    def _say_where(self, client: "Client") -> None:
        """Of a cluster that is there, where it can be looked at, and what it does before its first task."""
        from jobs.runtime import dashboard

        self.console.line(f"dashboard        {dashboard.install(client, self.console)}")
        self.console.watcher = dashboard.Announcer(client, str(self.out))
        performance.keep_tasks(client)
        self.console.waits_for = cluster.compiling
        if not accelerate.compiled():
            self.console.line(
                "kernels          compiled now, once for this version on this machine; it takes minutes"
            )

    @cached_property
    def resources(self) -> dict[str, int]:
        """What a worker must have to take documents through the steps: a GPU, where a classifier asks for one."""
        classifiers = (
            one for source in (*self.sources, *self.reference_sources) for one in source.classifiers
        )
        wanted = {"GPU": 1} if any(one.device == "cuda" for one in classifiers) else {}
        if wanted:
            refuse_absent(self.client, wanted)
        return wanted

    def checkpoint(self, job: str) -> Checkpoint:
        """The folder of a job of this run, under the fingerprint that it has now."""
        return Checkpoint(self.out / job, self.fingerprints[job])

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources as they are read."""
        return tuple(source.resolved(self.out) for source in self.config.sources)

    @cached_property
    def earlier(self) -> tuple[against.Earlier, ...]:
        """The finished runs that this one is made against, in their order."""
        return against.read_all(self.config, self.out)

    @property
    def reference_sources(self) -> tuple[Source, ...]:
        """The reference sets as they are read."""
        as_they_are = {"repeated_passages": RepeatedPassages()}
        references = self.config.validation.references
        return tuple(source.model_copy(update=as_they_are).resolved(self.out) for source in references)

    @cached_property
    def inventory(self) -> Inventory:
        """The files of all sources."""
        return inventory.take(self.sources, self.out, lambda: self.client)

    def texts(self, source: str, path: str, records: Iterable[int]) -> list[str | None]:
        """Texts of documents of a source as `steps.texts` gives them; its files are not looked into again."""
        settings = next(one for one in self.sources if one.name == source)
        return steps.texts(settings, path, records, self._blocks[source, path])

    def blocks(self, split: Split) -> tuple[Block, ...]:
        """All blocks of the file that a split is of."""
        return self._blocks[split.source, split.path]

    def text_source(self, paths: SplitPaths, number: int) -> tuple[Source, str, tuple[Block, ...]]:
        """Source, path and blocks of the file that a split is of; split `number` of this run's, then earlier runs'."""
        if number < len(self.splits):
            split = self.splits[number]
            source = next(one for one in self.sources if one.name == split.source)
            return source, split.path, self.blocks(split)
        return next(one for one in self.earlier if one.out == paths.out).text_source(paths)

    @cached_property
    def _blocks(self) -> dict[tuple[str, str], tuple[Block, ...]]:
        return {(file.source, file.path): file.blocks for file in self.inventory.files}

    @cached_property
    def splits(self) -> list[Split]:
        """The splits of all sources, in the ledger's order."""
        return splits(self.inventory, self.config.splits.bytes)

    @cached_property
    def reference_inventory(self) -> Inventory:
        """The files of all reference sets."""
        return inventory.take(self.reference_sources, self.out, lambda: self.client)

    @cached_property
    def reference_splits(self) -> list[Split]:
        """The splits of all reference sets."""
        return splits(self.reference_inventory, self.config.splits.bytes)

    @property
    def annotated(self) -> list[SplitPaths]:
        """Where each split's files are, in the ledger's order."""
        return [SplitPaths(self.out / "annotate", key) for key in self.figures("annotate")["splits"]]

    @property
    def referenced(self) -> list[SplitPaths]:
        """Where the files of each split of the reference sets are."""
        return [SplitPaths(self.out / "references", key) for key in self.figures("references")["splits"]]

    @property
    def reference_hashes(self) -> Path:
        """Hash prefixes of all texts that validation must not hold."""
        return self.out / "references" / "hashes.npy"

    @property
    def tokenizer_sample(self) -> Path:
        """Hash prefixes of the texts that the tokenizer was trained on."""
        return self.out / "tokenizer" / "sample.npy"

    @cached_property
    def encoder(self) -> encoder.Spec:
        """The tokenizer that this run encodes with, as tasks are told of it."""
        return encoder_spec(self.config.tokenizer, self.out / "tokenizer" / self.figures("tokenizer")["file"])

    @cached_property
    def dtype(self) -> str:
        """Of token ids in stores and shards: `uint16` or `uint32`."""
        return token_dtype(self.config.shards.dtype, encoder.get(self.encoder))

    @property
    def vocab_size(self) -> int:
        """One more than the largest token id."""
        return int(encoder.get(self.encoder).vocab_size)

    @property
    def end_of_text_id(self) -> int:
        """The id that ends each document."""
        return int(encoder.get(self.encoder).end_of_text_id)

    @property
    def has_built_in_corpus(self) -> bool:
        """Whether the built-in corpus is one of the sources."""
        return any(source.format == "packages" for source in self.config.sources)

    def refuse_contradictions(self) -> None:
        """Refuse an existing tokenizer, a model or a list that cannot be used, before any work."""
        for source in (*self.sources, *self.reference_sources):
            steps.check(source)
        for sentence in steps.contamination.never_found(with_absolute_sets(self.config.contamination)):
            self.console.warn(sentence)
        keep.check(self.config)
        _ = self.earlier  # refused here if they are no index for this run
        check_column(self.config)
        vocab_size = self.config.tokenizer.train.vocab_size
        if self.config.tokenizer.path:
            coder = encoder.load(
                encoder_spec(self.config.tokenizer, folders.located(self.config.tokenizer.path))
            )
            token_dtype(self.config.shards.dtype, coder)
            vocab_size = coder.vocab_size
        self.refuse_unfit_formats(vocab_size)

    def refuse_unfit_formats(self, vocab_size: int) -> None:
        """Refuse a format whose types of tokens do not hold the vocabulary."""
        for name in self.config.shards.formats:
            formats.token_dtype(name, vocab_size, self.config.shards.dtype)

    def say_what_is_there(self) -> None:
        """Files that are passed over, split no further or not readable."""
        for notice in notices_of(self.sources, self.inventory, self.config.splits.bytes):
            self.console.warn(notice)
        for bad in self.inventory.bad:
            self.console.warn(f"{bad.source}: {bad.path} cannot be read: {bad.reason}")

    def refuse_impossible_sizes(self) -> None:
        """Refuse sources without documents, settings for columns that none has, and sizes that cannot be met."""
        self.say_what_is_there()
        documents = self.inventory.records
        if not documents:
            raise UserError(
                f"the sources hold no document: {', '.join(source.name for source in self.sources)}"
            )
        against.refuse_same_documents(self)
        with_urls = {file.source for file in self.inventory.files if "url" in file.columns}
        for source in self.sources:
            if source.urls.used and source.name not in with_urls:
                raise UserError(
                    f"source {source.name!r}: urls names lists, but no file has URLs; say with columns.url where they "
                    "are, or set the source's urls.domains and urls.words to []"
                )
        _ = self.resources  # refused here if no worker has them
        refuse_absent_columns(self.sources, self.inventory)
        refuse_absent_columns(self.reference_sources, self.reference_inventory)
        if self.config.url_duplicates.enabled and not with_urls:
            raise UserError(
                "url_duplicates.enabled is true, but no file has URLs; say with columns.url where they are, or set it "
                "to false"
            )
        # A byte-level tokenizer makes at most one token of a byte, and one ends each document.
        most = self.inventory.n_bytes + documents
        wanted = self.config.validation.target(0)
        if self.config.validation.fraction is None and wanted >= most:
            raise UserError(
                f"validation.tokens is {wanted:,}, but the sources can hold {most:,} tokens at most; "
                "lower it, or set validation.fraction, and validation.tokens to null"
            )

    def bad_files(self) -> dict[str, str]:
        """Files of sources and reference sets that could not be read whole, and why."""
        bad = {
            f"{one.source}/{one.path}": one.reason
            for one in (*self.inventory.bad, *self.reference_inventory.bad)
        }
        lost = [
            path
            for job in ("annotate", "references")
            for path in self.figures(job)["files_with_unreadable_records"]
        ]
        return bad | dict.fromkeys(
            lost, "some of its records are damaged; the ledger has them as input.unreadable"
        )

    def totals(self) -> dict[str, int]:
        """Documents, bytes of text and tokens in the run: what rates are made of."""
        annotated = self.figures("annotate")
        return {name: annotated[name] for name in ("documents", "n_bytes", "n_tokens")}

    def figures(self, job: str) -> dict[str, Any]:
        """What a job that is done recorded."""
        manifest = self.checkpoint(job).manifest()
        if manifest is None:
            raise RuntimeError(f"job {job} is not done")
        return dict(manifest["figures"])


def encoder_spec(settings: Tokenizer, path: Path) -> encoder.Spec:
    """How tasks load the tokenizer at `path`."""
    return encoder.Spec(
        path=str(path), pattern=settings.pattern, end_of_text=settings.end_of_text, engine=settings.engine
    )


def token_dtype(wanted: str, coder: encoder.Encoder) -> str:
    """The dtype that holds the vocabulary, or the one wanted.

    Raises
    ------
    UserError
        uint16 is wanted and the vocabulary does not fit.
    """
    if wanted == "uint16" and coder.vocab_size > 65_536:
        raise UserError(
            f"shards.dtype is uint16, which holds 65,536 ids, but the tokenizer has {coder.vocab_size:,}; "
            "use uint32 or auto"
        )
    return str(coder.dtype) if wanted == "auto" else wanted


def refuse_absent_columns(sources: Iterable[Source], inventory: Inventory) -> None:
    """Refuse thresholds of a column that no file of the source has: they would drop every document."""
    for source in sources:
        found = {name for file in inventory.files if file.source == source.name for name in file.columns}
        for threshold in source.thresholds:
            if threshold.column not in found:
                raise UserError(
                    f"source {source.name!r}: thresholds names column {threshold.column!r}, but no file has it; say "
                    f"with columns.{threshold.column} which one it is, or set the source's thresholds to []"
                )

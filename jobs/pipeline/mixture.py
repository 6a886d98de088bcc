"""The mixture: what each group gives to each stage, and, where it is asked for, the sequences packed in order.

A packed sequence is a row of T + 1 tokens, the last of which is only a target, so that what is read is the same as what
the loader draws from the groups. Rows follow each other in llm.c shards, whole rows in each.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from jobs.formats import llmc
from jobs.loader.cache import LocalCache
from jobs.mixture import sequences
from jobs.mixture.allotment import Plan, StagePlan, plan
from jobs.mixture.groups import Groups
from jobs.mixture.schedule import Schedule
from jobs.mixture.sequences import Mixed
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.runtime.compute import columns, finish_task, map_tasks
from jobs.settings.mixture import Mixture

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "mixture"
WINDOW = 10_000_000  # tokens in which shares are to hold
TOKENS_AT_ONCE = 2**22
SUMMARY = columns(
    key="string",
    stage="int64",
    tokens="int64",
    n_bytes="int64",
    drawn="string",  # sequences of each group, as they were written
)


# ---------------------------------------------------------------- packing


@dataclass(frozen=True)
class PackedShard:
    """Sequences `start` to `stop` of a stage, and the file they go to."""

    path: Path
    stage: int
    start: int
    stop: int

    @property
    def key(self) -> str:
        """Its name among the tasks of the job."""
        return f"{self.path.parent.name}-{self.path.stem[-6:]}"


def pack(shard: PackedShard, stages: list[Mixed], dtype: str, folder: Path, fingerprint: str) -> pd.DataFrame:
    """Write one shard of rows and commit it.

    Memory: some million tokens.
    """
    stage = stages[shard.stage]
    length, drawn = stage.T + 1, np.zeros(len(stage.stage.groups), np.int64)
    at_once = max(1, TOKENS_AT_ONCE // length)
    n_tokens = (shard.stop - shard.start) * length
    with (
        checkpoint.written(shard.path) as file,
        llmc.ShardWriter(file, n_tokens, dtype) as writer,
    ):
        for start in range(shard.start, shard.stop, at_once):
            places = stage.places(0, np.arange(start, min(start + at_once, shard.stop)))
            drawn += np.bincount(stage.group_of(places), minlength=len(drawn))
            x, y = stage.read(places.tolist())
            writer.append(np.concatenate([x, y[:, -1:]], axis=1).reshape(-1).astype(dtype))
    figures = {
        "stage": shard.stage,
        "tokens": n_tokens,
        "n_bytes": llmc.HEADER_BYTES + n_tokens * np.dtype(dtype).itemsize,
        "drawn": json.dumps(drawn.tolist()),
    }
    return finish_task(folder, fingerprint, shard.key, [shard.path], figures, SUMMARY)


class WorkersCopies(LocalCache):
    """Copies of remote shards that go with the worker."""

    def __init__(self) -> None:
        super().__init__(".")

    def local(self, url: str) -> Path:
        """The copy of a file, which the tasks of this worker share."""
        return folders.local_copy(folders.located(url))


def packed_shards(planned: Plan, folder: Path, name: str, shard_tokens: int) -> list[PackedShard]:
    """The shards of all stages, each with whole rows."""
    found = []
    for number, stage in enumerate(planned.stages):
        rows = max(1, shard_tokens // (stage.length + 1))
        ends = np.cumsum(llmc.shard_sizes(stage.sequences, rows, 1)).tolist()
        for index, (start, stop) in enumerate(zip([0, *ends], ends, strict=False)):
            path = folder / stage_folder(number, stage) / llmc.shard_name(name, "train", index)
            found.append(PackedShard(path, number, start, stop))
    return found


def stage_folder(number: int, stage: StagePlan) -> str:
    """Name of the folder of a stage's packed shards."""
    return f"{number:02d}-{stage.name}"


# ---------------------------------------------------------------- figures


def figures_of(mixed: Mixed) -> dict[str, Any]:
    """What was asked of each group, what it gives, how often, and how close shares and copies can come."""
    stage = mixed.stage
    deviations, total = mixed.schedule.deviations(), stage.sequences
    return {
        "name": stage.name,
        "length": stage.length,
        "min_document_tokens": stage.min_document_tokens,
        "sequences": total,
        "asked_tokens": stage.asked_tokens,
        "tokens": total * stage.length,
        "identity": mixed.seed,
        "window": WINDOW,
        "share_off_in_a_window": _off_in_a_window(mixed.schedule, stage.length),
        "groups": {
            group.name: {
                "asked": group.asked,
                "share": group.sequences / total,
                "sequences": group.sequences,
                "tokens": group.sequences * stage.length,
                "tokens_there": group.windows * stage.length,
                "epochs": group.epochs,
                "epochs_before": group.epochs_before,
                "copies_apart": _copies_apart(mixed, number, deviations[number]),
            }
            for number, group in enumerate(stage.groups)
        },
    }


def _off_in_a_window(schedule: Schedule, length: int) -> float:
    """How far a group's share of any window of the stage can be from its share of the whole, at most."""
    return 2 * max(schedule.deviations()) / max(1, WINDOW // length)


def _copies_apart(mixed: Mixed, group: int, deviation: float) -> int | None:
    """Tokens from a sequence to its next copy in the stage, at least; None where there is none."""
    sequences, epochs = mixed.stage.groups[group].sequences, mixed.epochs.get(group)
    if epochs is None or sequences <= epochs.distance:
        return None
    between = (epochs.distance - 2 * deviation) * mixed.schedule.n / sequences
    return max(1, int(between)) * mixed.T


# ---------------------------------------------------------------- the job


def job_fingerprint(run: "Run") -> str:
    """Covers the mixture and the groups; the packed shards' size where there are any."""
    settings = run.config.mixture
    shards = run.config.shards
    return fingerprint.fingerprint(
        __name__,
        settings=settings and settings.model_dump(),
        shards=[shards.name, shards.tokens] if settings and settings.packed else None,
        groups=run.fingerprints["groups"],
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Plan the stages, say what cannot be met, and pack them where that is asked for."""
    if run.config.mixture is None:
        job.begin()
        return {}
    return mix(run, job, run.config.mixture, Groups.of(job.folder.parent))


def mix(run: "Run", job: checkpoint.Checkpoint, settings: Mixture, groups: Groups) -> dict[str, Any]:
    """The same for any groups."""
    planned = plan(settings, groups.sizes)
    for sentence in planned.unmet:
        run.console.warn(sentence)
    figures: dict[str, Any] = {
        "settings": settings.model_dump(mode="json"),
        "by": settings.by,
        "packed": settings.packed,
        "unmet": list(planned.unmet),
        "stages": [figures_of(mixed) for mixed in sequences.stages(planned, groups)],
    }
    if settings.packed:
        _pack_all(run, job, planned, groups, figures["stages"])
    else:
        job.begin()
    return figures


def _pack_all(
    run: "Run", job: checkpoint.Checkpoint, planned: Plan, groups: Groups, figures: list[dict[str, Any]]
) -> None:
    """Write every shard that is not there yet; add the files, and what was drawn, to the figures of the stages."""
    dtype = groups.figures["dtype"]
    shards = packed_shards(planned, job.folder, run.config.shards.name, run.config.shards.tokens)
    cache = WorkersCopies() if folders.is_remote(job.folder) else None
    summary = map_tasks(
        run,
        job,
        NAME,
        "shards",
        pack,
        [shard.key for shard in shards],
        shards,
        job.fingerprint,
        SUMMARY,
        stages=sequences.stages(planned, groups, cache),
        dtype=dtype,
        folder=job.folder,
        fingerprint=job.fingerprint,
    )
    for number, (stage, said) in enumerate(zip(planned.stages, figures, strict=True)):
        written = summary[summary["stage"] == number]
        drawn = np.sum([json.loads(one) for one in written["drawn"]], axis=0).tolist()
        if drawn != [group.sequences for group in stage.groups]:
            raise RuntimeError(f"stage {stage.name}: {drawn} sequences of the groups were written")
        of_stage = (shard.path for shard in shards if shard.stage == number)
        said["files"] = [
            [path.relative_to(job.folder).as_posix(), int(tokens)]
            for path, tokens in zip(of_stage, written["tokens"], strict=True)
        ]

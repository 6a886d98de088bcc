"""Run Dask dataframes whose partitions are small summaries of committed work."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from jobs.errors import UserError
from jobs.runtime.checkpoint import Checkpoint, commit_task
from jobs.runtime.console import Meter

if TYPE_CHECKING:
    import dask.dataframe as dd
    from distributed import Client

    from jobs.runtime.context import Run

RETRIES = 3  # honoured here, at compute; Dask ignores it when annotated on a dataframe


@dataclass(frozen=True)
class Named:
    """A function under the words by which Dask's dashboard names its tasks."""

    words: str
    function: Callable[..., Any]

    @property
    def __name__(self) -> str:
        return self.words

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: D102
        return self.function(*arguments, **options)


def columns(**dtypes: Any) -> pd.DataFrame:
    """An empty dataframe of these columns: what Dask calls a meta."""
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})


def gather(
    client: "Client",
    frame: "dd.DataFrame",
    meter: Meter,
    counted: Sequence[str] = ("documents", "n_bytes", "n_tokens"),
    resources: dict[str, int] | None = None,
) -> pd.DataFrame:
    """Compute a dataframe partition by partition and return it whole, rows in partition order.

    The `counted` columns, documents, bytes and tokens, feed the meter where there are any. The first error cancels the
    rest. Only workers that have the `resources` take part.
    """
    from distributed import KilledWorker, as_completed

    futures = client.compute(frame.to_delayed(), retries=RETRIES, resources=resources)
    place = {future.key: i for i, future in enumerate(futures)}
    parts: list[pd.DataFrame | None] = [None] * len(futures)
    try:
        for future, part in as_completed(futures, with_results=True):
            parts[place[future.key]] = part
            meter.advance(*(int(part[c].sum()) if c in part else 0 for c in counted))
    except KilledWorker as error:
        client.cancel(futures, force=True)
        raise UserError(
            f"workers died again and again in {meter.name}, most likely for want of memory ({error.task}); "
            "give them more with --memory-limit or use fewer with --workers, or lower splits.bytes"
        ) from None
    except BaseException:
        client.cancel(futures, force=True)
        raise
    return pd.concat([part for part in parts if part is not None], ignore_index=True)


def map_tasks(
    run: "Run",
    job: Checkpoint,
    name: str,
    unit: str,
    function: Callable[..., pd.DataFrame],
    keys: Sequence[str],
    arguments: Sequence[Any],
    task_fingerprint: str,
    meta: pd.DataFrame,
    resources: dict[str, int] | None = None,
    **common: Any,
) -> pd.DataFrame:
    """Call `function(argument, **common)` on Dask for each task that was not committed under `task_fingerprint`.

    The function ends with `finish_task`. Returns the summary rows of all tasks, those done before included, in
    the order of `keys`.
    """
    import dask.dataframe as dd

    committed = job.tasks_done(task_fingerprint)
    done = {key: committed[key] for key in keys if key in committed}
    job.begin(kept_tasks=done)
    summary = _rows(((key, record["figures"]) for key, record in done.items()), meta)
    waiting = [argument for key, argument in zip(keys, arguments, strict=True) if key not in done]
    if done and waiting:
        run.console.line(f"{name:<16} {len(done):,} of {len(keys):,} {unit} were done before")
    if waiting:
        graph = dd.from_map(function, waiting, **common, meta=meta, label=name.replace("_", " "))
        with run.console.job(name, len(waiting), unit) as meter:
            summary = pd.concat(
                [summary, gather(run.client, graph, meter, resources=resources)], ignore_index=True
            )
    return summary.set_index("key").loc[list(keys)].reset_index()


def refuse_absent(client: "Client", resources: dict[str, int]) -> None:
    """Refuse, before any work, resources that no worker has: a task would wait for them for ever.

    Raises
    ------
    UserError
        One sentence that names the resource.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    for name, amount in resources.items():
        if not any(worker["resources"].get(name, 0) >= amount for worker in workers):
            raise UserError(
                f"no worker has the resource {name} that the settings ask for; start those that have it with "
                f"`dask worker --resources {name}={amount}`"
            )


def finish_task(
    folder: Path,
    fingerprint: str,
    key: str,
    paths: Iterable[Path],
    figures: dict[str, Any],
    meta: pd.DataFrame,
) -> pd.DataFrame:
    """Commit one task and return its summary row."""
    commit_task(folder, fingerprint, key, paths, figures)
    return _rows([(key, figures)], meta)


def _rows(figures: Iterable[tuple[str, dict[str, Any]]], meta: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame([{"key": key, **values} for key, values in figures], columns=meta.columns).astype(
        meta.dtypes
    )

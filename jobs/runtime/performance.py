"""Dask's performance report of each job that takes a while: its task stream, profiles of the workers, their memory.

They lie in `OUT/cost`, beside the page that links them, with one copy of Bokeh's scripts, so that they open without a
network. They hold times and addresses, are of no job, and nothing is computed from them.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.runtime import checkpoint, folders

if TYPE_CHECKING:
    from distributed import Client

    from jobs.runtime.context import Run

FOLDER = "cost"
WORTH = 10.0  # seconds that a job takes; making a report takes one or two
_SCRIPT = re.compile(r'src="https://cdn\.bokeh\.org/bokeh/release/(bokeh[a-z-]*)-[^"/]+\.min\.js"')
_ICON = re.compile(r'<link rel="shortcut icon"[^>]*>')


@contextlib.contextmanager
def reported(run: "Run", job: str) -> Iterator[None]:
    """Keep a report of what Dask does in the block, if that takes long enough; failing to do so fails no job."""
    clock, began, samples = time.perf_counter(), time.time(), _samples(vars(run).get("client"))
    yield
    client = vars(run).get("client")
    if client is None or time.perf_counter() - clock < run.reports_from:
        return
    try:
        text = client.sync(
            client.scheduler.performance_report, start=began, last_count=samples, code=f"{job} of {run.out}"
        )
        _write(run.out / FOLDER, job, text)
    except Exception as error:
        run.console.detail(f"no performance report of {job}: {type(error).__name__}: {error}")


def keep_tasks(client: "Client") -> None:
    """Have the scheduler remember its tasks from now on."""
    with contextlib.suppress(Exception):
        client.get_task_stream(start=0, stop=0)


def _samples(client: "Client | None") -> int:
    """How many samples of its own load the scheduler has taken; none where it will only be started."""
    with contextlib.suppress(Exception):
        if client is not None:
            return int(client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.monitor.count))
    return 0


def _write(folder: Path, job: str, text: str) -> None:
    for name in sorted(set(_SCRIPT.findall(text))):
        if not (folder / _script(name)).exists():
            with checkpoint.written(folder / _script(name)) as file:
                file.write(_source(name).read_bytes())
    text = _SCRIPT.sub(lambda found: f'src="{_script(found[1])}"', text)
    with checkpoint.written(folder / f"{job}.html") as file:
        file.write(_ICON.sub('<link rel="icon" href="data:,">', text).encode())


def _script(name: str) -> str:
    import bokeh

    return f"{name}-{bokeh.__version__}.min.js"


def _source(name: str) -> Path:
    from bokeh.settings import settings

    return Path(settings.bokehjs_path()) / "js" / f"{name}.min.js"


def there(out: Path) -> list[str]:
    """Names of the jobs of an output that have a report."""
    present = {path.name for path in folders.files(out / FOLDER)}
    return sorted(
        name.removesuffix(".html") for name in present if name.endswith(".html") and name != "index.html"
    )

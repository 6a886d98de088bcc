"""A run on Dask's dashboard: a page of its own at `/shardmill`, and figures for Prometheus at `/metrics`.

The run tells the scheduler how far it is as events of a topic. A plugin there keeps the latest of each job and shows
them; a scheduler that has no such plugin, since this project is not installed there, keeps the events and no more.
"""

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distributed import SchedulerPlugin
from tornado.web import RequestHandler

from jobs.runtime.console import Console

if TYPE_CHECKING:
    from distributed import Client
    from distributed.scheduler import Scheduler

NAME = "shardmill"
PAGE = Path(__file__).parent / "dashboard.html"
EVERY = 0.5  # seconds between two events of a job that goes on
MOST_RUNS = 20  # that a scheduler remembers
UNFINISHED = (
    "waiting",
    "queued",
    "no-worker",
    "processing",
    "memory",
)  # a task group with such tasks is at work
MEASURES = ("documents", "bytes", "tokens", "seconds")


class Announcer:
    """Tells a scheduler of a run's jobs, seldom enough not to burden it."""

    def __init__(self, client: "Client", output: str) -> None:
        self._client, self._output = client, output
        self._began, self._said = time.time(), 0.0

    def __call__(self, figures: dict[str, Any]) -> None:
        """Of a job: what `Meter.figures` has, `place`, `seconds_left`, `run_seconds_left` and whether it is `ended`."""
        if figures["ended"] or time.monotonic() > self._said + EVERY:
            self._said = time.monotonic()
            with contextlib.suppress(Exception):  # that a run can be looked at must not stop it
                self._client.log_event(NAME, {"output": self._output, "began": self._began, **figures})


def install(client: "Client", console: Console) -> str:
    """Add the page and the figures to the dashboard of the client's scheduler; return what there is to open."""
    link = str(client.dashboard_link)
    try:
        client.register_plugin(RunsOnDashboard())
    except Exception as error:
        console.detail(f"the scheduler shows no page of this run: {type(error).__name__}: {error}")
        return link
    return f"{link}; this run at /{NAME}, figures for Prometheus at /metrics"


class RunsOnDashboard(SchedulerPlugin):
    """Keeps what runs say of their jobs, and serves it from the scheduler's own HTTP server."""

    name = NAME
    idempotent = True  # the next run on this scheduler finds it there

    def __init__(self) -> None:
        self.runs: dict[
            str, dict[str, Any]
        ] = {}  # output -> since when, and its jobs' latest figures by name

    async def start(self, scheduler: "Scheduler") -> None:  # noqa: D102
        self.scheduler = scheduler
        routes = [(f"/{NAME}", _Page), (f"/{NAME}/progress.json", _Progress, {"plugin": self})]
        scheduler.http_application.add_handlers(r".*$", routes)
        with contextlib.suppress(Exception):  # no Bokeh, so no dashboard to have a tab in
            from distributed.dashboard.scheduler import template_variables

            template_variables(scheduler)["pages"].insert(0, NAME)
        with contextlib.suppress(ImportError):
            from prometheus_client import REGISTRY

            REGISTRY.register(self)

    async def close(self) -> None:  # noqa: D102
        with contextlib.suppress(ImportError, KeyError):
            from prometheus_client import REGISTRY

            REGISTRY.unregister(self)

    def log_event(self, topic: str, msg: Any) -> None:  # noqa: D102
        if topic != NAME:
            return
        run = self.runs.pop(msg["output"], None)
        if run is None or run["began"] != msg["began"]:
            run = {"began": msg["began"], "jobs": {}}
        self.runs[msg["output"]] = run
        run["jobs"][msg["job"]] = msg
        while len(self.runs) > MOST_RUNS:
            del self.runs[next(iter(self.runs))]

    def progress(self) -> dict[str, Any]:
        """Runs with their jobs, the latest run first; how many tasks of each group wait, run and are done."""
        groups = [
            {
                "name": prefix.name,
                "waiting": states["waiting"] + states["queued"] + states["no-worker"],
                "running": states["processing"],
                "done": states["memory"] + states["released"] + states["forgotten"],
            }
            for prefix in self.scheduler.task_prefixes.values()
            for states in [prefix.states]
            if any(states[name] for name in UNFINISHED)
        ]
        runs = [
            {"output": output, "jobs": list(run["jobs"].values())}
            for output, run in reversed(self.runs.items())
        ]
        return {"runs": runs, "groups": groups, "workers": len(self.scheduler.workers)}

    def describe(self) -> list[Any]:
        """Nothing is known of the figures before there is a run; Prometheus asks."""
        return []

    def collect(self) -> Iterator[Any]:
        """Figures of each job of each run, for Prometheus."""
        from prometheus_client.metrics_core import GaugeMetricFamily

        jobs = [job for run in self.runs.values() for job in run["jobs"].values()]
        for name in (*MEASURES, "tasks", "done"):
            family = GaugeMetricFamily(f"{NAME}_job_{name}", _MEANINGS[name], labels=["output", "job"])
            for job in jobs:
                family.add_metric([job["output"], job["job"]], job[name])
            yield family


_MEANINGS = {
    "documents": "Documents that a job has handled",
    "bytes": "Bytes of text that a job has handled",
    "tokens": "Tokens that a job has handled",
    "seconds": "Since a job began, until it ended",
    "tasks": "Tasks of a job",
    "done": "Tasks of a job that are done",
}


class _Page(RequestHandler):
    def get(self) -> None:
        self.write(PAGE.read_text(encoding="utf-8"))


class _Progress(RequestHandler):
    def initialize(self, plugin: RunsOnDashboard) -> None:
        self.plugin = plugin

    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.write(json.dumps(self.plugin.progress()))

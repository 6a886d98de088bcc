"""A run on Dask's dashboard: its page, its figures for Prometheus, Dask's own page, all opened in a browser."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from jobs.runtime import dashboard
from jobs.runtime.console import Console
from tests.conftest import ROOT, settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def opened(url: str, profile: Path) -> str:
    """What a browser makes of a page, after a few seconds of its scripts."""
    command = [
        str(CHROMIUM),
        *("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={profile}", "--virtual-time-budget=3000", "--dump-dom", url),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert not re.findall(r"CONSOLE.*[Ee]rror.*", done.stderr)
    return done.stdout


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_run_is_on_the_dashboard_while_it_goes_on(corpus: Path, cluster: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "jobs.run",
        *settings(corpus),
        "--output",
        str(out),
        "--scheduler",
        cluster,
    ]
    with Client(cluster) as client:
        base = client.dashboard_link.removesuffix("/status")
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
            jobs = first_progress(out, base)
            page = opened(f"{base}/shardmill", tmp_path / "profile")
            assert run.poll() is None  # it went on
            whole = opened(f"{base}/status", tmp_path / "profile")
            said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said
        assert str(out) in page
        assert f"{jobs[0]['place']} {jobs[0]['job']}" in page
        assert '<a href="shardmill">Shardmill</a>' in whole
        annotated = next(one for one in progress(out, base) if one["job"] == "annotate")
        assert (annotated["documents"], annotated["done"], annotated["ended"]) == (900, 3, True)
        assert annotated["tokens"] > annotated["documents"]
        labels = f'{{job="annotate",output="{out}"}}'
        assert f"shardmill_job_documents{labels} 900.0" in read(f"{base}/metrics")


def progress(out: Path, base: str) -> list[dict[str, Any]]:
    told = json.loads(read(f"{base}/shardmill/progress.json"))["runs"]
    return next((run["jobs"] for run in told if run["output"] == str(out)), [])


def first_progress(out: Path, base: str) -> list[dict[str, Any]]:
    for _ in range(1200):
        with contextlib.suppress(urllib.error.HTTPError):  # before a first run has added the page
            if jobs := progress(out, base):
                return jobs
        time.sleep(0.1)
    raise AssertionError("the run is not on the dashboard")


def figures(job: str, **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("documents", "bytes", "tokens", "seconds", "tasks", "done"), 1)
    return {"output": "out", "began": 1.0, "job": job, "ended": False, **counts, **more}


def test_a_run_that_begins_anew_forgets_its_jobs_and_old_runs_are_forgotten() -> None:
    plugin = dashboard.RunsOnDashboard()
    plugin.log_event(dashboard.NAME, figures("annotate"))
    plugin.log_event(dashboard.NAME, figures("order"))
    plugin.log_event("all", {"action": "of others"})
    assert list(plugin.runs["out"]["jobs"]) == ["annotate", "order"]
    plugin.log_event(dashboard.NAME, figures("annotate", began=2.0))
    assert list(plugin.runs["out"]["jobs"]) == ["annotate"]
    for number in range(dashboard.MOST_RUNS):
        plugin.log_event(dashboard.NAME, figures("annotate", output=str(number)))
    assert "out" not in plugin.runs
    assert len(plugin.runs) == dashboard.MOST_RUNS


def test_a_scheduler_that_takes_no_plugin_costs_the_page_and_not_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Refusing:
        dashboard_link = "http://host:8787/status"

        def register_plugin(self, *arguments: object, **options: object) -> None:
            raise ModuleNotFoundError("No module named 'jobs'")

        def log_event(self, topic: str, content: object) -> None:
            raise OSError("closed")

    assert dashboard.install(Refusing(), Console(level="verbose")) == "http://host:8787/status"  # type: ignore[arg-type]
    assert "no page of this run: ModuleNotFoundError: No module named 'jobs'" in capsys.readouterr().out
    dashboard.Announcer(Refusing(), "out")(figures("annotate"))  # type: ignore[arg-type]

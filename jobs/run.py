"""The main job: the order of the jobs, what was done before, and what is said at the end."""

import argparse
import contextlib
import importlib
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from jobs.cli import guarded, run_parser
from jobs.errors import UserError

if TYPE_CHECKING:
    from jobs.config import Config
    from jobs.runtime.context import Run

# In order, with the module of each. A job's folder in the output has the job's name.
JOBS = {
    "corpus": "jobs.corpus",
    "inventory": "jobs.pipeline.inventory",
    "repeated_passages": "jobs.pipeline.duplicates.passages",
    "tokenizer": "jobs.tokenizer",
    "annotate": "jobs.pipeline.annotate",
    "references": "jobs.pipeline.references",
    "url_duplicates": "jobs.pipeline.duplicates.urls",
    "exact_duplicates": "jobs.pipeline.duplicates.exact",
    "near_duplicates": "jobs.pipeline.duplicates.near",
    "order": "jobs.pipeline.order",
    "validation": "jobs.pipeline.validation",
    "shards": "jobs.pipeline.shards",
    "ledger": "jobs.pipeline.accounting",
    "contamination": "jobs.pipeline.contamination",
    "exports": "jobs.pipeline.exports",
    "groups": "jobs.pipeline.groups",
    "mixture": "jobs.pipeline.mixture",
    "scurve": "jobs.scurve",
    "report": "jobs.report",
}


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.run`."""
    return run_parser(JOBS)


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.run`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: execute(options, options.until), commits=True, log_format=options.log_format)


def execute(options: argparse.Namespace, until: str | None = None) -> int:
    """Run the jobs up to `until`, or to the end with verification; return the exit status."""
    if until is not None and until not in JOBS:
        raise UserError(f"--until is {until!r}; it can be {', '.join(JOBS)}")
    run = prepare(options)
    if options.dry_run:
        return dry_run(run)
    from jobs.runtime.checkpoint import locked

    refuse_foreign_output(run.out)
    with locked(run.out), run:
        if options.fresh:
            clear(run.out)
        started = time.perf_counter()
        did = run_jobs(run, until)
        if until is None:
            return conclude(run, did, time.perf_counter() - started)
    return 0


def prepare(options: argparse.Namespace) -> "Run":
    """Read the configuration and refuse what can be refused before any work."""
    from jobs import config
    from jobs.runtime.cluster import configure

    configure()  # before anything imports `distributed`
    settings = list(options.settings)
    if options.allow_bad_files is not None:
        settings.append(f"allow_bad_files={options.allow_bad_files}")
    if options.against:
        settings.append(f"against={json.dumps(options.against)}")
    resolved = config.load(options.config, settings)
    from jobs.runtime.console import Console, Level
    from jobs.runtime.context import Run
    from jobs.runtime.folders import reached

    stem = "-".join(Path(name).stem for name in config.names(options.config))
    out = reached(options.output or Path("out") / stem)
    level: Level = "quiet" if options.quiet else "verbose" if options.verbose else "normal"
    console = Console(level=level, log_format=options.log_format)
    run = Run(
        resolved,
        out,
        console,
        options.scheduler,
        options.workers,
        options.memory_limit,
        options.performance_reports,
    )
    run.refuse_contradictions()
    return run


def refuse_foreign_output(out: Path) -> None:
    """Refuse a folder that holds what no run wrote: a job removes what it does not know from its folder."""
    from jobs.runtime.checkpoint import LOCK, MANIFEST
    from jobs.runtime.performance import FOLDER

    if out.exists() and not out.is_dir():
        raise UserError(f"--output {out} is a file; give a new or empty folder")
    present = sorted(path.name for path in out.iterdir()) if out.exists() else []
    ours = LOCK in present or MANIFEST in present
    in_the_way = [name for name in present if name in JOBS and not ours]
    if in_the_way:
        raise UserError(
            f"--output {out} was not made by a run, and has a {in_the_way[0]} that a run would replace; choose another"
        )
    foreign = [name for name in present if name not in (*JOBS, FOLDER, MANIFEST) and not name.startswith(".")]
    if foreign:
        raise UserError(
            f"--output {out} holds {foreign[0]!r}, which no run wrote; move it away, or give a new or empty folder"
        )


def run_jobs(run: "Run", until: str | None) -> list[str]:
    """Do what is not done, in order; return the names of the jobs that had work."""
    from jobs.runtime import cost, folders, performance
    from jobs.runtime.checkpoint import MANIFEST, remove_asides
    from jobs.runtime.outlook import Outlook

    remove_asides(run.out)
    run.console.line(f"output           {run.out}")
    say_banding(run)
    did: list[str] = []
    jobs = jobs_of(run)
    outlook = Outlook([name for name, _ in jobs], splits=lambda: len(run.splits))
    run.console.run_seconds_left = outlook.seconds_left if until is None else lambda meter: None
    for number, (name, module) in enumerate(jobs, 1):
        run.console.place = f"{number}/{len(jobs)}"
        outlook.begin(name)
        if name == "inventory":  # the first after the corpus is there
            run.refuse_impossible_sizes()
        run.fingerprints[name] = module.job_fingerprint(run)
        checkpoint = run.checkpoint(name)
        manifest = checkpoint.manifest()
        if manifest is None:
            folders.remove([run.out / MANIFEST])  # no finished run from here on until the end
            try:
                with cost.measured(run) as spent, performance.reported(run, name):
                    figures = module.run(run, checkpoint)
            except KeyboardInterrupt:
                say_what_stays(run, name, number - 1)
                raise
            manifest = checkpoint.commit(figures, spent)
            did.append(name)
        else:
            run.console.detail(f"{name:<16} done before, under fingerprint {run.fingerprints[name]}")
        outlook.end(name, (manifest["cost"] or {}).get("seconds", 0.0))
        if name == until:
            break
    if until is None:
        write_manifest(run)
    return did


def say_what_stays(run: "Run", name: str, done: int) -> None:
    """At once when a job is stopped, since its workers take a while to end."""
    from jobs.runtime import folders
    from jobs.runtime.checkpoint import TASKS
    from jobs.runtime.console import counted

    with contextlib.suppress(Exception):  # a store that does not answer must not hide that it was stopped
        tasks = sum(path.parent.name == TASKS for path in folders.files(run.out / name))
        parts = f", and {counted(tasks, 'task')} of it" if tasks else ""
        run.console.problem(
            f"stopping in {name}: {counted(done, 'job')} before it are committed{parts}; ending workers"
        )


def say_banding(run: "Run") -> None:
    """How often near-duplicates of some similarities are flagged, and whether that is what was asked for."""
    from jobs import bands

    settings = run.config.near_duplicates
    if not settings.enabled:
        return
    run.console.line(f"near-duplicates  {bands.describe(settings)}")
    if warning := bands.misses(settings):
        run.console.warn(warning)


def write_manifest(run: "Run") -> None:
    """Say at the output's root what was asked for and which jobs make it up; unchanged, it is left alone."""
    from jobs.runtime.checkpoint import MANIFEST, DamagedFileError, read_json, write_json

    path = run.out / MANIFEST
    content = {
        "shardmill": version("shardmill"),
        "jobs": run.fingerprints,
        "config": run.config.model_dump(mode="json"),
    }
    try:
        if read_json(path) == content:
            return
    except (FileNotFoundError, DamagedFileError):
        pass
    write_json(path, content)


def jobs_of(run: "Run") -> list[tuple[str, ModuleType]]:
    """The jobs of this run, in order; the corpus is a job only where it is a source."""
    return [
        (name, importlib.import_module(module))
        for name, module in JOBS.items()
        if name != "corpus" or run.has_built_in_corpus
    ]


def conclude(run: "Run", did: list[str], seconds: float) -> int:
    """Verify the output, print the table and say where it lies; the exit status says whether all is well."""
    from jobs import report, verify
    from jobs.report import cost as costs
    from jobs.runtime import cost
    from jobs.runtime.console import counted

    if not did:
        run.console.line("nothing to do: every job was done before with these settings")
    problems = verify.verify(run.out, run.console)
    report.print_table(run.console, run.figures("report"))
    manifests = {name: run.checkpoint(name).manifest() or {} for name, _ in jobs_of(run)}
    cost.print_table(run.console, manifests)
    if did:
        costs.write(run.out, manifests)
    bad, allowed = run.bad_files(), run.config.allow_bad_files
    run.console.line()
    for path, reason in bad.items():
        run.console.problem(f"unreadable: {path}: {reason}")
    ended = [_ended(did, problems)]
    if len(bad) > allowed:
        ended.append(
            f"but {counted(len(bad), 'file')} could not be read whole, {allowed} allowed (--allow-bad-files); "
            "what could be read is in the shards"
        )
    failed = bool(problems) or len(bad) > allowed
    run.console.result(
        f"{run.out}: {', '.join(ended)}; {seconds:,.0f} s; report in report/index.html", failed=failed
    )
    return int(failed)


def _ended(did: list[str], problems: list[str]) -> str:
    if problems:
        return "made, but verification failed" if did else "verification failed"
    return "done" if did else "checked"


def dry_run(run: "Run") -> int:
    """Print what a run would do."""
    import yaml

    splits_known = not run.has_built_in_corpus or (run.out / "corpus" / "manifest.json").exists()
    if splits_known:
        run.say_what_is_there()
    say_banding(run)
    print(yaml.safe_dump(said_once(run.config), sort_keys=False, allow_unicode=True))
    if splits_known:
        print(f"splits: {len(run.splits):,} of {len(run.inventory.files):,} files")
        for split in run.splits:
            print(
                f"  {split.source} {split.path} records {split.start:,} to {split.stop:,}, "
                f"{split.n_bytes / 1e6:,.1f} MB"
            )
    else:
        print("splits: known once the built-in corpus is written")
    done = True
    print("jobs:")
    for name, module in jobs_of(run):
        if splits_known:
            run.fingerprints[name] = module.job_fingerprint(run)
        done = done and name in run.fingerprints and run.checkpoint(name).manifest() is not None
        print(f"  {name:<16} {'done before' if done else 'would run'}")
    return 0


def said_once(config: "Config") -> dict[str, Any]:
    """The configuration; of a source only what it does not have from the whole run."""
    from jobs.config import STEPS

    whole: dict[str, Any] = config.model_dump(mode="json")
    for source in (*whole["sources"], *whole["validation"]["references"]):
        for section in STEPS:
            if source[section] == whole[section]:
                del source[section]
    return whole


def clear(out: Path) -> None:
    """Remove the folders of our jobs, and nothing else."""
    from jobs.runtime.folders import remove_folder
    from jobs.runtime.performance import FOLDER

    for name in (*JOBS, FOLDER):
        remove_folder(out / name)


if __name__ == "__main__":
    sys.exit(main())

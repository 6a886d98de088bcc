"""Commands that make something else of a finished run, in a folder of its own."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from jobs.errors import UserError
from jobs.runtime.checkpoint import LOCK, MANIFEST, read_json
from jobs.runtime.console import Console

if TYPE_CHECKING:
    from jobs.config import Config
    from jobs.runtime.context import Run


def run_with(config: "Config", out: Path, options: argparse.Namespace) -> "Run":
    """A finished run under settings that may say more than its own, on the cluster of the command's options."""
    from jobs.runtime.context import Run

    return Run(
        config,
        out,
        Console(),
        options.scheduler,
        options.workers,
        options.memory_limit,
        fingerprints=dict(read_json(out / MANIFEST)["jobs"]),
    )


def refuse_foreign_folder(to: Path, out: Path) -> None:
    """Refuse a folder that holds what no such command wrote, and the run's own: what is not known is removed.

    Raises
    ------
    UserError
        One sentence.
    """
    if to.exists() and not to.is_dir():
        raise UserError(f"--to {to} is a file; give a new or empty folder")
    if to == out or out in to.parents or (to / MANIFEST).exists():
        raise UserError(f"--to {to} is a run's output; give a new or empty folder")
    present = [path.name for path in to.iterdir()] if to.exists() else []
    if present and LOCK not in present:
        raise UserError(
            f"--to {to} holds {min(present)!r}, which no export wrote; give a new or empty folder"
        )

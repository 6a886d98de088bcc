"""Mix the groups of a finished run in shares of tokens: plan, group its shards, pack; nothing is tokenized again."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.cli import add_cluster, guarded

if TYPE_CHECKING:
    from jobs.mixture.allotment import Plan
    from jobs.runtime.context import Run

EXAMPLES = """\
examples:
  python -m jobs.mix out/web --set shares='{web: 0.7, code: 0.3}' --set tokens=10e9 --dry-run
  python -m jobs.mix out/web --mixture curriculum.yaml                  to out/web-mixture, for MixtureLoader
  python -m jobs.mix out/web --mixture curriculum.yaml --set packed=true --to /data/mixed
"""


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.mix`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.mix",
        description="Mix the groups of a finished run in shares of tokens, in stages, from its shards: nothing is "
        "tokenized again. The same command continues where it stopped; other weights do not write the groups anew.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output folder of a finished run, or its URL")
    add("--mixture", metavar="FILE", help="YAML with the settings of the section mixture")
    add("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings",
        help="one setting, such as tokens=10e9 or shares='{web: 0.7, code: 0.3}'; repeatable, YAML values")  # fmt: skip
    add("--to", metavar="DIR|URL", help="where groups and packed stages go (default: OUT-mixture)")
    add("--dry-run", action="store_true", help="count the groups, say what each gives, and stop")
    add_cluster(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.mix OUT --mixture FILE`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options), commits=True)


def _main(options: argparse.Namespace) -> int:
    from jobs.runtime.checkpoint import locked
    from jobs.runtime.cluster import configure
    from jobs.runtime.finished import refuse_foreign_folder
    from jobs.runtime.folders import reached

    configure()  # before anything imports `distributed`
    run = finished_run(options)
    if options.dry_run:
        with run:
            return dry_run(run)
    to = reached(options.to or f"{str(options.out).rstrip('/')}-mixture")
    refuse_foreign_folder(to, run.out)
    with locked(to), run:
        mix(run, to)
    return 0


def finished_run(options: argparse.Namespace) -> "Run":
    """The run, with the mixture that is asked for now; refuses what cannot be, before any work.

    Raises
    ------
    UserError
        It is not finished, or there is no such mixture.
    """
    from pydantic import ValidationError

    from jobs.config import Config, said
    from jobs.errors import UserError
    from jobs.mixture.columns import check_column
    from jobs.runtime.finished import run_with
    from jobs.runtime.folders import reached
    from jobs.trace import configuration

    out = reached(options.out)
    config = configuration(out)
    try:
        asked = Config.model_validate(config.model_dump() | {"mixture": settings_of(options)})
    except ValidationError as error:
        raise UserError(said(error)) from None
    check_column(asked)
    return run_with(asked, out, options)


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The section that file and options make together."""
    import yaml

    from jobs.config import apply
    from jobs.errors import UserError

    raw: dict[str, Any] = {}
    if options.mixture:
        try:
            raw = yaml.safe_load(Path(options.mixture).read_text(encoding="utf-8")) or {}
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"--mixture {options.mixture} cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise UserError(f"--mixture {options.mixture} is no section of settings")
    for setting in options.settings:
        apply(raw, setting)
    return raw.get("mixture", raw)


def dry_run(run: "Run") -> int:
    """Say what each group gives to each stage."""
    from jobs.mixture.allotment import plan
    from jobs.pipeline import groups

    settings = run.config.mixture
    assert settings is not None
    labels = groups.Labels.of(settings, run.config)
    planned = plan(settings, groups.sizes_of(groups.counted(run, labels), labels))
    say(run, planned)
    for sentence in planned.unmet:
        run.console.warn(sentence)
    return 0


def say(run: "Run", planned: "Plan") -> None:
    """What each group gives to each stage, as it was asked for and as it is."""
    for stage in planned.stages:
        tokens = stage.sequences * stage.length
        run.console.line(
            f"{stage.name}: {stage.sequences:,} sequences of {stage.length:,} tokens, {tokens:,} tokens"
        )
        for group in stage.groups:
            share = group.sequences / stage.sequences
            run.console.line(
                f"  {group.name:<20} {share:8.3%} (asked {group.asked:.3%})  "
                f"{group.sequences * stage.length:,} tokens, {group.epochs:.2f} epochs"
            )


def mix(run: "Run", to: Path) -> None:
    """Do what is not done of the two jobs, and say what is there."""
    from jobs.mixture.allotment import plan
    from jobs.mixture.groups import Groups
    from jobs.pipeline import groups, mixture
    from jobs.runtime.checkpoint import Checkpoint

    for module in (groups, mixture):
        run.fingerprints[module.NAME] = module.job_fingerprint(run)
        job = Checkpoint(to / module.NAME, run.fingerprints[module.NAME])
        _ = job.manifest() or job.commit(module.run(run, job))
    assert run.config.mixture is not None
    run.console.line(f"{to}:")
    say(run, plan(run.config.mixture, Groups.of(to).sizes))


if __name__ == "__main__":
    sys.exit(main())

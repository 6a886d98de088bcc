"""Commands as a user types them: help, mistakes, and what is printed where."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jobs.cli import COMMANDS, module_of
from tests.conftest import python, settings


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    shown = python("-m", f"jobs.{command}", "--help")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == python("-m", "jobs", command, "--help").stdout
    assert "usage: python -m jobs." in shown.stdout


def test_help_of_the_main_job_is_fast_and_whole() -> None:
    times = []
    for _ in range(3):
        started = time.perf_counter()
        shown = python("-m", "jobs.run", "--help").stdout
        times.append(time.perf_counter() - started)
    assert min(times) < 0.5
    for option in (
        "config",
        "set",
        "output",
        "scheduler",
        "workers",
        "memory-limit",
        "until",
        "fresh",
        "dry-run",
    ):
        assert f"--{option}" in shown
    for job in ("corpus", "near_duplicates", "report"):
        assert job in shown
    assert shown.count("default:") >= 6


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, jobs.run, jobs.cli; jobs.cli.run_parser(jobs.run.JOBS).format_help(); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'dask','numba','pandas','pyarrow','pydantic','numpy'}))"
    )
    assert python("-c", code).stdout == "[]\n"


def test_list_of_commands_and_the_nearest_to_a_typo() -> None:
    listed, width = python("-m", "jobs").stdout, max(map(len, COMMANDS))
    for command, what in COMMANDS.items():
        assert f"  {command:<{width}}  {what}\n" in listed
    assert max(map(len, listed.splitlines())) < 120
    for wrong, said in {
        "verfy": "there is no command 'verfy'; did you mean verify?",
        "zzz": "there is no command 'zzz'; `python -m jobs` lists them",
        "--completion": "--completion takes the name of a shell: bash or zsh",
    }.items():
        failed = python("-m", "jobs", wrong)
        assert failed.returncode == 2
        assert failed.stderr == f"error: {said}\n"


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "shardmill.bash"
    path.write_text(python("-m", "jobs", "--completion", "bash").stdout)
    return path


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ve", {"verify"}),
        ("t", {"tokenizer", "train_quality", "train_perplexity", "trace"}),
        ("--c", {"--completion"}),
        ("--completion z", {"zsh"}),
        ("run --work", {"--workers"}),
        ("run --until near", {"near_duplicates"}),
        ("run --config fineweb", {"fineweb", "fineweb-edu"}),
        ("whatif OUT --measure ", {"documents", "bytes", "tokens"}),
        ("report --com", {"--compare"}),
        ("run --output some", set()),  # file names, by the shell itself
    ],
)
def test_the_shell_completes(completion: Path, typed: str, offered: set[str]) -> None:
    words = ["shardmill", *typed.split(" ")]
    code = (
        f"source {completion}; COMP_CWORD={len(words) - 1}; _shardmill; printf '%s\n' \"${{COMPREPLY[@]}}\""
    )
    quoted = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        ["bash", "-euc", f"COMP_WORDS=({quoted}); {code}"], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == offered


def test_every_command_has_a_parser_whose_options_are_completed(completion: Path) -> None:
    text = completion.read_text()
    for command in COMMANDS:
        for action in module_of(command).parser()._actions:
            assert all(option in text for option in action.option_strings)
    assert "bashcompinit" in python("-m", "jobs", "--completion", "zsh").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--config", "absent"], "there is no configuration 'absent'"),
        (["--set", "length.min_tokens=many"], "length.min_tokens is 'many'"),
        (
            ["--until", "lunch"],
            "--until is 'lunch'; it can be corpus, inventory, repeated_passages, tokenizer",
        ),
        (["--set", "sources=[{name: web, path: /absent/nowhere}]"], "nowhere"),
        (["--set", "tokenizer={path: /absent.json}"], "/absent.json"),
    ],
)
def test_mistakes_are_one_sentence_without_traceback(
    arguments: list[str], said: str, tmp_path: object
) -> None:
    failed = python("-m", "jobs.run", "--output", tmp_path, *arguments)
    assert failed.returncode == 2, failed.stdout + failed.stderr
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_the_tokenizer_command_stops_after_the_tokenizer(corpus: object, tmp_path: Path) -> None:
    arguments = [*settings(corpus), "--output", tmp_path / "out", "--workers", "1"]  # type: ignore[arg-type]
    done = python("-m", "jobs.tokenizer", *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "tokenizer" / "tokenizer.json").exists()
    assert not (tmp_path / "out" / "annotate").exists()
    failed = python("-m", "jobs.tokenizer", "--config", "absent")
    assert (failed.returncode, len(failed.stderr.splitlines())) == (2, 1)

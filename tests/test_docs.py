"""The guides: what they show is run, and what they list is what there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs import ledger
from jobs.config import Config
from jobs.errors import UserError
from jobs.reference import main, rendered
from tests.conftest import ROOT
from tests.test_readme import write_crawl

DOCS = sorted((ROOT / "docs").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)


def code(path: Path, language: str) -> list[str]:
    return [text for of, text in FENCE.findall(path.read_text(encoding="utf-8")) if of == language]


@pytest.mark.parametrize(
    "path",
    [path for path in DOCS if code(path, "python") and path.stem != "filters"],
    ids=lambda path: path.stem,
)
def test_python_of_a_guide_runs_from_top_to_bottom(
    path: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sample").symlink_to(finished)
    names: dict[str, object] = {}
    for text in code(path, "python"):
        exec(compile(text, path.name, "exec"), names)
    assert capsys.readouterr().out


SLOW = pytest.mark.slow
# What a guide's command stands for where there is no network and no other machine.
STANDING_FOR = {
    "/shared/crawl": "crawl",
    "/shared/out": "out/shared",
    "--config common-crawl --set sources.0.path=crawl --output out/crawl\n": "--config common-crawl --set "
    "sources.0.path=crawl --output out/crawl --set tokenizer.train.vocab_size=700 --set shards.tokens=50000 "
    "--set shards.min_tokens=2000\n",
}


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=SLOW) for name in ("parquet", "common-crawl", "filters")), "cluster"],
)
def test_commands_of_a_guide_run_from_top_to_bottom(
    name: str, corpus: Path, cluster: str, tmp_path: Path
) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "data").mkdir()
    for path in corpus.glob("*.parquet"):
        table = pq.read_table(path).rename_columns(["content", "id", "dump", "url", "score"])
        votes = pa.array(range(len(table)))
        pq.write_table(table.append_column("votes", votes), tmp_path / "data" / path.name, row_group_size=50)
    (tmp_path / "crawl").mkdir()
    write_crawl(tmp_path / "crawl" / "CC-MAIN-2024-22.warc.gz", pages=300)
    for language, text in FENCE.findall((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")):
        if language in ("yaml", "python"):
            file, _ = text.removeprefix("# ").split("\n", 1)
            (tmp_path / file).write_text(text)
        elif language == "sh" and "/dask " in text:
            check_options_of_dask(text)
        elif language == "sh" and "curl" not in text:
            _run(text, cluster, tmp_path)


def _run(text: str, cluster: str, folder: Path) -> None:
    for theirs, ours in {**STANDING_FOR, "tcp://scheduler:8786": cluster}.items():
        text = text.replace(theirs, ours)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euc", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def check_options_of_dask(text: str) -> None:
    command = text.partition("/dask ")[2].split()
    shown = subprocess.run(
        [sys.executable, "-m", "dask", command[0], "--help"], capture_output=True, text=True, check=True
    )
    options = [word for word in command if word.startswith("--")]
    assert options
    assert all(f"{option} " in shown.stdout for option in options)


def test_what_guides_call_settings_are_settings() -> None:
    keys = {key.replace("[]", "") for key in re.findall(r"`([\w.\[\]]+)`", rendered())}
    sections = {key.rpartition(".")[0] for key in keys} | {key.partition(".")[0] for key in keys}
    named = []
    for path in DOCS:
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        named += [key.replace("[]", "") for key in re.findall(r"`([a-z_]+(?:\[\])?\.[a-z_0-9.]+)`", text)]
    files = [
        name
        for name in named
        if name.startswith(("jobs.", "trace.", "ledger.", "constraints.", "classifier.", "shardmill."))
    ]
    assert len(named) > 60
    assert {name for name in named if name not in files} - keys - sections <= {
        "input.unreadable",
        "tokenizer.json",
    }


def test_every_column_of_the_ledger_is_described_with_its_type() -> None:
    described = dict(ROW.findall((ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")))
    types = {field.name: str(field.type) for field in ledger.SCHEMA}
    types["fate"] = "dictionary of strings"
    assert described == types


def test_every_step_is_named_in_its_place_among_the_fates() -> None:
    text = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", text[text.index("in this order:") : text.index("What follows")])
    assert listed == list(ledger.STEPS)


def test_a_column_that_is_not_there_is_named(finished: Path) -> None:
    with pytest.raises(UserError, match="no column 'fates'; it has doc_id"):
        ledger.read(finished, ["fates"])


def test_the_reference_of_settings_is_the_schemas() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == rendered(), "run `python -m jobs.reference --output docs/configuration.md`"


def test_every_setting_is_in_the_reference_with_a_meaning() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (.+?) \| (.*?) \| (.*?) ?\|$", rendered(), re.MULTILINE)
    keys = {key for key, *_ in rows}
    assert len(keys) == len(rows) > 150
    assert {
        "near_duplicates.bands",
        "quality.c4.min_sentences",
        "classifiers[].model",
        "contamination.sets[].path",
    } <= keys
    assert not [key for key in keys if re.search(r"\.(thresholds|quality)\b.*\.", key)]
    unsaid = {key for key, _, _, meaning in rows if not meaning}
    assert {key for key in unsaid if not key.startswith(("personal_data.", "quality."))} == set()
    assert len(unsaid) < 20


def test_settings_of_the_dry_run_are_those_of_the_reference() -> None:
    keys = set(re.findall(r"^\| `([\w.]+)`", rendered(), re.MULTILINE))
    config = Config.model_validate({"sources": [{"name": "a", "path": "b"}]}).model_dump()

    def flat(section: dict[str, object], prefix: str = "") -> set[str]:
        found = set()
        for name, value in section.items():
            if isinstance(value, dict) and value and name != "sources":
                found |= flat(value, f"{prefix}{name}.")
            else:
                found.add(prefix + name)
        return found

    assert flat(config) - keys <= {"shards.rows"}


def test_a_section_of_the_reference_and_a_wrong_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["near_duplicates"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("## `near_duplicates`\n")
    assert "| `near_duplicates.bands` | integer ≥ 1 | `14` |" in shown
    assert "`keep" not in shown
    assert main(["near_duplicate"]) == 2
    assert "did you mean near_duplicates?" in capsys.readouterr().err


def test_links_between_guides_lead_somewhere() -> None:
    for path in [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert "://" in link or (path.parent / link).exists(), f"{path.name}: {link}"

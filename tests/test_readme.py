"""Every command and every snippet that the README shows is run, in order, in a copy of the checkout."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from jobs.config import Config
from tests.conftest import ROOT
from tests.servers import files_server

FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks() -> list[tuple[str, str]]:
    return [(language, code) for language, code in FENCE.findall(README)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """The tracked files, the environment that the tests run in as .venv, and someone's own data."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("jobs", "kernels", "dask_config.yaml", "pyproject.toml", "constraints.txt", "Makefile"):
        source = ROOT / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy2(source, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "data").mkdir()
    for path in corpus.glob("*.parquet"):
        table = pq.read_table(path)
        with_content = table.append_column("content", table["text"])
        pq.write_table(with_content, folder / "data" / path.name, row_group_size=50)
    (folder / "crawl").mkdir()
    write_crawl(folder / "crawl" / "CC-MAIN-2024-22.warc.gz", pages=300)
    return folder


def write_crawl(path: Path, pages: int) -> None:
    """Pages of this README's words, which are English, each in another order, in lines that read like sentences."""
    random = np.random.default_rng(0)
    vocabulary = re.findall(r"[A-Za-z]{2,}[,.;:]?(?= )", FENCE.sub("", README))
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        for i in range(pages):
            lines = (" ".join(random.choice(vocabulary, 20)).capitalize() + "." for _ in range(10))
            paragraphs = "".join(f"<p>{line}</p>" for line in lines)
            page = f"<html><body><article>{paragraphs}</article></body></html>".encode()
            head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
            url = f"https://example.org/{i}"
            record = writer.create_warc_record(url, "response", payload=BytesIO(page), http_headers=head)
            writer.write_record(record)


def test_the_readme_shows_what_this_test_knows() -> None:
    assert {language for language, _ in blocks()} == {"sh", "python", "yaml"}
    assert len(blocks()) >= 9


@pytest.fixture(scope="module")
def hub(checkout: Path) -> Iterator[list[str]]:
    """URLs of the files of a data set on a server."""
    with files_server(checkout / "data") as server:
        yield [f"{server.url}/{path.name}" for path in sorted((checkout / "data").glob("*.parquet"))]


def test_every_command_and_snippet(checkout: Path, cluster: str, hub: list[str]) -> None:
    """About seven minutes: the first command is the main job on the built-in corpus."""
    # The small data below cannot fill a vocabulary of 32,768.
    small = "--set tokenizer.train.vocab_size=700 --set shards.tokens=50000 --set shards.min_tokens=2000"
    standing_for = {
        "make run": "make --assume-old=.venv/.ready run",  # the environment is there
        "tcp://scheduler:8786": cluster,
        "hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT": " ".join(hub),
        "/shared/out": str(checkout / "shared-out"),
        "/shared/data": str(checkout / "data"),
        "--config fineweb-edu\n": f"--config fineweb-edu --set validation.tokens=1000 {small}\n",
        "sources.0.path=crawl\n": f"sources.0.path=crawl --set validation.fraction=0.1 {small}\n",
        "--set validation.fraction=0.01\n": f"--set validation.fraction=0.01 {small}\n",
    }
    for language, code in blocks():
        if language == "yaml":
            Config.model_validate({"sources": [{"name": "a", "path": "b"}], **yaml.safe_load(code)})
            continue
        if code.strip() == "make test":  # what is running now
            shown = _run(["make", "-n", "--assume-old=.venv/.ready", "test"], checkout)
            assert "-m pytest" in shown
            continue
        for theirs, ours in standing_for.items():
            code = code.replace(theirs, ours)
        command = ["bash", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
        _run(command, checkout)
    for place in (
        "out/sample/shards/sample_train_000000.bin",
        "out/scurve/scurve.png",
        "out/web/ledger",
        "out/web-exports/megatron/train",
        "out/web-rows/mds/train/index.json",
        "out/web-mixture/mixture/00-mixture/web_train_000000.bin",
        "out/common-crawl/ledger",
    ):
        assert (checkout / place).exists()
    kept = json.loads((checkout / "out/common-crawl/report/report.json").read_text())["quality"][0][
        "share_kept"
    ]
    assert kept > 0.5
    for place, documents in {"out/fineweb-edu": 300, "out/sampled": 300}.items():
        assert pq.read_table(checkout / place).num_rows == documents


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
    return done.stdout

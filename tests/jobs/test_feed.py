"""The arithmetic of feeding a GPU: the worked examples that it comes from, and the command."""

import re
from pathlib import Path

import numpy as np
import pytest

from jobs.feed import PEAKS, main, measured, tokens_per_second
from jobs.formats import llmc


@pytest.fixture
def out(tmp_path: Path) -> Path:
    with (tmp_path / "t_train_000000.bin").open("wb") as file:
        llmc.write_shard(file, np.arange(60_000, dtype="uint16"))
    return tmp_path


def test_a_model_of_50_million_parameters_on_an_a100() -> None:
    # "1.5e14 FLOP/s sustained / 6 · 5e7 FLOP/token = 500k tokens/s ... at 2 bytes/token: 1 MB/s"
    eaten = tokens_per_second(50e6, 1.5e14, mfu=1)
    assert eaten == 500_000
    assert eaten * 2 == 1e6
    # 1.5e14 is 0.48 of an A100's 312e12; at the MFU of 0.40 that is said beside it, it is 416k.
    assert tokens_per_second(50e6, PEAKS["a100"], mfu=0.4) == pytest.approx(416_000)


def test_a_model_of_7_billion_parameters_on_eight_h100() -> None:
    # "8 · 0.45 · 989e12 / (6 · 7e9) = 84,000 tokens/s ... at 2 bytes/token: 0.17 MB/s"
    eaten = tokens_per_second(7e9, PEAKS["h100"], mfu=0.45, gpus=8)
    assert eaten == pytest.approx(84_000, rel=0.01)
    assert eaten * 2 / 1e6 == pytest.approx(0.17, rel=0.01)


def test_a_run_of_17_hours_on_a_laptop() -> None:
    # "28,296 tokens per second for 17 hours", 1,761,607,680 tokens; "about 0.58 s" for 16 x 1,024
    eaten = 28_296
    assert 1_761_607_680 / eaten / 3600 == pytest.approx(17.3, abs=0.05)
    assert 16 * 1024 / eaten == pytest.approx(0.58, abs=0.005)
    # An MFU and a peak that give it: 88,096,512 parameters
    assert tokens_per_second(88_096_512, 6 * 88_096_512 * eaten, mfu=1) == eaten


def test_what_is_measured_counts_whole_batches() -> None:
    assert measured(iter(lambda: None, 1), n_tokens=1000, seconds=0.02) > 1000 / 0.02


def test_the_command(out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "__defaults__", (0.05,))
    assert main([str(out), "--params", "124e6", "--gpu", "A100", "--mfu", "0.4", "--batch", "4"]) == 0
    shown = capsys.readouterr().out
    assert "training eats 167,742 tokens/s: 1 · 0.4 · 3.12e+14 / (6 · 1.24e+08)" in shown
    assert "2 bytes a token: 0.335 MB/s" in shown
    for order in ("in order", "shuffled"):
        served, ratio = re.search(rf"{order} +([0-9,]+) +([0-9,.]+)", shown).groups()  # type: ignore[union-attr]
        assert float(ratio.replace(",", "")) == pytest.approx(
            int(served.replace(",", "")) / 167_742, abs=0.06
        )
    assert main([str(out), "--eats", "28296", "--batch", "4", "--workers", "1"]) == 0
    assert "training eats 28,296 tokens/s: as given" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --params"),
        (["--params", "0"], "--params and --gpus are at least 1, but they are 0 and 1"),
        (["--params", "1e9", "--gpus", "0"], "but they are 1e+09 and 0"),
        (["--params", "1e9", "--mfu", "40"], "--mfu is 40; it should be above 0 and at most 1"),
        (["--params", "1e9", "--gpu", "abacus"], "--gpu is 'abacus'; it should be one of a10, a100"),
        (["--params", "1e9", "--peak", "-1"], "--peak is -1"),
        (["--eats", "0"], "--eats is 0"),
        (["--eats", "1", "--split", "val"], "holds no shard of the split 'val'"),
        (["--eats", "1", "--length", "100000"], "too few for one batch"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    out: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(out), *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert words in error

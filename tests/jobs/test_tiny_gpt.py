"""The notebooks' model: it learns, it keeps documents apart, and its perplexity is that of its losses."""

from pathlib import Path

import numpy as np
import pytest
import torch

from jobs import tiny_gpt
from jobs.formats import llmc
from jobs.loader import ShardLoader

VOCABULARY, T = 50, 16


@pytest.fixture
def loader(tmp_path: Path) -> ShardLoader:
    """A stream that counts, so that the next token is easily learned; every tenth ends a document."""
    with (tmp_path / "train_000000.bin").open("wb") as file:
        llmc.write_shard(file, np.tile(np.arange(10, dtype=np.uint16), 200))
    return ShardLoader("train", 4, T, tmp_path, end_of_text=0, uneven="wrap")


def test_it_learns_across_the_end_of_an_epoch(loader: ShardLoader) -> None:
    model, optimizer = tiny_gpt.begun(VOCABULARY, T)
    before = tiny_gpt.perplexity(model, loader, 2)
    losses = tiny_gpt.train(model, optimizer, loader, loader.n_batches + 20)
    assert losses[0] == pytest.approx(np.log(VOCABULARY), abs=2)
    assert losses[-1] < losses[0] / 2
    assert tiny_gpt.perplexity(model, loader, 2) < before / 2


def test_no_token_sees_another_document(loader: ShardLoader) -> None:
    model, _ = tiny_gpt.begun(VOCABULARY, T)
    x = torch.tensor([[1, 2, 0, 3, 4]])
    other = torch.tensor([[7, 8, 0, 3, 4]])
    logits = [model(one, loader.documents(one)) for one in (x, other)]
    assert torch.equal(logits[0][:, 3:], logits[1][:, 3:])
    assert not torch.equal(logits[0][:, 1], logits[1][:, 1])

"""A tiny GPT, to see that shards train: the notebooks use it, and it fits in a minute on a CPU.

Attention stays within a document: the loader says which token may attend to which, and each token's place in its
document. Dimensions: batch B, window T, vocabulary v.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional

from jobs.loader.batches import IGNORED

if TYPE_CHECKING:
    from jobs.loader.batches import Batch, BatchLoader
    from jobs.loader.documents import Documents

WIDTH, HEADS, LAYERS = 64, 4, 2
LEARNING_RATE = 3e-3


class Block(nn.Module):
    """Attention and a two-layer network, each behind a norm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """float[B, T, WIDTH] to the same."""
        q, k, v = self.qkv(self.before(h)).view(*h.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        h = h + self.out(attended.transpose(1, 2).reshape(h.shape))
        return h + self.mlp(self.between(h))


class GPT(nn.Module):
    """A decoder of `LAYERS` blocks for windows of at most T tokens; its embeddings are its output weights."""

    def __init__(self, vocabulary: int, T: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(T, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, documents: "Documents") -> torch.Tensor:
        """int64[B, T] to logits, float[B, T, v]."""
        h, mask = self.tokens(x) + self.places(documents.position_ids), documents.mask()
        for block in self.blocks:
            h = block(h, mask)
        return self.last(h) @ self.tokens.weight.T / WIDTH**0.5


def begun(vocabulary: int, T: int, seed: int = 1337) -> tuple[GPT, torch.optim.Optimizer]:
    """A model with the weights of a seed, and its optimizer."""
    torch.manual_seed(seed)
    model = GPT(vocabulary, T)
    return model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)


def train(model: GPT, optimizer: torch.optim.Optimizer, loader: "BatchLoader", steps: int) -> list[float]:
    """Take the loader's next batches, and return the loss of each step in nats.

    The end of an epoch is not the end of training.
    """
    losses = []
    for _, (x, y) in zip(range(steps), _endless(loader), strict=False):
        loss = _loss(model, loader, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def perplexity(model: GPT, loader: "BatchLoader", batches: int) -> float:
    """Of the targets in the loader's first batches, an epoch at most."""
    loss, targets = 0.0, 0
    for x, y in map(loader.batch, range(min(batches, loader.n_batches))):
        counted = int((y != IGNORED).sum())
        loss, targets = loss + counted * _loss(model, loader, x, y).item(), targets + counted
    return math.exp(loss / targets)


def _endless(loader: "BatchLoader") -> Iterator["Batch"]:
    while True:
        yield from loader


def _loss(model: GPT, loader: "BatchLoader", x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    logits = model(x, loader.documents(x))
    return functional.cross_entropy(logits.flatten(0, 1), y.flatten())

"""Can the loader feed the GPU? What a model eats, and what this loader serves here.

Training takes about 6 floating-point operations for each parameter and token, 2 forward and 4 backward; attention's
part, which grows with T, is left out. At a model FLOPs utilisation (MFU) u, n GPUs of peak p feed on
n · u · p / (6 · parameters) tokens a second.

Source: J. Kaplan et al., Scaling laws for neural language models, 2020, section 2.1; the peaks are those of NVIDIA's
data sheets.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jobs.cli import guarded
from jobs.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from jobs.loader import BatchLoader

FLOPS_PER_PARAMETER = 6
PEAKS = {  # FLOP/s of dense 16-bit matrix products, without sparsity
    "a10": 125e12,
    "a100": 312e12,
    "b200": 2250e12,
    "h100": 989e12,
    "h200": 989e12,
    "v100": 125e12,
}
SECONDS = 1.0  # that each order is measured for
BATCHES_AT_ONCE = 8


def tokens_per_second(params: float, peak: float, mfu: float, gpus: int = 1) -> float:
    """Tokens that a model of `params` parameters is trained on in a second.

    Parameters
    ----------
    params : float
        Parameters of the model.
    peak : float
        FLOP/s of one GPU.
    mfu : float
        Share of the peak that is model FLOPs, above 0, at most 1.
    gpus : int
        How many.
    """
    return gpus * mfu * peak / (FLOPS_PER_PARAMETER * params)


def measured(batches: Iterator[Any], n_tokens: int, seconds: float = SECONDS) -> float:
    """Tokens a second that an iterator of batches of `n_tokens` tokens gives, for about so long."""
    next(batches)  # opens files, imports torch
    begun, taken = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begun) < seconds:
        for _ in itertools.islice(batches, BATCHES_AT_ONCE):
            taken += 1
    return taken * n_tokens / elapsed


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.feed`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.feed",
        description="Say how many tokens a second a model eats in training, how many this loader serves here, and how "
        "many times over that is.",
    )
    add = parser.add_argument
    add("out", metavar="OUT", help="output of a run or of jobs.mix, or folder of shards, or its URL")
    add("--params", type=float, metavar="N", help="parameters of the model, such as 124e6")
    add("--gpu", default="a100", metavar="NAME", help=f"{', '.join(sorted(PEAKS))} (default: a100)")
    add("--peak", type=float, metavar="FLOP/S", help="peak of a GPU that is not in the list, such as 312e12")
    add("--gpus", type=int, default=1, metavar="N", help="how many (default: 1)")
    add("--mfu", type=float, default=0.4, metavar="U", help="model FLOPs utilisation (default: 0.4)")
    add(
        "--eats",
        type=float,
        metavar="TOKENS/S",
        help="what training was measured to eat, instead of all that",
    )
    add("--split", default="train", help="train or val (default: train)")
    add("--batch", type=int, default=16, metavar="B", help="sequences in a batch (default: 16)")
    add(
        "--length",
        type=int,
        metavar="T",
        help="tokens in a sequence (default: 1,024; a mixture's stages have their own)",
    )
    add("--workers", type=int, default=0, metavar="N", help="processes that read ahead (default: 0)")
    add("--cache", metavar="DIR", help="where copies of remote shards are kept (default: ~/.cache/shardmill)")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.feed OUT --params 124e6 --gpu a100 --mfu 0.4`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    from jobs.runtime.checkpoint import is_mixture
    from jobs.runtime.console import Console
    from jobs.runtime.folders import reached

    eaten, why = _eaten(options)
    out = reached(options.out)
    loaders, dtype = _stages(options, out) if is_mixture(out) else _orders(options, out)
    console = Console()
    console.line(f"training eats {eaten:,.0f} tokens/s: {why}")
    rows = []
    for what, loader in loaders.items():
        endless = itertools.chain.from_iterable(itertools.repeat(loader))
        served = measured(endless, loader.B * loader.T)
        rows.append((what, f"{served:,.0f}", f"{served / eaten:,.1f}", f"{loader.B} x {loader.T:,}"))
    megabytes = eaten * dtype.itemsize / 1e6
    console.line(f"read from the shards, {dtype.itemsize} bytes a token: {megabytes:,.3g} MB/s")
    console.table("batches", ["", "tokens/s served here", "times what is eaten", "B x T"], rows)
    return 0


def _orders(options: argparse.Namespace, out: "Path") -> "tuple[dict[str, BatchLoader], np.dtype[Any]]":
    """Loaders of a split in both orders, and how its tokens are stored."""
    from jobs.loader import ShardLoader

    length = 1024 if options.length is None else options.length
    loaders = {
        order: ShardLoader(
            options.split,
            options.batch,
            length,
            out,
            shuffle=order == "shuffled",
            num_workers=options.workers,
            cache_dir=options.cache,
        )
        for order in ("in order", "shuffled")
    }
    return {**loaders}, loaders["in order"].dtype


def _stages(options: argparse.Namespace, out: "Path") -> "tuple[dict[str, BatchLoader], np.dtype[Any]]":
    """Loaders of a mixture's stages, drawn from the groups, and how these are stored."""
    from jobs.loader.mixture import MixtureLoader

    if options.length is not None or options.split != "train":
        raise UserError(
            f"{out} is a mixture, whose stages have their own lengths and no splits; leave out --length and --split"
        )
    mixture = MixtureLoader(out, options.batch, num_workers=options.workers, cache_dir=options.cache)
    assert mixture.plan is not None
    names = (stage.name for stage in mixture.plan.stages)
    return dict(zip(names, mixture.stages, strict=True)), mixture.dtype


def _eaten(options: argparse.Namespace) -> tuple[float, str]:
    """Tokens a second, and how they were found."""
    if options.eats is not None:
        if options.eats <= 0:
            raise UserError(f"--eats is {options.eats:g}; it should be above 0")
        return options.eats, "as given"
    if options.params is None:
        raise UserError(
            "give --params, the parameters of the model, or --eats, the tokens/s that training eats"
        )
    if options.params < 1 or options.gpus < 1:
        raise UserError(
            f"--params and --gpus are at least 1, but they are {options.params:g} and {options.gpus}"
        )
    if not 0 < options.mfu <= 1:
        raise UserError(f"--mfu is {options.mfu:g}; it should be above 0 and at most 1, such as 0.4")
    peak = options.peak
    if peak is None:
        peak = PEAKS.get(options.gpu.lower())
    if peak is None:
        raise UserError(
            f"--gpu is {options.gpu!r}; it should be one of {', '.join(sorted(PEAKS))}, or give --peak"
        )
    if peak <= 0:
        raise UserError(f"--peak is {peak:g}; it should be above 0")
    eaten = tokens_per_second(options.params, peak, options.mfu, options.gpus)
    formula = (
        f"{options.gpus} · {options.mfu:g} · {peak:.4g} / ({FLOPS_PER_PARAMETER} · {options.params:.4g})"
    )
    return eaten, f"{formula} (GPUs · MFU · peak FLOP/s / FLOPs a token)"


if __name__ == "__main__":
    sys.exit(main())

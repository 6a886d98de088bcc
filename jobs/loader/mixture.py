"""The loader of a mixture: its stages one after the other, drawn from the shards of the groups or read as packed."""

import copy
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from jobs.errors import UserError
from jobs.formats import llmc
from jobs.loader.batches import BatchLoader, Sequences
from jobs.loader.cache import LocalCache, default_folder
from jobs.loader.share import START, Position
from jobs.loader.stream import TokenFile, TokenStream
from jobs.loader.windows import Windows
from jobs.mixture.allotment import Plan, plan
from jobs.mixture.epochs import seed_of
from jobs.mixture.groups import Groups
from jobs.mixture.sequences import stages
from jobs.runtime import folders
from jobs.runtime.checkpoint import MANIFEST, read_json
from jobs.settings.mixture import Mixture

if TYPE_CHECKING:
    import torch

    from jobs.loader.batches import Batch
    from jobs.loader.documents import Documents

FOLDER = "mixture"


class MixtureLoader:
    """Batches (x, y) of a mixture's sequences, stage after stage, for one of several ranks.

    A stage has a length of sequences T of its own, so batches change their shape where stages meet; no batch holds
    sequences of two. Which group gives a sequence, and which of its windows, is a pure function of the sequence's
    number: nothing is packed, and other weights are other settings. Where it is, is a few integers.

    A mixture has an end, where a split goes on with its next epoch: how often a group is drawn is in the mixture. So
    iterating again behind the last batch gives nothing, also after `load_state_dict` of a run that was through.

    Parameters
    ----------
    data_dir : path or URL
        The output of a run with a mixture, or of ``python -m jobs.mix``.
    B : int or sequence of int
        Sequences in a batch; one for all stages or one for each.
    mixture : Mixture or dict, optional
        Other weights and stages over the same groups; by default the mixture that the output was made with.
    packed : bool
        Read the sequences from the files that were packed in order; the same, token for token.
    cache_dir : path
        Where copies of remote shards are kept (default: ``~/.cache/shardmill``).
    **options
        rank, world_size, uneven, pin_memory, num_workers, prefetch, mask_boundaries: see `BatchLoader`. Where a stage
        does not divide by world_size · B, its last sequences are left out (``drop``) or the batch is filled (``pad``).

    Attributes
    ----------
    stages : list of BatchLoader
        A loader for each stage, whose epoch is the stage.
    plan : Plan
        What each group gives to each stage, and what could not be met; None where `packed`.
    dtype : dtype
        As which tokens are stored: uint16 or uint32.
    n_batches : int
        Of each rank, in all stages. `len` of the loader is the same.
    position : tuple of int
        The stage, and how many of its sequences all ranks were served.

    Raises
    ------
    UserError
        There are no groups, or not those that the mixture names; the mixture cannot be met; or see `BatchLoader`.

    Examples
    --------
    >>> loader = MixtureLoader("out/web", B=16, mixture={"shares": {"web": 0.7, "code": 0.3}})  # doctest: +SKIP
    >>> for x, y in loader: ...  # doctest: +SKIP
    """

    def __init__(
        self,
        data_dir: str | Path,
        B: int | Sequence[int] = 16,
        mixture: Mixture | Mapping[str, Any] | None = None,
        *,
        packed: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        out = folders.located(data_dir)
        cache = LocalCache(cache_dir or default_folder()) if folders.is_remote(out) else None
        groups = Groups.of(out)
        options.setdefault("end_of_text", groups.figures["end_of_text"])
        self.dtype = np.dtype(groups.figures["dtype"])
        self.plan: Plan | None = None
        sequences: list[Sequences]
        if packed:
            if mixture is not None:
                raise UserError(
                    "packed files are of the mixture that they were packed with; leave mixture out"
                )
            sequences = [*packed_stages(out, self.dtype, cache)]
        else:
            settings = _settings(out, mixture)
            groups.refuse_other(settings)
            self.plan = plan(settings, groups.sizes)
            sequences = [*stages(self.plan, groups, cache)]
        sizes = [B] * len(sequences) if isinstance(B, int) else list(B)
        if len(sizes) != len(sequences):
            raise UserError(
                f"B is {sizes}, but the mixture has {len(sequences)} stages; give one, or one for each"
            )
        if options.get("uneven") == "wrap":
            raise UserError(
                "a stage ends with its last sequence and does not begin again; uneven is drop or pad"
            )
        self.stages = [
            _stage(number, one, size, options)
            for number, (one, size) in enumerate(zip(sequences, sizes, strict=True))
        ]
        self._ends = list(accumulate(stage.n_batches for stage in self.stages))
        self.n_batches = self._ends[-1]
        self._stage = 0

    @property
    def position(self) -> tuple[int, int]:
        """Where the next iteration begins; behind the last stage when all was served."""
        if self._stage == len(self.stages):
            return self._stage, 0
        position = self.stages[self._stage].position
        return (self._stage + 1, 0) if position.epoch else (self._stage, position.sequence)

    def batch(self, i: int) -> "Batch":
        """Batch i of this rank, counted through all stages; see `BatchLoader.batch`.

        Raises
        ------
        UserError
            There is no such batch.
        """
        if not 0 <= i < self.n_batches:
            raise UserError(
                f"the mixture has {self.n_batches:,} batches, counted from 0; there is no batch {i}"
            )
        number = bisect_right(self._ends, i)
        return self.stages[number].batch(i - (self._ends[number] - self.stages[number].n_batches))

    def documents(self, x: "torch.Tensor") -> "Documents":
        """Where the documents of a batch's inputs begin; see `BatchLoader.documents`."""
        return self.stages[0].documents(x)

    def __len__(self) -> int:
        """Batches of this rank in all stages."""
        return self.n_batches

    @property
    def left(self) -> int:
        """Batches of this rank from `position` to the end of the last stage."""
        return sum(stage.left for stage in self._to_come)

    @property
    def _to_come(self) -> "list[BatchLoader]":
        """The loaders of the stages that are not through, each at its place."""
        return self.stages[self.position[0] :]

    def ahead(self, i: int) -> "Batch":
        """Batch i of those from `position` on, of which there are `left`; see `BatchLoader.ahead`."""
        for stage in self._to_come:
            if i < stage.left:
                return stage.ahead(i)
            i -= stage.left
        raise IndexError("the mixture has no such batch")

    def skip(self, n: int) -> None:
        """Go on as if n batches of each rank were taken, at most `left`."""
        self._stage, _ = self.position
        while n:
            stage = self.stages[self._stage]
            taken = min(n, stage.left)
            n -= taken
            stage.skip(taken)
            self._stage, _ = self.position

    def alone(self) -> Self:
        """A copy with stages of its own; see `BatchLoader.alone`."""
        twin = copy.copy(self)
        twin.stages = [stage.alone() for stage in self.stages]
        return twin

    def set_epoch(self, epoch: int) -> None:
        """Do nothing for epoch 0, for training loops that set it.

        Raises
        ------
        UserError
            It is another one: a mixture has one.
        """
        if epoch:
            raise UserError(
                f"a mixture ends with its last stage, so there is no epoch {epoch}; give the mixture more tokens, or "
                "multipliers above 1, to draw its groups again"
            )

    def __iter__(self) -> Iterator["Batch"]:
        """Batches from `position` to the end of the last stage, and none behind it."""
        self._stage, _ = self.position
        while self._stage < len(self.stages):
            yield from self.stages[self._stage]
            self._stage += 1

    def state_dict(self) -> dict[str, int]:
        """Where the next iteration begins, and in what: integers that are the same on all ranks."""
        stage, sequence = self.position
        return {"stage": stage, "sequence": sequence, "mixture": self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict` of any rank, with any number of ranks and workers and any B.

        Raises
        ------
        UserError
            The state is none, or is of another mixture.
        """
        if lacking := sorted(self.state_dict().keys() - state.keys()):
            raise UserError(f"this is no state of a mixture: it lacks {', '.join(lacking)}")
        if state["mixture"] != self._identity():
            raise UserError(
                "the state was saved in another mixture: other weights, stages, groups or seed; its place means "
                "nothing here"
            )
        number, sequence = int(state["stage"]), int(state["sequence"])
        if not 0 <= number <= len(self.stages):
            raise UserError(
                f"the state's place is stage {number}; there are {len(self.stages)}, counted from 0"
            )
        for loader in self.stages:
            loader.position = START
        self._stage = number
        if number < len(self.stages):
            loader = self.stages[number]
            loader.load_state_dict({**loader.state_dict(), **Position(0, sequence)._asdict()})

    def _identity(self) -> int:
        """The same for the same sequences in the same stages."""
        return seed_of(*(stage.sequences.seed for stage in self.stages))


def _stage(number: int, sequences: Sequences, B: int, options: dict[str, Any]) -> BatchLoader:
    try:
        return BatchLoader(sequences, B, **options)
    except UserError as error:
        raise UserError(f"stage {number} of the mixture: {error}") from None


class Packed(Windows):
    """A stage's sequences as they were packed: rows of T tokens and a target behind the last."""

    def __init__(self, stream: TokenStream, T: int, identity: int) -> None:
        super().__init__(stream, T, stride=T + 1)
        self.seed = identity  # of the order, which is in the files

    def places(self, epoch: int, numbers: Any) -> Any:
        """The rows themselves."""
        return numbers


def packed_stages(out: Path, dtype: np.dtype[Any], cache: LocalCache | None) -> list[Packed]:
    """The packed files of each stage.

    Raises
    ------
    UserError
        There are none.
    """
    found = _mixture_figures(out)
    if not found.get("packed"):
        raise UserError(f"the mixture in {out} was not packed; set mixture.packed: true and run it again")
    return [
        Packed(
            TokenStream(
                [
                    TokenFile(out / FOLDER / file, llmc.HEADER_BYTES, tokens)
                    for file, tokens in stage["files"]
                ],
                dtype,
                cache,
            ),
            stage["length"],
            stage["identity"],
        )
        for stage in found["stages"]
    ]


def _mixture_figures(out: Path) -> dict[str, Any]:
    try:
        return dict(read_json(out / FOLDER / MANIFEST)["figures"])
    except FileNotFoundError:
        return {}


def _settings(out: Path, mixture: Mixture | Mapping[str, Any] | None) -> Mixture:
    from pydantic import ValidationError

    if isinstance(mixture, Mixture):
        return mixture
    raw = _mixture_figures(out).get("settings") if mixture is None else mixture
    if raw is None:
        raise UserError(f"{out} does not say which mixture it was made for; give one")
    try:
        return Mixture.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["mixture", *map(str, first["loc"])])
        raise UserError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None

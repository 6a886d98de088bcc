"""Which groups of documents a model is trained on, in which shares of tokens, and in which stages."""

import math
from decimal import Decimal, InvalidOperation
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from jobs.settings.section import Name, Section

OTHER = "other"  # the documents of all values that no share and no multiplier names
NULL = "null"  # those that have no value
DEFAULT_LENGTH = 1024


def _whole(value: object) -> object:
    """Read `10e9`, which is text to YAML, as the whole number that it is; leave the rest to pydantic."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return value
    return int(number) if number.is_finite() and number == number.to_integral_value() else value


Tokens = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Shares = dict[str, Annotated[float, Field(ge=0, le=1)]]
Multipliers = dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]


class Blend(Section):
    """What sequences are drawn from, and how many."""

    shares: Shares | None = Field(
        None,
        description="group -> its share of the tokens; they sum to 1, and a group without one gives none",
    )
    multipliers: Multipliers | None = Field(
        None,
        description="group -> how often its tokens count (Wikipedia 3, arXiv 5); a group without one counts once",
    )
    tokens: Tokens | None = Field(
        None,
        description="in all, rounded down to whole sequences; absent: each multiplier is so many epochs, or shares "
        "last until the first group has had its max_epochs",
    )
    length: Annotated[int, Field(ge=2, le=2**24)] | None = Field(
        None, description=f"tokens in a sequence, {DEFAULT_LENGTH:,} unless it is said"
    )
    min_document_tokens: Annotated[int, Field(ge=0)] | None = Field(
        None, description="only documents of at least so many tokens are drawn from"
    )
    shuffle: bool | None = Field(
        None, description="sequences of a group in seeded orders; false: in the order of the run's shards"
    )

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if self.shares is not None and self.multipliers is not None:
            raise ValueError("shares and multipliers contradict each other; say one of them")
        if self.shares is not None and not math.isclose(sum(self.shares.values()), 1, abs_tol=1e-6):
            raise ValueError(f"shares sum to {sum(self.shares.values()):g}; they should sum to 1")
        return self

    @property
    def named(self) -> set[str]:
        """Groups that have a share or a multiplier."""
        return {*(self.shares or ()), *(self.multipliers or ())}


class Stage(Blend):
    """A part of a curriculum; what it does not say is as the mixture has it."""

    name: Name = Field(description="of the stage, in the name of its folder")


class Mixture(Blend):
    """Weights of groups in tokens, and stages one after the other."""

    by: str = Field(
        "source",
        description="column of the ledger whose values are the groups: source, language, one of extra",
    )
    edges: tuple[Annotated[float, Field(allow_inf_nan=False)], ...] = Field(
        (), description="of a column of numbers: [2.5, 3.5] makes the groups <2.5, 2.5-3.5 and >=3.5"
    )
    groups: tuple[str, ...] = Field(
        (),
        description="more values that are groups of their own, for weights that are to change later; every source is",
    )
    max_epochs: (
        Annotated[float, Field(gt=0, allow_inf_nan=False)]
        | dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]
        | None
    ) = Field(
        None,
        description="how often a group's tokens may be drawn over all stages, one number or group -> number; up to 4 "
        "is nearly as good as new text (Muennighoff et al. 2023)",
    )
    closest: bool = Field(
        False, description="take the closest mixture that can be met where this one cannot; false: refuse"
    )
    apart: float = Field(
        0.5,
        ge=0,
        le=0.99,
        description="copies of a sequence are at least this share of an epoch of its group apart",
    )
    seed: int = Field(1337, ge=0, lt=2**63, description="of the orders")
    packed: bool = Field(
        False, description="also write the sequences in order, as files that need no plan to be read"
    )
    stages: tuple[Stage, ...] = Field((), description="a curriculum; absent: one stage, as the mixture says")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.stages and self.tokens is not None:
            raise ValueError("tokens is of a mixture without stages; give each stage its tokens")
        names = [stage.name for stage in self.stages]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"stages has two entries named {twice[0]!r}; each needs a name of its own")
        if any(a >= b for a, b in pairwise(self.edges)):
            raise ValueError(f"edges are {list(self.edges)}; each should be greater than the one before")
        if self.edges and (unknown := sorted(self.named_groups - set(bucket_names(self.edges)))):
            raise ValueError(
                f"{unknown[0]!r} is no group of these edges; there are {', '.join(bucket_names(self.edges))}"
            )
        self._refuse_beyond_max_epochs()
        return self

    def _refuse_beyond_max_epochs(self) -> None:
        """Multipliers without a budget are epochs."""
        for stage in self.resolved_stages:
            for group, times in (stage.multipliers or {}).items():
                most = self.most_epochs(group)
                if stage.tokens is None and most is not None and times > most and not self.closest:
                    raise ValueError(
                        f"{group!r} has the multiplier {times:g}, but max_epochs allows {most:g}; they contradict "
                        "each other"
                    )

    @property
    def named_groups(self) -> set[str]:
        """All groups that are named anywhere."""
        capped = self.max_epochs if isinstance(self.max_epochs, dict) else {}
        return set(capped).union(self.named, *(stage.named for stage in self.stages))

    @property
    def resolved_stages(self) -> tuple[Stage, ...]:
        """The stages with everything that they have from the mixture; one where there are none."""
        own = self.model_dump(include=set(Blend.model_fields))
        defaults: dict[str, Any] = {"length": DEFAULT_LENGTH, "min_document_tokens": 0, "shuffle": True}
        whole = defaults | {key: value for key, value in own.items() if value is not None}
        stages = self.stages or (Stage(name="mixture"),)
        return tuple(Stage(**(_without_other_weights(whole, stage) | _said(stage))) for stage in stages)

    def most_epochs(self, group: str) -> float | None:
        """Of a group over all stages; None: any number."""
        return self.max_epochs.get(group) if isinstance(self.max_epochs, dict) else self.max_epochs

    @property
    def tiers(self) -> tuple[int, ...]:
        """Least lengths of documents that stages ask for, and 0, in order."""
        return tuple(sorted({0, *(stage.min_document_tokens or 0 for stage in self.resolved_stages)}))


def _said(stage: Stage) -> dict[str, Any]:
    return {key: value for key, value in stage.model_dump().items() if value is not None}


def _without_other_weights(whole: dict[str, Any], stage: Stage) -> dict[str, Any]:
    """A stage that says shares has no use for the mixture's multipliers, and the other way round."""
    if stage.shares is None and stage.multipliers is None:
        return whole
    return {key: value for key, value in whole.items() if key not in ("shares", "multipliers")}


def bucket_names(edges: tuple[float, ...]) -> list[str]:
    """Names of the groups that edges make, the smallest numbers first, and of the documents without a number."""
    between = [f"{low:g}-{high:g}" for low, high in pairwise(edges)]
    return [f"<{edges[0]:g}", *between, f">={edges[-1]:g}", NULL]

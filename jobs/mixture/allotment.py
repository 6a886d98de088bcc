"""How many sequences each group gives to each stage: what is asked for, what can be met, and what is closest to it.

Shares are of tokens, and all sequences of a stage have one length, so shares are of sequences; they are rounded by
largest remainders, so that the totals are exact. A group gives at most `max_epochs` times what it holds, over all
stages. Where that is less than its share, the closest mixture gives it all that it has, and shares the rest out among
the others as before (water-filling), until every group has its share of the rest or all that it holds.
"""

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from jobs.errors import UserError
from jobs.mixture.schedule import MOST
from jobs.settings.mixture import Mixture, Stage

Sizes = Mapping[
    str, Mapping[int, int]
]  # group -> least length of its documents -> tokens of those that no longer tier has


@dataclass(frozen=True)
class GroupPlan:
    """What a group gives to a stage."""

    name: str
    asked: float  # share
    sequences: int
    windows: int  # that there are in its documents
    first: int  # of its draws; those before were drawn from the same windows in earlier stages
    epochs_before: float  # of the group in earlier stages

    @property
    def epochs(self) -> float:
        """In this stage."""
        return self.sequences / self.windows if self.windows else 0.0


@dataclass(frozen=True)
class StagePlan:
    """What a stage is made of."""

    name: str
    length: int
    min_document_tokens: int
    shuffle: bool
    asked_tokens: int | None
    groups: tuple[GroupPlan, ...]

    @property
    def sequences(self) -> int:
        """In all."""
        return sum(group.sequences for group in self.groups)


@dataclass(frozen=True)
class Plan:
    """All stages, and what of the settings could not be met."""

    stages: tuple[StagePlan, ...]
    seed: int
    apart: float
    unmet: tuple[str, ...]  # sentences


def n_windows(tokens: int, length: int) -> int:
    """Windows of `length` tokens in a stream, each with a target behind its last."""
    return max(0, tokens - 1) // length


def plan(settings: Mixture, sizes: Sizes) -> Plan:
    """Allot sequences to groups, stage by stage.

    Parameters
    ----------
    sizes
        Tokens of each group in documents of at least so many tokens, up to the next of these lengths.

    Raises
    ------
    UserError
        A group that is named is not there, or holds no tokens; a stage has no sequence, or too many; or the mixture
        cannot be met, and the settings do not ask for the closest.
    """
    refuse_unknown(settings.named_groups, sizes)
    used = dict.fromkeys(sizes, Fraction(0))  # epochs
    drawn: dict[tuple[object, ...], int] = {}
    stages, unmet = [], []
    for stage in settings.resolved_stages:
        windows = _windows(stage, sizes)
        most = {name: _most(settings, name, windows[name], used[name]) for name in sizes}
        shares = asked_shares(stage, windows)
        asked = asked_sequences(stage, shares, windows, most)
        counts = _counts(stage, asked, shares, most)
        if short := [name for name in shares if asked[name] - counts[name] >= 1]:
            unmet.append(_unmet(stage, settings, short, asked, counts, windows, used))
        stages.append(_planned(stage, shares, counts, windows, used, drawn))
        _refuse_impossible(stages[-1])
        for name, count in counts.items():
            drawn[_pool(name, stage)] = drawn.get(_pool(name, stage), 0) + count
            used[name] += Fraction(count, windows[name] or 1)
    if unmet and not settings.closest:
        raise UserError(f"{' '.join(unmet)} Set mixture.closest: true to take it, or change the mixture")
    return Plan(tuple(stages), settings.seed, settings.apart, tuple(unmet))


def _windows(stage: Stage, sizes: Sizes) -> dict[str, int]:
    """Of each group, in the documents that the stage draws from."""
    least = stage.min_document_tokens or 0
    held = {name: sum(n for tier, n in tiers.items() if tier >= least) for name, tiers in sizes.items()}
    return {name: n_windows(tokens, stage.length or 1) for name, tokens in held.items()}


def _pool(name: str, stage: Stage) -> tuple[object, ...]:
    """What draws of one stage go on with in another."""
    return name, stage.length, stage.min_document_tokens, stage.shuffle


def _planned(
    stage: Stage,
    shares: Mapping[str, Fraction],
    counts: Mapping[str, int],
    windows: Mapping[str, int],
    used: Mapping[str, Fraction],
    drawn: Mapping[tuple[object, ...], int],
) -> StagePlan:
    groups = (
        GroupPlan(
            name,
            float(share),
            counts[name],
            windows[name],
            drawn.get(_pool(name, stage), 0),
            float(used[name]),
        )
        for name, share in shares.items()
    )
    return StagePlan(
        stage.name,
        stage.length or 0,
        stage.min_document_tokens or 0,
        bool(stage.shuffle),
        stage.tokens,
        tuple(groups),
    )


def asked_shares(stage: Stage, windows: Mapping[str, int]) -> dict[str, Fraction]:
    """Share of each group, in the order of the groups: as it is said, or what there is times its multiplier."""
    if stage.shares is not None:
        said = {name: Fraction(str(stage.shares.get(name, 0))) for name in windows}
    else:
        times = stage.multipliers or {}
        said = {name: Fraction(str(times.get(name, 1))) * n for name, n in windows.items()}
    whole = sum(said.values())
    if not whole:
        raise UserError(
            f"stage {stage.name!r} has nothing to draw from: no group holds a sequence of {stage.length:,} tokens "
            f"in documents of at least {stage.min_document_tokens:,}"
        )
    return {name: share / whole for name, share in said.items()}


def asked_sequences(
    stage: Stage,
    shares: Mapping[str, Fraction],
    windows: Mapping[str, int],
    most: Mapping[str, int | None],
) -> dict[str, Fraction]:
    """Of each group: its share of the tokens; or its multiplier as epochs; or its share while each group lasts."""
    if _in_epochs(stage):
        times = stage.multipliers or {}
        return {name: Fraction(str(times.get(name, 1))) * n for name, n in windows.items()}
    if stage.tokens is not None:
        whole = stage.tokens // (stage.length or 1)
    else:
        lasting = {name: windows[name] if most[name] is None else most[name] for name in shares}
        whole = min(math.floor((lasting[name] or 0) / share) for name, share in shares.items() if share)
    return {name: whole * share for name, share in shares.items()}


def _in_epochs(stage: Stage) -> bool:
    """Whether multipliers are epochs, and no weights of a budget."""
    return stage.tokens is None and stage.shares is None


def _counts(
    stage: Stage,
    asked: Mapping[str, Fraction],
    shares: Mapping[str, Fraction],
    most: Mapping[str, int | None],
) -> dict[str, int]:
    if not _in_epochs(stage):
        return allot(int(sum(asked.values())), shares, most)
    whole = {name: math.floor(n) for name, n in asked.items()}
    return {name: n if (cap := most[name]) is None else min(n, cap) for name, n in whole.items()}


def allot(n: int, shares: Mapping[str, Fraction], most: Mapping[str, int | None]) -> dict[str, int]:
    """Share n sequences out; the closest to the shares that no group's most forbids.

    Parameters
    ----------
    shares
        They sum to 1.
    most
        Of each group; None: any number.

    Returns
    -------
    dict
        Counts that sum to n, or to less where all groups give their most.
    """
    counts = dict.fromkeys(shares, 0)
    free = {name: share for name, share in shares.items() if share}
    rest = n
    while free:
        whole = sum(free.values())
        quotas = {name: rest * share / whole for name, share in free.items()}
        full = [name for name, quota in quotas.items() if (cap := most[name]) is not None and quota > cap]
        if not full:
            return counts | _rounded(rest, quotas)
        for name in full:
            counts[name] = most[name] or 0
            rest -= counts[name]
            del free[name]
    return counts


def _rounded(n: int, quotas: Mapping[str, Fraction]) -> dict[str, int]:
    """Whole numbers that sum to n, by largest remainders; of equal ones, the first."""
    counts = {name: math.floor(quota) for name, quota in quotas.items()}
    by_remainder = sorted(quotas, key=lambda name: counts[name] - quotas[name])
    for name in by_remainder[: n - sum(counts.values())]:
        counts[name] += 1
    return counts


def _most(settings: Mixture, name: str, windows: int, used: Fraction) -> int | None:
    epochs = settings.most_epochs(name)
    if not windows:
        return 0
    if epochs is None:
        return None
    return max(0, math.floor((Fraction(str(epochs)) - used) * windows))


def _unmet(
    stage: Stage,
    settings: Mixture,
    short: Iterable[str],
    asked: Mapping[str, Fraction],
    counts: Mapping[str, int],
    windows: Mapping[str, int],
    used: Mapping[str, Fraction],
) -> str:
    """One sentence on what cannot be met and why, and one on what is closest."""
    length = stage.length or 0
    reasons = [
        f"{name!r} should give {math.floor(asked[name]) * length:,} tokens, but "
        + _why(settings.most_epochs(name), name, windows[name] * length, used[name])
        for name in short
    ]
    total = sum(counts.values())
    closest = ", ".join(f"{name} {n / total:.4g}" for name, n in counts.items() if n)
    return f"Stage {stage.name!r} of the mixture cannot be met: {'; '.join(reasons)}. " + (
        f"The closest has {total * length:,} tokens: {closest}." if total else "Nothing is left to draw."
    )


def _why(most: float | None, name: str, tokens: int, used: Fraction) -> str:
    if not tokens:
        return "it does not hold one sequence"
    before = f", of which {float(used):.3g} were drawn before" if used else ""
    return f"max_epochs is {most or 0:g} of its {tokens:,} tokens{before}"


def _refuse_impossible(stage: StagePlan) -> None:
    if not stage.sequences:
        empty = [group.name for group in stage.groups if group.asked and not group.windows]
        why = (
            f"draws from {empty[0]!r}, which does not hold one sequence of {stage.length:,} tokens in documents of at "
            f"least {stage.min_document_tokens:,}"
            if empty
            else f"has tokens for no sequence of {stage.length:,}; give it more"
        )
        raise UserError(f"stage {stage.name!r} {why}")
    if stage.sequences > MOST:
        raise UserError(
            f"stage {stage.name!r} has {stage.sequences:,} sequences; a stage has at most {MOST:,}, so make it two"
        )


def refuse_unknown(
    named: Iterable[str], known: Iterable[str], what: str = "those with training documents"
) -> None:
    """Refuse names of groups that are not there.

    Raises
    ------
    UserError
        One sentence with the nearest.
    """
    known = list(known)
    for name in sorted(set(named) - set(known)):
        near = difflib.get_close_matches(name, known, n=1)
        guess = f"; did you mean {near[0]!r}?" if near else ""
        raise UserError(f"the mixture names the group {name!r}; {what} are {', '.join(known)}{guess}")

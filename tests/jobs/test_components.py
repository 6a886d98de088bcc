"""Components in memory and in rounds are those of networkx, whatever the graph and its partitions."""

from collections.abc import Iterator
from pathlib import Path

import dask
import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.pipeline.duplicates import candidates, components
from jobs.runtime.checkpoint import Checkpoint
from jobs.runtime.console import Console
from kernels import permutation, union_find
from tests import naive


def path(n: int) -> np.ndarray:
    return np.column_stack((np.arange(n), np.arange(n) + 1))


def graphs() -> Iterator[tuple[str, np.ndarray]]:
    random = np.random.default_rng(0)
    n = 60
    yield "path", path(n)
    yield "path in no order", random.permutation(n + 1)[path(n)]
    yield "star around the smallest", np.column_stack((np.zeros(n, int), np.arange(n) + 1))
    yield "star around the largest", np.column_stack((np.full(n, n), np.arange(n)))
    yield "clique", np.array([(i, j) for i in range(20) for j in range(i)])
    yield "pairs", np.arange(2 * n).reshape(-1, 2)
    yield "random", random.integers(0, 80, (60, 2))
    yield "nothing but itself", np.array([[7, 7]])
    yield "nothing", np.empty((0, 2), int)


@st.composite
def parted(draw: st.DrawFn) -> list[np.ndarray]:
    """Links of a graph with 64-bit nodes, some of them the largest, in some partitions."""
    links = dict(graphs())[draw(st.sampled_from([name for name, _ in graphs()]))]
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    links = np.concatenate((links, random.integers(0, 150, (draw(st.integers(0, 20)), 2)))).astype(np.uint64)
    nodes = permutation.keyed_hash(links.ravel(), draw(st.integers(0, 9))).reshape(links.shape)
    if draw(st.booleans()):
        nodes = np.uint64(2**64 - 1) - links
    part = random.integers(0, draw(st.integers(1, 5)), len(nodes))
    return [nodes[part == p] for p in range(part.max(initial=0) + 1)]


def as_rows(links: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(
        {"node": links[:, 0], "root": links[:, 1], "kind": np.full(len(links), components.EDGE, np.int8)}
    )


def by_hand(parts: list[pd.DataFrame], shuffle: int) -> list[pd.DataFrame]:
    """What a shuffle does: rows of a node meet, in some partition."""
    rows = pd.concat(parts)
    return [rows[rows["node"] % np.uint64(shuffle) == p] for p in range(shuffle)]


def stars(rows: pd.DataFrame) -> list[tuple[int, int]]:
    return sorted(zip(rows["node"].tolist(), rows["root"].tolist(), strict=True))


@settings(max_examples=150, deadline=None)
@given(parted(), st.integers(1, 4))
def test_rounds_end_in_the_naive_forest(parts: list[np.ndarray], shuffle: int) -> None:
    links = np.concatenate(parts)
    rows = [as_rows(union_find.star_forest(part)) for part in parts]
    expected = naive.star_forest([pair for pair in links.tolist() if pair[0] != pair[1]])
    before, n_rounds = None, 0
    while before != (now := stars(pd.concat(rows))):
        before, n_rounds = now, n_rounds + 1
        large = [components.large_star(part) for part in by_hand([*map(components.both_ways, rows)], shuffle)]
        rows = [components.small_star(part) for part in by_hand(large, shuffle)]
    assert stars(components.with_roots(pd.concat(rows))) == expected
    assert n_rounds < 12


def test_naive_agrees_with_networkx() -> None:
    for _, links in graphs():
        graph = networkx.Graph(links.tolist())
        parts = networkx.connected_components(graph)
        assert naive.star_forest(links.tolist()) == sorted((n, min(part)) for part in parts for n in part)


def committed(folder: Path, client: object, parts: list[np.ndarray]) -> Checkpoint:
    """Round 0 of a job."""
    import dask.dataframe as dd

    job = Checkpoint(folder, "fingerprint")
    assert not components.begin(job)
    frames = [dask.delayed(as_rows)(union_find.star_forest(part)) for part in parts]
    forests = dd.from_delayed(frames, meta=components.FOREST, verify_meta=False)
    components.commit_forests(client, Console(), job, forests)  # type: ignore[arg-type]
    return job


def random_parts(links: int, parts: int) -> list[np.ndarray]:
    """A random graph of components of many sizes and a chain through its middle, in so many partitions."""
    random = np.random.default_rng(1)
    some = np.concatenate((random.integers(0, 2 * links, (links, 2)), path(links // 10)))
    return np.array_split(permutation.keyed_hash(some.ravel().astype(np.uint64), 5).reshape(-1, 2), parts)


def check_both_ways(client: object, folder: Path, parts: list[np.ndarray]) -> None:
    expected = union_find.star_forest(np.concatenate(parts))
    expected = expected[np.argsort(expected[:, 0])]
    for name, most_links in (("memory", 10**9), ("rounds", 0)):
        job = committed(folder / name, client, parts)
        found = components.merged(client, Console(), job, most_links, candidates.merge_forests)  # type: ignore[arg-type]
        found = found[found["kind"] == components.EDGE].sort_values("node")
        assert np.array_equal(found[["node", "root"]].to_numpy(np.uint64), expected)
        assert not [file for file in (folder / name).rglob("*") if file.is_file()]


def test_in_memory_and_in_rounds(cluster: str, tmp_path: Path) -> None:
    from distributed import Client

    with Client(cluster) as client:
        check_both_ways(client, tmp_path, random_parts(2000, 3))


def large_graphs() -> dict[str, np.ndarray]:
    """Millions of links each, but for a path, which takes the most rounds."""
    return {
        "star": np.column_stack((np.full(2_000_000, 1_000_000), np.delete(np.arange(2_000_001), 1_000_000))),
        "clique": np.column_stack(np.triu_indices(2_000, 1)),
        "path": path(300_000),
        "cliques": (np.column_stack(np.triu_indices(20, 1)) + 20 * np.arange(10_000)[:, None, None]).reshape(
            -1, 2
        ),
    }


def shuffled_parts(links: np.ndarray, parts: int) -> list[np.ndarray]:
    """Links in no order, between nodes of no order, in so many partitions."""
    random = np.random.default_rng(2)
    nodes = permutation.keyed_hash(links.ravel().astype(np.uint64), 5).reshape(-1, 2)
    return np.array_split(nodes[random.permutation(len(nodes))], parts)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["random", "star", "clique", "path", "cliques"])
def test_millions_of_links(cluster: str, tmp_path: Path, name: str) -> None:
    from distributed import Client

    parts = random_parts(3_000_000, 8) if name == "random" else shuffled_parts(large_graphs()[name], 8)
    with Client(cluster) as client:
        check_both_ways(client, tmp_path, parts)


def test_a_stopped_run_goes_on_with_its_last_round(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import Client

    parts = random_parts(500, 3)
    with Client(cluster) as client:
        job = committed(tmp_path, client, parts)
        commit, rounds = components._commit, []

        def stopped(job: Checkpoint, number: int, *rest: object) -> None:
            if number == 3:
                raise KeyboardInterrupt
            rounds.append(number)
            commit(job, number, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(components, "_commit", stopped)
        with pytest.raises(KeyboardInterrupt):
            components.merged(client, Console(), job, 0, candidates.merge_forests)
        assert rounds == [1, 2]
        monkeypatch.setattr(components, "_commit", commit)
        assert components.begin(job)
        assert list(job.tasks()) == ["round-002"]
        found = components.merged(client, Console(), job, 0, candidates.merge_forests)
        assert not components.begin(Checkpoint(tmp_path, "other"))
    assert stars(found) == naive.star_forest(np.concatenate(parts).tolist())

"""Skewed corpora with verification, in bounded memory: one template in 30 % of documents; one band in 41 %."""

from pathlib import Path

import numpy as np
import pytest

from kernels import permutation
from tests.benchmarks import band_keys

pytestmark = pytest.mark.slow
DOCUMENTS, THRESHOLD = 300_000, 0.8
MOST_MIB = 4096  # client, scheduler and two workers


@pytest.mark.parametrize("case", ["template", "band"])
def test_a_skewed_corpus_is_verified_in_bounded_memory(tmp_path: Path, case: str) -> None:
    from jobs.runtime.cluster import connected

    splits = band_keys.written(tmp_path, case, DOCUMENTS)
    with connected(workers=2, memory_limit=band_keys.MEMORY_LIMIT) as client, band_keys.Peak() as peak:
        stars, _ = band_keys.stars_of(client, splits, DOCUMENTS, 10**9, THRESHOLD)
    assert peak.mib < MOST_MIB
    ids = np.arange(DOCUMENTS)
    roots, sizes = np.unique(stars[:, 1], return_counts=True)
    if case == "template":
        copies = permutation.doc_ids(1, ids[band_keys.uniform(ids, "template") < band_keys.TEMPLATE])
        of_template = stars[np.isin(stars[:, 0], copies)]
        assert len(of_template) == len(copies)
        assert np.unique(of_template[:, 1]).size == 1
        # Some documents are copies of copies.
        assert sizes[roots == of_template[0, 1]] < 1.05 * len(copies)
    else:
        assert sizes.max() < 20  # what only the one band links was cut

"""Reference sets: documents that validation must not overlap, read as the sources are, tokens left out.

`OUT/references` holds the signatures and hashes of the sets that the configuration names, and `hashes.npy`, the
sorted prefixes of the text hashes of all of them and of the tokenizer's training sample.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from jobs.pipeline import annotate
from jobs.pipeline.paths import SplitPaths
from jobs.runtime import checkpoint, fingerprint, folders
from jobs.text import hash_prefixes

if TYPE_CHECKING:
    from jobs.runtime.context import Run

NAME = "references"
HASHES = "hashes.npy"


def job_fingerprint(run: "Run") -> str:
    """Covers the sets' files, how a signature is made, and the tokenizer's sample."""
    return fingerprint.fingerprint(
        __name__,
        inputs=run.reference_inventory.identity(),
        step=annotate.step_fingerprint(run),
        sample=run.config.validation.exclude_tokenizer_sample,
    )


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Measure the reference documents and gather the hashes of all texts that validation must not hold."""
    near = run.config.near_duplicates
    step = annotate.Step(
        folder=job.folder,
        sources={source.name: source for source in run.reference_sources},
        fingerprint=annotate.step_fingerprint(run),
        ngram=near.ngram,
        hashes=near.hashes,
        hash_seed=near.hash_seed,
        order_seed=0,
        encoder=None,
        dtype="uint16",
        check_share=0,
    )
    figures = annotate.annotate(run, job, run.reference_splits, step, NAME)
    paths = [SplitPaths(job.folder, key) for key in figures["splits"]]
    hashes = [
        hash_prefixes(folders.read_table(path.rows, columns=["text_hash"])["text_hash"]) for path in paths
    ]
    if run.config.validation.exclude_tokenizer_sample:
        hashes.append(folders.load(run.tokenizer_sample))
    with checkpoint.written(job.folder / HASHES) as file:
        checkpoint.save_array(file, np.unique(np.concatenate([np.empty(0, np.uint64), *hashes])))
    return {"sets": sorted(step.sources), **figures}

"""What each worker does when it starts."""

from distributed import Worker, WorkerPlugin


class WarmKernels(WorkerPlugin):
    """Compile the kernels, or load them from the cache, before the first task; idempotent."""

    name = "shardmill-kernels"

    def setup(self, worker: Worker) -> None:  # noqa: D102
        import numpy as np

        from kernels import bands, minhash, packing, permutation, shingles, union_find

        text = np.frombuffer("Eins zwei, drei vier fünf sechs.".encode(), dtype=np.uint8)
        signatures, _ = minhash.signatures(text, np.array([0, len(text)]), minhash.SEEDS, 5)
        shingles.shingles("eins zwei drei")
        ids = permutation.doc_ids(permutation.key("warm", 0), np.arange(2))
        permutation.keyed_hash(ids, 0)
        bands.band_keys(signatures, 14, 8)
        union_find.star_forest(ids[None, :])
        packing.accumulate(packing.PackingState(window=4), np.array([8]))
        for dtype in (np.uint16, np.uint32):
            tokens, one = np.zeros(8, dtype), np.array([8])
            packing.gather(tokens, np.array([0]), one, np.empty_like(tokens), np.array([0]))
            packing.slice_hashes(tokens, np.array([0]), one)

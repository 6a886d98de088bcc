"""What each worker does when it starts."""

from distributed import Worker, WorkerPlugin


class WarmKernels(WorkerPlugin):
    """Compile the kernels, or load them from the cache, before the first task; idempotent."""

    name = "shardmill-kernels"

    def setup(self, worker: Worker) -> None:  # noqa: D102
        import numpy as np

        from kernels import bands, minhash, packing, shingles

        text = np.frombuffer("Eins zwei, drei vier fünf sechs.".encode(), dtype=np.uint8)
        signatures, _ = minhash.signatures(text, np.array([0, len(text)]), minhash.SEEDS, 5)
        shingles.shingles("eins zwei drei")
        bands.band_keys(signatures, 14, 8)
        for dtype in (np.uint16, np.uint32):
            tokens, one = np.zeros(8, dtype), np.array([8])
            packing.gather(tokens, np.array([0]), one, np.empty_like(tokens), np.array([0]))
            packing.slice_hashes(tokens, np.array([0]), one)

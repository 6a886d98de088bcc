"""The loader, for training code: batches of a split, straight from its shards, on any number of ranks.

Needs NumPy and a few small modules of this project, neither Dask nor Numba; PyTorch from the first batch on, fsspec for
URLs.

======================  =====================================================================
`jobs.loader.shards`    `ShardLoader`, the loader of one split
`jobs.loader.batches`   `BatchLoader`, which it is made of: batches of any numbered sequences
`jobs.loader.windows`   sequences from a stream of tokens, in order or shuffled
`jobs.loader.stream`    the stream of tokens of several files
`jobs.loader.share`     which sequences a rank's batch holds; what happens at an epoch's end
`jobs.loader.shuffle`   a keyed permutation in constant memory
`jobs.loader.cache`     local copies of remote files
`jobs.loader.documents`  masks, positions and targets at the boundaries of documents
`jobs.loader.mixture`   `MixtureLoader`, stages drawn from groups in shares; needs pydantic
`jobs.loader.megatron`  `MegatronLoader`, the same for Megatron's pairs
`jobs.loader.dataset`   `ShardDataset`, for `torch.utils.data.DataLoader`; needs PyTorch
======================  =====================================================================
"""

from jobs.loader.batches import BatchLoader, Sequences
from jobs.loader.shards import ShardLoader
from jobs.loader.stream import TokenFile, TokenStream
from jobs.loader.windows import Windows

__all__ = ["BatchLoader", "Sequences", "ShardLoader", "TokenFile", "TokenStream", "Windows"]

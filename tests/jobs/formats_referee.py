"""Shards read, and written, by the tools whose formats they have; runs in the environment of `make formats`.

``python -m tests.jobs.formats_referee read FORMAT FOLDER OUTPUT``: a folder of shards in, an archive of arrays out:
`ids` of all samples end to end, their `lengths`, and whatever else each sample has, by name.

``python -m tests.jobs.formats_referee write FORMAT INPUT FOLDER``: such an archive in, one shard out.
"""

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

# What mosaicml-streaming imports for pictures and for texts, and does not need here.
STUBS = {
    "torchvision": (),
    "torchvision.datasets": ("VisionDataset", "CIFAR10", "ImageFolder"),
    "torchvision.transforms": (),
    "torchvision.transforms.functional": ("to_tensor",),
    "transformers": (),
    "transformers.models": (),
    "transformers.models.auto": (),
    "transformers.models.auto.tokenization_auto": ("AutoTokenizer",),
    "transformers.feature_extraction_utils": ("BatchFeature",),
    "transformers.tokenization_utils_base": ("BatchEncoding",),
}


def streaming() -> Any:
    for name, members in STUBS.items():
        module = sys.modules[name] = types.ModuleType(name)
        for member in members:
            setattr(module, member, type(member, (), {}))
    return importlib.import_module("streaming")


def read_mds(folder: Path) -> Iterator[dict[str, Any]]:
    yield from streaming().LocalDataset(local=str(folder))


def read_webdataset(folder: Path) -> Iterator[dict[str, Any]]:
    import webdataset

    tars = sorted(map(str, folder.glob("*.tar")))
    for sample in webdataset.WebDataset(tars, shardshuffle=False).decode():
        found = {"ids": sample["ids.npy"]}
        key = sample["__key__"]
        if "-" not in key:
            found["doc_id"] = np.uint64(int(key, 16))
        if "n_tokens.txt" in sample:
            found["n_tokens"] = int(sample["n_tokens.txt"])
        yield found


def read_megatron(folder: Path) -> Iterator[dict[str, Any]]:
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    for path in sorted(folder.glob("*.idx")):
        dataset = IndexedDataset(str(path.with_suffix("")))
        index = dataset.document_indices
        assert len(index) == 1 + len(np.unique(index[1:])), "documents share sequences"
        for first, last in pairwise(index):
            yield {"ids": np.concatenate([dataset[int(i)] for i in range(first, last)])}


def read_datatrove(folder: Path) -> Iterator[dict[str, Any]]:
    """Token by token, in windows of one, and the documents by its own reader of ends."""
    from datatrove.pipeline.tokens.merger import load_doc_ends
    from datatrove.utils.dataset import DatatroveFileDataset

    for path in sorted(folder.glob("*.ds")):
        name, count, _ = Path(f"{path}.metadata").read_text().split("\n")
        size = int(name.rpartition("|")[2])
        with Path(f"{path}.index").open("rb") as index:
            ends = load_doc_ends(index)
        assert int(ends[-1]) == int(count)
        windows = DatatroveFileDataset(str(path), seq_len=0, token_size=size)
        tokens = np.array([int(windows[i]["input_ids"][0]) for i in range(len(windows))], f"<u{size}")
        for ids in np.split(tokens, ends[:-1]):
            yield {"ids": ids}


def write_mds(samples: list[dict[str, Any]], folder: Path) -> None:
    def encoding(value: Any, fixed: bool) -> str:
        if isinstance(value, np.ndarray):
            return f"ndarray:{value.dtype}" + (f":{len(value)}" if fixed else "")
        return str(value.dtype)

    fixed = "doc_id" not in samples[0]
    columns = {name: encoding(value, fixed) for name, value in samples[0].items()}
    with streaming().MDSWriter(out=str(folder), columns=columns, size_limit=None) as out:
        for sample in samples:
            out.write(sample)


def write_megatron(samples: list[dict[str, Any]], folder: Path) -> None:
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(folder / "shard.bin"), dtype=samples[0]["ids"].dtype.type)
    for sample in samples:
        builder.add_document(torch.tensor(sample["ids"].astype(np.int64)), [len(sample["ids"])])
    builder.finalize(str(folder / "shard.idx"))


def write_datatrove(samples: list[dict[str, Any]], folder: Path) -> None:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    size = samples[0]["ids"].dtype.itemsize
    out = TokenizedFile(
        str(folder), "shard.ds", save_final_metadata=True, tokenizer_name_or_path="mine", token_size=size
    )
    for sample in samples:
        out.write(sample["ids"].tolist(), None)
    out.close()


READ: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    "mds": read_mds,
    "webdataset": read_webdataset,
    "megatron": read_megatron,
    "datatrove": read_datatrove,
}
WRITE: dict[str, Callable[[list[dict[str, Any]], Path], None]] = {
    "mds": write_mds,
    "megatron": write_megatron,
    "datatrove": write_datatrove,
}


def packed(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Samples as arrays."""
    others = {name: np.array([sample[name] for sample in samples]) for name in samples[0] if name != "ids"}
    ids = [sample["ids"] for sample in samples]
    return {"ids": np.concatenate(ids), "lengths": np.array(list(map(len, ids))), **others}


def unpacked(arrays: Any) -> list[dict[str, Any]]:
    """Arrays as samples."""
    ids = np.split(arrays["ids"], np.cumsum(arrays["lengths"])[:-1])
    others = [name for name in arrays if name not in ("ids", "lengths")]
    return [{"ids": one, **{name: arrays[name][i] for name in others}} for i, one in enumerate(ids)]


def main(action: str, name: str, source: str, target: str) -> None:
    if action == "read":
        np.savez(target, **packed(list(READ[name](Path(source)))))
    else:
        with np.load(source) as arrays:
            WRITE[name](unpacked(arrays), Path(target))


if __name__ == "__main__":
    main(*sys.argv[1:])

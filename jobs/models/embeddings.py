"""FineWeb-Edu's recipe (Penedo et al. 2024): a frozen sentence embedding and a linear regression head, 0 to 5.

The model is a folder as the Hugging Face Hub has it, BERT or a relative, with weights in `model.safetensors`:

- a classifier of one grade (`…ForSequenceClassification`), such as FineWeb-Edu's own, whose head stands behind BERT's
  pooler in the same file (`classifier.weight`, `classifier.bias`); or
- a sentence-transformers model, such as `snowflake-arctic-embed-m` or `all-MiniLM-L6-v2`, with a head of its own.
  `modules.json` and the pooling's `config.json` say how tokens become one vector (first token or mean) and whether that
  is normalised; a folder without them gives the mean, as in sentence-transformers.

A head is a safetensors file: `weight` float32[n], `bias` float32[1], and in its metadata `embeddings`, the
`content_hash` of the folder whose embeddings of n numbers it was trained on. `save_head` writes it.

Tokens beyond the model's longest input are not looked at. All is float32, on one thread of a CPU or on a GPU, and the
score is rounded to four decimals. On a CPU each document is computed alone, without padding: that is independent of the
documents beside it, and faster than batches. On a GPU batches have fixed shapes: documents are padded to the next
multiple of 64 tokens and short batches filled up, so that the same kernels compute a document whatever is beside it.
Measured with MiniLM on C4 documents: however batched, the same bits; between the two ways 1.4e-6 at most. A score whose
fifth decimal is near 5 can therefore still differ by 0.0001 between a CPU and a GPU: for the same bytes on a cluster
with both, set `device`.
"""

import functools
import hashlib
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from jobs.errors import UserError
from jobs.runtime import checkpoint, fingerprint, named_files

if TYPE_CHECKING:
    import torch

    from jobs.settings.classifiers import Classifier

WEIGHTS, TOKENIZER, CONFIG, MODULES = "model.safetensors", "tokenizer.json", "config.json", "modules.json"
LENGTHS = "sentence_bert_config.json"
METADATA = "embeddings"
DECIMALS = 4
PAD_TO = 64  # tokens
BATCH = 8192  # tokens of a GPU's batch
HEAD_CHARACTERS = 32  # a token, when a long text is cut before it is tokenized
MODELS = 2  # that a process keeps
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
EXTRA = "pip install 'shardmill[embeddings]'"


class Folder(NamedTuple):
    """Files of an embedding model, and how they are to be used.

    Attributes
    ----------
    path
        Of the folder.
    content
        The files that decide a score.
    classifies
        Whether its head is in it.
    pooling
        `cls` or `mean`.
    normalised
        Whether embeddings have length 1.
    max_length
        Tokens of a document that are looked at, the special ones included.
    """

    path: str
    content: tuple[named_files.File, ...]
    classifies: bool
    pooling: str
    normalised: bool
    max_length: int


class Model:
    """A network, its tokenizer and a head, where the network does not have it."""

    def __init__(
        self, folder: Folder, head: tuple[np.ndarray, float] | None = None, device: str = "cpu"
    ) -> None:
        import torch

        self.folder, self.device = folder, device
        self.tokenizer = _tokenizer(folder)
        self.network = _network(folder).to(device)
        self.padding = self.network.config.pad_token_id or 0
        weight, bias = (None, 0.0) if head is None else head
        self.weight = None if weight is None else torch.from_numpy(weight).to(device)
        self.bias = bias

    def score(self, text: pa.LargeStringArray) -> np.ndarray:
        """float64[d] of large_string[d], to four decimals; null is as good as empty."""
        found = self._each(text, 1)
        return np.round(found[:, 0].astype(np.float64), DECIMALS)

    def embed(self, text: pa.LargeStringArray) -> np.ndarray:
        """float32[d, n] of large_string[d], n the size of an embedding; of a folder without a head."""
        return self._each(text, self.network.config.hidden_size, embeddings=True)

    def _each(self, text: pa.LargeStringArray, n: int, *, embeddings: bool = False) -> np.ndarray:
        import torch

        tokens = [self._tokens(value) for value in pc.fill_null(text, "").to_pylist()]
        found = np.empty((len(tokens), n), np.float32)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # sums depend on how threads share them
        try:
            with torch.inference_mode():
                for rows, shape in self._batches(tokens):
                    found[rows] = self._forward([tokens[row] for row in rows], shape, embeddings=embeddings)
        finally:
            torch.set_num_threads(threads)
        return found

    def _batches(self, tokens: list[list[int]]) -> Iterator[tuple[list[int], tuple[int, int]]]:
        """Rows that are computed together, and the shape of their batch."""
        if self.device == "cpu":
            yield from (([row], (1, len(ids))) for row, ids in enumerate(tokens))
            return
        yield from fixed_batches([len(ids) for ids in tokens], self.folder.max_length)

    def _forward(self, tokens: list[list[int]], shape: tuple[int, int], *, embeddings: bool) -> np.ndarray:
        """float32[rows, n] embeddings, or float32[rows, 1] scores."""
        import torch

        ids = torch.full(shape, self.padding, dtype=torch.int64)
        mask = torch.zeros(shape, dtype=torch.int64)
        mask[:, 0] = 1  # what fills up a batch has a token, too
        for row, one in enumerate(tokens):
            ids[row, : len(one)] = torch.tensor(one)
            mask[row, : len(one)] = 1
        ids, mask = ids.to(self.device), mask.to(self.device)
        output = self.network(input_ids=ids, attention_mask=mask)
        if self.folder.classifies:
            found = output.logits
        else:
            found = self._pooled(output.last_hidden_state, mask)
            if not embeddings:
                found = (found * self.weight).sum(1, keepdim=True) + self.bias
        return np.asarray(found[: len(tokens)].cpu())

    def _pooled(self, hidden: "torch.Tensor", mask: "torch.Tensor") -> "torch.Tensor":
        """float32[rows, n] of float32[rows, tokens, n], as sentence-transformers does it."""
        import torch

        if self.folder.pooling == "cls":
            vectors = hidden[:, 0]
        else:
            shown = mask.unsqueeze(2).to(hidden.dtype)
            vectors = (hidden * shown).sum(1) / shown.sum(1)
        return torch.nn.functional.normalize(vectors, dim=1) if self.folder.normalised else vectors

    def _tokens(self, text: str) -> list[int]:
        """Ids of the tokens that are looked at; a long text is cut at white space before it is tokenized."""
        limit = self.folder.max_length
        head = text[: HEAD_CHARACTERS * limit]
        if len(head) < len(text):
            # All that comes before white space is tokenized as it is within the whole.
            ids = self.tokenizer.encode(head[: max(head.rfind(" "), head.rfind("\n"), 0)]).ids
            if len(ids) == limit:
                return list(ids)
        return list(self.tokenizer.encode(text).ids)


def fixed_batches(lengths: list[int], max_length: int) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Rows of like lengths together, and the shape of their batch, which depends on the length alone."""
    padded = [min(-(-length // PAD_TO) * PAD_TO, max_length) for length in lengths]
    for width in sorted(set(padded)):
        rows = [row for row, length in enumerate(padded) if length == width]
        height = max(1, BATCH // width)
        for start in range(0, len(rows), height):
            yield rows[start : start + height], (height, width)


def check(settings: "Classifier") -> None:
    """Refuse a folder, a head or a device that cannot be used; reads the model once.

    Raises
    ------
    UserError
        One sentence that names the file.
    """
    folder = _folder(settings)
    _head(settings, folder)
    _network(folder)
    _tokenizer(folder)


def identity(settings: "Classifier") -> dict[str, Any]:
    """What fingerprints hold: the content of the folder and the head, the device if one is set, versions."""
    folder = _folder(settings)
    return {
        "model": content_hash(folder),
        "head": settings.head and named_files.digest(_head_file(settings)),
        "device": settings.device,
        "versions": fingerprint.versions("torch", "transformers", "tokenizers"),
    }


def load(settings: "Classifier") -> Model:
    """The model, which a process loads once."""
    head = _head_file(settings) if settings.head else None
    return _loaded(_folder(settings), head, settings)


@functools.lru_cache(MODELS)
def _loaded(folder: Folder, head: named_files.File | None, settings: "Classifier") -> Model:
    import torch

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"{settings.key('device')} is cuda, but a worker has no GPU that torch can use; set it to cpu"
        )
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Model(folder, _head(settings, folder), device)


# ---------------------------------------------------------------- the head


def save_head(path: Path, weight: np.ndarray, bias: float, folder: Folder) -> None:
    """Write a head: weight float32[n], a bias, and which embeddings they are for."""
    from safetensors.numpy import save

    tensors = {"weight": weight.astype(np.float32), "bias": np.array([bias], np.float32)}
    with checkpoint.written(path) as file:
        file.write(save(tensors, metadata={METADATA: content_hash(folder)}))


def _head_file(settings: "Classifier") -> named_files.File:
    return named_files.located(str(settings.head), settings.key("head"), "a .safetensors file")


def _head(settings: "Classifier", folder: Folder) -> tuple[np.ndarray, float] | None:
    """Weight float32[n] and bias of a head; None where the folder has its own."""
    if folder.classifies:
        if settings.head:
            raise UserError(
                f"{settings.key('head')} is set, but {folder.path} has a head of its own; remove it"
            )
        return None
    if not settings.head:
        raise UserError(
            f"{settings.key('model')} is {folder.path!r}, an embedding model without a head; name one with head"
        )
    from safetensors import SafetensorError, safe_open

    path = _head_file(settings).path
    try:
        with safe_open(path, "numpy") as file:
            names, metadata = sorted(file.keys()), file.metadata() or {}
            tensors = [file.get_tensor(name).ravel() for name in ("weight", "bias") if name in names]
    except (SafetensorError, OSError, TypeError) as error:
        raise UserError(
            f"{settings.key('head')} is {path!r}, which is no safetensors file that can be read: {error}"
        ) from None
    if len(tensors) != 2:
        raise UserError(
            f"{settings.key('head')} is {path!r}, which holds {', '.join(names[:5])}; a head has weight and bias"
        )
    if metadata.get(METADATA) != content_hash(folder):
        raise UserError(
            f"{settings.key('head')} is {path!r}, which was trained on the embeddings of another model than "
            f"{folder.path}"
        )
    weight, bias = (tensor.astype(np.float32) for tensor in tensors)
    n = _json(folder.path, CONFIG, settings.key("model"))["hidden_size"]
    if weight.shape != (n,) or bias.shape != (1,):
        raise UserError(
            f"{settings.key('head')} is {path!r}, whose weight has {weight.size} numbers and bias {bias.size}; "
            f"embeddings of {folder.path} need {n} and 1"
        )
    return weight, float(bias[0])


# ---------------------------------------------------------------- the folder


def read_folder(path: str, key: str) -> Folder:
    """What a folder holds and how it is used.

    Parameters
    ----------
    path
        The folder.
    key
        The setting that names it, for messages.

    Raises
    ------
    UserError
        It is no folder of a model that can be used, or the packages that read it are not installed.
    """
    missing = [name for name in ("transformers", "safetensors") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"{key}: a classifier of kind embeddings needs {' and '.join(missing)}: {EXTRA}")
    if not Path(path).is_dir():
        raise UserError(f"{key} is {path!r}, which is no folder; name one with {CONFIG} and {WEIGHTS}")
    config = _json(path, CONFIG, key)
    architecture = str((config.get("architectures") or [""])[0])
    classifies = architecture.endswith("ForSequenceClassification")
    labels = config.get("num_labels", len(config.get("id2label", ("no", "yes"))))
    if classifies and labels != 1:
        raise UserError(
            f"{key} is {path!r}, a classifier of {labels} labels; it should be of one, a regression"
        )
    modules = _modules(path, key)
    pooling = next((module["path"] for module in modules if module["type"].endswith("Pooling")), None)
    settings = [f"{pooling}/{CONFIG}"] if pooling else []
    optional = [name for name in (MODULES, LENGTHS) if (Path(path) / name).exists()]
    names = [CONFIG, TOKENIZER, WEIGHTS, *optional, *settings]
    return Folder(
        path,
        tuple(named_files.located(str(Path(path) / name), key, "a folder of a model") for name in names),
        classifies,
        _pooling(_json(path, settings[0], key), path, key) if settings else "mean",
        any(module["type"].endswith("Normalize") for module in modules),
        _max_length(config, _json(path, LENGTHS, key) if LENGTHS in optional else {}),
    )


def content_hash(folder: Folder) -> str:
    """Hexadecimal SHA-256 of the files that decide an embedding, wherever the folder lies."""
    listed = [
        f"{Path(file.path).relative_to(folder.path).as_posix()} {named_files.digest(file)}\n"
        for file in folder.content
    ]
    return hashlib.sha256("".join(listed).encode()).hexdigest()


def _folder(settings: "Classifier") -> Folder:
    return read_folder(settings.model, settings.key("model"))


def _modules(path: str, key: str) -> list[dict[str, str]]:
    """What a sentence-transformers model consists of; nothing where it does not say."""
    if not (Path(path) / MODULES).exists():
        return []
    modules = [{"type": str(one["type"]), "path": str(one["path"])} for one in _json(path, MODULES, key)]
    for module in modules:
        if module["type"].rpartition(".")[2] not in KNOWN_MODULES:
            raise UserError(
                f"{key} is {path!r}, which has a module {module['type']}; known are {', '.join(KNOWN_MODULES)}"
            )
    return modules


def _pooling(config: dict[str, Any], path: str, key: str) -> str:
    modes = [name for name, used in config.items() if name.startswith("pooling_mode_") and used is True]
    modes = [str(config["pooling_mode"])] if "pooling_mode" in config else modes
    known = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "cls": "cls",
        "mean": "mean",
    }
    if len(modes) != 1 or modes[0] not in known:
        raise UserError(
            f"{key} is {path!r}, whose pooling is {', '.join(modes) or 'none'}; it should be cls or mean"
        )
    return known[modes[0]]


def _max_length(config: dict[str, Any], lengths: dict[str, Any]) -> int:
    return int(min(lengths.get("max_seq_length") or 512, config.get("max_position_embeddings", 512), 512))


def _json(path: str, name: str, key: str) -> Any:
    try:
        return json.loads((Path(path) / name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{key} is {path!r}, a folder without {name}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{key} is {path!r}, whose {name} cannot be read: {error}") from None


def _tokenizer(folder: Folder) -> Tokenizer:
    path = f"{folder.path}/{TOKENIZER}"
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing narrower
        raise UserError(f"{path} cannot be read as a tokenizer: {error}") from None
    tokenizer.no_padding()
    tokenizer.enable_truncation(folder.max_length)
    return tokenizer


def _network(folder: Folder) -> Any:
    """The network with every weight from its file; a pooler that nothing uses may be missing."""
    import transformers

    kind = transformers.AutoModelForSequenceClassification if folder.classifies else transformers.AutoModel
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        network, found = kind.from_pretrained(
            folder.path,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            dtype="float32",
        )
    except Exception as error:  # any of the library's own, of safetensors' and of JSON's
        first = " ".join(str(error).split())[:300]
        raise UserError(f"{folder.path} cannot be loaded as a model: {first}") from None
    finally:
        if shown:
            bars.enable_progress_bar()
    missing = sorted(key for key in found["missing_keys"] if folder.classifies or "pooler" not in key)
    if missing:
        raise UserError(f"{folder.path}/{WEIGHTS} lacks weights of the model, such as {missing[0]}")
    return network.eval()

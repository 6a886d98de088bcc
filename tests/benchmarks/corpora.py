"""The texts to measure on, as Parquet like FineWeb-Edu's: snappy, row groups of 1,000 documents. None is repeated.

`web`
    FineWeb's documents in ../shared/data/fineweb, each different text once; where that folder is absent, there is
    no such corpus.
`documentation`
    The built-in corpus of the `sample` preset.
`code`
    The Python source files of the packages this project installs: not what the project is made for, but some 200 MB
    of real text with far more different words, which is hard on an encoder's cache.

They are kept in out/bench between runs and written anew when the installed packages change.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs import corpus, sources
from jobs.config import Source
from jobs.runtime import checkpoint
from jobs.tokens import training

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
FOLDER = ROOT / "out" / "bench"
ROW_GROUP = 1_000
FILE_DOCUMENTS = 8_000
SHORTEST_FILE = 200  # bytes; below are empty __init__.py
SPLIT_BYTES = (
    8 * 2**20
)  # as the preset `sample` has it; larger ones share each split's fixed costs among more
TRAINING_BYTES = 10_000_000

Texts = Iterator[tuple[str, str]]  # id and text


@dataclass(frozen=True)
class Corpus:
    """A folder of Parquet files as a source of the main job."""

    name: str
    what: str
    folder: Path

    @property
    def source(self) -> Source:
        """What the configuration would say of it."""
        return Source(name=self.name, path=str(self.folder / "*.parquet"))

    def splits(self) -> list[sources.Split]:
        """Cut as the main job would."""
        return sources.splits(sources.list_files(self.source), SPLIT_BYTES)

    def text(self) -> pa.LargeStringArray:
        """Every document's text."""
        batches = (batch.text for split in self.splits() for batch in sources.read(self.source, split, ()))
        return pa.concat_arrays([text for text in batches if text is not None])

    def sample(self, n_bytes: int) -> pa.LargeStringArray:
        """Documents from everywhere in the corpus that hold about so many bytes together."""
        text = self.text()
        step = max(1, round(pc.sum(pc.binary_length(text)).as_py() / n_bytes))
        return text.take(pa.array(range(0, len(text), step)))


def corpora() -> list[Corpus]:
    """Those that can be had here, the one closest to the project's purpose first."""
    web = Corpus("web", "web text", FOLDER / "web")
    documentation = Corpus("documentation", "documentation", FOLDER / "documentation")
    code = Corpus("code", "source code", FOLDER / "code")
    _keep(documentation.folder, corpus.job_fingerprint(), corpus.build)
    _keep(code.folder, _origin(), lambda folder: _write(folder, _source_files()))
    if not (SHARED / "fineweb").is_dir():
        return [documentation, code]
    _keep(web.folder, _origin(), lambda folder: _write(folder, _web_texts()))
    return [web, documentation, code]


def tokenizer(trained_on: list[Corpus]) -> Path:
    """A tokenizer of 32,768 ids as the preset `sample` trains it, on equal parts of each corpus."""
    path = FOLDER / "tokenizer" / f"{'-'.join(one.name for one in trained_on)}-{_origin()}.json"
    if not path.exists():
        texts = [one.sample(TRAINING_BYTES // len(trained_on)).to_pylist() for one in trained_on]
        with checkpoint.written(path) as file:
            file.write(training.train(iter(texts)).encode())
    return path


def _origin() -> str:
    """Digest of this module and of the releases that the texts come from."""
    releases = {name: one.version for name, one in corpus.dependencies().items()}
    return hashlib.sha256(f"{checkpoint.sha256(Path(__file__))} {releases}".encode()).hexdigest()[:32]


def _keep(folder: Path, origin: str, write: Callable[[Path], object]) -> None:
    """Write a corpus, unless it is there."""
    job = checkpoint.Checkpoint(folder, origin)
    if job.manifest() is None:
        job.begin()
        write(folder)
        job.commit({})


def _write(folder: Path, texts: Texts) -> None:
    for number in itertools.count():
        part = list(itertools.islice(texts, FILE_DOCUMENTS))
        if not part:
            return
        ids, contents = zip(*part, strict=True)
        with checkpoint.written(folder / f"{number:05d}.parquet") as file:
            pq.write_table(pa.table({"id": ids, "text": contents}), file, ROW_GROUP, compression="snappy")


def _web_texts() -> Texts:
    seen: set[str] = set()
    for path in sorted((SHARED / "fineweb").glob("*.parquet")):
        for row in pq.read_table(path, columns=["id", "text"]).to_pylist():
            if row["text"] not in seen:
                seen.add(row["text"])
                yield row["id"], row["text"]


def _source_files() -> Texts:
    seen: set[bytes] = set()
    for distribution in corpus.dependencies().values():
        for file in sorted(distribution.files or (), key=str):
            path = Path(str(file.locate()))
            if file.suffix != ".py" or not path.is_file():
                continue
            content = path.read_bytes()
            digest = hashlib.sha256(content).digest()
            if len(content) >= SHORTEST_FILE and digest not in seen:
                seen.add(digest)
                yield str(file), content.decode(errors="replace")

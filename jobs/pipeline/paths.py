"""Where the annotate pass leaves the files of each split."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class SplitPaths:
    """Where one split's files are."""

    folder: Path
    key: str

    @property
    def out(self) -> Path:
        """The output that they are in."""
        return self.folder.parent

    @property
    def rows(self) -> Path:
        """A row a document."""
        return self.folder / f"{self.key}.parquet"

    @property
    def signatures(self) -> Path:
        """uint32[d, h]."""
        return self.folder / f"{self.key}.signatures.npy"

    @property
    def tokens(self) -> Path:
        """The token store: ids, little endian, nothing else."""
        return self.folder / f"{self.key}.tokens.bin"

    @property
    def matches(self) -> Path:
        """N-grams of evaluation sets in the documents, where they were looked for."""
        return self.folder / f"{self.key}.contamination.parquet"

    @property
    def all(self) -> list[Path]:
        """The split's files."""
        return [self.rows, self.signatures, self.tokens]

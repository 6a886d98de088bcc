"""The other tools as a benchmark sees them: a process in their own environment that takes turns with ours."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.corpora import ROOT

PYTHON = ROOT / ".venv-referees" / "bin" / "python"


class Referees:
    """The other tools on one set of documents; see `other_tools`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._answer()

    def seconds(self, tool: str) -> float:
        """Time of one run over all documents."""
        assert self._process.stdin
        print(tool, file=self._process.stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("the other tools' process ended before it answered; see its error above")
        return answer


@contextlib.contextmanager
def referees(text: pa.LargeStringArray, tokenizer: Path | None = None) -> Iterator[Referees]:
    """Start the other tools on these documents, and end them with the block."""
    if not PYTHON.exists():
        raise SystemExit("the other tools are not installed; run `make referees`")
    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder, "documents.parquet")
        pq.write_table(pa.table({"text": text}), documents)
        arguments = [documents, tokenizer] if tokenizer else [documents]
        process = subprocess.Popen(
            [PYTHON, "-m", "tests.benchmarks.other_tools", *arguments],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:
            try:
                yield Referees(process)
            finally:
                process.kill()

"""Encoding speed on one core, as a ratio to `tokenizers` in the same run.

Run with ``python tests/benchmarks/encoding.py``. Real documents: ../shared/data/fineweb where it is there, else the
docstrings of installed packages. Medians of several turns, in which each contender has its go, so that a busy machine
slows all alike. The target is 30 times `tokenizers`, on documents that the encoder has not seen, after others have
filled its cache: what a worker does all day. The exit status says whether it was met.
"""

import ast
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.tokens import training
from jobs.tokens.encoder import Spec, load

os.environ["TOKENIZERS_PARALLELISM"] = "false"

TURNS = 7
TARGET = 30
SLOW_BYTES = 2_000_000  # what the slow contender is given in a turn
SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def documents() -> list[str]:
    """Different real documents, about 20 MB."""
    files = sorted((SHARED / "fineweb").glob("*.parquet"))
    if files:
        texts = [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
        return list(dict.fromkeys(texts))
    found: dict[str, None] = {}
    for path in sorted(Path(pa.__file__).parents[1].rglob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        nodes = (
            node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        )
        found |= dict.fromkeys(text for text in map(ast.get_docstring, nodes) if text and len(text) > 80)
        if sum(map(len, found)) > 20e6:
            break
    return list(found)


def first_bytes(texts: list[str], n: int) -> list[str]:
    """The first texts that hold so many bytes."""
    total, chosen = 0, []
    for text in texts:
        if total >= n:
            break
        chosen.append(text)
        total += len(text.encode())
    return chosen


def megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def seconds(function: Callable[[], object]) -> float:
    begun = time.perf_counter()
    function()
    return time.perf_counter() - begun


def compare(spec: Spec, texts: list[str]) -> dict[str, float]:
    """Median MB/s of each contender."""
    import tokenizers

    half = len(texts) // 2
    seen, fresh = texts[:half], texts[half:]
    few = first_bytes(fresh, SLOW_BYTES)
    arrow_seen, arrow_fresh = (pa.array(part, pa.large_string()) for part in (seen, fresh))
    reference = load(Spec(spec.path, spec.pattern, engine="reference"))
    library = tokenizers.Tokenizer.from_file(spec.path) if spec.pattern is None else None
    speeds: dict[str, list[float]] = {}
    for _ in range(TURNS):
        coder = load(spec)
        assert coder.engine == "gigatoken"
        turn: dict[str, tuple[float, Callable[[], object]]] = {
            "ours, cold": (megabytes(seen), lambda coder=coder: coder.encode(arrow_seen)),
            "ours, unseen documents": (megabytes(fresh), lambda coder=coder: coder.encode(arrow_fresh)),
            "ours, seen documents": (megabytes(fresh), lambda coder=coder: coder.encode(arrow_fresh)),
        }
        if library:
            turn["tokenizers"] = (megabytes(few), lambda: library.encode_batch_fast(few))
        else:
            turn["tiktoken"] = (megabytes(few), lambda: reference.reference(few))
        for name, (size, function) in turn.items():
            speeds.setdefault(name, []).append(size / seconds(function))
    return {name: statistics.median(values) for name, values in speeds.items()}


def main() -> int:
    texts = documents()
    print(f"{len(texts):,} documents, {megabytes(texts):.1f} MB; medians of {TURNS} turns, one core")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        taken = seconds(lambda: path.write_text(training.train(iter([texts]))))
        print(f"training 32,768 ids on them: {taken:.1f} s")
        specs = {"trained, 32,768 ids": Spec(str(path))}
        if (SHARED / "tokenizers").is_dir():
            specs["GPT-2"] = Spec(str(SHARED / "tokenizers/gpt2/tokenizer.json"))
            specs["cl100k"] = Spec(str(SHARED / "tokenizers/cl100k_base.tiktoken"), "cl100k")
            specs["o200k"] = Spec(str(SHARED / "tokenizers/o200k_base.tiktoken"), "o200k")
        met = True
        for title, spec in specs.items():
            speeds = compare(spec, texts)
            slow = speeds.get("tokenizers") or speeds["tiktoken"]
            print(title)
            for name, speed in speeds.items():
                print(f"  {name:24} {speed:8.1f} MB/s {speed / slow:8.1f} x")
            met &= "tokenizers" not in speeds or speeds["ours, unseen documents"] >= TARGET * slow
    print(f"target {TARGET} times tokenizers: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

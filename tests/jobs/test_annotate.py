"""The one pass over the text: the same rows and tokens however the work is cut, and what stops it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import ledger, sources
from jobs.config import Source
from jobs.errors import UserError
from jobs.pipeline import annotate
from jobs.pipeline.paths import SplitPaths
from jobs.tokens import encoder, training
from kernels import minhash
from tests.conftest import corpus_texts

documents = st.lists(
    st.one_of(
        st.none(),
        st.text(st.characters(codec="utf-8"), max_size=60),
        st.sampled_from(["", "İstanbul", "<|endoftext|>", "一二三四五六七", "e\u0301a\u0308 ok"]),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> encoder.Spec:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(training.train(iter([corpus_texts(200)]), vocab_size=500))
    return encoder.Spec(str(path))


def step_for(folder: Path, source: Source, tokenizer: encoder.Spec) -> annotate.Step:
    return annotate.Step(
        folder=folder, sources={source.name: source}, fingerprint="f", ngram=5, hashes=112, hash_seed=42,
        order_seed=1337, encoder=tokenizer, dtype="uint16", check_share=1.0,
    )  # fmt: skip


def annotated(
    folder: Path, source: Source, tokenizer: encoder.Spec, split_bytes: int
) -> tuple[pa.Table, list, list]:  # type: ignore[type-arg]
    """Rows in order without their place in the store, the signatures, and each document's tokens."""
    tables, signatures, tokens = [], [], []
    folder.mkdir()
    for split in sources.splits(sources.list_files(source), split_bytes):
        annotate.annotate_split(split, step_for(folder, source, tokenizer))
        paths = SplitPaths(folder, split.key)
        table = pq.read_table(paths.rows)
        store = np.fromfile(paths.tokens, "uint16")
        tokens += [
            store[a : a + n].tolist()
            for a, n in zip(*(table[c].to_numpy() for c in ("start", "n_tokens")), strict=True)
        ]
        tables.append(table.drop_columns("start"))
        signatures.append(np.load(paths.signatures))
    return (
        pa.concat_tables(tables or [step_for(folder, source, tokenizer).schema.empty_table()]),
        signatures,
        tokens,
    )


@settings(max_examples=25, deadline=None)
@given(documents, st.integers(1, 9), st.sampled_from([1, 300, 10**9]))
def test_rows_and_tokens_do_not_depend_on_row_groups_and_splits(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: encoder.Spec,
    texts: list[str | None],
    row_group: int,
    split_bytes: int,
) -> None:
    folder = tmp_path_factory.mktemp("case")
    path = folder / "in" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, row_group_size=row_group)
    source = Source(name="web", path=str(path.parent))
    table, signatures, tokens = annotated(folder / "out", source, tokenizer, split_bytes)
    assert table["record"].to_pylist() == list(range(len(texts)))
    coder = encoder.get(tokenizer)
    for i, text in enumerate(texts):
        row = table.slice(i, 1).to_pylist()[0]
        assert row["doc_id"] == ledger.doc_ids("web", "a.parquet", np.array([i]))[0]
        if not text:
            assert row["fate"] == ("input.null_text" if text is None else "input.empty_text")
            assert (row["n_tokens"], tokens[i]) == (0, [])
        else:
            assert row["fate"] is None
            assert row["n_bytes"] == len(text.encode())
            assert tokens[i] == coder.reference([text])[0]
            assert np.array_equal(np.concatenate(signatures)[i], minhash.minhash(text))


def test_a_difference_from_the_reference_tokenizer_stops_the_run(
    tmp_path: Path, tokenizer: encoder.Spec, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = encoder.Encoder.encode

    def wrong(self: encoder.Encoder, text: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        ids, offsets = right(self, text)
        ids[offsets[3]] ^= 1
        return ids, offsets

    monkeypatch.setattr(encoder.Encoder, "encode", wrong)
    source = Source(name="web", path=str(corpus))
    split = sources.splits(sources.list_files(source))[0]
    with pytest.raises(
        UserError, match=r"doc_id \d+: the ids .* differ .* set tokenizer.engine to reference"
    ):
        annotate.annotate_split(split, step_for(tmp_path, source, tokenizer))
    assert not list(tmp_path.rglob("*.json"))


def test_a_file_that_changes_during_the_run_stops_it(
    tmp_path: Path, tokenizer: encoder.Spec, corpus: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.parquet").write_bytes((corpus / "000.parquet").read_bytes())
    source = Source(name="web", path=str(folder))
    split = sources.splits(sources.list_files(source))[0]
    (folder / "a.parquet").write_bytes((corpus / "001.parquet").read_bytes())
    with pytest.raises(UserError, match=r"a\.parquet"):
        annotate.annotate_split(split, step_for(tmp_path, source, tokenizer))

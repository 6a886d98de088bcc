"""Megatron's pairs through the loader: the real one, several, shuffled and resumed, and what is refused."""

import numpy as np
import pytest

from jobs.errors import UserError
from jobs.formats import megatron
from jobs.loader.megatron import MegatronLoader


def write_pair(prefix, tokens, lengths, dtype):
    with open(f"{prefix}.bin", "wb") as bin_file, open(f"{prefix}.idx", "wb") as idx_file:  # noqa: PTH123
        megatron.write_documents(bin_file, idx_file, tokens, np.array(lengths), dtype)
    return str(prefix)


def rows(loader):
    return [(x.tolist(), y.tolist()) for x, y in loader]


def test_the_real_pair_is_served_whole(shared):
    prefix = shared / "shards" / "meg-gpt2-openwebtext_text_document"
    raw = np.fromfile(f"{prefix}.bin", "<u2").astype(np.int64)
    loader = MegatronLoader(prefix, B=4, T=128)
    assert loader.n_tokens == len(raw)
    batches = list(loader)
    assert len(batches) == (len(raw) - 1) // (4 * 128)
    x, y = (np.concatenate([batch[i].numpy().reshape(-1) for batch in batches]) for i in range(2))
    np.testing.assert_array_equal(x, raw[: len(x)])
    np.testing.assert_array_equal(y, raw[1 : len(y) + 1])


@pytest.mark.parametrize("dtype", ["uint16", "int32"])
def test_several_pairs_are_one_stream_shuffled_and_resumed(tmp_path, dtype):
    tokens = np.arange(1, 601, dtype=np.uint16 if dtype == "uint16" else np.uint32)
    prefixes = [
        write_pair(tmp_path / "a", tokens[:250], [100, 150], dtype),
        write_pair(tmp_path / "b", tokens[250:], [350], dtype),
    ]
    whole = rows(MegatronLoader(prefixes, 3, 8, shuffle=True))
    starts = [row[0] for batch, _ in whole for row in batch]
    assert len(set(starts)) == len(starts) == 72
    assert starts != sorted(starts)
    loader = MegatronLoader(prefixes, 3, 8, shuffle=True)
    begun = [next(iter(loader))]
    resumed = MegatronLoader(prefixes, 3, 8, shuffle=True)
    resumed.load_state_dict(loader.state_dict())
    assert rows(begun) + rows(resumed) == whole
    for batch, targets in whole:
        for row, target in zip(batch, targets, strict=True):
            assert target == list(range(row[0] + 1, row[0] + 9))
            assert row == list(range(row[0], row[0] + 8))


def test_what_is_no_stream_is_refused(tmp_path):
    tokens = np.arange(100, dtype=np.uint16)
    short = write_pair(tmp_path / "short", tokens, [60, 40], "uint16")
    wide = write_pair(tmp_path / "wide", tokens.astype(np.uint32), [100], "int32")
    with pytest.raises(UserError, match="int32 and uint16 tokens; they need one type"):
        MegatronLoader([short, wide], 1, 4)
    with pytest.raises(UserError, match="cannot be read"):
        MegatronLoader(tmp_path / "none", 1, 4)
    index = (tmp_path / "short.idx").read_bytes()
    (tmp_path / "short.idx").write_bytes(index[:42] + np.array([40, 0], "<i8").tobytes() + index[58:])
    with pytest.raises(UserError, match="sequences of ids that lie end to end"):
        MegatronLoader(short, 1, 4)

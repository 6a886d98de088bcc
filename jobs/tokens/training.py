"""Train a byte-level BPE tokenizer."""

import json
from collections.abc import Iterator
from typing import Any

# Training takes time that grows with the square of a word's length: a run of 5 MB would never end.
WORD = 1000  # bytes


class SampleTooSmallError(Exception):
    """A sample of too few different words for the vocabulary that was asked for; `reached` says for how many ids."""

    def __init__(self, reached: int) -> None:
        super().__init__(f"enough for {reached:,} ids")
        self.reached = reached


def train(texts: Iterator[list[str]], vocab_size: int = 32_768, end_of_text: str = "<|endoftext|>") -> str:
    """Train a byte-level BPE (GPT-2's split, no prefix space) on a sample of texts.

    BPE counts words and nothing else, so neither the order of the texts nor the number of threads matters. What the
    split leaves in one piece (a run of letters, of spaces, of digits or of other signs) is cut every 1,000 bytes from
    its start, while training only: such a run is no word.

    Parameters
    ----------
    texts : iterator of list of str
        The sample, some texts at a time.
    vocab_size : int
        Ids: one for `end_of_text`, which is 0, 256 for the bytes, the others merges.
    end_of_text : str
        The special token that ends a document. The same text within the sample is ordinary text.

    Returns
    -------
    str
        A `tokenizer.json`. Equal samples give equal text.

    Raises
    ------
    SampleTooSmallError
        The sample has too few different words for so large a vocabulary.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    short = pre_tokenizers.Split(Regex(f".{{1,{WORD}}}"), "isolated")  # a byte is one character here
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, short])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[end_of_text],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.pre_tokenizer = words
    reached = tokenizer.get_vocab_size()
    if reached != vocab_size:
        raise SampleTooSmallError(reached)
    return canonical(json.loads(tokenizer.to_str()))


def canonical(definition: dict[str, Any]) -> str:
    """A `tokenizer.json` in one spelling: the vocabulary by id, two spaces of indentation, no escapes."""
    model = definition["model"]
    by_id = dict(sorted(model["vocab"].items(), key=lambda entry: entry[1]))
    ordered = {**definition, "model": {**model, "vocab": by_id}}
    return json.dumps(ordered, ensure_ascii=False, indent=2) + "\n"

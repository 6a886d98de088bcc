"""What Hypothesis draws for the kernels, and how often."""

from collections.abc import Sequence

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

checked = settings(deadline=None, max_examples=150)

PIECES = [
    *["a", "b", "the", "The", "cat", "_", "9", " ", "  ", ". ", "\n", "'", "-"],
    *["İ", "I", "ı", "ΑΣ", "Σ", "ς", "ẞ", "ß", "Ⱥ", "Ⱦ", "DŽ", "ﬁ", "K", "Ⅷ", "①", "½", "٣"],
    *["é", "e\u0301", "\u0301", "\u0345", "\u20e3", "\ufe0f", "\u200d", "\u00ad", "\u00a0", "\u3000"],
    *[
        "東京",
        "漢",
        "が",
        "か\u3099",
        "カー",
        "ﾊﾟ",
        "々",
        "。",
        "한국어",
        "𠀀",
        "ไทย",
        "ก็",
        "ນ້ຳ",
        "ခြင်း",
        "ភាសា",
    ],
    *["👩\u200d👩\u200d👧", "😀", "é́", "ö\u0323", "नमस्ते", "‿", "\0"],
]

texts = st.lists(st.sampled_from(PIECES) | st.characters(exclude_categories=["Cs"]), max_size=40).map("".join)

documents = texts.map(str.encode) | st.binary(max_size=40)
"""UTF-8, or what may not be."""


def as_batch(documents: Sequence[bytes], before: bytes = b"") -> tuple[np.ndarray, np.ndarray]:
    """Documents as the kernels take them, `before` being bytes that belong to none of them."""
    data = np.frombuffer(before + b"".join(documents), np.uint8)
    return data, np.cumsum([len(before), *map(len, documents)], dtype=np.int64)


def decoded(document: bytes) -> str | None:
    try:
        return document.decode()
    except UnicodeDecodeError:
        return None

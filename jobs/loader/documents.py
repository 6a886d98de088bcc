"""Where the documents of a batch begin: what attention needs to keep them apart.

A document ends with its end-of-text id, and the next begins behind it; a row's first token begins one as well, since
what stands before it is not in the row. (llm.c's own script puts the id in front of each document instead; here it
then counts as the end of the one before.)
"""

from typing import NamedTuple, Self

import torch


class Documents(NamedTuple):
    """Documents, or parts of them, of a batch's B · T tokens, row after row.

    Attributes
    ----------
    cu_seqlens : int32[n + 1]
        Where each of the n documents begins, and B · T: what FlashAttention's ``flash_attn_varlen_func`` takes.
    max_seqlen : int
        Tokens of the longest.
    position_ids : int64[B, T]
        Of each token in its document, from 0.
    document_ids : int64[B, T]
        Of each token, numbered from 0 over the batch.
    """

    cu_seqlens: torch.Tensor
    max_seqlen: int
    position_ids: torch.Tensor
    document_ids: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor, end_of_text: int) -> Self:
        """Find the documents of inputs, int64[B, T], on their device."""
        begins = torch.ones_like(x, dtype=torch.bool)
        begins[:, 1:] = x[:, :-1] == end_of_text
        starts = begins.flatten().nonzero().flatten()
        edges = torch.cat([starts, starts.new_tensor([x.numel()])])
        lengths = edges.diff()
        places = torch.arange(x.numel(), device=x.device) - starts.repeat_interleave(lengths)
        ids = torch.arange(len(starts), device=x.device).repeat_interleave(lengths)
        return cls(edges.int(), int(lengths.max()), places.view(x.shape), ids.view(x.shape))

    def mask(self) -> torch.Tensor:
        """Which token may attend to which: bool[B, 1, T, T], true where both are of one document and in order.

        As ``torch.nn.functional.scaled_dot_product_attention`` takes it.
        """
        same = self.document_ids[:, :, None] == self.document_ids[:, None, :]
        return same.tril().unsqueeze(1)

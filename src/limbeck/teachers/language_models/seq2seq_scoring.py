"""How likely an encoder-decoder finds each class's answer to a prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from limbeck.teachers.language_models.prompt_tokens import PromptTokens


class Seq2SeqScorer:
    """Sums of token log-probabilities, (B, C), in float32: the encoder reads a prompt once for all classes.

    Args:
        model: in eval mode, with a decoder that a labels argument teaches.
        sequences: sequences in a pass of the decoder.
    """

    def __init__(self, model: PreTrainedModel, *, sequences: int = 32) -> None:
        self.model, self.sequences = model, sequences

    @torch.no_grad()
    def __call__(self, rows: Sequence[PromptTokens]) -> Tensor:
        """log P(answer | prompt) of each row and class, on the CPU."""
        each = len(rows[0].answers)
        size = max(1, self.sequences // each)
        parts = [self._scores(rows[at : at + size]) for at in range(0, len(rows), size)]
        return torch.cat(parts).cpu()

    def _scores(self, rows: Sequence[PromptTokens]) -> Tensor:
        each, device = len(rows[0].answers), self.model.device
        ids = _filled([row.prefix for row in rows], 0).to(device)
        lengths = torch.tensor([len(row.prefix) for row in rows], device=device)
        mask = (torch.arange(ids.shape[1], device=device) < lengths[:, None]).long()
        read = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        wanted = [row.begun + answer for row in rows for answer in row.answers]
        labels = _filled(wanted, -100).to(device)
        made = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=read.repeat_interleave(each, 0)),
            attention_mask=mask.repeat_interleave(each, 0),
            labels=labels,
            use_cache=False,
        )
        there = labels != -100
        there[:, : len(rows[0].begun)] = False  # read by the decoder, and no part of an answer
        spoken = made.logits.float().log_softmax(-1)
        spoken = spoken.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        return (spoken * there).sum(1).view(len(rows), each)


def _filled(sequences: Sequence[Sequence[int]], value: int) -> Tensor:
    length = max(map(len, sequences))
    filled = torch.full((len(sequences), length), value)
    for number, one in enumerate(sequences):
        filled[number, : len(one)] = torch.tensor(one)
    return filled

"""A static student: the mean of token vectors, hashed word pairs and a small head, as a model of transformers.

Part of `limbeck.static`. It has no layers. Gradients of the tables are sparse:
the cost of a training step depends on the tokens of its rows, not on the size of the vocabulary (see `row_adam`).
"""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput

from limbeck.static import reader
from limbeck.support.files import write_whole

READER_FILE = "predict.py"
PAIR_HASH = (1_692_481_079, 1_267_914_797, 2**31 - 1)
"""Two factors and a prime, a universal hash: tokens a, b get (a · first + b · second) mod prime mod pairs.

All products stay below 2⁶³ for vocabularies up to 2³¹ / 2 tokens, so int64 gives the same numbers everywhere."""

PAIR_RATE = 30.0
"""The learning rate of word pairs, as a multiple of the others'.

A pair occurs in few rows and starts at 0: at the others' rate it stays near 0."""


class StaticConfig(transformers.PreTrainedConfig):
    """Configuration of a `StaticStudent`.

    Attributes:
        vocab_size: tokens in the table.
        hidden_size: numbers of a token vector, the width.
        embeds: the output is a sentence embedding, and there is no head.
        normalize: embeddings are divided by their length.
        pairs: rows of the table of hashed word pairs; 0 for none.
        pair_power: the sum over a text's pairs is divided by their number to this power; 1 for their mean.
        head_width: hidden units of the head; 0 for a linear head.
        token_dropout: share of the tokens and of the pairs that a training pass leaves out.
    """

    model_type = "limbeck_static"

    vocab_size: int = 30_522
    hidden_size: int = 256
    embeds: bool = False
    normalize: bool = False
    pairs: int = 0
    pair_power: float = 1.0
    head_width: int = 0
    token_dropout: float = 0.0
    num_hidden_layers: int = 0
    pad_token_id: int | None = None

    @property
    def output_width(self) -> int:
        """Numbers of an output row: of an embedding, or one a label."""
        return self.hidden_size if self.embeds else int(self.num_labels or 0)


class StaticStudent(transformers.PreTrainedModel):
    """A table of token vectors with one weight a token, pooled by the mean.

    `logits` of its output are scores of classes or labels, a number, or embeddings, as in limbeck's other models.
    Padding and special tokens (also the unknown one) take no part.

    Attributes:
        vectors: one vector a token.
        weights: one learned weight a token.
        counted: which tokens take part.
        head: from the mean to the output.
        pairs: the contribution of each hashed pair of neighboring tokens to the output; None without pairs.
    """

    config_class = StaticConfig
    config: StaticConfig
    main_input_name = "input_ids"
    counted: Tensor

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.vectors = nn.Embedding(config.vocab_size, config.hidden_size, sparse=True)
        self.weights = nn.Embedding(config.vocab_size, 1, sparse=True)
        self.register_buffer("counted", torch.ones(config.vocab_size, dtype=torch.bool))
        self.head = _head(config)
        self.pairs: nn.Embedding | None = None
        if config.pairs:
            self.pairs = nn.Embedding(config.pairs, config.output_width, sparse=True)
        self.post_init()  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        """Token weights start at 1 and pairs at 0, so that both add nothing before they are learned."""
        if module is self.weights:
            nn.init.ones_(self.weights.weight)
        elif module is self.pairs:
            nn.init.zeros_(self.pairs.weight)
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]

    def save_pretrained(self, save_directory: Any, *args: Any, **kwargs: Any) -> None:
        """Write the model's files, and a reader of them that needs only NumPy."""
        super().save_pretrained(save_directory, *args, **kwargs)
        source = Path(reader.__file__).read_text(encoding="utf-8")
        write_whole(Path(save_directory) / READER_FILE, source)

    @property
    def embedding_width(self) -> int:
        """Numbers of an embedding; 0 with a head."""
        return self.config.hidden_size if isinstance(self.head, nn.Identity) else 0

    def get_input_embeddings(self) -> nn.Module:
        """The table of token vectors."""
        return self.vectors

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Outputs (B, d) of tokens (B, N); a text without any counted token is the zero vector.

        Args:
            input_ids: tokens.
            attention_mask: 0 at padding.
            generator: draws the tokens that training leaves out; torch's own if left out.
            kwargs: other fields of a batch; not read.
        """
        part = self.counted[input_ids]
        if attention_mask is not None:
            part = part & attention_mask.bool()
        rate = self.config.token_dropout if self.training else 0.0
        kept = some_of(part, rate, generator)
        output = self.head(_mean_of(input_ids, kept, self.vectors, self.weights))
        if self.pairs is not None:
            both = some_of(part[:, :-1] & part[:, 1:], rate, generator)
            hashed = pair_rows(input_ids[:, :-1], input_ids[:, 1:], self.config.pairs)
            seen = both.sum(1, keepdim=True).clamp(min=1).to(output.dtype)
            scale = seen ** (1 - self.config.pair_power)
            output = output + scale * _mean_of(hashed, both, self.pairs)
        if self.config.normalize:
            output = F.normalize(output, dim=-1)
        return SequenceClassifierOutput(logits=output)


def _head(config: StaticConfig) -> nn.Module:
    if config.embeds:
        return nn.Identity()
    if not config.head_width:
        return nn.Sequential(nn.Linear(config.hidden_size, config.output_width))
    return nn.Sequential(
        nn.Linear(config.hidden_size, config.head_width),
        nn.ReLU(),
        nn.Linear(config.head_width, config.output_width),
    )


def pair_rows(first: Tensor, second: Tensor, pairs: int) -> Tensor:
    """The row of each pair of tokens in a table of `pairs` rows."""
    one, other, prime = PAIR_HASH
    return (first * one + second * other) % prime % pairs


def some_of(part: Tensor, rate: float, generator: torch.Generator | None = None) -> Tensor:
    """Apply token dropout to a mask (B, N); a row that would become empty is kept complete."""
    if not rate:
        return part
    drawn = torch.rand(part.shape, generator=generator, device=part.device)
    kept = part & (drawn >= rate)
    return torch.where(kept.any(1, keepdim=True), kept, part)


def _mean_of(
    rows: Tensor, part: Tensor, table: nn.Embedding, weights: nn.Embedding | None = None
) -> Tensor:
    """Means (B, d) of the table's rows (B, N) that take part, each by its weight.

    An exported graph gathers padding too, as it has no operator for rows of several lengths.
    """
    counts = part.sum(1)
    if torch.compiler.is_compiling():
        share = part / counts.clamp(min=1)[:, None]
        if weights is not None:
            share = share * weights(rows)[..., 0]
        return torch.bmm(share[:, None], table(rows))[:, 0]
    taken, starts = rows[part], counts.cumsum(0) - counts
    if weights is None:
        return F.embedding_bag(taken, table.weight, starts, mode="mean", sparse=True)
    share = weights(taken)[:, 0] / torch.repeat_interleave(counts, counts)
    return F.embedding_bag(
        taken, table.weight, starts, mode="sum", per_sample_weights=share, sparse=True
    )


transformers.AutoConfig.register(StaticConfig.model_type, StaticConfig, exist_ok=True)
transformers.AutoModel.register(StaticConfig, StaticStudent, exist_ok=True)
transformers.AutoModelForSequenceClassification.register(StaticConfig, StaticStudent, exist_ok=True)

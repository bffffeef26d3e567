"""Tuples of texts as a cross-encoder reads them, which teaches an embedding model. Part of `limbeck.tasks`.

Where the student has a text, the teacher has the query of its tuple together with it, so that its one output is the
score of that passage. A query by itself is read too, and its score looked at by nobody.
"""

from __future__ import annotations

from transformers import PretrainedConfig

from limbeck.tasks.embedding_rows import texts_of_rows
from limbeck.tasks.long_texts import encode_cut
from limbeck.tasks.modality import Processor
from limbeck.tasks.pair_score import PairScore
from limbeck.tasks.rules import CUT, ROW, truncated
from limbeck.tasks.task_like import Rows, TaskLike

_HEAD = "ForSequenceClassification"


class CrossEncodedTuples(PairScore):
    """An example for each text of a row, as of an embedding model: the row's first text and it as a pair."""

    name = "embedding (as pairs)"
    scoring_columns = (ROW,)

    def encode(self, task: TaskLike, tokenizer: Processor, max_length: int, rows: Rows) -> Rows:
        """Pairs, in the order of the texts."""
        found = texts_of_rows(task, rows)
        queries = [rows[task.text_columns[0]][one.place] for one in found]
        passages = [one.text if one.number else "" for one in found]
        encoded = encode_cut(tokenizer, queries, passages, max_length=max_length)
        columns: Rows = {**encoded, CUT: truncated(encoded)}
        columns[ROW] = [rows["index"][one.place] for one in found]
        return columns


CROSS_ENCODED = CrossEncodedTuples()


def is_cross_encoder(config: PretrainedConfig) -> bool:
    """Whether a saved model has one output for a pair of texts."""
    names = getattr(config, "architectures", None) or [""]
    return str(names[0]).endswith(_HEAD) and config.num_labels == 1

"""Columns of a user's own data that nobody named. Part of `limbeck.run`."""

from __future__ import annotations

import logging

from limbeck.data.own import FirstRows
from limbeck.data.table import usual_label, usual_texts
from limbeck.recipe import Recipe
from limbeck.tasks import SENTENCE, SPANS, TASKS, TOKENS
from limbeck.tasks.metrics import TEACHER_LABEL

logger = logging.getLogger(__name__)

# Their columns have names of their own.
_OWN_NAMES = (TOKENS.name, SPANS.name)


def with_columns(recipe: Recipe) -> Recipe:
    """Name the columns of a user's own texts, and of their classes or numbers, where the recipe names none.

    The recipe then says what was read, as does every command that repeats it. What is not clear stays open, for the
    reader of the rows to say.
    """
    by_teacher = recipe.label_column == TEACHER_LABEL
    if recipe.task in TASKS or recipe.text_columns or (recipe.label_column and not by_teacher):
        return recipe
    if recipe.kind not in (None, SENTENCE.name) and (not by_teacher or recipe.kind in _OWN_NAMES):
        return recipe
    first = FirstRows.of(recipe.data)
    if first is None:
        return recipe
    label = TEACHER_LABEL if by_teacher else usual_label([*first.columns])
    if label is None:
        return recipe
    words = [name for name in first.words if name != label]
    texts = usual_texts(words)
    if by_teacher:
        unread = [name for name in first.like_labels if name not in texts]
        texts = texts or usual_texts([name for name in words if name not in unread])
        if len(texts) == 1 and unread:
            logger.warning(
                "column %r of %s is not read; if it holds labels: --label-column %s",
                unread[0], recipe.data, unread[0],
            )  # fmt: skip
    return (
        recipe.model_copy(update={"text_columns": texts, "label_column": label})
        if texts
        else recipe
    )

"""Fill in a recipe's kind, method and labels from its teacher and its text file.

Part of `limbeck.recipe`.
"""

from collections.abc import Iterator
from typing import Any

from transformers import PretrainedConfig

from limbeck import tasks
from limbeck.data import candidates, files, table
from limbeck.data.own import FirstRows
from limbeck.recipe import catalog
from limbeck.students import labels_of, read_config
from limbeck.support import given
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.files import at_home
from limbeck.tasks.metrics import TEACHER_LABEL

_LABEL_OF = {tasks.TOKENS.name: "tags", tasks.SPANS.name: "answers", tasks.PAIR_SCORE.name: "label"}
_PAIR = {"query", "passage"}
# A column of fewer words may well be called so.
_WORDS_OF_A_TEXT = 4
_HEADS = ("Classification", "QuestionAnswering")
_LANGUAGE_HEADS = {"ForMaskedLM": "masked", "ForCausalLM": "causal-lm", "LMHeadModel": "causal-lm"}

WHY = {
    "kd": "with labels no other method was reliably better, with or without more text",
    "kd-soft": "without labels the teacher's outputs are all there is",
    "embedding-mse": "no other method kept significantly more of an embedder",
    "listwise-kl": "of three methods it kept most of a reranker, with one seed",
}
"""By usual method, the measured reason (docs/which-method.md)."""


def usual_method(kind: tasks.TaskType, *, labelled: bool) -> str:
    """Choose the method of a recipe that names none: the teacher's outputs, and labels where there are some."""
    return "kd-soft" if kind.distilled_by == "kd" and not labelled else kind.distilled_by


def what_teacher_says(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that follow from a recipe's teacher and its file: method, kind, label column.

    A file without labels gets the label column `TEACHER_LABEL`: its held-out rows are labeled by the teacher.

    Args:
        raw: the user's settings, of a file and of single values.

    Raises:
        LimbeckError: the teacher has no head whose predictions could be labels.
    """
    if parallel := raw.get("parallel"):
        return _of_parallel(raw, [parallel] if isinstance(parallel, str) else list(parallel))
    teacher, task = raw.get("teacher"), raw.get("task")
    if not isinstance(teacher, str) or raw.get("teachers") or raw.get("outputs"):
        return {}
    named = bool(raw.get("method") or raw.get("objectives")) or any(
        key.startswith("objectives") for key in raw
    )
    config, unread = None, None
    try:
        config = read_config(teacher)
    except LimbeckError as error:
        unread = error
    data, first = raw.get("data"), None
    one_file = isinstance(data, str) and (given.is_reference(data) or files.form_of(at_home(data)))
    if one_file and task not in tasks.TASKS:
        first = FirstRows.of(str(data))
    kind = _kind(raw, config, first)
    alone = first is not None and not _is_labelled(raw, kind, config, first)
    found: dict[str, Any] = {}
    # If the text is clear, nothing else is wrong: other errors report missing columns too.
    # A name without a path may be a run that a study still has to make.
    clear = first is not None and alone and "/" in teacher and bool(table.usual_texts(first.words))
    if clear and unread is not None:
        raise unread
    if first is not None and alone and raw.get("text_columns") is None and not first.plain:
        long = [name for name in first.columns if len(name.split()) >= _WORDS_OF_A_TEXT]
        if long:
            raise LimbeckError(
                f"data: the first line of {data} is read as names of columns, and {long[0]!r:.60} looks like a text",
                "write a first line with names, such as text; or, if that is its name, add --text-columns",
            )
    if alone and config is not None:
        if raw.get("dev") is None and not raw.get("label_column"):
            found["label_column"] = TEACHER_LABEL
            _need_head(raw, teacher, kind, config)
        if kind is not tasks.SENTENCE and kind.name != _kind_of_method(raw):
            found["kind"] = kind.name
    if not named:
        found["method"] = usual_method(kind, labelled=not alone)
    return {key: value for key, value in found.items() if raw.get(key) is None}


def _of_parallel(raw: dict[str, Any], files: list[Any]) -> dict[str, Any]:
    """The kind and method of translations.

    Raises:
        LimbeckError: settings that contradict the rows, or no teacher that can read them.
    """
    raise_problems(_parallel_problems(raw, files))
    method = {} if raw.get("method") or raw.get("objectives") else {"method": "embedding-mse"}
    return {"kind": tasks.EMBEDDING.name, "data": str(files[0]), **method}


@problem_list
def _parallel_problems(raw: dict[str, Any], files: list[Any]) -> Iterator[Problem]:
    others = (
        "data", "outputs", "teachers", "unlabelled", "label_column", "classes", "text_columns", "dev_share",
        "test_share",
    )  # fmt: skip
    for key in filter(raw.get, others):
        yield Problem(
            f"{key}: {raw[key]} together with parallel: {', '.join(map(str, files))}",
            f"leave out {key}; more translations: --parallel FILE FILE",
        )
    if raw.get("kind") not in (None, tasks.EMBEDDING.name):
        yield Problem(f"kind: {raw['kind']}, and translations teach embeddings", "leave out kind")
    if raw.get("test") and not raw.get("dev"):
        yield Problem(
            f"test: {raw['test']}, and there is no dev file: dev rows would be held-out translations",
            "name a dev file of the same columns too: --dev FILE; or score later: limbeck evaluate",
        )
    if not isinstance(raw.get("teacher"), str):
        yield Problem("parallel: there is no teacher", "name an embedding model: --teacher MODEL")


def _kind(
    raw: dict[str, Any], config: PretrainedConfig | None, first: FirstRows | None
) -> tasks.TaskType:
    """The recipe's or its method's task type, otherwise the known task's, otherwise the one of the teacher's head."""
    named = raw.get("kind") or _kind_of_method(raw)
    if isinstance(named, str) and named in tasks.TASK_TYPES:
        return tasks.TASK_TYPES.get(named)
    if raw.get("task") in tasks.TASKS:
        return tasks.TASKS[raw["task"]].kind
    if config is None:
        return tasks.SENTENCE
    kind = tasks.kind_of_config(config)
    one = kind is tasks.SENTENCE and len(labels_of(config)) == 1
    pairs = first is not None and (
        {*first.columns} >= _PAIR or candidates.holds_candidates([*first.columns])
    )
    return tasks.PAIR_SCORE if one and pairs else kind


def _kind_of_method(raw: dict[str, Any]) -> str | None:
    method = raw.get("method")
    return catalog.read(method).get("kind") if method in catalog.names() else None


def _is_labelled(
    raw: dict[str, Any], kind: tasks.TaskType, config: PretrainedConfig | None, first: FirstRows
) -> bool:
    """Whether the file has labels: in the column that is named, in one of a usual name, or a column for each class."""
    if raw.get("label_column") is not None:
        return raw["label_column"] in first.columns
    named = raw.get("kind") or _kind_of_method(raw)
    # A language model's text is its own label, CoNLL's lines have tags.
    if kind.language_model or (kind is tasks.TOKENS and first.plain):
        return named is not None
    if kind.rows_without_labels:
        return False
    if raw.get("classes") or raw.get("labels"):
        return True
    names = {*first.columns}
    usual = table.usual_label([*names], first.class_columns) is not None
    graded = {"labels", "positive", "score"} if kind is tasks.PAIR_SCORE else set()
    classes = set() if config is None else {*labels_of(config)}
    return usual or _LABEL_OF.get(kind.name) in names or bool(names & (graded | classes))


def _need_head(
    raw: dict[str, Any], teacher: str, kind: tasks.TaskType, config: PretrainedConfig
) -> None:
    """Raise LimbeckError for a teacher that predicts nothing about a text, and for kinds that need more than text."""
    head = (config.architectures or ["a model without a head"])[0]
    if kind.classes_as_text or not kind.reads.in_columns:
        raise LimbeckError(
            f"data: {raw['data']} has no labels, and a student of {teacher} ({head}) is trained on rows that have some",
            f"name them: --label-column NAME; or predict them first: limbeck predict {teacher} {raw['data']}",
        )
    if kind is not tasks.EMBEDDING and not head.endswith(_HEADS):
        language = next((own for end, own in _LANGUAGE_HEADS.items() if head.endswith(end)), None)
        alike = (
            f"distill it as the language model that it is: --kind {language}; " if language else ""
        )
        raise LimbeckError(
            f"teacher: {teacher} is a {head}, neither a classifier nor an embedding model, and {raw['data']} has no "
            "labels",
            f"{alike}fine-tune it first: limbeck finetune --model {teacher} --data FILE --label-column NAME; or use "
            "it as an embedding model: --kind embedding",
        )

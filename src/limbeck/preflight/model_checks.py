"""Problems between the two models, and with their inputs: layers, tokenizers, lengths, labels, pixels.

Part of `limbeck.preflight`. Both sides get the same batch, so their processors must agree, and each model must be able
to read what its processor makes.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from limbeck.activations import Request, is_causal, kinds_available, number_of_layers
from limbeck.preflight import data_checks
from limbeck.static import StaticStudent
from limbeck.students import class_places, generic_labels, labels_of, spelling
from limbeck.students.static import may_be_static
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.machine import device_of, evaluating
from limbeck.support.positions import position_table, positions_of
from limbeck.tasks import Task
from limbeck.tasks.modality import padding_fix
from limbeck.vision import CHANNELS, side_of

log = logging.getLogger(__name__)

_ROUNDING = 1e-3  # of the largest output
_CHARACTERS = 2000  # of a sample text are looked at
_SPECIAL = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


@problem_list
def check_request(side: str, model: PreTrainedModel, request: Request) -> Iterator[Problem]:
    """Layers, stacks and kinds that a term asks of a model that lacks them."""
    stacks = sorted({seen.stack for seen in request.items})
    for stack in stacks:
        asked = [seen for seen in request.items if seen.stack == stack]
        try:
            depth, kinds = number_of_layers(model, stack), kinds_available(model, stack)
        except LimbeckError as error:
            yield from error.problems
            continue
        absent = sorted({seen.layer for seen in asked if seen.layer > depth})
        if absent:
            yield Problem(
                f"{side}: layer {', '.join(map(str, absent))} is requested, but its {stack} "
                f"stack has layers 1..{depth}",
                f"name layers from 1 to {depth} in the mapping (0 is the embedding output)",
            )
        if any(seen.pool == "cls" for seen in asked) and is_causal(model, stack):
            yield Problem(
                f"{side}: in a causal stack the first token sees no other, so its state does not depend on the text "
                "(pool: cls)",
                "set the term's pool to last or mean: objectives.NAME.pool=last",
                "warning",
            )
        unseen = sorted({str(seen.what) for seen in asked if seen.what not in kinds})
        if unseen:
            yield Problem(
                f"{side}: {', '.join(unseen)} cannot be seen in a {type(model).__name__}",
                f"choose among {', '.join(kinds)}, or another model",
            )


@problem_list
def check_tokenizers(
    teacher: PreTrainedTokenizerBase,
    student: PreTrainedTokenizerBase,
    texts: Sequence[str | Sequence[str]] = (),
    *,
    side: str = "teacher",
    over_vocabulary: bool = False,
) -> Iterator[Problem]:
    """Teacher and student tokenizers that would not give the same ids.

    Compared: the vocabulary, the special tokens' ids, the side on which texts are cut, and the ids of
    `texts`; for a pair, of both texts in one.
    """
    theirs, ours = teacher.get_vocab(), student.get_vocab()
    shared = theirs.keys() & ours.keys()
    moved = sorted(token for token in shared if theirs[token] != ours[token])
    only_theirs, only_ours = len(theirs) - len(shared), len(ours) - len(shared)
    if moved or only_theirs or only_ours:
        example = ""
        if moved:
            example = f", for example {moved[0]!r}: {theirs[moved[0]]} and {ours[moved[0]]}"
        yield Problem(
            f"{side} and student have different vocabularies: of {len(theirs)} and "
            f"{len(ours)} tokens {len(shared)} are shared, {len(moved)} of them under another id{example}",
            "choose a student with the teacher's vocabulary"
            + (
                ""
                if over_vocabulary
                else ", or compare logits alone (kd), for which each may read in its own"
            ),
            # Tokens added behind a common vocabulary do no harm unless texts use them.
            "error" if moved or (only_theirs and only_ours) else "warning",
        )
    special = [
        f"{name} {getattr(teacher, f'{name}_token_id')} and {getattr(student, f'{name}_token_id')}"
        for name in _SPECIAL
        if getattr(teacher, f"{name}_token_id") != getattr(student, f"{name}_token_id")
    ]
    if special:
        yield Problem(
            f"special tokens of teacher and student differ: {'; '.join(special)}",
            "save the student with the teacher's tokenizer, or choose another student",
        )
    cut = [tokenizer.truncation_side for tokenizer in (teacher, student)]
    if cut[0] != cut[1]:
        yield Problem(
            f"{side} and student: long texts are cut on the {cut[0]} for one, on the {cut[1]} for the other",
            "save the student with the teacher's tokenizer: truncation_side in tokenizer_config.json",
        )
    yield from _different_ids(teacher, student, texts)


@problem_list
def _different_ids(
    teacher: PreTrainedTokenizerBase,
    student: PreTrainedTokenizerBase,
    texts: Sequence[str | Sequence[str]],
) -> Iterator[Problem]:
    """Sample texts that the two tokenizers split differently (case, accents, merges, marks of pairs)."""
    for given in texts:
        parts = [part[:_CHARACTERS] for part in ([given] if isinstance(given, str) else given)]
        theirs, ours = (
            tokenizer(*parts, truncation=False, verbose=False)["input_ids"]
            for tokenizer in (teacher, student)
        )
        if theirs != ours:
            text = " | ".join(parts)
            shown = text if len(text) <= 60 else text[:59] + "…"
            yield Problem(
                f"teacher and student read {shown!r} as different ids: {theirs[:8]} and {ours[:8]}",
                "choose a student with the teacher's tokenizer (cased and uncased differ)",
            )
            return


@problem_list
def check_vocabulary(
    side: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Iterator[Problem]:
    """Token ids for which a model has no embedding, and a padding id it does not know."""
    size = getattr(model.config, "vocab_size", None)
    with suppress(NotImplementedError):  # CANINE's characters have no table
        size = getattr(model.get_input_embeddings(), "num_embeddings", size)
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if size is not None and highest >= size:
        yield Problem(
            f"{side}: the tokenizer's ids reach {highest}, the embeddings {size - 1}",
            f"use the tokenizer the {side} was trained with",
        )
    if "attention_mask" not in inspect.signature(type(model).forward).parameters:
        yield Problem(
            f"{side}: a {type(model).__name__} reads padding as text, so its output for a text depends on the "
            "other texts in the batch",
            "use batch_size 1 where each text's own answer counts, or a model with an attention mask",
            "warning",
        )
    table, own = position_table(model), model.config.pad_token_id
    # RoBERTa's positions begin behind the padding, OPT's at the first token that is not masked.
    counts_padding = table is not None and table.padding_idx is None and type(table) is nn.Embedding
    if counts_padding and tokenizer.padding_side == "left":
        yield Problem(
            f"{side}: the tokenizer pads on the left, and the model counts positions from there, so its output for "
            "a text depends on the other texts in the batch",
            'write "padding_side": "right" into its tokenizer_config.json',
        )
    if tokenizer.pad_token_id is None:
        yield Problem(f"{side}: the tokenizer has no padding token", padding_fix(tokenizer))
    elif own is not None and own != tokenizer.pad_token_id:
        yield Problem(
            f"{side}: its configuration pads with id {own}, the tokenizer with {tokenizer.pad_token_id}",
            "set pad_token_id in its config.json to the tokenizer's",
            "warning",
        )


@problem_list
def check_direction(side: str, model: PreTrainedModel) -> Iterator[Problem]:
    """A language model whose output depends on later tokens: it would read the tokens that it predicts."""
    # Alike but for the last token.
    ids = torch.tensor([[0, 1, 2], [0, 1, 3]], device=device_of(model))
    with evaluating(model):
        one, other = model(input_ids=ids).logits[:, :2].float()
    if (one - other).abs().max() > _ROUNDING * one.abs().max():
        yield Problem(
            f"{side}: a {type(model).__name__} sees the tokens that it has to predict, as encoders do",
            "choose a decoder, such as Llama, Qwen3, Gemma or GPT-2, or --kind masked",
        )


def refuse_unfit(name: str, model: PreTrainedModel, processor: Any) -> None:
    """Raise LimbeckError for a tokenizer whose ids a model has no embedding for, or that cannot pad."""
    if isinstance(processor, PreTrainedTokenizerBase):
        found = check_vocabulary(f"model {name}", model, processor)
        wrong = [one for one in found if one.severity == "error"]
        raise_problems(wrong)
        for one in found:
            log.warning("%s: %s", one.message, one.fix)


@problem_list
def check_static(side: str, model: PreTrainedModel, task: Task) -> Iterator[Problem]:
    """A static model of rows with several texts: it adds their tokens up and cannot compare them."""
    if isinstance(model, StaticStudent) and not may_be_static(task.kind, len(task.text_columns)):
        yield Problem(
            f"{side}: a static model reads {' and '.join(task.text_columns)} as one text and cannot compare them",
            "leave student.static out, or expect about the score of a constant prediction",
            "warning",
        )


@problem_list
def check_positions(side: str, model: PreTrainedModel, max_length: int) -> Iterator[Problem]:
    """A length limit beyond the end of a model's table of positions."""
    positions = positions_of(model)
    if positions is None or max_length <= positions or position_table(model) is None:
        return
    yield Problem(
        f"max_length {max_length} is beyond the {positions} positions of the {side}",
        f"set max_length to {positions} or less",
    )


def refuse_beyond(model: PreTrainedModel, asked_length: int | None) -> None:
    """Raise LimbeckError for a length limit that is set and exceeds the model's positions."""
    positions = positions_of(model)
    if asked_length is not None and positions is not None and asked_length > positions:
        raise LimbeckError(
            f"max_length {asked_length}: the model reads {positions} tokens at most",
            f"set max_length to {positions} or less",
        )


@problem_list
def check_padding(side: str, model: PreTrainedModel, width: int | None) -> Iterator[Problem]:
    """A fixed width (`pad_to`) beyond the positions a model has or was trained on; none if it is None."""
    positions = positions_of(model)
    if width is None or positions is None or width <= positions:
        return
    yield Problem(
        f"pad_to {width} is beyond the {positions} positions of the {side}",
        f"set pad_to to {positions} or less, or leave it out",
    )


@problem_list
def check_labels(side: str, config: PretrainedConfig, task: Task) -> Iterator[Problem]:
    """Classes of a model that differ from the task's in number, order or name."""
    wanted = task.kind.head_labels(task)
    if wanted is None:
        return
    own = labels_of(config)
    if problems := data_checks.other_problem(side, config, task):
        yield from problems
        return
    if len(own) != len(wanted):
        lacking = [name for name in task.labels if name not in own]
        some = 0 < len(lacking) < len(wanted)  # it knows others
        leave = f"leave out or rename the rows of {', '.join(map(repr, lacking))}, or " * some
        yield Problem(
            f"{side}: it has {len(own)} output{'s' * (len(own) != 1)} ({', '.join(own)}), the task {task.name!r} "
            f"needs {len(wanted)}" + (f" ({', '.join(task.labels)})" if task.labels else ""),
            f"{leave}give a {side} that was fine-tuned on " + ("them too" if leave else task.name),
        )
        return
    if not task.labels:  # one number, or outputs that go without names
        return
    if generic_labels(own):
        yield Problem(
            f"{side}: its classes have no names ({', '.join(own)}), so their order cannot be "
            f"checked against {', '.join(task.labels)}",
            f"write the names into id2label of the {side}'s config.json",
            "warning",
        )
        return
    if class_places(own, task.labels) == [*range(len(own))]:
        return
    spelled = spelling(own, task.labels)
    names, right = ([spelled(label) for label in labels] for labels in (own, task.labels))
    listed = f"{', '.join(own)} against {', '.join(task.labels)}"
    if any(name in right and right.index(name) != place for place, name in enumerate(names)):
        strange = ", ".join(repr(label) for label in task.labels if spelled(label) not in names)
        lacks = f", and it does not know {strange}" if strange else ""
        leave = (
            f", or leave out the rows of {strange}"
            if strange
            else ", or reorder its head and id2label"
        )
        yield Problem(
            f"{side}: its classes are in another order than the data's{lacks}: {listed}",
            f"fine-tune the {side} on this data{leave}",
        )
        return
    yield Problem(
        f"{side}: its classes have other names than the data's: {listed}",
        "check that both mean the same in the same order, then rename id2label in its config.json",
        "warning",
    )


_SAMPLE_TEXTS = 64
# Everything that decides the pixels a processor makes of an image.
_PIXEL_SETTINGS = (
    "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "do_resize", "size",
    "do_center_crop", "crop_size", "crop_pct", "resample",
)  # fmt: skip


@dataclass(frozen=True)
class InputChecks:
    """The checks of one form of input; `side` is what messages call a model.

    Attributes:
        model: the part of its input that a model cannot read, by side, model, processor and length limit.
        processors: where the second processor would read training rows otherwise than the first.
        lengths: rows that are longer than a model was trained for, though it can read them.
        in_train: how many rows of each scored split it is trained on too.
        reader: what of training rows a processor cannot read.
    """

    model: Callable[[str, PreTrainedModel, Any, int], list[Problem]]
    processors: Callable[..., list[Problem]]
    lengths: Callable[
        [Task, Mapping[str, Dataset], Any, Mapping[str, PreTrainedModel], int], list[Problem]
    ]
    in_train: Callable[[Task, Mapping[str, Dataset]], dict[str, int]]
    reader: Callable[..., list[Problem]]


def _text_model(
    side: str, model: PreTrainedModel, tokenizer: Any, max_length: int
) -> list[Problem]:
    """Token ids without an embedding, and more positions than there are."""
    return check_vocabulary(side, model, tokenizer) + check_positions(side, model, max_length)


def _same_tokens(
    task: Task, train: Dataset, teacher: Any, student: Any, *, side: str
) -> list[Problem]:
    """Vocabularies, special tokens, and the ids of some rows."""
    columns = task.kind.texts(task, train[:_SAMPLE_TEXTS])
    texts, over = list(zip(*columns, strict=True)), task.kind.over_vocabulary
    over = over or not task.kind.labels_examples  # tokens are compared one by one
    return check_tokenizers(teacher, student, texts, side=side, over_vocabulary=over)


@problem_list
def _stretched(
    task: Task,
    rows: Mapping[str, Dataset],
    tokenizer: Any,
    models: Mapping[str, PreTrainedModel],
    max_length: int,
) -> Iterator[Problem]:
    """Rotary or relative positions beyond the trained range; finds the longest row if there may be some."""
    trained = {
        side: positions
        for side, model in models.items()
        if (positions := positions_of(model)) is not None
        and max_length > positions
        and position_table(model) is None
    }
    if not trained:
        return
    read = [rows[split] for split in ("train", *task.dev_splits) if split in rows]
    longest = max(data_checks.longest_of(task, split, tokenizer) for split in read)
    for side, positions in trained.items():
        if longest > positions:
            yield Problem(
                f"rows of up to {min(longest, max_length)} tokens are beyond the {positions} "
                f"positions that the {side} was trained on",
                f"set max_length to {positions}, or accept its outputs for longer texts",
                "warning",
            )


@problem_list
def _image_model(
    side: str, model: PreTrainedModel, processor: Any, max_length: int
) -> Iterator[Problem]:
    """Another number of channels, and another size than the model was made for."""
    channels = getattr(model.config, "num_channels", CHANNELS)
    if channels != CHANNELS:
        yield Problem(
            f"{side}: it reads images of {channels} channels, and they have {CHANNELS} here",
            "give a model of coloured images; grey ones are read as coloured",
        )
    made_for = getattr(model.config, "image_size", None)
    made_for = (made_for, made_for) if isinstance(made_for, int) else made_for
    height, width = side_of(processor)
    if made_for is not None and tuple(made_for) != (height, width):
        yield Problem(
            f"{side}: it was made for images of {made_for[0]} × {made_for[1]} pixels, and "
            f"they are read at {height} × {width}",
            f"set images.size={made_for[0]}, or give a model of that size",
        )


@problem_list
def _same_pixels(
    task: Task, train: Dataset, teacher: Any, student: Any, *, side: str
) -> Iterator[Problem]:
    """Size, scale or normalisation that differ."""
    theirs, ours = (
        {name: _plain(getattr(processor, name, None)) for name in _PIXEL_SETTINGS}
        for processor in (teacher, student)
    )
    differing = [
        f"{name} {theirs[name]} and {ours[name]}"
        for name in _PIXEL_SETTINGS
        if theirs[name] != ours[name]
    ]
    if differing:
        yield Problem(
            f"{side} and student read images differently: {'; '.join(differing)}",
            "save the student with the teacher's preprocessor_config.json, or start it from the "
            "teacher or from a CNN's name",
        )


def _plain(value: object) -> object:
    """Settings in one form: some processors hold lists, some tuples."""
    if isinstance(value, list | tuple):
        return list(value)
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, dict) else value


INPUT_CHECKS = {
    "text": InputChecks(
        _text_model,
        _same_tokens,
        _stretched,
        data_checks.rows_in_train,
        data_checks.check_unknown_tokens,
    ),
    "images": InputChecks(
        _image_model, _same_pixels, lambda *_: [], lambda *_: {}, lambda *_, side: []
    ),
}
"""By name of a kind's `reads`."""

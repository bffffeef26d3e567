"""Where an assistant of a chain starts: from its teacher's pretrained weights. Part of `limbeck.training`."""

from dataclasses import dataclass
from typing import Any

import torch
from pydantic import ValidationError
from transformers import PreTrainedModel

from limbeck.recipe import StudentSpec
from limbeck.students import build_student, labels_of, named_model, names_cnn, starts_random
from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import DamagedRecordError, verified
from limbeck.tasks import task_type_of


@dataclass(frozen=True)
class _Head:
    labels: tuple[str, ...]
    regression: bool


def pretrained_start(model: PreTrainedModel, *, seed: int) -> PreTrainedModel | None:
    """Build a fine-tuned model as it was before it was fine-tuned.

    A model loaded from a run's folder starts from the checkpoint in that run's record. Any other model
    starts from the checkpoint that it was loaded from: that is the pretrained one if it was fine-tuned in memory.

    Args:
        model: the fine-tuned model.
        seed: of weights that no checkpoint has, such as a new head's.

    Returns:
        The model, or None if its origin is unknown.

    Raises:
        DamagedRecordError: the record is not as a run wrote it.
    """
    source = str(model.name_or_path or "")
    if not source:
        return None
    try:
        spec, lead = recorded_start(source) or (StudentSpec.model_validate({"init": source}), None)
        started = _build(model, spec, lead, seed)
    except DamagedRecordError:
        raise
    except (LimbeckError, ValidationError, KeyError, AttributeError):
        return None
    now, before = model.state_dict(), started.state_dict()
    if {name: one.shape for name, one in now.items()} != {
        n: one.shape for n, one in before.items()
    }:
        return None  # only some layers of the checkpoint, and it is unknown which
    same = all(torch.equal(before[name], one.to(before[name])) for name, one in now.items())
    return None if same else started


def recorded_start(source: str) -> tuple[StudentSpec, str | None] | None:
    """Read from a run's record what its student started from.

    Args:
        source: a run's folder, or the folder of its student.

    Returns:
        The student's settings, and its teacher if they take layers or sizes from one. None where there is no record.

    Raises:
        DamagedRecordError: the record is not as a run wrote it.
        LimbeckError: the record does not name the student's starting checkpoint.
    """
    folder = files.at_home(source)
    places = (folder, folder.parent) if folder.is_dir() else ()
    path = next((file for place in places if (file := place / "record.json").is_file()), None)
    if path is None:
        return None
    content: Any = verified(
        plain.read_json(path.read_bytes(), str(path), constant=lambda _: None), path
    )
    try:
        spec = StudentSpec.model_validate(content["recipe"]["student"])
        return spec, content["recipe"].get("teacher") if spec.from_teacher else None
    except (ValidationError, KeyError, TypeError) as error:
        raise LimbeckError(
            f"{path} does not name its student's initial checkpoint", "name a run that limbeck made"
        ) from error


def _build(
    model: PreTrainedModel, spec: StudentSpec, lead: str | None, seed: int
) -> PreTrainedModel:
    config, kind = model.config, task_type_of(model)
    regression = config.problem_type == "regression" or config.num_labels == 1
    head = _Head(() if regression else labels_of(config), regression)
    init = str(lead) if spec.init == "teacher" else spec.init
    if init == "fresh" or names_cnn(init) or starts_random(init):
        return build_student(config, task=head, kind=kind, seed=seed)
    named = named_model(init)
    return build_student(
        init if named is None else str(named.repository),
        task=head,
        layers=spec.layers,
        pick=spec.pick,
        config=spec.config,
        kind=kind,
        seed=seed,
    )

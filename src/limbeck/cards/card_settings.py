"""What a person says of a model that no record knows, kept beside the run. Part of `limbeck.cards`."""

from __future__ import annotations

import json
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limbeck.cards.facts import StudentFacts, base_models, dataset_of, public_name
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, write_whole
from limbeck.support.plain import read_json, read_text
from limbeck.tables.model import task_title
from limbeck.tasks import HubSource

SETTINGS_NAME = "card.json"


class CardSettings(BaseModel):
    """Every later writing of the card keeps them."""

    model_config = ConfigDict(extra="forbid")

    base_model: list[str] = Field(default_factory=list)
    """Hub names; empty: those that can be found out."""
    language: list[str] = Field(default_factory=list)
    """Codes such as `en`."""
    license: str | None = None
    """The Hub's identifier, `apache-2.0` say."""
    seeds: list[str] = Field(default_factory=list)
    """Run folders, or folders of runs, whose scores give the spread."""
    baseline: str | None = None
    """The method among them that others are tested against."""
    examples: bool | None = None
    """Whether rows on which student and teacher disagree are shown, with their texts where the run keeps them."""

    def within(self, kept: CardSettings) -> CardSettings:
        """What was kept, and in its place whatever is said here."""
        return kept.model_copy(update=self.model_dump(exclude_defaults=True))

    def write(self, run: Path) -> None:
        """Write them into a run folder, whole or not at all; nothing where nothing is said."""
        if self != CardSettings():
            write_whole(run / SETTINGS_NAME, json.dumps(self.model_dump(), indent=1) + "\n")


def read_settings(run: Path) -> CardSettings:
    """Those that a run folder holds. Raises LimbeckError for a file that cannot be read."""
    file = at_home(run) / SETTINGS_NAME
    if not file.is_file():
        return CardSettings()
    found = read_json(read_text(file), str(file))
    try:
        return CardSettings.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise LimbeckError(
            f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            "remove the file, and say it to limbeck card again",
        ) from None


# The metadata that a card opens with, as the Hub documents it.


HUB_METRICS = {
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "weighted_f1": "f1",
    "top5": "accuracy",
    "micro_f1": "f1",
    "macro_f1": "f1",
    "subset_accuracy": "accuracy",
}
"""The Hub's identifiers of metrics, where they are not ours."""

METRICS = {
    "weighted_f1": "F1 weighted by class",
    "f1": "F1",
    "matthews": "Matthews correlation",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "exact_match": "exact match",
    "top5": "top-5 accuracy",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
    "average_precision": "average precision",
    "subset_accuracy": "subset accuracy",
    "cosine": "mean cosine of the embeddings",
    "relative_error": "root mean squared error, % of the standard deviation",
}
"""Metrics in words, where they are more than their names."""
# One identifier of the Hub stands for several of ours.
_COARSE = ("f1", "accuracy")
_SPLITS = {
    "dev": "validation",
    "dev_mismatched": "validation_mismatched",
    "test": "test",
}
# Scores that are no shares.
_UNSCALED = frozenset({"perplexity"})


def metadata(student: StudentFacts, settings: CardSettings, name: str) -> ModelCardData:
    """Everything that is known; nothing is guessed."""
    record = student.record
    source = dataset_of(record)
    results = evaluation_results(student, source)
    bases = settings.base_model or base_models(record)
    return ModelCardData(
        language=languages(settings, source),
        license=settings.license,
        library_name=None if student.own_architecture else "transformers",
        pipeline_tag=student.pipeline,
        tags=["limbeck", *(["knowledge-distillation"] if record.kind == "distill" else [])],
        base_model=bases[0] if len(bases) == 1 else bases or None,
        datasets=[source.repository] if source is not None else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        model_name=name.split("/")[-1] if results else None,
        eval_results=results or None,
    )


def languages(settings: CardSettings, source: HubSource | None) -> list[str] | None:
    """As they were given; the tasks that limbeck knows are English."""
    return settings.language or (["en"] if source is not None else None)


def evaluation_results(student: StudentFacts, source: HubSource | None) -> list[EvalResult]:
    """Every metric on the run's own splits, as a share of 1 (the Hub's custom), for `model-index`."""
    record = student.record
    if student.pipeline is None or record.examples.labels is not None:
        return []  # agreement with a teacher is no evaluation
    return [
        EvalResult(
            task_type=student.pipeline,
            dataset_type=source.repository if source is not None else public_name(record.data),
            dataset_name=task_title(record.task),
            dataset_config=source.config if source is not None else None,
            dataset_split=_SPLITS.get(split, split),
            metric_type=HUB_METRICS.get(metric, metric),
            metric_name=METRICS[metric] if HUB_METRICS.get(metric) in _COARSE else None,
            metric_value=round(value if metric in _UNSCALED else value / 100, 4),
        )
        for split in own_splits(student)
        for metric, value in record.scores[split].items()
        if metric != "primary" and value is not None
    ]


def own_splits(student: StudentFacts) -> list[str]:
    """Those that the run itself was scored on."""
    return [split for split in student.record.scores if split in _SPLITS]

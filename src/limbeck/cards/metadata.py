"""The metadata that a card opens with, as the Hub documents it. Part of `limbeck.cards`."""

from huggingface_hub import EvalResult, ModelCardData

from limbeck.cards.facts import StudentFacts, base_models, dataset_of, public_name
from limbeck.cards.settings import CardSettings
from limbeck.tables.model import task_title
from limbeck.tasks import HubSource

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
# One identifier of the Hub covers several of ours.
_COARSE = ("f1", "accuracy")
_SPLITS = {"dev": "validation", "dev_mismatched": "validation_mismatched", "test": "test"}
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
            dataset_type=source.repository
            if source is not None
            else public_name(record.recipe.get(split) or record.data),
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

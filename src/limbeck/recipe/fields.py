"""What a recipe may say: every setting with its meaning and unit, once.

Part of `limbeck.recipe`. The descriptions become the command line's help and the reference in the
docs. Free of torch: groups of settings that belong to other packages are only named here, and their
types put in where a recipe is read (`limbeck.recipe.recipe`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from limbeck.recipe import groups
from limbeck.support.settings import (
    Batch,
    ClassNames,
    Count,
    Names,
    Number,
    Passes,
    Rate,
    Seed,
    Settings,
    Share,
    ThresholdSetting,
    Tokens,
)

if TYPE_CHECKING:
    from limbeck.input_transforms import MixupSpec, TransformSpec
    from limbeck.objectives import CurriculumSpec, TermSpec, WeightingSpec
    from limbeck.recipe.augment_spec import AugmentSpec
    from limbeck.students.execution import Attention, Precision
    from limbeck.teachers.team import TeamSpec


class RecipeFields(Settings):
    """All top-level keys of a recipe."""

    method: str = Field(description="name of the method; a shipped one is inherited from")
    family: str = Field("own", description="family it is listed under")
    summary: str = Field("", description="one line for `limbeck methods`")
    paper: str = Field("", description="where it is published")
    formula: str = Field("", description="the loss, as the paper writes it")
    settings: str = Field(
        "quick",
        description="training settings to start from: quick, or those that a paper states (paper), "
        "its released code (released) or another paper by its name; `limbeck methods NAME` shows "
        "which there are; whatever else is set wins",
    )

    teacher: str | None = Field(
        None,
        description="a run folder, a checkpoint's folder or a Hub name; beside `teachers` the one "
        "that gives the student its layers and teaches a first stage, the first of them by default",
    )
    teachers: list[str] | None = Field(
        None,
        min_length=1,
        description="several teachers, each as `teacher`, or a folder of runs for all in it",
    )
    outputs: list[str] | None = Field(
        None,
        min_length=1,
        description="stored teacher outputs in place of a teacher's model, of several teachers one each: a "
        "store that `limbeck label` made (folder or URL; STORE#MEMBER is one of its teachers), or a file with the "
        "data's text columns and logits, votes, probabilities, a score, margins or embeddings (CSV, TSV, JSON lines, "
        "Parquet)",
    )
    output_classes: ClassNames | None = Field(
        None,
        min_length=2,
        description="the data's class names in the order of the outputs, where these have none or other ones",
    )
    missing_outputs: Literal["error", "drop"] = Field(
        "error",
        description="training rows of which `outputs` say nothing: error, or drop (train on the others)",
    )
    team: TeamSpec | None = Field(None, description="how several teachers teach")
    task: str | None = Field(None, description="GLUE task, or a name for your own data")
    data: str = Field(
        "hub",
        description="hub, a GLUE folder, pocket, digits, or your own file or folder of images",
    )
    parallel: Names = Field(
        default_factory=list,
        description="files of translations in place of `data`: in each row a text that the teacher reads, then its "
        "translations; the student learns the teacher's embedding for all of them",
    )
    dev: str | None = Field(
        None,
        description="your own data in one file: another file whose rows select the best epoch; a part of `data` "
        "(`dev_share`), if left out (kind embedding needs it: scored pairs of texts, or a folder of queries and a "
        "corpus)",
    )
    test: str | None = Field(
        None,
        description="your own data in one file: another file whose rows select nothing and are scored once, at the "
        "end; a part of `data` (`test_share`), if left out",
    )
    dev_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of the labeled rows that selects the best epoch, where no dev rows are given; a tenth, if "
        "left out",
    )
    test_share: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="share of the labeled rows that selects nothing and is scored once, at the end; if left out, a "
        "tenth where the dev rows are a part of `data` too and 100 or more are labeled, else none",
    )
    group_column: str | None = Field(
        None,
        description="your own data: rows with one value in this column (an author, a document) stay together in "
        "train, dev or test",
    )
    text_columns: Names | None = Field(
        None, description="your own data: one or two text columns (of triplets three or more)"
    )
    label_column: str | None = Field(None, description="your own data: the label's column")
    classes: ClassNames | None = Field(
        None,
        min_length=2,
        description="your own data: the class names in the order of their ids; if left out, the "
        "teacher's order, or alphabetical (numbers: numerical)",
    )
    labels: Literal["classes", "numbers"] | None = Field(
        None,
        description="your own data: what the label column holds; if left out, its values decide: "
        "text and whole numbers are classes, numbers with fractions a regression",
    )
    label_separator: str | None = Field(
        None,
        min_length=1,
        max_length=8,
        description="several labels a row, as text: what stands between them; by default a comma, semicolon or bar, "
        "whichever the column holds",
    )
    thresholds: ThresholdSetting | None = Field(
        None,
        description="several labels a row: from which probability on a row is of a class: one (tuned on dev, for "
        "all classes, by micro F1; the default), by_class (tuned for each, by its F1), or a number",
    )
    unlabelled: Names = Field(
        default_factory=list,
        description="more training rows, without labels: files (CSV, TSV, JSON lines, Parquet, plain text with a text "
        "a line) or patterns of files (more/*.csv), their text columns named as the task's",
    )
    unlabelled_duplicates: Literal["refuse", "drop"] = Field(
        "refuse",
        description="rows without a label whose texts dev or test holds: refuse them, or drop them and say how many",
    )
    labelled_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="share of labelled examples in each batch, where some rows have no label; an epoch is then "
        "one pass over those; as they come, if left out",
    )
    unlabelled_weight: float = Field(
        1.0,
        ge=0,
        le=10**6,
        description="how much an example without a label counts in the terms that learn from the teacher's logits, "
        "next to one with a label",
    )
    candidates: Count | None = Field(
        None,
        description="kinds pair-score and embedding: candidates of a query in an epoch at most, one of the best grade "
        "and others that are sampled again every epoch; all if left out. Best with a batch_size that is a multiple "
        "of it (of embedding of one more, as the query is a text too)",
    )
    kind: str | None = Field(
        None,
        description="task type: sentence (a class or number, the default for your own data), multi-label (any number "
        "of classes), tokens (a tag for each word), spans (part of a context), masked (masked language "
        "modelling), causal-lm (language models that generate), text (classes as generated words), image (a class for "
        "an image), embedding (a vector for a sentence), pair-score (how well a passage answers a query: rerankers), "
        "ordinal (one of several classes in an order: ratings)",
    )
    max_length: Tokens = Field(128, description="longest input, in tokens")
    pad_to: Tokens | Literal["max_length"] | None = Field(
        None,
        description="width of every batch in tokens, or max_length; by default that of its longest "
        "example. Counts in terms that see padding, as some releases do",
    )
    images: groups.ImageSpec | None = Field(None, description="image size, cropping and mirroring")
    embedding: groups.EmbeddingModelSpec | None = Field(
        None, description="kind embedding: pooling, normalisation, width and prompts"
    )
    train_rows: Count | None = Field(None, description="sample N training rows (train_rows_seed)")
    train_rows_seed: Seed = Field(0, description="seed that samples train_rows")
    stratified: bool = Field(False, description="sample train_rows with exact class shares")
    label_noise: float = Field(0.0, ge=0, lt=1, description="share of training labels made wrong")
    label_noise_seed: Seed = Field(0, description="seed that samples the noise")
    augment: AugmentSpec | None = Field(None, description="augment the training rows (TinyBERT)")
    teacher_rows: Literal["same", "any"] = Field(
        "same",
        description="same: say so if the teacher was trained on other rows of the task than these; "
        "any: it may be",
    )

    student: groups.StudentSpec = Field(
        default_factory=lambda: groups.StudentSpec.model_validate({})
    )
    plugins: Names = Field(
        default_factory=list,
        description="files of Python that register losses of your own, executed before the recipe is "
        "read; paths are relative to the recipe file",
    )
    objectives: dict[str, TermSpec] = Field(default_factory=dict, description="terms of the loss")
    curriculum: CurriculumSpec | None = Field(
        None, description="when each layer learns, if not all of them all the time"
    )
    min_confidence: Share | None = Field(
        None,
        description="examples of whose class the teacher's probability is lower do not count in the terms "
        "that learn from its logits",
    )
    example_weights: WeightingSpec | None = Field(
        None,
        description="how much each example counts in those terms, by its name (`use`) with its settings: "
        "confidence (the teacher's top probability), llkd (and the student's uncertainty), or one that you "
        "have registered",
    )
    mixup: MixupSpec | None = Field(None, description="mix the inputs of both models (MixUp)")
    input_transform: TransformSpec | None = Field(
        None,
        description="another input transform by its name (`use`) with its settings: masked-kd, or one "
        "that you have registered",
    )
    teacher_dropout: bool = Field(
        False, description="keep the teacher's dropout on (some releases)"
    )
    first_stage: groups.FirstStage | None = Field(
        None, description="a stage that trains before, with terms and settings of its own"
    )
    joint: bool = Field(False, description="train both stages' terms together in one stage")
    keep_first_stage: bool = Field(
        False,
        description="keep the student as it is after the first stage too, in OUT/first_stage: a model folder with "
        "its tokenizer, for analyses or to start other students from",
    )

    epochs: Passes | None = Field(
        None,
        description="passes over the training rows; if left out 3, and more of few rows, for 200 steps (20 epochs at "
        "most)",
    )
    max_steps: Count | None = Field(None, description="most optimisation steps; overrides epochs")
    optimizer: Literal["adamw", "bert_adam", "sgd"] = Field(
        "adamw",
        description="what makes a step; bert_adam: without bias correction, each tensor's gradient "
        "clipped to norm 1, as in releases of BERT's time",
    )
    lr: Rate | None = Field(
        None,
        description="peak learning rate; if left out 5e-5, and 1e-4 for a student of two thirds of its teacher's "
        "layers or fewer",
    )
    batch_size: Batch = Field(32, description="examples in a forward pass, over all processes")
    accumulation: Batch = Field(
        1,
        description="forward passes whose gradients make one optimisation step, by all processes together",
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        le=10,
        description="AdamW, bert_adam: decoupled, of weights that are no bias or normalisation; "
        "sgd: of all",
    )
    adam_epsilon: Number | None = Field(
        None,
        gt=0,
        le=1,
        description="AdamW, bert_adam: added to the root of the mean squared gradient; 1e-8, of "
        "bert_adam 1e-6, if left out",
    )
    momentum: float | None = Field(None, ge=0, lt=1, description="sgd's momentum; .9 if left out")
    nesterov: bool = Field(False, description="sgd: Nesterov's momentum")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of steps with a rising rate")
    lr_schedule: groups.LrSchedule = Field(
        "linear",
        description="course of the learning rate after warm-up; step: times 0.1 after 5/8, 3/4 and 7/8 of the steps",
    )
    max_grad_norm: float = Field(1.0, ge=0, description="clip gradients to this norm; 0: do not")
    precision: Precision = Field(
        "fp32",
        description="type of matrix products: fp32, bf16, or auto (bf16 where the device has it); "
        "losses are fp32 either way",
    )
    attention: Attention = Field(
        "auto",
        description="attention implementation of both models: auto (the model's own; bf16 on "
        "CPU: the faster by a short measurement), eager, sdpa, …",
    )
    compile: bool = Field(
        False,
        description="compile the training passes of student and teacher (torch.compile): minutes "
        "first, for long runs on an accelerator",
    )
    skip_unused_embeddings: bool = Field(
        True,
        description="leave the embeddings of words that no training row holds out of every step, where a "
        "first batch shows that outputs and gradients stay the same",
    )
    cache: Literal["auto", "always", "never"] = Field(
        "auto",
        description="store the teacher outputs on the training rows and read them back in every "
        "epoch and run: auto (where it saves time and fits), always, never",
    )
    cache_limit: float = Field(
        20.0,
        gt=0,
        le=10**6,
        description="GiB of stored teacher outputs; the longest unused go first",
    )
    group_by_length: bool | None = Field(
        None,
        description="batch examples of similar length; if left out, in every stage that does not "
        "mix its inputs or pad them to a fixed width",
    )
    seed: Seed = Field(42, description="seed of initialisation, order, dropout and sampling")
    patience: Count | None = Field(None, description="stop after N epochs without a better score")
    select_by: str = Field("primary", description="score that picks an epoch: primary or a metric")
    checkpoint_steps: Count | None = Field(
        None, description="also checkpoint every N steps; always at the end of an epoch"
    )
    log_steps: Count = Field(10, description="steps between two logged values of the terms")
    keep_texts: bool = Field(
        True,
        description="keep the texts of the dev examples on which student and teacher disagree most in the run's "
        "record and report; off for private data (model cards and what is pushed hold none either way)",
    )
    floor: bool = Field(
        True,
        description="also fit a linear model on TF-IDF of the same training rows and labels, and print its scores "
        "next to the student's and the teacher's: what words alone reach",
    )
    report_to: Names = Field(
        default_factory=list,
        description="experiment trackers that get every logged value: tensorboard (in OUT/tensorboard), "
        "wandb, mlflow, or another that transformers knows",
    )
    workers: int = Field(0, ge=0, le=256, description="data loader processes, at most one per core")


# Where the keys of a group stand in a recipe.
_PREFIXES: dict[type[Settings], str] = {RecipeFields: "", groups.StudentSpec: "student."}


def descriptions() -> dict[str, str]:
    """What each key means, with its unit; nested keys have dots (`student.layers`)."""
    return {
        prefix + key: field.description
        for group, prefix in _PREFIXES.items()
        for key, field in group.model_fields.items()
        if field.description is not None
    }


def plain_defaults() -> dict[str, Any]:
    """The default of each key that has a plain one: a number, a truth value, text, or None."""
    return {
        prefix + key: field.default
        for group, prefix in _PREFIXES.items()
        for key, field in group.model_fields.items()
        if field.default is None or isinstance(field.default, bool | int | float | str)
    }

"""Every setting of a recipe, with its meaning and unit.

Part of `limbeck.recipe`. The descriptions become the command line's help and the reference in the
docs. Free of torch: groups of settings that belong to other packages are only named here, and
`limbeck.recipe.recipe` adds their types when it reads a recipe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from limbeck.recipe import groups
from limbeck.support import settings as types

if TYPE_CHECKING:
    from limbeck.input_transforms import MixupSpec, TransformSpec
    from limbeck.objectives import CurriculumSpec, TermSpec, WeightingSpec
    from limbeck.recipe.augment_spec import AugmentSpec
    from limbeck.students.execution import Attention, Precision
    from limbeck.teachers.team import TeamSpec


class RecipeFields(types.Settings):
    """All top-level keys of a recipe."""

    method: str = Field(description="name of the method; a shipped one is inherited")
    family: str = Field("own", description="family that lists the method")
    summary: str = Field("", description="one line for `limbeck methods`")
    paper: str = Field("", description="where the method is published")
    formula: str = Field("", description="the loss, as the paper writes it")
    settings: str = Field(
        "quick",
        description="training settings to start from: quick, the settings of the paper (paper), of its released code "
        "(released) or of another paper, by its name; `limbeck methods NAME` lists them; your own "
        "settings override them",
    )

    teacher: str | None = Field(
        None,
        description="a run folder, a checkpoint's folder or a Hub name; with `teachers`: the teacher that gives the "
        "student its layers and teaches a first stage, by default the first",
    )
    teachers: list[str] | None = Field(
        None,
        min_length=1,
        description="several teachers, each as for `teacher`, or one folder of runs",
    )
    outputs: list[str] | None = Field(
        None,
        min_length=1,
        description="stored teacher outputs, used instead of a teacher's model; one per teacher: a store that "
        "`limbeck label` made (folder or URL; STORE#MEMBER selects one of its teachers), or a file with "
        "the data's text columns and logits, votes, probabilities, a score, margins or embeddings (CSV, "
        "TSV, JSON lines, Parquet)",
    )
    output_classes: types.ClassNames | None = Field(
        None,
        min_length=2,
        description="the data's class names in the order of the outputs, if the outputs have no names or different "
        "ones",
    )
    missing_outputs: Literal["error", "drop"] = Field(
        "error",
        description="training rows without an entry in `outputs`: error, or drop (train on the others)",
    )
    team: TeamSpec | None = Field(None, description="how several teachers teach")
    task: str | None = Field(None, description="GLUE task, or a name for your own data")
    data: str = Field(
        "hub",
        description="hub, a GLUE folder, pocket, digits, or your own file or folder of images",
    )
    parallel: types.Names = Field(
        default_factory=list,
        description="files of translations, used instead of `data`: each row has a text for the teacher, then its "
        "translations; the student learns the teacher's embedding for all of them",
    )
    dev: str | None = Field(
        None,
        description="your own data in one file: another file whose rows select the best epoch; default: a part of "
        "`data` (`dev_share`). Kind embedding: scored pairs of texts, or a folder of queries and a "
        "corpus; may be left out where `data` is text alone",
    )
    test: str | None = Field(
        None,
        description="your own data in one file: another file whose rows are scored once, at the end, and select "
        "nothing; default: a part of `data` (`test_share`)",
    )
    dev_share: types.Between | None = Field(
        None,
        description="share of the labeled rows that selects the best epoch, if no dev rows are given; default: a tenth",
    )
    test_share: types.Part | None = Field(
        None,
        description="share of the labeled rows that is scored once, at the end, and selects nothing; default: a "
        "tenth if the dev rows are also a part of `data` and 100 or more rows are labeled, otherwise no rows",
    )
    group_column: str | None = Field(
        None,
        description="your own data: rows with the same value in this column (an author, a document) stay together in "
        "train, dev or test",
    )
    text_columns: types.Names | None = Field(
        None, description="your own data: one or two text columns (for triplets three or more)"
    )
    label_column: str | None = Field(None, description="your own data: the column of labels")
    classes: types.ClassNames | None = Field(
        None,
        min_length=2,
        description="your own data: the class names in the order of their ids; default: the teacher's order, or "
        "alphabetical (numbers: numerical)",
    )
    labels: Literal["classes", "numbers"] | None = Field(
        None,
        description="your own data: whether labels are classes or numbers; by default, text and integers are "
        "classes, numbers with fractions a regression",
    )
    label_separator: str | None = Field(
        None,
        min_length=1,
        max_length=8,
        description="several labels per row, as text: the separator between them; default: a comma, semicolon or "
        "bar, whichever the column contains",
    )
    thresholds: types.ThresholdSetting | None = Field(
        None,
        description="several labels per row: the probability from which a row has a class: one (tuned on dev, the "
        "same for all classes, by micro F1; the default), by_class (tuned for each class, by its F1), or a number",
    )
    unlabelled: types.Names = Field(
        default_factory=list,
        description="more training rows, without labels: files (CSV, TSV, JSON lines, Parquet, plain text with one "
        "text per line) or patterns of files (more/*.csv), with the task's text columns",
    )
    unlabelled_duplicates: Literal["refuse", "drop"] = Field(
        "refuse",
        description="unlabeled rows whose texts are also in dev or test: refuse (stop with an error), or drop (skip "
        "them and print how many)",
    )
    labelled_share: types.Between | None = Field(
        None,
        description="share of labeled examples in each batch, if some rows have no label; an epoch is then one pass "
        "over the unlabeled rows; default: no fixed share",
    )
    unlabelled_weight: float = Field(
        1.0,
        ge=0,
        le=10**6,
        description="weight of an example without a label in the terms that learn from the teacher's logits; an "
        "example with a label has weight 1",
    )
    candidates: types.Count | None = Field(
        None,
        description="kinds pair-score and embedding: most candidates per query and epoch, one of the best grade and "
        "others that are re-sampled every epoch; default: all. Use a batch_size that is a multiple of it "
        "(for embedding, of one more, as the query is a text too)",
    )
    kind: str | None = Field(
        None,
        description="task type: sentence (a class or number, the default for your own data), multi-label (any number "
        "of classes), tokens (a tag for each word), spans (part of a context), masked (masked language "
        "modeling), causal-lm (language models that generate), text (classes as generated words), image (a class for "
        "an image), embedding (a vector for a sentence), pair-score (how well a passage answers a query: rerankers), "
        "ordinal (one of several classes in an order: ratings)",
    )
    max_length: types.Tokens = Field(
        128,
        description="longest input, in tokens; default: 128, or the positions of a model that has fewer",
    )
    pad_to: types.Tokens | Literal["max_length"] | None = Field(
        None,
        description="width of every batch in tokens, or max_length; default: the length of its longest example. "
        "Matters in terms that see padding, as some releases do",
    )
    images: groups.ImageSpec | None = Field(None, description="image size, cropping and mirroring")
    embedding: groups.EmbeddingModelSpec | None = Field(
        None, description="kind embedding: pooling, normalization, width and prompts"
    )
    train_rows: types.Count | None = Field(
        None, description="sample N training rows (train_rows_seed)"
    )
    train_rows_seed: types.Seed = Field(0, description="seed that samples train_rows")
    stratified: bool = Field(False, description="sample train_rows with exact class shares")
    label_noise: types.Part = Field(0.0, description="share of training labels that are made wrong")
    label_noise_seed: types.Seed = Field(0, description="seed that samples the noise")
    augment: AugmentSpec | None = Field(None, description="augment the training rows (TinyBERT)")
    teacher_rows: Literal["same", "any"] = Field(
        "same",
        description="same: report if the teacher was trained on other rows of the task; any: allow it",
    )

    student: groups.StudentSpec = Field(
        default_factory=lambda: groups.StudentSpec.model_validate({}),
        description="where the student starts, and its shape",
    )
    plugins: types.Names = Field(
        default_factory=list,
        description="Python files that register your own losses, executed before the recipe is read; paths are "
        "relative to the recipe file",
    )
    objectives: dict[str, TermSpec] = Field(default_factory=dict, description="terms of the loss")
    curriculum: CurriculumSpec | None = Field(
        None, description="when each layer learns; default: all layers, all the time"
    )
    min_confidence: types.Share | None = Field(
        None,
        description="lowest teacher probability of an example's class: examples below it do not count in the terms "
        "that learn from the teacher's logits",
    )
    example_weights: WeightingSpec | None = Field(
        None,
        description="weight of each example in the terms that learn from the teacher's logits, by name (`use`) with "
        "its settings: confidence (the teacher's top probability), llkd (and the student's uncertainty), "
        "or one that you have registered",
    )
    mixup: MixupSpec | None = Field(None, description="mix the inputs of both models (MixUp)")
    input_transform: TransformSpec | None = Field(
        None,
        description="another input transform by its name (`use`) with its settings: masked-kd, or one "
        "that you have registered",
    )
    teacher_device_map: types.DeviceMap | dict[str, int | str] | None = Field(
        None,
        description="place a large teacher's parts on several devices: auto (fill the GPUs, then the CPU), balanced, "
        "balanced_low_0, sequential, or a device for each part as in transformers' `device_map`",
    )
    teacher_dropout: bool = Field(
        False, description="keep the teacher's dropout on (some releases)"
    )
    first_stage: groups.FirstStage | None = Field(
        None, description="a stage that trains first, with its own terms and settings"
    )
    joint: bool = Field(False, description="train both stages' terms together in one stage")
    keep_first_stage: bool = Field(
        False,
        description="also keep the student as it is after the first stage, in OUT/first_stage: a model folder with "
        "its tokenizer, for analyses or to start other students from",
    )

    epochs: types.Passes | None = Field(
        None,
        description="passes over the training rows; default: 3, or more for few rows, to reach 200 steps (at most 60 "
        "epochs)",
    )
    quality: Literal["fast", "usual", "best"] = Field(
        "usual",
        description="how long to train if epochs is not set; fast: a third of the usual epochs, best: three times",
    )
    max_steps: types.Count | None = Field(
        None, description="most optimization steps; overrides epochs"
    )
    optimizer: Literal["adamw", "bert_adam", "sgd"] = Field(
        "adamw",
        description="the optimizer; bert_adam: Adam without bias correction, each tensor's gradient clipped to norm "
        "1, as in releases of BERT's time",
    )
    lr: types.Rate | None = Field(
        None,
        description="peak learning rate; default: 5e-5, or 1e-4 for a student with at most two thirds of its "
        "teacher's layers",
    )
    batch_size: types.Batch = Field(
        32, description="examples in a forward pass, over all processes"
    )
    accumulation: types.Batch = Field(
        1,
        description="forward passes whose gradients make one optimization step, over all processes",
    )
    weight_decay: float = Field(
        0.0,
        ge=0,
        le=10,
        description="AdamW, bert_adam: decoupled, for all weights except biases and normalization; sgd: for all "
        "weights",
    )
    adam_epsilon: types.Number | None = Field(
        None,
        gt=0,
        le=1,
        description="AdamW, bert_adam: added to the root of the mean squared gradient; default: 1e-8, for bert_adam "
        "1e-6",
    )
    momentum: types.Part | None = Field(None, description="sgd's momentum; default: 0.9")
    nesterov: bool = Field(False, description="sgd: Nesterov's momentum")
    warmup: types.Part = Field(
        0.1, description="share of the steps in which the learning rate rises"
    )
    lr_schedule: groups.LrSchedule = Field(
        "linear",
        description="learning rate after warm-up; step: times 0.1 after 5/8, 3/4 and 7/8 of the steps",
    )
    max_grad_norm: float = Field(
        1.0, ge=0, description="clip gradients to this norm; 0: no clipping"
    )
    precision: Precision = Field(
        "fp32",
        description="type of matrix products: fp32, bf16, or auto (bf16 if the device has it); losses are always fp32",
    )
    attention: Attention = Field(
        "auto",
        description="attention implementation of both models: auto (the model's own; for bf16 on CPU the faster one "
        "in a short measurement), eager, sdpa, …",
    )
    compile: bool = Field(
        False,
        description="compile the training passes of student and teacher (torch.compile): takes minutes at the start; "
        "for long runs on an accelerator",
    )
    packing: bool = Field(
        False,
        description="kind causal-lm: run the training passes of student and teacher on batches without padding, the "
        "texts of a batch one after the other in one row; losses stay the same",
    )
    activation_checkpointing: bool = Field(
        False,
        description="compute the student's activations again in the backward pass instead of keeping them (gradient "
        "checkpointing): less memory, more time",
    )
    skip_unused_embeddings: bool = Field(
        True,
        description="leave the embeddings of tokens that are in no training row out of every step, if a first batch "
        "shows that outputs and gradients stay the same",
    )
    cache: Literal["auto", "always", "never"] = Field(
        "auto",
        description="store the teacher outputs for the training rows and read them back in every epoch and run: auto "
        "(if it saves time and fits), always, never",
    )
    cache_limit: float = Field(
        20.0,
        gt=0,
        le=10**6,
        description="GiB of stored teacher outputs; the longest unused are deleted first",
    )
    group_by_length: bool | None = Field(
        None,
        description="batch examples of similar length; default: in every stage that does not mix its inputs or pad "
        "them to a fixed width",
    )
    seed: types.Seed = Field(42, description="seed of initialization, order, dropout and sampling")
    patience: types.Count | None = Field(
        None, description="stop after N epochs without a better score"
    )
    select_by: str = Field(
        "primary", description="score that selects the best epoch: primary or a metric"
    )
    checkpoint_steps: types.Count | None = Field(
        None, description="checkpoint every N steps too, in addition to the end of each epoch"
    )
    log_steps: types.Count = Field(10, description="steps between two logged values of the terms")
    keep_texts: bool = Field(
        True,
        description="keep the texts of the dev examples on which student and teacher disagree most in the run's "
        "record and report; turn it off for private data (model cards and pushed files never contain them)",
    )
    floor: bool = Field(
        True,
        description="also fit a linear model on TF-IDF of the same training rows and labels, and print its scores "
        "next to the student's and the teacher's",
    )
    report_to: types.Names = Field(
        default_factory=list,
        description="experiment trackers that get every logged value: tensorboard (in OUT/tensorboard), wandb, "
        "mlflow, or another that transformers supports",
    )
    workers: int = Field(0, ge=0, le=256, description="data loader processes, at most one per core")


# The prefix of each group's keys in a recipe.
_PREFIXES: dict[type[types.Settings], str] = {RecipeFields: "", groups.StudentSpec: "student."}


def descriptions() -> dict[str, str]:
    """Return each key's description, with its unit; nested keys have dots (`student.layers`)."""
    return {
        prefix + key: field.description
        for group, prefix in _PREFIXES.items()
        for key, field in group.model_fields.items()
        if field.description is not None
    }


def plain_defaults() -> dict[str, Any]:
    """Return the default of each key that has a plain one: a number, a truth value, text, or None."""
    return {
        prefix + key: field.default
        for group, prefix in _PREFIXES.items()
        for key, field in group.model_fields.items()
        if field.default is None or isinstance(field.default, bool | int | float | str)
    }

"""Groups of settings inside a recipe: the student, images, a first stage.

Part of `limbeck.recipe`; free of torch, as `fields` is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from limbeck.support import settings

if TYPE_CHECKING:
    from limbeck.data import CorpusSpec
    from limbeck.input_transforms import MixupSpec, TransformSpec
    from limbeck.objectives import CurriculumSpec, TermSpec


class StudentSpec(settings.Settings):
    """Where the student comes from."""

    init: str = Field(
        "teacher",
        description="teacher (its layers), pretrained (the checkpoint that the teacher was "
        "fine-tuned from, by its run's record), a checkpoint's folder or Hub name, a shape "
        "(bert-8-128-2 from the Hub, bert-8-128-2:random, pocket, pocket-4-32-2; for images "
        "resnet-20, resnet-8x4, wrn-40-2, …), or fresh (the teacher's configuration, random weights); method finetune "
        "starts from pretrained unless another is named",
    )
    tokenizer: str | settings.Vocabulary | None = Field(
        None,
        description="a folder or Hub name, or a number: a tokenizer of so many tokens is trained on the texts of "
        "`data` or `parallel`; by default the one of `init`'s weights, and for a shape with random weights the data's "
        "own (pocket) or BERT's",
    )
    vocabulary: settings.VocabularySize | None = Field(
        None,
        description="keep the tokens that the training text needs, in tokenizer and embeddings: at most so many "
        "(8000), megabytes of embeddings (12MB), a share of the text's tokens (95%) or all that it uses (corpus); "
        "others are read in pieces; all tokens if left out",
    )
    layers: (
        settings.Depth
        | list[settings.Depth]
        | dict[str, settings.Depth | list[settings.Depth]]
        | None
    ) = Field(
        None,
        description="how many layers to keep, or which ones, counted from 1; of an encoder-decoder "
        "the same of both, or {encoder: 3, decoder: 1}",
    )
    pick: Literal["first", "last", "skip", "upper", "importance"] | None = Field(
        None,
        description="which layers to keep when `layers` is a number: first, last, skip, upper, or those that turn "
        "hidden states most on training rows (importance); if left out skip for classes and numbers of whole texts "
        "and for causal-lm, first for other task types and with a paper's settings",
    )
    hidden: settings.Width | None = Field(
        None,
        description="features of a hidden state to keep, those that matter most on training rows; all if left out, or "
        "as many as `heads` fill",
    )
    heads: settings.Width | None = Field(
        None,
        description="attention heads to keep in each layer, likewise; all if left out, or as many as fill `hidden`",
    )
    ffn: settings.Width | None = Field(
        None,
        description="hidden units of each feed-forward network to keep, likewise; all if left out",
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="settings of a fresh configuration (hidden_size: 128)"
    )
    static: bool = Field(
        False,
        description="a table of token vectors without layers, many times faster: started from what `init` makes of "
        "each token, or (init: fresh) from random numbers; kinds sentence, multi-label and embedding",
    )
    width: settings.Width | None = Field(
        None,
        description="static: numbers of a token vector, at most the teacher's; 256 if left out, or as many as the "
        "teacher's if those are fewer",
    )
    pairs: int | None = Field(
        None,
        ge=0,
        le=10**8,
        description="static: rows of a table of hashed word pairs, which catch 'not good'; if left out 200,000, and 0 "
        "for embeddings",
    )
    head_width: int | None = Field(
        None,
        ge=0,
        le=10**5,
        description="static: hidden units between the mean vector and the classes; 64 if left out; 0: none",
    )
    token_dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="static: share of tokens and pairs that a training step leaves out; if left out 0.5, and 0 for "
        "embeddings",
    )

    @property
    def narrower(self) -> dict[str, int]:
        """The sizes to which it is cut."""
        return {
            name: value
            for name in ("hidden", "heads", "ffn")
            if (value := getattr(self, name)) is not None
        }

    @property
    def ranks_layers(self) -> bool:
        """Whether rows decide which layers stay."""
        return self.pick == "importance" and self.layers is not None

    @property
    def static_settings(self) -> dict[str, Any]:
        """What is said of a static student."""
        names = ("width", "pairs", "head_width", "token_dropout")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def from_teacher(self) -> bool:
        """Whether a teacher gives it layers, configuration and vocabulary."""
        return self.init in ("teacher", "fresh")


class ImageSpec(settings.Settings):
    """How images are read, in training and everywhere else."""

    size: int | None = Field(
        None,
        gt=3,
        le=10**4,
        description="height and width in pixels; the checkpoint's, or the task's, if left out",
    )
    crop: int | None = Field(
        None,
        ge=0,
        le=10**4,
        description="training: cut a random window out of the image with a black border of so many "
        "pixels; an eighth of its height if left out; 0: none",
    )
    flip: bool | None = Field(
        None,
        description="training: mirror every other image; if left out, where the task is known to "
        "bear it (CIFAR)",
    )

    @model_validator(mode="after")
    def _no_more_frame_than_picture(self) -> ImageSpec:
        if self.size is not None and self.crop is not None and self.crop > self.size:
            raise ValueError(f"`crop` {self.crop} is more than the image's `size` {self.size}")
        return self


class EmbeddingModelSpec(settings.Settings):
    """What stands behind an encoder of kind embedding, where its folder does not say."""

    pooling: settings.Pool | None = Field(
        None,
        description="which tokens speak for a text, of encoders that are no sentence-transformers folder: mean "
        "(the default), cls or last",
    )
    normalize: bool | None = Field(
        None, description="divide embeddings by their length, of the same encoders; yes if left out"
    )
    width: settings.Width | None = Field(
        None,
        description="numbers of the student's embeddings, by a learned map that is shipped with it (a Dense module); "
        "the encoder's own width if left out",
    )
    max_tokens: settings.Tokens | None = Field(
        None,
        description="tokens of a text that the shipped student reads (max_seq_length of its folder), and is scored "
        "with; as the teacher's folder says, if left out, else max_length",
    )
    similarity: Literal["cosine", "dot"] | None = Field(
        None,
        description="how embeddings are compared in scores, and by whoever loads the student; as the teacher's folder "
        "says, if left out, else dot with normalize=false and cosine without",
    )
    prompt: str | None = Field(
        None,
        description="text before every text, of both models: a text, or the name of one of the teacher's prompts; "
        "as the teacher's folder says, if left out; '' for none",
    )
    query_prompt: str | None = Field(
        None,
        description="text before queries (of pairs, triplets and retrieval), likewise; the teacher's prompt `query`, "
        "if left out",
    )
    passage_prompt: str | None = Field(
        None,
        description="text before what queries look for, likewise; the teacher's prompt `document` or `passage`, "
        "if left out",
    )


LrSchedule = Literal["linear", "cosine", "constant_with_warmup", "step"]


class FirstStage(settings.Settings):
    """A stage that trains before the recipe's own; what it leaves out is as at the top level."""

    objectives: dict[str, TermSpec] = Field(default_factory=dict, description="terms of its loss")
    curriculum: CurriculumSpec | None = Field(None, description="when each layer learns")
    mixup: MixupSpec | None = Field(None, description="mix the inputs of both models")
    input_transform: TransformSpec | None = Field(None, description="other input transform")
    epochs: settings.Passes | None = Field(None, description="passes over this stage's rows")
    max_steps: settings.Count | None = Field(
        None, description="most optimisation steps; overrides epochs"
    )
    lr: settings.Rate | None = Field(None, description="peak learning rate")
    batch_size: settings.Batch | None = Field(None, description="examples in a forward pass")
    accumulation: settings.Batch | None = Field(None, description="forward passes of one step")
    lr_schedule: LrSchedule | None = Field(None, description="course of the learning rate")
    warmup: float | None = Field(None, ge=0, lt=1, description="share of steps with a rising rate")
    weight_decay: float | None = Field(None, ge=0, le=10, description="decay of the weights")
    pad_to: settings.Tokens | Literal["max_length"] | None = Field(
        None, description="width of every batch"
    )

    task: str | None = Field(
        None,
        description="supplementary task: this stage reads its text and ignores its labels; kind text reads them too",
    )
    data: str | None = Field(None, description="source of the supplementary task's rows")
    text_columns: settings.Names | None = Field(None, description="text columns of `data`")
    label_column: str | None = Field(None, description="label column of `data`")
    train_rows: settings.Count | None = Field(
        None,
        description="rows of this stage; a supplementary task's are all, if left out",
    )
    corpus: CorpusSpec | None = Field(None, description="sentence pairs of a corpus instead")
    teacher: str | None = Field(None, description="another teacher for this stage")

    @property
    def supplementary(self) -> bool:
        """Whether it trains on other rows than the task's."""
        return any((self.task, self.data, self.corpus))

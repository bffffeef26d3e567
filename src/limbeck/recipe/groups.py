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
    """The student's initial weights, tokenizer and size."""

    init: str = Field(
        "teacher",
        description="teacher (its layers), pretrained (the checkpoint that the teacher was fine-tuned from, by its "
        "run's record), a checkpoint's folder or Hub name, a shape (bert-8-128-2 from the Hub, "
        "bert-8-128-2:random, pocket, pocket-4-32-2; for images resnet-20, resnet-8x4, wrn-40-2, …), or "
        "fresh (the teacher's configuration, random weights); method finetune starts from pretrained by default",
    )
    tokenizer: str | settings.Vocabulary | None = Field(
        None,
        description="a folder or Hub name, or a number N: train a tokenizer of N tokens on the texts of `data` or "
        "`parallel`; default: the tokenizer of `init`'s weights; for a shape with random weights, the "
        "data's own (pocket) or BERT's",
    )
    vocabulary: settings.VocabularySize | None = Field(
        None,
        description="keep the tokens that the training text needs, in tokenizer and embeddings: a number of tokens "
        "(8000), megabytes of embeddings (12MB), a share of the text's tokens (95%) or all that it uses "
        "(corpus); other words are split into kept pieces; default: all tokens",
    )
    layers: (
        settings.Depth
        | list[settings.Depth]
        | dict[str, settings.Depth | list[settings.Depth]]
        | None
    ) = Field(
        None,
        description="how many layers to keep, or which ones, counted from 1; for an encoder-decoder the same in "
        "both, or {encoder: 3, decoder: 1}",
    )
    pick: Literal["first", "last", "skip", "upper", "importance"] | None = Field(
        None,
        description="which layers to keep when `layers` is a number: first, last, skip, upper, or importance (the "
        "layers that turn hidden states most on training rows); default: importance for causal-lm, skip for "
        "classes and numbers of complete texts and for rerankers, upper for embeddings, first for other task types "
        "and with a paper's settings",
    )
    hidden: settings.Width | None = Field(
        None,
        description="features of a hidden state to keep, selected by importance on training rows; default: all, or "
        "as many as `heads` fill",
    )
    heads: settings.Width | None = Field(
        None,
        description="attention heads to keep in each layer, selected by importance; default: all, or as many as fill "
        "`hidden`",
    )
    ffn: settings.Width | None = Field(
        None,
        description="hidden units to keep in each feed-forward network, selected by importance; default: all",
    )
    embedding_bits: Literal[4] | None = Field(
        None,
        description="4: train with the embedding tables rounded to 4 bits, so that `export` with 4 bits changes "
        "nothing in them; default: trained in float",
    )
    config: dict[str, Any] = Field(
        default_factory=dict, description="settings of a fresh configuration (hidden_size: 128)"
    )
    static: bool = Field(
        False,
        description="a table of token vectors without layers, many times faster: starts from `init`'s output for "
        "each token, or (init: fresh) from random numbers; kinds sentence, multi-label and embedding",
    )
    width: settings.Width | None = Field(
        None,
        description="static: size of a token vector, at most the teacher's; default: 256, or the teacher's if that "
        "is smaller",
    )
    pairs: int | None = Field(
        None,
        ge=0,
        le=10**8,
        description="static: rows of a table of hashed word pairs, which catch 'not good'; default: 200,000, for "
        "embeddings 0",
    )
    head_width: int | None = Field(
        None,
        ge=0,
        le=10**5,
        description="static: hidden units between the mean vector and the classes; default: 64; 0: no hidden layer",
    )
    token_dropout: settings.Part | None = Field(
        None,
        description="static: share of tokens and pairs that a training step leaves out; default: 0.5, of few "
        "short texts 0.3, for embeddings 0",
    )

    @property
    def narrower(self) -> dict[str, int]:
        """The sizes to which the student is cut."""
        return {
            name: value
            for name in ("hidden", "heads", "ffn")
            if (value := getattr(self, name)) is not None
        }

    @property
    def ranks_layers(self) -> bool:
        """Whether training rows decide which layers are kept."""
        return self.pick == "importance" and self.layers is not None

    @property
    def static_settings(self) -> dict[str, Any]:
        """The settings of a static student that are given."""
        names = ("width", "pairs", "head_width", "token_dropout")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def from_teacher(self) -> bool:
        """Whether the student gets layers, configuration or vocabulary from a teacher."""
        alone = self.init == "fresh" and self.static and self.tokenizer is not None
        return self.init in ("teacher", "fresh") and not alone


class ImageSpec(settings.Settings):
    """How images are read, in training and everywhere else."""

    size: int | None = Field(
        None,
        gt=3,
        le=10**4,
        description="height and width in pixels; default: the checkpoint's, or the task's",
    )
    crop: int | None = Field(
        None,
        ge=0,
        le=10**4,
        description="training: cut a random window out of the image with a black border of this many pixels; "
        "default: an eighth of its height; 0: no cropping",
    )
    flip: bool | None = Field(
        None,
        description="training: mirror every other image; default: on for tasks whose labels do not depend on it "
        "(CIFAR)",
    )

    @model_validator(mode="after")
    def _no_more_frame_than_picture(self) -> ImageSpec:
        if self.size is not None and self.crop is not None and self.crop > self.size:
            raise ValueError(f"`crop` {self.crop} is more than the image's `size` {self.size}")
        return self


class EmbeddingModelSpec(settings.Settings):
    """Settings of an encoder of kind embedding that its folder does not specify."""

    pooling: settings.Pool | None = Field(
        None,
        description="how token vectors become one text vector, for encoders that are not a sentence-transformers "
        "folder: mean (the default), cls or last",
    )
    normalize: bool | None = Field(
        None, description="divide embeddings by their length, for the same encoders; default: yes"
    )
    width: settings.Width | None = Field(
        None,
        description="size of the student's embeddings, by a learned map that is shipped with it (a Dense module); "
        "default: the encoder's own width",
    )
    max_tokens: settings.Tokens | None = Field(
        None,
        description="most tokens per text of the shipped student (max_seq_length of its folder), in scores too; "
        "default: the value in the teacher's folder, otherwise max_length",
    )
    similarity: Literal["cosine", "dot"] | None = Field(
        None,
        description="how embeddings are compared, in scores and by users of the student; default: the value in the "
        "teacher's folder, otherwise dot with normalize=false and cosine without",
    )
    prompt: str | None = Field(
        None,
        description="prefix of every text, for both models: a text, or the name of one of the teacher's prompts; "
        "default: the prompt in the teacher's folder; '' for no prompt",
    )
    query_prompt: str | None = Field(
        None,
        description="prefix of queries (in pairs, triplets and retrieval), as for `prompt`; default: the teacher's "
        "prompt `query`",
    )
    passage_prompt: str | None = Field(
        None,
        description="prefix of the texts that queries search, as for `prompt`; default: the teacher's prompt "
        "`document` or `passage`",
    )


LrSchedule = Literal["linear", "cosine", "constant_with_warmup", "step"]


class FirstStage(settings.Settings):
    """A stage that trains before the recipe's own; its defaults are the top-level values."""

    objectives: dict[str, TermSpec] = Field(default_factory=dict, description="terms of its loss")
    curriculum: CurriculumSpec | None = Field(None, description="when each layer learns")
    mixup: MixupSpec | None = Field(None, description="mix the inputs of both models")
    input_transform: TransformSpec | None = Field(None, description="other input transform")
    epochs: settings.Passes | None = Field(None, description="passes over this stage's rows")
    max_steps: settings.Count | None = Field(
        None, description="most optimization steps; overrides epochs"
    )
    lr: settings.Rate | None = Field(None, description="peak learning rate")
    batch_size: settings.Batch | None = Field(None, description="examples in a forward pass")
    accumulation: settings.Batch | None = Field(None, description="forward passes of one step")
    lr_schedule: LrSchedule | None = Field(None, description="learning rate after warm-up")
    warmup: settings.Part | None = Field(
        None, description="share of the steps in which the learning rate rises"
    )
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
        None, description="rows of this stage; default for a supplementary task: all"
    )
    corpus: CorpusSpec | None = Field(None, description="sentence pairs of a corpus instead")
    teacher: str | None = Field(None, description="another teacher for this stage")

    @property
    def supplementary(self) -> bool:
        """Whether the stage trains on rows of another task."""
        return any((self.task, self.data, self.corpus))

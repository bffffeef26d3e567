"""The base classes of a loss term and of its settings in a recipe. Part of `limbeck.objectives`.

A term declares its needs of both models and returns one scalar. Thin wiring: the mathematics is in
`limbeck.functional`. Everything that limbeck has to know about a term before a model is loaded is in its
traits: attributes of its class, which its settings may override where their values decide.
Nothing outside asks which term it is.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from collections.abc import Mapping as Batch
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, ClassVar

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck import activations
from limbeck.embedding import embedding_width
from limbeck.mappings.maps import Projections
from limbeck.support.errors import LimbeckError, Problem, check_choice
from limbeck.support.registry import Registry
from limbeck.support.settings import Settings, Weight
from limbeck.support.step_state import StepState
from limbeck.tasks import SENTENCE, TaskType

# The facts about a teacher and a student that objectives are built from.


@dataclass(frozen=True)
class ModelShape:
    """Depth, width and attention heads of one model's main stack, and of each by name.

    All 0 of a network that has no layers over tokens, such as a convolutional one. `labels`: how many
    its classifier has. `embedding`: numbers of a sentence embedding.
    """

    layers: int
    width: int
    heads: int
    causal: bool = False
    stacks: "Mapping[str, ModelShape]" = field(default_factory=dict)
    labels: int = 0
    embedding: int = 0

    @property
    def outputs(self) -> int:
        """The size of the head's output for one example: of the embedding, or the number of labels."""
        return self.embedding or self.labels

    @classmethod
    def of(cls, model: PreTrainedModel) -> "ModelShape":
        """Read the shape off a model; a stored teacher's model carries its shape."""
        if isinstance(stated := getattr(model, "stated_shape", None), ModelShape):
            return replace(stated, labels=model.config.num_labels or 0)
        stacks = {
            name: cls(
                activations.number_of_layers(model, name),
                activations.hidden_size(model, name),
                activations.number_of_heads(model, name),
                activations.is_causal(model, name),
            )
            for name in activations.stack_names(model)
        }
        main = stacks.get("main", cls(0, 0, 0))
        return replace(
            main,
            stacks=stacks,
            labels=model.config.num_labels or 0,
            embedding=embedding_width(model),
        )

    def written(self) -> dict[str, Any]:
        """As JSON can keep it."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "ModelShape":
        """From what `written` gave.

        Raises:
            TypeError: it is something else.
        """
        stacks = {name: cls.read(stack) for name, stack in content.get("stacks", {}).items()}
        return cls(**{**content, "stacks": stacks})

    def stack(self, name: str, setting: str, side: str) -> "ModelShape":
        """One stack's facts.

        Raises:
            LimbeckError: the model has no such stack.
        """
        if name == "main":
            return self
        check_choice(f"{setting}.stack of the {side}", name, list(self.stacks) or ["main"])
        return self.stacks[name]


@dataclass(frozen=True)
class Shape:
    """A teacher–student pair and the kind of its task.

    `rows` bounds the `index` of the training examples from above; 0 where it is not known. `classes` are the
    names of the student's outputs in id order, and `balanced` the weights (C,) by which its classes count alike
    in the training rows, where a term asks for them. `kept`: by a teacher's width the features of it that the
    student has.
    """

    student: ModelShape
    teacher: ModelShape
    kind: TaskType = SENTENCE
    rows: int = 0
    classes: tuple[str, ...] = ()
    balanced: Tensor | None = None
    kept: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def outcomes(self) -> float:
        """As `TaskType.outcomes` of the student's head."""
        return self.kind.outcomes(self.student.labels)

    @property
    def number(self) -> bool:
        """Whether an example has one number."""
        return self.kind.is_number(self.student.labels)

    @property
    def one_label(self) -> bool:
        """Whether an example has one class or one number, which a head decides."""
        return self.number or 1 < self.outcomes < math.inf


NOTHING = activations.Request()


def _of_term(trait: str) -> Any:
    """A property of a term's settings: the trait of its class."""
    return property(attrgetter(f"objective.{trait}"))


class TermSettings(Settings):
    """The settings of one term in a recipe: its name, its weight, and further fields of a subclass.

    The properties are the term's traits (`Objective`); a subclass overrides the traits that its values
    decide.
    """

    names: ClassVar[tuple[str, ...]] = ()
    """The names of the terms with these settings, the choices of `compare`; () for any."""

    unsaid: ClassVar[tuple[str, ...]] = ()
    """Settings that are not written down where they have their default."""

    compare: str = Field(description="registered name of the comparison")
    weight: Weight = Field(1.0, description="weight in the sum: a number, a fraction, or a ramp")

    @model_serializer(mode="wrap")
    def _without_what_is_unsaid(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        for key in self.unsaid:
            if getattr(self, key) == type(self).model_fields[key].default:
                written.pop(key, None)  # a dump may omit unset fields
        return written

    @model_validator(mode="before")
    @classmethod
    def _names_the_only_one(cls, given: Any) -> Any:
        """If the settings belong to a single term, its name may be omitted."""
        if isinstance(given, dict) and "compare" not in given and len(cls.names) == 1:
            return {"compare": cls.names[0], **given}
        return given

    @field_validator("compare")
    @classmethod
    def _is_one_of_them(cls, compare: str) -> str:
        if cls.names and compare not in cls.names:
            raise ValueError(f"{compare} has other settings; choices here: {', '.join(cls.names)}")
        return compare

    @property
    def objective(self) -> "type[Objective]":
        """The term's class. Raises LimbeckError where nothing of that name is registered."""
        return OBJECTIVES.get(self.compare, "compare")

    def build(self, shape: Shape, setting: str, maps: Projections | None = None) -> "Objective":
        """The term for a pair of models.

        Args:
            shape: depth and width of both.
            setting: what messages call it: `objectives.NAME`.
            maps: of the `lender`, if there is one.

        Raises:
            LimbeckError: it does not fit these models.
        """
        if maps is None:
            return self.objective(self, shape, setting)
        return self.objective(self, shape, setting, maps)

    @property
    def lender(self) -> str | None:
        """The other term of the stage whose learned maps serve here too."""
        return None

    # As the term's, unless a subclass overrides it.
    needs_teacher = _of_term("needs_teacher")
    reads_logits = _of_term("reads_logits")
    reads_labels = _of_term("reads_labels")
    mixes_labels = _of_term("mixes_labels")
    counts_labelled = _of_term("counts_labelled")
    needs_layers = _of_term("needs_layers")
    needs_index = _of_term("needs_index")
    weighs_examples = _of_term("weighs_examples")
    compares_candidates = _of_term("compares_candidates")
    shifts_matter = _of_term("shifts_matter")
    needs_mixed = _of_term("needs_mixed")

    @property
    def reads_numbers(self) -> bool:
        """Whether it reads labels where they are numbers."""
        found: bool = self.reads_labels
        return found

    @property
    def counts_classes(self) -> bool:
        """Whether it needs the weights by which the classes of the training rows count equally."""
        return False

    @property
    def reads_decoder(self) -> bool:
        """Whether it looks inside a decoder, whose input is made of targets."""
        return False


class Objective(nn.Module, ABC):
    """One named term of the loss.

    A subclass defines `forward`, and `request` if it reads more than logits. Class attributes are
    its traits.

    Args:
        settings: from the recipe; the defaults of `settings_class` if left out.
        shape: of the models it is built for, and the task's type; None until it is known.
        setting: what messages call it, `objectives.NAME`.
        maps: another term's learned maps, where the settings name a `lender`.
    """

    settings_class: ClassVar[type[TermSettings]] = TermSettings
    """The class of its settings in a recipe."""
    needs_teacher: bool = True
    """Whether it looks at a teacher."""
    reads_logits: ClassVar[bool] = True
    """Whether it looks at logits: the student's, and the teacher's if it needs one."""
    needs_layers: ClassVar[bool] = False
    """Whether it looks inside a model, at layers over tokens."""
    reads_labels: bool = False
    """Whether it looks at the labels of a batch, so that it cannot learn from rows without."""
    mixes_labels: ClassVar[bool] = False
    """Whether it uses both partners' labels of mixed input. A term that reads labels, but does not do so,
    raises an error with MixUp."""
    counts_labelled: ClassVar[bool] = False
    """Whether it averages over the labeled examples of a batch that also has others. A term that reads labels,
    but does not do so, raises an error for unlabeled rows."""
    needs_index: ClassVar[bool] = False
    """Whether it remembers training examples by their number, `batch["index"]`."""
    weighs_examples: ClassVar[bool] = False
    """Whether it counts each example by the weight that its batch has for it (`example_weights`)."""
    compares_candidates: ClassVar[bool] = False
    """Whether it compares examples of a batch that belong together, which the rows have to identify."""
    compares_examples: ClassVar[bool] = False
    """Whether it compares the logits of a batch's examples with each other. Where several processes share a forward
    pass, it is given the logits and numbers of all examples of the pass."""
    shifts_matter: ClassVar[bool] = False
    """Whether a number added to all logits of an example changes it: of probabilities they are known but for one."""
    needs_mixed: ClassVar[str] = ""
    """Its reason to need mixed inputs; empty if it does not."""

    settings: TermSettings
    shape: Shape

    def __init__(
        self,
        settings: TermSettings | None = None,
        shape: Shape | None = None,
        setting: str = "objective",
        maps: Projections | None = None,
    ) -> None:
        super().__init__()
        del maps  # only for terms that borrow
        own = type(self).settings_class
        if settings is None and own.names:
            with suppress(ValidationError):  # fields without a default are required
                settings = own.model_validate({"compare": own.names[0]})
        if settings is not None:
            self.settings = settings
        if shape is not None:
            self.shape = shape
        self.setting = setting

    @property
    def means_over_labelled(self) -> bool:
        """Whether its value is a mean over the labeled examples of a batch alone.

        A step in parts weighs it by how many of these each part holds, and other terms by all examples.
        """
        return self.reads_labels and self.counts_labelled

    @property
    def sees_padding(self) -> bool:
        """Whether padding positions count, as they do in some releases."""
        return False

    @property
    def sees_differences(self) -> bool:
        """Whether it looks at differences of nearly equal states, where float16 has no digits."""
        return False

    def request(self, side: str, step_state: StepState) -> activations.Request:
        """What this term needs of the `student` or the `teacher` at `step_state`: logits, unless a
        subclass overrides it.

        With mixed inputs, it is also called for the student on `clean` input.
        """
        looked_at = ("student", "teacher") if self.needs_teacher else ("student",)
        return (
            activations.Request.of_logits() if self.reads_logits and side in looked_at else NOTHING
        )

    def ever(self, side: str) -> activations.Request:
        """What this term may need of one side at any moment of a run."""
        return self.request(side, StepState(seed=0))

    @abstractmethod
    def forward(
        self,
        student: activations.Trace,
        teacher: activations.Trace,
        batch: Batch[str, Tensor],
        step_state: StepState,
    ) -> Tensor:
        """The term's value, a float32 scalar."""

    def active_layers(self, step_state: StepState) -> list[list[int]] | None:
        """[student layer, teacher layer] pairs at work, for the record; None without layers."""
        return None

    @property
    def student_layers(self) -> tuple[int, ...] | None:
        """The student layers that learn from it, which a curriculum may go through; None without."""
        return None

    def turn_problems(self, name: str) -> list[Problem]:
        """Why its layers cannot learn one after another, as a curriculum wants."""
        return []

    def weights_by_class(self) -> dict[str, float] | None:
        """How much each class counts, by name, for the record; None where all count alike."""
        return None

    def remarks(self) -> list[Problem]:
        """Warnings of pre-flight that a user should know before training."""
        return []


OBJECTIVES: Registry[type[Objective]] = Registry("objective")
"""Every term by the value of `compare` that names it."""


# One term's learned maps that serve another one too: `through`.
#
# The maps belong to one term, which trains and saves them.


class Borrowed:
    """Another term's maps, or none, out of torch's sight: they are its parameters, not the borrower's."""

    def __init__(self, lender: Projections | None) -> None:
        self.lender = lender


def lent_maps(setting: str, through: str, terms: Mapping[str, nn.Module]) -> Projections:
    """The maps of the term that `through` names, one for all layers.

    Args:
        setting: of the borrower, for messages.
        through: the lender's name.
        terms: the terms that have maps of their own, by name.

    Raises:
        LimbeckError: no such term, or its maps do not serve every layer.
    """
    lenders: dict[str, Projections] = {}
    for name, term in terms.items():
        own = getattr(term, "projections", None)
        if isinstance(own, Projections) and own.of_layers:
            lenders[name] = own
    check_choice(f"term with a map of single layers in {setting}.through:", through, lenders)
    maps = lenders[through]
    if len(maps.widths) > 1 and not maps.shared:
        raise LimbeckError(
            Problem(
                f"{setting}.through: {through} has a map for each of its layers, and none for others",
                f"set objectives.{through}.project.share: all",
            )
        )
    return maps

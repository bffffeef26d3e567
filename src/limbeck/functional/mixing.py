"""MixUp: two inputs, or two outputs, on the line between them.

Comes before both models (their embeddings are mixed) and after the student (its clean outputs are).
"""

from jaxtyping import Float
from torch import Tensor

from limbeck.functional.reductions import require_same_shape


def mix(
    a: Float[Tensor, "*shape"], b: Float[Tensor, "*shape"], lam: float | int | Float[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """lam·a + (1−lam)·b: CR-ILD's Mix_λ, on embeddings and on layer outputs.

    `lam` is a number, or a tensor that broadcasts (one λ an example: [batch, 1, 1]). The type of
    the inputs is kept, because the result may be a model's input.

    Raises:
        LimbeckError: the shapes differ.
    """
    require_same_shape("mix", a.shape, b.shape, "pad both inputs to one length")
    return lam * a + (1 - lam) * b

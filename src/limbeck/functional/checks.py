"""What the functions refuse, in words a user can act on.

Broadcasting would turn a student of another width, head count or label count into a wrong number
without a word. These checks read shapes and Python numbers only, so they never wait for the device.
"""

from collections.abc import Sequence

from torch import Tensor

from limbeck.support.errors import LimbeckError


def require_same_shape(what: str, student: Sequence[int], teacher: Sequence[int], fix: str) -> None:
    """Raises `LimbeckError` unless the two shapes are one; `fix` says what to do about it."""
    if tuple(student) != tuple(teacher):
        raise LimbeckError(
            f"{what}: the student has shape {tuple(student)}, the teacher {tuple(teacher)}",
            fix,
        )


def require_shape(
    what: str,
    tensor: Tensor,
    expected: Sequence[int],
    fix: str = "give a mask of that shape, true where a real token stands",
) -> None:
    """Raises `LimbeckError` unless the tensor, by default a mask, has exactly this shape."""
    if tuple(tensor.shape) != tuple(expected):
        raise LimbeckError(f"{what} has shape {tuple(tensor.shape)}, not {tuple(expected)}", fix)


def require_positive(setting: str, value: float | int) -> None:
    """Raises `LimbeckError` unless the number is above zero."""
    if not value > 0:
        raise LimbeckError(f"{setting} is {value}", "give a number above 0; 1 leaves logits alone")

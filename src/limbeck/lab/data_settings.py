"""Training settings that are known to work on pocket data and on the digits. Part of `limbeck.lab`."""

from collections.abc import Mapping
from typing import Any

from limbeck.lab.digits import DIGITS
from limbeck.lab.pocket import RECOMMENDED, TEXT_STUDENT, TEXT_TEACHER
from limbeck.lab.pocket.generate import POCKET
from limbeck.lab.pocket.lexicon import MAX_LENGTH
from limbeck.recipe.load import DATA_SETTINGS, DataSettings
from limbeck.students import names_cnn, starts_random

_SMALL_SET_EPOCHS = 30


def pocket_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a pocket task's teacher, or students; of other tasks only the longest text."""
    task, student = recipe.get("task"), recipe.get("student")
    length = {"max_length": MAX_LENGTH}
    if not isinstance(task, str) or task not in RECOMMENDED:
        return length
    from_scratch = isinstance(student, dict) and starts_random(student.get("init"))
    recommended = RECOMMENDED[task].teacher if from_scratch else RECOMMENDED[task].student
    if recipe.get("kind") == "text":
        recommended = TEXT_TEACHER if from_scratch else TEXT_STUDENT
    return {
        key: value for key, value in recommended._asdict().items() if value is not None
    } | length


def digits_settings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The one task, and few epochs of a CNN: there are 1,297 images."""
    student = recipe.get("student")
    init = student.get("init") if isinstance(student, dict) else None
    return {"task": DIGITS} | ({"epochs": _SMALL_SET_EPOCHS} if names_cnn(init) else {})


DATA_SETTINGS.register(POCKET)(DataSettings(pocket_settings, toy="pocket"))
DATA_SETTINGS.register(DIGITS)(DataSettings(digits_settings))

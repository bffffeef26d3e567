"""Who is meant by a folder: a run or a checkpoint itself, a folder of runs all that have finished.

Part of `limbeck.records`.
"""

import logging
import re
from pathlib import Path

from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.support.files import at_home

log = logging.getLogger(__name__)


def members_at(member: str) -> dict[str, Record | None]:
    """Paths of runs with their records, or the one path that is no run, without.

    Raises:
        LimbeckError: a run that is not finished.
    """
    folder = at_home(member)
    if (folder / RECORD_NAME).is_file():
        return {str(folder): Record.of_finished(folder)}
    runs = sorted(folder.glob(f"*/{RECORD_NAME}"), key=_by_number) if folder.is_dir() else []
    if not runs or (folder / "config.json").is_file():
        return {member: None}
    found: dict[str, Record | None] = {}
    for path in runs:
        record = Record.load(path)
        if record.status == "finished":
            found[str(path.parent)] = record
        else:
            log.warning("%s is %s and left out", path.parent, record.status)
    return found


def named_one_by_one(recipe: Recipe) -> Recipe:
    """The recipe with every teacher by its own path, if it names a folder of runs for all of them.

    Raises:
        LimbeckError: a run among them that is not finished.
    """
    if recipe.teachers is None:
        return recipe
    paths = [path for given in recipe.teachers for path in _teachers_at(given)]
    return recipe.model_copy(update={"teachers": paths})


def _teachers_at(given: str) -> list[str]:
    # A run's folder that holds a model is a teacher whatever its record.
    folder = at_home(given)
    return [given] if (folder / RECORD_NAME).is_file() else list(members_at(given))


def _by_number(path: Path) -> list[tuple[int, str]]:
    """Numbers in a name count as numbers: bert-8 comes before bert-10."""
    parts = re.findall(r"\d+|\D+", path.parent.name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]

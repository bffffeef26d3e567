"""What a person says of a model that no record knows, kept beside the run. Part of `limbeck.reporting.cards`."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, write_whole
from limbeck.support.plain import read_json, read_text

SETTINGS_NAME = "card.json"


class CardSettings(BaseModel):
    """Every later writing of the card keeps them."""

    model_config = ConfigDict(extra="forbid")

    base_model: list[str] = Field(default_factory=list)
    """Hub names; empty: those that can be found out."""
    language: list[str] = Field(default_factory=list)
    """Codes such as `en`."""
    license: str | None = None
    """The Hub's identifier, `apache-2.0` say."""
    seeds: list[str] = Field(default_factory=list)
    """Run folders, or folders of runs, whose scores give the spread."""
    baseline: str | None = None
    """The method among them that others are tested against."""
    examples: bool | None = None
    """Whether rows on which student and teacher disagree are shown, with their texts where the run keeps them."""

    def within(self, kept: CardSettings) -> CardSettings:
        """What was kept, and in its place whatever is said here."""
        return kept.model_copy(update=self.model_dump(exclude_defaults=True))

    def write(self, run: Path) -> None:
        """Write them into a run folder, whole or not at all; nothing where nothing is said."""
        if self != CardSettings():
            write_whole(run / SETTINGS_NAME, json.dumps(self.model_dump(), indent=1) + "\n")


def read_settings(run: Path) -> CardSettings:
    """Those that a run folder holds. Raises LimbeckError for a file that cannot be read."""
    file = at_home(run) / SETTINGS_NAME
    if not file.is_file():
        return CardSettings()
    found = read_json(read_text(file), str(file))
    try:
        return CardSettings.model_validate(found)
    except ValidationError as error:
        first = error.errors()[0]
        raise LimbeckError(
            f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            "remove the file, and say it to limbeck card again",
        ) from None

"""Facts about a model that no record contains; the descriptions are the command's help. Free of torch.

Part of `limbeck.cards`.
"""

import json
from pathlib import Path

from pydantic import Field

from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Settings

SETTINGS_NAME = "card.json"


class CardSettings(Settings):
    """Kept for later cards, in a file next to the run's record."""

    seeds: list[str] = Field(
        default_factory=list,
        description="other runs of the task, or folders of runs: spread and paired tests",
    )
    baseline: str | None = Field(
        default=None,
        description="the method among them that others are tested against; by default finetune",
    )
    base_model: list[str] = Field(
        default_factory=list,
        description="Hub names of the models whose weights the student started from",
    )
    language: list[str] = Field(default_factory=list, description="language codes: en de")
    license: str | None = Field(
        default=None, description="the Hub's identifier of a license: apache-2.0"
    )
    examples: bool | None = Field(
        default=None,
        description="show the dev rows on which student and teacher disagree most, with the texts that the run keeps",
    )

    def within(self, kept: "CardSettings") -> "CardSettings":
        """The kept settings, overridden by these."""
        return kept.model_copy(update=self.model_dump(exclude_defaults=True))

    def write(self, run: Path) -> None:
        """Write them into a run folder atomically; nothing if there are no settings."""
        if self != CardSettings():
            files.write_whole(run / SETTINGS_NAME, json.dumps(self.model_dump(), indent=1) + "\n")


def read_settings(run: Path) -> CardSettings:
    """Those that a run folder holds. Raises LimbeckError for a file that cannot be read."""
    file = files.at_home(run) / SETTINGS_NAME
    if not file.is_file():
        return CardSettings()
    try:
        return CardSettings.checked(plain.read_json(plain.read_text(file), str(file)))
    except LimbeckError as error:
        first = error.problems[0]
        raise LimbeckError(f"{file}: {first.message}", first.fix) from None

"""Reading a tokenizer, or an image processor, from a folder, a run or the Hub."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from limbeck.students.hub_names import refuse_absent
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import place_of
from limbeck.tasks import TEXT_READING, Processor, Reading


def read_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint's folder, of a run's student, or of a Hub name.

    Raises LimbeckError where there is none to read.
    """
    return read_processor(path_or_name, TEXT_READING)


def read_processor(path_or_name: str | Path, reads: Reading) -> Processor:
    """What makes a model's input in a form of input: a tokenizer, or an image processor.

    Raises LimbeckError where there is none to read.
    """
    folder = at_home(place_of(path_or_name))
    student = folder / "student"
    here = folder.exists()
    own = any((folder / name).exists() for name in _OWN_FILES)
    source = student if not own and student.is_dir() else folder if here else path_or_name
    if not here:
        refuse_absent(path_or_name, reads.processor)
    try:
        return reads.load(str(source))
    # tokenizers raises a bare Exception for a file that is cut, so nothing narrower catches it.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"{reads.processor} {str(path_or_name)!r} cannot be read: {first}",
            f"give a folder that {reads.processor}.save_pretrained wrote"
            if here
            else "no such folder, and the Hub did not give it: check the name, the network, "
            "and whether HF_HUB_OFFLINE is set",
        ) from error


_OWN_FILES = ("config.json", "tokenizer_config.json", "preprocessor_config.json")

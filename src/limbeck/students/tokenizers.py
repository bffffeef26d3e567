"""Reading a tokenizer from a folder, a run or the Hub.

On the way of a training step: before it, beside the models that read its ids.
"""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from limbeck.errors import LimbeckError


def read_tokenizer(path_or_name: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint's folder, of a run's student, or of a Hub name.

    Raises LimbeckError where there is none to read.
    """
    folder = Path(path_or_name).expanduser()
    student = folder / "student"
    here = folder.exists()
    own = (folder / "config.json").exists() or (folder / "tokenizer_config.json").exists()
    source = student if not own and student.is_dir() else folder if here else path_or_name
    try:
        return AutoTokenizer.from_pretrained(str(source), trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise LimbeckError(
            f"tokenizer {str(path_or_name)!r} cannot be read: {first}",
            "give a folder that tokenizer.save_pretrained wrote"
            if here
            else "no such folder, and the Hub did not give it: check the name, the network, "
            "and whether HF_HUB_OFFLINE is set",
        ) from error

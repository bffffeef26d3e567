"""Checkpoints: the wrapper's raw state and the run's progress, sealed by checksums once they are complete.

Part of `limbeck.training`. Stock saving and loading goes through `from_pretrained`, which restores a
ViT only partly and fails on T5's shared tensors; raw state does neither. A checkpoint is sealed when
all of it is on disk: its last file holds the checksums of the others.
"""

import json
import logging
import os
import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_file, save_model
from torch import Tensor, nn
from transformers import Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.training_args import ParallelMode

from limbeck.support import machine
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksums, damaged, is_temporary, sync_files, write_whole
from limbeck.training.feeding import SendsBatches

logger = logging.getLogger(__name__)

WEIGHTS = "distiller.safetensors"
PROGRESS = "progress.json"
OPTIMIZER = "optimizer.safetensors"
SCHEDULER = "scheduler.safetensors"
SCALER = "scaler.safetensors"
GENERATORS = "rng_state"
STATE = "trainer_state.json"
SEAL = "checksums.json"


def save(folder: str | Path, model: nn.Module, progress: dict[str, Any]) -> None:
    """Write weights and progress.

    The Trainer adds optimiser, scheduler, generators and its own state; then it is sealed.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    # A folder that is written again is incomplete until it is sealed again.
    (path / SEAL).unlink(missing_ok=True)
    save_model(model, str(path / WEIGHTS))
    (path / PROGRESS).write_text(json.dumps(progress), encoding="utf-8")


def seal(folder: str | Path) -> None:
    """Wait until all files are on disk, and record their checksums."""
    path = Path(folder)
    sync_files(path)
    files = (file for file in path.rglob("*") if file.is_file() and not is_temporary(file))
    names = sorted(file.relative_to(path).as_posix() for file in files if file.name != SEAL)
    write_whole(path / SEAL, json.dumps(checksums(path, names), indent=1) + "\n")


def load_weights(folder: str | Path, model: nn.Module) -> None:
    """Every weight of the wrapper, or an error.

    Raises:
        LimbeckError: the file has changed since it was written.
    """
    path = Path(folder)
    sealed = _sealed(path) or {}
    _refuse(path, damaged(path, {name: sealed[name] for name in (WEIGHTS,) if name in sealed}))
    load_model(model, str(path / WEIGHTS), strict=True)


def load_progress(folder: str | Path) -> dict[str, Any]:
    """What `save` was given."""
    found: dict[str, Any] = json.loads((Path(folder) / PROGRESS).read_text(encoding="utf-8"))
    return found


def is_last(folder: str | Path) -> bool:
    """Whether a checkpoint is of a training's last step."""
    return bool(load_progress(folder)["finished"])


def last_whole(folder: str | Path, *, run: str | None = None) -> Path | None:
    """The newest complete checkpoint to continue from, if the checkpoint of its best epoch is complete too.

    Says so where a newer one was damaged.

    Args:
        folder: the folder of the checkpoints.
        run: consider only checkpoints of this training of several parts (`limbeck.training.progress`).
    """
    lost: list[str] = []
    for path in reversed(_numbered(Path(folder))):
        sealed = _sealed(path)
        # A kill cut its writing or its deletion short.
        if sealed is None or (run is not None and run_of(path) != run):
            continue
        broken = damaged(path, sealed) or _broken_best(path)
        if not broken:
            if lost:
                logger.warning("%s; the run continues from %s", "; ".join(lost), path.name)
            return path
        lost.append(f"{path} is damaged ({', '.join(broken)})")
    if lost:
        logger.warning("%s; there is no older checkpoint: from the beginning", "; ".join(lost))
    return None


def run_of(folder: str | Path) -> str | None:
    """Which training of several parts a checkpoint is of; None if it is of none, or not to be read."""
    try:
        return load_progress(folder).get("run")
    except (OSError, ValueError):
        return None


def require_whole(folder: str | Path) -> None:
    """Raise LimbeckError for a checkpoint that cannot be continued from, with the reason."""
    path = Path(folder)
    sealed = _sealed(path)
    if sealed is None:
        raise LimbeckError(
            f"{path} is no complete checkpoint of limbeck's: {SEAL} is missing or cut. The Trainer's own are pickled, "
            "and reading a pickle can run code",
            "continue from another one, or train from the beginning",
        )
    _refuse(path, damaged(path, sealed))


def rotate(folder: str | Path, limit: int | None, best: str | None) -> None:
    """Delete the oldest sealed checkpoints until `limit` are left, but neither the newest nor the best."""
    if not limit or limit < 1:
        return
    found = [path for path in _numbered(Path(folder)) if (path / SEAL).is_file()]
    kept = {found[-1].name, Path(best).name} if best else {path.name for path in found[-1:]}
    left = len(found)
    for path in found:
        if left > max(limit, len(kept)) and path.name not in kept:
            _delete(path)
            left -= 1


def remove_unfinished(folder: str | Path) -> None:
    """Delete checkpoints that were begun and never sealed."""
    for path in Path(folder).rglob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        if path.is_dir() and not (path / SEAL).is_file():
            shutil.rmtree(path, ignore_errors=True)


def remove_all(folder: Path) -> None:
    """Delete all checkpoints below a folder, and the folders that are empty then."""
    for path in list(folder.rglob(f"{PREFIX_CHECKPOINT_DIR}-*")):
        if path.is_dir():
            _delete(path)
    places = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for place in sorted(places, key=lambda place: len(place.parts), reverse=True):
        with suppress(OSError):  # it holds something else
            place.rmdir()


def _delete(path: Path) -> None:
    # First the seal, so that half of it is never taken for damage.
    (path / SEAL).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _numbered(folder: Path) -> list[Path]:
    """Checkpoints' folders by their step."""
    found = [
        (int(number), path)
        for path in folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*")
        if (number := path.name.rsplit("-", 1)[1]).isdigit()
    ]
    return [path for _, path in sorted(found)]


def _sealed(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads((path / SEAL).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {WEIGHTS, PROGRESS, STATE} <= found.keys() else None


def _broken_best(path: Path) -> list[str]:
    """The problem with the checkpoint of the best epoch so far, which the end of the run loads."""
    state = json.loads((path / STATE).read_text(encoding="utf-8"))
    best = state.get("best_global_step")
    if not best or not state.get("best_model_checkpoint"):
        return []
    folder = path.with_name(f"{PREFIX_CHECKPOINT_DIR}-{best}")
    sealed = _sealed(folder)
    if sealed is None:
        return [f"{folder.name}, its best epoch, is missing"]
    return [f"{folder.name}/{name}" for name in damaged(folder, sealed)]


def _refuse(path: Path, broken: list[str]) -> None:
    if broken:
        raise LimbeckError(
            f"{path} is damaged: {', '.join(broken)} changed since it was written",
            "rerun the command: a run continues from its last complete checkpoint; and check the disk",
        )


# The state of an optimiser, a schedule or a generator, as safetensors and JSON. Stock
# checkpoints pickle it, and reading a pickle may run code. Here tensors are in a
# safetensors file and all else, as JSON, in that file's header; numbers come back bit for bit.


_HEADER = "state"
_PLAIN = (bool, int, float, str, type(None))


def write_state(path: Path, state: Any) -> None:
    """Write dicts, lists, tuples, counters, numbers, text and tensors, nested in any way.

    Raises:
        LimbeckError: something else is among them.
    """
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_pack(state, tensors, path))
    save_file(tensors, path, metadata={_HEADER: header})


def read_state(path: Path) -> Any:
    """What `write_state` was given; tensors are on the CPU."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _unpack(json.loads(file.metadata()[_HEADER]), tensors)


def _pack(value: Any, tensors: dict[str, Tensor], path: Path) -> Any:
    """Convert to JSON; a value that is not plain becomes a list whose first item names its type."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # Memory of its own: safetensors rejects tensors that share memory.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return ["tensor", name]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        form = "counter" if isinstance(value, Counter) else "dict"
        return [
            form,
            [[_pack(k, tensors, path), _pack(v, tensors, path)] for k, v in value.items()],
        ]
    if isinstance(value, list | tuple):
        form = "list" if isinstance(value, list) else "tuple"
        return [form, [_pack(item, tensors, path) for item in value]]
    raise LimbeckError(
        f"{path.name}: a {type(value).__name__} is neither number, text nor tensor, and checkpoints "
        "hold nothing that would have to be unpickled",
        "train with save_strategy='no', or with an optimizer and a schedule of torch",
    )


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    form, content = value
    if form == "tensor":
        return tensors[content]
    if form in ("dict", "counter"):
        pairs = {_unpack(k, tensors): _unpack(v, tensors) for k, v in content}
        return Counter(pairs) if form == "counter" else pairs
    items = [_unpack(item, tensors) for item in content]
    return items if form == "list" else tuple(items)


# ---- generators ----


def generators(every_device: bool) -> dict[str, Any]:
    """The states of Python's, numpy's and torch's generators, including the accelerators'.

    With `every_device`, the states of all accelerators that this process sees, otherwise only the current one's.
    """
    kind, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), *rest),
        "cpu": torch.random.get_rng_state(),
    }
    module = _accelerator()
    if module is not None:
        states = module.get_rng_state_all() if every_device else [module.get_rng_state()]
        state["accelerator"] = states
    return state


def restore_generators(state: dict[str, Any], every_device: bool) -> None:
    """Put the generators where `generators` found them, as far as this machine has them."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.random.set_rng_state(state["cpu"])
    module, known = _accelerator(), state.get("accelerator")
    if module is None or not known:
        return
    if not every_device:
        module.set_rng_state(known[0])
    elif len(known) == module.device_count():
        module.set_rng_state_all(known)


def _accelerator() -> Any:
    found = machine.accelerator()
    return None if found is None else torch.get_device_module(found)


# When a checkpoint counts as one, and what of a Trainer is overridden for it.

PRIVATES = (
    # Overridden so that nothing is pickled: optimiser, schedule, scaler and generators.
    *("_save_checkpoint", "_save_optimizer_and_scheduler", "_load_optimizer_and_scheduler"),
    *("_save_scaler", "_load_scaler", "_save_rng_state", "_load_rng_state"),
    # Overridden for the student, the order of examples and parts of a method.
    *("_load_best_model", "_load_from_checkpoint", "_push_from_checkpoint"),
    *("_get_eval_sampler", "_get_train_sampler", "_set_signature_columns_if_needed"),
    *("_inner_training_loop", "_prepare_input", "_prepare_inputs"),
    # Overridden for sparse gradients, which torch does not clip.
    *("_clip_grad_norm", "_get_grad_norm"),
    # Called.
    *("_get_collator_with_removed_columns", "_get_output_dir", "_remove_unused_columns"),
)
"""Private methods of the Trainer that limbeck has its own of, or calls."""


class Resumes(SendsBatches):
    """A Trainer whose checkpoints are sealed, and whose state is never pickled."""

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; `resume_from_checkpoint=True` is the last complete checkpoint of `output_dir`.

        Raises:
            LimbeckError: a checkpoint that is damaged, incomplete, or pickled.
        """
        if missing := [name for name in PRIVATES if not hasattr(Trainer, name)]:
            raise LimbeckError(
                f"this version of transformers trains otherwise (no {', '.join(missing)})",
                "install a version that limbeck names in its requirements",
            )
        if resume_from_checkpoint is True:
            found = last_whole(str(self.args.output_dir))
            if found is None:
                raise LimbeckError(
                    f"there is no complete checkpoint in {self.args.output_dir}",
                    "train without resume_from_checkpoint",
                )
            resume_from_checkpoint = str(found)
        if resume_from_checkpoint:
            require_whole(resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial))
        # The Trainer would delete older ones before this one is sealed.
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        machine.wait_for_all()  # each process writes its generators
        if self.args.should_save:
            seal(folder / f"checkpoint-{self.state.global_step}")
            rotate(folder, limit, self.state.best_model_checkpoint)

    # ---- optimiser, schedule, scaler ----

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            folder = Path(output_dir)
            assert self.optimizer is not None and self.lr_scheduler is not None  # trained with
            write_state(folder / OPTIMIZER, self.optimizer.state_dict())
            write_state(folder / SCHEDULER, self.lr_scheduler.state_dict())

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        folder = Path(checkpoint or "")
        # With save_only_model they are not there.
        if checkpoint is not None and (folder / OPTIMIZER).is_file():
            assert self.optimizer is not None and self.lr_scheduler is not None  # just made
            self.optimizer.load_state_dict(read_state(folder / OPTIMIZER))
            self.lr_scheduler.load_state_dict(read_state(folder / SCHEDULER))

    def _save_scaler(self, output_dir: str) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if scaler is not None and self.args.should_save:
            write_state(Path(output_dir) / SCALER, scaler.state_dict())

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        path = Path(checkpoint or "") / SCALER
        if scaler is not None and path.is_file():
            scaler.load_state_dict(read_state(path))

    # ---- generators ----

    def _save_rng_state(self, output_dir: str) -> None:
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        write_state(self._generators_in(output_dir), generators(self._sees_every_device))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        # With another number of processes than before, some of them have no state.
        if checkpoint is not None and (path := self._generators_in(checkpoint)).is_file():
            restore_generators(read_state(path), self._sees_every_device)

    def _generators_in(self, folder: str) -> Path:
        own = "" if self.args.world_size <= 1 else f"_{self.args.process_index}"
        return Path(os.fspath(folder)) / f"{GENERATORS}{own}.safetensors"

    @property
    def _sees_every_device(self) -> bool:
        found: bool = self.args.parallel_mode == ParallelMode.DISTRIBUTED
        return found

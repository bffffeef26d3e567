"""`push(run, repo)`: one commit that holds all of a run that others need. Part of `limbeck.cards`."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id

from limbeck.cards import facts, settings
from limbeck.cards.card import CARD_NAME, is_ours, render_card
from limbeck.records import RECORD_NAME, Record
from limbeck.records.facts import finite
from limbeck.runtimes.cascade import CASCADE_NAME, is_cascade, read_cascade
from limbeck.runtimes.manifest import EXPORT_NAME, exports_of, read_export
from limbeck.support import files, plain
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import Manifest, sealed

# The files of a run that go to the Hub, and their paths there. A list of files to send,
# not of files to leave out: checkpoints, teacher outputs and rows never get in. No file that is sent
# names a folder of the machine.


_STUDENT = "student/"


@dataclass(frozen=True)
class PushFile:
    """One file: its place in the repository, and where its bytes are.

    Attributes:
        name: its path in the repository.
        content: a file's path, or the bytes themselves.
    """

    name: str
    content: Path | bytes

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size


def push_files(run: str | Path, repo: str) -> list[PushFile]:
    """Student, exported folders, card and record of a finished run, or a cascade, with their paths in a repository.

    Raises:
        LimbeckError: no finished run, or files that the run did not write.
    """
    folder = files.at_home(run)
    if is_cascade(folder):
        return [*_cascade(folder)]
    record = Record.of_finished(folder)
    found = [*_student(folder), _card(folder, repo), _record(record)]
    for place in exports_of(folder):
        found += _exported(place)
    return found


def _cascade(folder: Path) -> Iterator[PushFile]:
    """All that was written; members are called by their folders' names."""
    said = read_cascade(folder)
    for name in sorted(said.checksums):
        yield PushFile(name, folder / name)
    plain = said.model_dump()
    plain["gate"] = facts.without_paths(plain["gate"])
    for member in plain["members"]:
        member["name"] = facts.public_name(member["name"])
    yield PushFile(CASCADE_NAME, (json.dumps(plain, indent=1) + "\n").encode())


def _student(folder: Path) -> Iterator[PushFile]:
    """Files of the run's student; other files in the folder are left out."""
    manifest = Manifest.read(folder)
    names = [] if manifest is None else [n for n in manifest.checksums if n.startswith(_STUDENT)]
    if manifest is None or not names:
        raise LimbeckError(f"{folder} does not list its student's files", "name a run of limbeck's")
    if broken := manifest.damaged(folder, _STUDENT):
        raise LimbeckError(
            f"{folder} is damaged: {', '.join(broken)}", "put back a copy, or train it again"
        )
    for name in sorted(names):
        yield PushFile(name.removeprefix(_STUDENT), folder / name)


def _card(folder: Path, repo: str) -> PushFile:
    """A card under the repository's name; a person's own as it is."""
    card = folder / "student" / CARD_NAME
    if not is_ours(card):
        return PushFile(CARD_NAME, card)
    return PushFile(CARD_NAME, render_card(folder, settings.read_settings(folder), repo).encode())


def _record(record: Record) -> PushFile:
    """The record with names instead of paths and without texts of rows, sealed again."""
    bare = {name: found.without_texts() for name, found in record.classification.items()}
    record = record.model_copy(update={"classification": bare})
    plain = finite(record.model_dump(mode="python", by_alias=True))
    for part in ("recipe", "data", "stages", "team", "outputs", "teacher"):
        plain[part] = facts.without_paths(plain[part])
    # Checksums of files by their paths: they mean nothing without the files.
    plain["execution"].update(read={}, files={})
    text = json.dumps(sealed(plain), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return PushFile(RECORD_NAME, text.encode())


def _exported(place: Path) -> Iterator[PushFile]:
    """An exported folder under its own name; its paths are shortened to names."""
    manifest = read_export(place)
    source = facts.public_name(manifest.source)
    sums = dict(manifest.checksums)
    for name in sorted(sums):
        content: Path | bytes = place / name
        if name == CARD_NAME and manifest.source != source:
            text = plain.read_text(place / name).replace(f"`{manifest.source}`", f"`{source}`")
            content, sums[name] = text.encode(), files.checksum_of_text(text)
        yield PushFile(f"{place.name}/{name}", content)
    gate = manifest.gate.model_copy(update={"data": facts.without_paths(manifest.gate.data)})
    said = manifest.model_copy(update={"source": source, "gate": gate, "checksums": sums})
    text = json.dumps(said.model_dump(), indent=1) + "\n"
    yield PushFile(f"{place.name}/{EXPORT_NAME}", text.encode())


_TOKENS = "https://huggingface.co/settings/tokens"
_AGAIN = "rerun the command: uploaded files are not sent twice"


@dataclass(frozen=True)
class PushResult:
    """The files that were sent, and the address of the repository.

    Attributes:
        url: the repository's page; None if nothing was sent.
        files: the files that were, or would be, sent.
    """

    url: str | None
    files: Sequence[PushFile]


def push(
    run: str | Path,
    repo: str,
    *,
    private: bool = True,
    dry_run: bool = False,
    endpoint: str | None = None,
    token: str | None = None,
) -> PushResult:
    """Upload a finished run's student, exports, card and record to a model repository, in one commit.

    Args:
        run: the run's folder.
        repo: `USER/NAME` on the Hub; it is made where it does not exist.
        private: make it private, and stop if it is public.
        dry_run: send nothing, make no request, and return the files.
        endpoint: the Hub's address; by default `HF_ENDPOINT`, otherwise the Hub itself.
        token: by default `HF_TOKEN`, otherwise the one that `hf auth login` keeps.

    Example:
        ```python
        limbeck.push("runs/student", "me/questions-small", dry_run=True).files
        ```

    Raises:
        LimbeckError: no finished run, a damaged one, an invalid name, no token, no permission, a
            public repository, or a Hub that cannot be reached or returns an error.
    """
    _check_name(repo)
    files = push_files(run, repo)
    if dry_run:
        return PushResult(None, files)
    token = token or get_token()
    if not token:
        raise LimbeckError(
            "push: there is no token for the Hub",
            f"hf auth login, or set HF_TOKEN, with a token that may write ({_TOKENS})",
        )
    api = HfApi(endpoint=endpoint, token=token)
    with _clear_errors(repo, api.endpoint):
        made = api.create_repo(repo, private=private, exist_ok=True)
        if private and not api.model_info(made.repo_id).private:
            raise LimbeckError(
                f"push: {made.repo_id} is public", "pass --public, or name another repository"
            )
        api.create_commit(
            made.repo_id,
            [CommitOperationAdd(one.name, _content(one)) for one in files],
            commit_message="{0.method} on {0.task}, seed {0.seed}".format(Record.load(run)),
        )
    return PushResult(str(made), files)


def _content(file: PushFile) -> str | bytes:
    return file.content if isinstance(file.content, bytes) else str(file.content)


def _check_name(repo: str) -> None:
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise LimbeckError(
            f"push: {repo!r} is no name of a repository: {error}", "write it USER/NAME"
        ) from None


_FIXES = {
    401: f"hf auth login, or set HF_TOKEN, with a valid token ({_TOKENS})",
    403: f"use a token with the right to write ({_TOKENS}), or a name of your own",
    404: f"use a token with the right to write ({_TOKENS}), or a name of your own",
    409: f"others changed it in the meantime: {_AGAIN}",
    429: f"wait; {_AGAIN}",
}
"""What to do about a status of the Hub's."""


@contextmanager
def _clear_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Turn any error of the Hub or the connection into one LimbeckError."""
    try:
        yield
    except LimbeckError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and "metadata in README.md" in str(error):
            fix = "correct student/README.md, or limbeck card RUN"
            raise LimbeckError(f"push: {error}", fix) from error
        # Uploads in threads wrap what happened.
        causes = (error, error.__cause__)
        refused = next((one for one in causes if isinstance(one, HfHubHTTPError)), None)
        if refused is not None:
            status = refused.response.status_code
            said = refused.server_message or refused.response.reason_phrase
            fix = _FIXES.get(status, _AGAIN if status >= 500 else "see the Hub's message")
            message = f"push: {endpoint} refused {repo} with {status}: {said}"
            raise LimbeckError(message, fix) from error
        unreachable = isinstance(error, OfflineModeIsEnabled | ConnectionError)
        if unreachable or type(error).__module__.startswith("httpx"):
            fix = f"check the network and HF_HUB_OFFLINE; {_AGAIN}"
            raise LimbeckError(f"push: cannot reach {endpoint}: {error}", fix) from error
        raise

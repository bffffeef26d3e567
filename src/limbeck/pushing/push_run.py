"""`push(run, repo)`: one commit that holds all of a run that others need. Part of `limbeck.pushing`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id

from limbeck.pushing.push_files import PushFile, push_files
from limbeck.records import Record
from limbeck.support.errors import LimbeckError

_TOKENS = "https://huggingface.co/settings/tokens"
_AGAIN = "run the same command again: what has arrived is not sent twice"


@dataclass(frozen=True)
class PushResult:
    """What was sent, and where it can be seen.

    Attributes:
        url: the repository's page; None where nothing was sent.
        files: what was, or would be, sent.
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
        private: make it private, and refuse one that is public.
        dry_run: send nothing, ask nobody, and return the files.
        endpoint: the Hub's address; by default `HF_ENDPOINT`, else the Hub itself.
        token: by default `HF_TOKEN`, else the one that `hf auth login` keeps.

    Raises:
        LimbeckError: no finished run, a damaged one, a name that is none, no token, no permission, a
            public repository, or a Hub that cannot be reached or refuses.
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
            commit_message=_message(run),
        )
    return PushResult(str(made), files)


def _content(file: PushFile) -> str | bytes:
    return file.content if isinstance(file.content, bytes) else str(file.content)


def _message(run: str | Path) -> str:
    record = Record.load(run)
    return f"{record.method} on {record.task}, seed {record.seed}"


def _check_name(repo: str) -> None:
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise LimbeckError(
            f"push: {repo!r} is no name of a repository: {error}", "write it USER/NAME"
        ) from None


@contextmanager
def _clear_errors(repo: str, endpoint: str) -> Iterator[None]:
    """Whatever the Hub or the way to it says becomes one LimbeckError."""
    try:
        yield
    except LimbeckError:
        raise
    except Exception as error:
        said = _explained(error, repo, endpoint)
        if said is None:
            raise
        raise said from error


def _explained(error: BaseException, repo: str, endpoint: str) -> LimbeckError | None:
    """None for what is a defect and no answer of the Hub's."""
    if isinstance(error, OfflineModeIsEnabled):
        return LimbeckError("push: HF_HUB_OFFLINE is set", "unset it")
    if isinstance(error, HfHubHTTPError):
        return _refused(error, repo, endpoint)
    if type(error).__module__.startswith("httpx") or isinstance(error, ConnectionError):
        return LimbeckError(
            f"push: cannot reach {endpoint}: {error}", f"check the network; {_AGAIN}"
        )
    if isinstance(error, ValueError) and "metadata in README.md" in str(error):
        return LimbeckError(f"push: {error}", "correct student/README.md, or limbeck card RUN")
    # Uploads in threads wrap what happened.
    inner = error.__cause__
    return None if inner is None else _explained(inner, repo, endpoint)


def _refused(error: HfHubHTTPError, repo: str, endpoint: str) -> LimbeckError:
    status = error.response.status_code
    said = error.server_message or f"{status} {error.response.reason_phrase}"
    if status == 401:
        return LimbeckError(
            f"push: {endpoint} does not accept the token ({said})",
            f"hf auth login, or set HF_TOKEN, with a valid one ({_TOKENS})",
        )
    if status in (403, 404):
        return LimbeckError(
            f"push: the token may not write to {repo} ({said})",
            f"use a token with the right to write ({_TOKENS}), or a name of your own",
        )
    if status == 409:
        return LimbeckError(f"push: {repo} was changed by others meanwhile ({said})", _AGAIN)
    if status == 429:
        return LimbeckError(f"push: {endpoint} asks for fewer requests ({said})", f"wait; {_AGAIN}")
    fix = _AGAIN if status >= 500 else "see what the Hub says"
    return LimbeckError(f"push: {endpoint} refused {repo} with {status}: {said}", fix)

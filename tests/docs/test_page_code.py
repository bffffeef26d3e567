"""Every Python block of the README and the docs runs, in the order of its page, on tiny stand-ins.

In a tutorial, and where losses are written, every `limbeck` command runs too. A block that begins with a file's name is
that file.
A page's blocks share their names, as in one session. What a page leaves to its reader (a teacher, rows, a folder of
GLUE's) are the names of `session` and the files of `place`.
"""

from __future__ import annotations

import copy
import logging
import re
import shlex
import sys
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict
from pages import PAGES, ROOT, fences, name_of
from transformers import ConvNextImageProcessorPil, TrainingArguments
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.lab.cifar_nets import CifarNetForImageClassification, configuration_of
from limbeck.recipe import Recipe
from limbeck.support.registry import Registry
from synthetic_records import a_run
from tiny_language_models import byte_tokenizer, language_model

# Pages whose blocks train and export for seconds; what they show, tests of their own try out.
LONG = {
    *("tutorial-classifier.md", "analysis.md", "teams.md", "other-languages.md", "unlabelled.md"),
    *("rerankers.md", "several-labels.md", "extending.md", "python.md"),
}
WITH_CODE = [
    pytest.param(page, marks=pytest.mark.slow) if page.name in LONG else page
    for page in PAGES
    if not all(fence.info for fence in fences(page, "python"))
]
ROWS = 12


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_block_that_is_not_run_says_why(page) -> None:
    """```python no-run: a reason of some words."""
    said = [fence for fence in fences(page, "python") if fence.info]
    assert all(f.info.startswith("no-run: ") and len(f.info.split()) > 3 for f in said), said


@pytest.fixture(scope="module")
def models() -> dict[str, Any]:
    return {
        "teacher": _roomy(tiny.knowing_teacher(6)),
        "student": _roomy(tiny.bert(3, seed=1)),
        "small": _roomy(tiny.knowing_teacher(2)),
        "large": _roomy(tiny.knowing_teacher(6)),
    }


def _roomy(model):
    """The same with room for 128 tokens, which is the shortest that a run asks for by itself."""
    places = "bert.embeddings.position_embeddings.weight"
    weights = model.state_dict()
    roomy = type(model)(
        type(model.config).from_dict({**model.config.to_dict(), "max_position_embeddings": 128})
    )
    extra = torch.zeros(128 - len(weights[places]), tiny.WIDTH)
    roomy.load_state_dict({**weights, places: torch.cat([weights[places], extra])})
    return roomy.eval()


def _encoded(rows: Dataset, tokenizer) -> Dataset:
    coded = rows.map(lambda row: tokenizer(row["text"], truncation=True, max_length=16))
    return coded.remove_columns("text")


@pytest.fixture
def session(models) -> dict[str, Any]:
    """The names that pages leave to their reader."""
    texts = tiny.sentences(ROWS)
    rows = Dataset.from_dict({"text": texts, "label": [int("good" in text) for text in texts]})
    tokenizer = tiny.tokenizer()
    names = {name: copy.deepcopy(model) for name, model in models.items()}
    return {
        **names,
        "model": names["teacher"],
        "tokenizer": tokenizer,
        "language_model": language_model("gpt2"),
        "language_tokenizer": byte_tokenizer(),
        "batch": tokenizer(texts[:2], padding=True, return_tensors="pt"),
        "rows": DatasetDict(train=rows, dev=rows),
        "train": _encoded(rows, tokenizer),
        "dev": _encoded(rows, tokenizer),
        "metrics": lambda told: {"accuracy": float((told[0].argmax(1) == told[1]).mean())},
        "args": TrainingArguments("out", max_steps=2, report_to=[], use_cpu=True),
    }


@pytest.fixture
def registries():
    """What a page registers is not known after it."""
    yield
    loaded = [module for name, module in sys.modules.items() if name.startswith("limbeck")]
    found = [value for module in loaded for value in vars(module).values()]
    for registry in (value for value in found if isinstance(value, Registry)):
        for name in list(registry):
            if not getattr(registry.get(name), "__module__", "limbeck").startswith("limbeck"):
                del registry._known[name]


@pytest.fixture
def place(tmp_path, monkeypatch, models):
    """The files that pages leave to their reader."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_losses", raising=False)
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    monkeypatch.setattr(logging.getLogger("limbeck"), "handlers", [])
    for seed in (1, 2):
        a_run("kd", seed, 80.0 + seed).save(tmp_path / "runs" / f"kd-{seed}")
        a_run("finetune", seed, 79.0).save(tmp_path / "runs" / f"finetune-{seed}")
    net = CifarNetForImageClassification(configuration_of("resnet-8"))
    net.save_pretrained(tmp_path / "runs" / "digits" / "student")
    ConvNextImageProcessorPil().save_pretrained(tmp_path / "runs" / "digits" / "student")
    for folder in (
        "path/to/teacher",
        "path/to/encoder",
        "runs/mrpc-teacher",
        "runs/student/student",
    ):
        model = copy.deepcopy(models["teacher"])
        if folder == "path/to/encoder":
            model.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
        tiny.save(model, tmp_path / folder)
    texts = tiny.sentences(ROWS)
    lines = [f"{text},{int('good' in text)}" for text in texts]
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("\n".join(["text,label", *lines]) + "\n", encoding="utf-8")
    (tmp_path / "reviews.csv").write_text("\n".join(["review", *texts]) + "\n", encoding="utf-8")
    # The encoder's head, whose classes have no names, is right about these.
    queues = [
        f"{text},the end,{('billing', 'returns')['good' in text]}" for text in tiny.sentences(40)
    ]
    for name in ("tickets.csv", "held-out.csv"):
        lines = ["subject,body,queue", *queues]
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [f"{one} {two}\t{two[::-1]} {one[::-1]}" for one in texts for two in texts]
    (tmp_path / "en-de.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    pairs = [f"{int('good' in text)}\t{n}\t{n}\t{text}\tthe end" for n, text in enumerate(texts)]
    head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    (tmp_path / "glue" / "MRPC").mkdir(parents=True)
    (tmp_path / "path" / "to" / "glue").symlink_to(tmp_path / "glue")
    for split in ("train", "dev", "test"):
        path = tmp_path / "glue" / "MRPC" / f"{split}.tsv"
        path.write_text("\n".join([head, *pairs]) + "\n", encoding="utf-8")
    return tmp_path


FILE = re.compile(r"# ([\w-]+\.(py|yaml))\n")


def _is_file(fence, place) -> bool:
    """A block that begins with a file's name is that file; a recipe is one that can be loaded."""
    named = FILE.match(fence.text)
    if named is None:
        return False
    (place / named[1]).write_text(fence.text, encoding="utf-8")
    if named[2] == "yaml":
        Recipe.load(place / named[1])
    return True


def _run_commands(fence) -> None:
    for line in fence.text.splitlines():
        ended = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert ended.exit_code == 0, f"{fence.place}: {line}\n{ended.output}{ended.exception!r}"


# The Trainer's own, on machines without an accelerator.
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_python_blocks_run(page, place, session, registries) -> None:
    ran = 0
    session["__name__"] = "page"
    with_commands = page.name.startswith(("tutorial", "write-your-own"))
    for fence in fences(page, "python", "yaml", *["sh"] * with_commands):
        if fence.info or _is_file(fence, place) or fence.language == "yaml":
            continue
        if fence.language == "sh":
            _run_commands(fence)
            continue
        path, line = fence.place.rsplit(":", 1)
        # Line numbers of a traceback are those of the page.
        code = compile("\n" * int(line) + fence.text, str(ROOT / path), "exec")
        exec(code, session)
        ran += 1
    assert ran

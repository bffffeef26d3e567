"""The page's example of lm-evaluation-harness runs; over the same tokens its perplexity is limbeck's."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import limbeck
from tiny_language_models import save_language_model

PAGE = Path(__file__).parents[2] / "docs" / "decoders.md"
TEXTS = [f"good or bad {letter}, {letter * 3} and more" for letter in "abcdefgh"]


@pytest.fixture
def found(tmp_path, monkeypatch):
    """`found(target)`: the page's own results for a task that scores `target`."""
    pytest.importorskip("lm_eval")
    monkeypatch.chdir(tmp_path)
    save_language_model(Path("S/student"), chat=False)
    Path("texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    said = PAGE.read_text("utf-8")
    (code,) = re.findall(r"```python no-run: .*lm-eval.*\n((?:.*\n)*?)```", said)
    (task,) = re.findall(r"```yaml\n# tasks/texts.yaml\n((?:.*\n)*?)```", said)
    Path("tasks").mkdir()

    def results(target: str) -> dict:
        Path("tasks/texts.yaml").write_text(task.replace("{{text}}", target))
        names: dict = {}
        exec(compile(code, str(PAGE), "exec"), names)
        return names["found"]["results"]["texts"]

    return results


@pytest.mark.filterwarnings("ignore")  # its own
def test_perplexities_agree_over_the_same_tokens(found) -> None:
    tokenizer = AutoTokenizer.from_pretrained("S/student")
    first, end = tokenizer.bos_token, tokenizer.eos_token
    counted = sum(len(tokenizer(text + end).input_ids) for text in TEXTS)
    words = sum(len(re.split(r"\s+", text + end)) for text in TEXTS)
    theirs = np.log(found("{{text}}" + end)["word_perplexity,none"]) * words / counted
    Path("begun.jsonl").write_text(
        "".join(json.dumps({"text": first + text}) + "\n" for text in TEXTS)
    )
    ours = limbeck.evaluate("S/student", data="begun.jsonl", text_columns=["text"])
    assert np.exp(theirs) == pytest.approx(ours["perplexity"], rel=1e-4)


@pytest.mark.filterwarnings("ignore")  # its own
def test_the_first_token_counts_and_no_end(found) -> None:
    """The page's own task, against transformers: a text's tokens after the first token of all texts."""
    plain = found("{{text}}")["word_perplexity,none"]
    tokenizer = AutoTokenizer.from_pretrained("S/student")
    model = AutoModelForCausalLM.from_pretrained("S/student").eval()
    total, words = 0.0, 0
    for text in TEXTS:
        ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text).input_ids]])
        with torch.no_grad():
            total += float(model(ids, labels=ids).loss) * (ids.shape[1] - 1)
        words += len(text.split())
    assert np.log(plain) == pytest.approx(total / words, rel=1e-4)

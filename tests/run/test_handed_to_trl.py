"""The page's example of on-policy training runs: TRL gets a student and the texts of a store."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import limbeck
from limbeck.labelling.language_models.prompt import Prompt
from tiny_language_models import save_language_model

PAGE = Path(__file__).parents[2] / "docs" / "decoders.md"
QUICK = "max_steps=1, use_cpu=True, bf16=False, report_to=[], "
PROMPT = Prompt(template="{text}", verbalizations={"good": "good", "bad": "bad"})


@pytest.mark.filterwarnings("ignore")  # TRL's own
def test_trl_trains_the_student_further(tmp_path, monkeypatch) -> None:
    pytest.importorskip("trl")
    monkeypatch.chdir(tmp_path)
    save_language_model(Path("T/student"), chat=False)
    save_language_model(Path("S/student"), "qwen3", chat=False)
    texts = [{"text": f"good or bad {letter}"} for letter in "abcdefgh"]
    given = {"text_columns": ["text"], "prompt": PROMPT, "with_text": True}
    limbeck.label("T/student", texts, out="prompts", **given)
    (code,) = re.findall(r"```python no-run: .*TRL.*\n((?:.*\n)*?)```", PAGE.read_text("utf-8"))
    code = code.replace("DistillationConfig(", f"DistillationConfig({QUICK}")
    exec(compile(code, str(PAGE), "exec"), {})
    before, after = (load_file(f"{place}/model.safetensors") for place in ("S/student", "S-on-policy"))  # fmt: skip
    assert any(not before[name].equal(after[name]) for name in before)
    assert AutoModelForCausalLM.from_pretrained("S-on-policy").config.num_hidden_layers == 2

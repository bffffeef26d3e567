"""A decoder's predictions are transformers' own greedy texts of each row by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import limbeck
from limbeck import LimbeckError
from tiny_language_models import CHAT, LENGTH, save_language_model

PROMPTS = ["a good film", "bad", "what a very long and good question this is ?"]


def alone(folder, prompt: str, most: int) -> tuple[str, float]:
    """The answer without padding, and the product of its tokens' probabilities."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    if tokenizer.chat_template:
        turn = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    given = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
    ids, likely = given, 1.0
    with torch.no_grad():
        for _ in range(most):
            last = model(ids).logits[0, -1].softmax(-1)
            ids = torch.cat([ids, last.argmax().reshape(1, 1)], 1)
            likely *= last.max().item()
            if ids[0, -1] == tokenizer.eos_token_id:
                break
    return tokenizer.decode(ids[0, given.shape[1] :], skip_special_tokens=True).strip(), likely


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("chat", [True, False])
def test_answers_are_those_of_each_row_alone(tmp_path, family, chat):
    folder = save_language_model(tmp_path / "model", family, chat=chat)
    rows = [{"prompt": prompt, "answer": "unread"} for prompt in PROMPTS]
    found = limbeck.predict(folder, rows, output=["labels", "scores"], max_new_tokens=6)
    texts, likely = zip(*(alone(folder, prompt, 6) for prompt in PROMPTS), strict=True)
    assert [row["prediction"] for row in found] == [*texts]
    assert np.allclose([row["score"] for row in found], likely, rtol=1e-4)
    assert len({*texts}) > 1


def test_texts_are_what_it_gives(tmp_path, capsys):
    folder = save_language_model(tmp_path / "model", "llama", chat=False)
    limbeck.predict(folder, [{"prompt": "a"}], to=tmp_path / "a.jsonl", max_new_tokens=1, show=True)
    said = " ".join(capsys.readouterr().err.split())
    assert "reads 'prompt' and gives texts" in said


def test_a_long_prompt_loses_its_start_and_is_counted(tmp_path):
    folder = save_language_model(tmp_path / "model", chat=False)
    given = {"max_length": 8, "max_new_tokens": 4}
    whole, cut = (limbeck.predict(folder, [text], **given) for text in ("he is so", "and he is so"))
    assert (whole.cut, cut.cut) == (0, 1)
    assert whole.rows[0]["prediction"] == cut.rows[0]["prediction"]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_prompt_leaves_positions_for_the_text_behind_it(tmp_path, family):
    folder = save_language_model(tmp_path / "model", family, chat=False)
    model, tokenizer = (
        auto.from_pretrained(folder) for auto in (AutoModelForCausalLM, AutoTokenizer)
    )
    long = "a good film, " * 60  # more tokens than the model has positions
    ids = tokenizer(long, add_special_tokens=False, return_tensors="pt").input_ids
    assert ids.shape[1] > LENGTH
    for most in (1, 16):
        found = limbeck.predict(folder, [{"prompt": long}], max_new_tokens=most)
        assert found.cut == 1
        given = ids[:, most - LENGTH :]
        said = model.generate(given, max_new_tokens=most, do_sample=False)[0, given.shape[1] :]
        assert (
            found.rows[0]["prediction"] == tokenizer.decode(said, skip_special_tokens=True).strip()
        )
    with pytest.raises(LimbeckError, match=rf"max_new_tokens {LENGTH}: the model has {LENGTH} pos"):
        limbeck.predict(folder, ["a"], max_new_tokens=LENGTH)


def test_a_template_that_opens_the_answer_itself_is_followed(tmp_path):
    folder = save_language_model(tmp_path / "model")
    template = CHAT.replace("<s>assistant:{% endif", "<s>assistant: <think>{% endif")
    (folder / "chat_template.jinja").write_text(
        template
    )  # as DeepSeek-R1's, whose answers hold no thoughts
    (found,) = limbeck.predict(folder, ["a good film"], max_new_tokens=6)
    assert found["prediction"] == alone(folder, "a good film", 6)[0]

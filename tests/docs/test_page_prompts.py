"""Every prompt on a page is one that binds to the columns it names."""

from __future__ import annotations

import pytest
from pages import PAGES, fences

from limbeck.labelling.language_models.prompt import Prompt, bind_prompt, columns_of
from limbeck.support.plain import read_yaml

PROMPTS = [
    fence for page in PAGES for fence in fences(page, "yaml") if "prompt.yaml" in fence.text.split("\n")[0]
]  # fmt: skip


@pytest.mark.parametrize("fence", PROMPTS, ids=lambda fence: fence.place)
def test_prompts_bind(fence) -> None:
    prompt = Prompt.model_validate(read_yaml(fence.text, fence.place))
    (column,) = columns_of(prompt)
    bound = bind_prompt(prompt, tuple(prompt.verbalizations or ()), (column,))
    assert "a film" in bound.whole({column: "a film"})


def test_there_are_some() -> None:
    assert PROMPTS


def test_every_setting_stands_on_the_page() -> None:
    (page,) = [page for page in PAGES if page.name == "language-model-teachers.md"]
    text = page.read_text(encoding="utf-8")
    assert [name for name in Prompt.model_fields if f"`{name}`" not in text] == []

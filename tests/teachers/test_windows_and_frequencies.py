"""Models that see a window score each row as Hugging Face does it alone; where frequencies change prompts are cut."""

from __future__ import annotations

import copy
from functools import cache

import pytest
import torch
from torch.testing import assert_close
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from limbeck.labelling.language_models.causal import CausalLabeller
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.labelling.language_models.scoring import CausalScorer, PromptTokens, token_limit
from quick_cases import quick
from tiny_language_models import SMALL, byte_tokenizer

BOUND = 24  # tokens of a window, or of the context that frequencies were made for
SHARED = (5, 9, 13, 17, 21)
ANSWERS = ((30, 31, 32), (33, 34), (35,))
# Of the rests behind what is shared: well below, at and around the bound, far above; some of one length.
LENGTHS = (2, 40, 3, 16, 17, 18, 19, 20, 2, 31, 40, 41, 11)


def made(family):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return (gpt if family == "gpt" else FAMILIES[family])().eval()


def longrope():
    rope = {"rope_type": "longrope", "rope_theta": 10000.0}
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    return Phi3ForCausalLM(
        Phi3Config(**SMALL, original_max_position_embeddings=BOUND, rope_parameters=rope | factors)
    )


def qwen2():
    layers = ["full_attention", "sliding_attention"]
    window = {"use_sliding_window": True, "sliding_window": BOUND, "layer_types": layers}
    return Qwen2ForCausalLM(Qwen2Config(**SMALL, num_key_value_heads=2, **window))


FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "mistral": lambda: MistralForCausalLM(
        MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=BOUND)
    ),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SMALL, num_key_value_heads=2, head_dim=16, sliding_window=BOUND)
    ),
    "gemma3": lambda: Gemma3ForCausalLM(
        Gemma3TextConfig(
            **SMALL, num_key_value_heads=2, head_dim=16, sliding_window=BOUND,
            layer_types=["sliding_attention", "full_attention"],
        )
    ),
    "qwen2": qwen2,
}  # fmt: skip


def row(length, answers=ANSWERS):
    drawn = torch.randint(2, 90, (length,), generator=torch.Generator().manual_seed(length))
    return PromptTokens([*SHARED, *drawn.tolist()], answers)


def gpt():
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
    return OpenAIGPTLMHeadModel(OpenAIGPTConfig(vocab_size=100, initializer_range=0.3, **sizes))


@cache
def alone(family, answers=ANSWERS):
    """By Hugging Face, each prompt with each answer in a model of its own."""
    found = torch.empty(len(LENGTHS), len(answers))
    model = made(family)
    for at, length in enumerate(LENGTHS):
        prefix = row(length).prefix
        for number, answer in enumerate(answers):
            ids = torch.tensor([[*prefix, *answer[:-1]]])
            with torch.no_grad():
                logits = copy.deepcopy(model)(ids, use_cache=False).logits[0]
            logs = logits[-len(answer) :].log_softmax(-1)
            found[at, number] = logs.gather(1, torch.tensor(answer)[:, None]).sum()
    return found


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("family", quick("gemma3", of=FAMILIES))
def test_a_rows_scores_are_its_own(family, reuse) -> None:
    rows = [row(length) for length in LENGTHS]
    wanted = alone(family)
    for sequences in (1, 4, 64):
        scorer = CausalScorer(made(family), sequences=sequences)
        scorer.reuse = reuse
        scorer(rows[:1])  # a check on a short row alone, as calibration's are
        assert_close(scorer(rows), wanted, rtol=1e-4, atol=1e-4)
        # After other rows too.
        assert_close(scorer(rows[::-1]).flip(0), wanted, rtol=1e-4, atol=1e-4)
        assert scorer.reuse == reuse


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_of_one_token(family) -> None:
    answers = ((30,), (33,))
    rows = [row(length, answers) for length in LENGTHS]
    for reuse in (True, False):
        scorer = CausalScorer(made(family), sequences=5)
        scorer.reuse = reuse
        assert_close(scorer(rows), alone(family, answers), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["mistral", "gemma3"])
def test_a_calibrated_row_beside_a_longer_one(family) -> None:
    """All prompts begin alike; the check is first made on calibration's short inputs."""
    prompt = Prompt(
        template="bad good: {sentence} A:", verbalizations={"negative": "so", "positive": "good"}
    )
    bound = bind_prompt(prompt, ("negative", "positive"), ("sentence",))
    labeller = CausalLabeller(made(family), byte_tokenizer(), bound, max_length=200)
    short, long = {"sentence": "film"}, {"sentence": "a good film " * 12}
    assert labeller.scorer.reuse
    beside = labeller.score([short, long])["logits"]
    assert_close(labeller.score([short])["logits"], beside[:1], rtol=1e-4, atol=1e-4)
    assert_close(labeller.score([long])["logits"], beside[1:], rtol=1e-4, atol=1e-4)


def tokens_read(scorer, rows):
    """Numbers of tokens, padding among them, that the model is given."""
    read = []
    hook = scorer.model.register_forward_pre_hook(
        lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True
    )
    scorer(rows)
    hook.remove()
    return sum(read)


@pytest.mark.parametrize("family", ["llama", "mistral"])  # also beyond its window
def test_what_prompts_begin_with_is_run_once(family) -> None:
    scorer = CausalScorer(made(family))
    rows = [row(length) for length in (30, 40)]
    scorer(rows)
    assert scorer.reuse
    # What both begin with; the rest of the shorter one of both, but for its last token; from there on the prompts'
    # ends behind which an answer is two tokens, one, or none, all as long as the longest.
    assert tokens_read(scorer, rows) == 5 + 2 * 29 + 2 * 3 * (40 - 29 + 2)


def test_a_model_that_reads_no_past_runs_each_prompt_whole() -> None:
    """The first GPT takes keys and values and never looks at them: only its numbers tell."""
    rows = [row(length) for length in LENGTHS]
    scorer = CausalScorer(made("gpt"))
    assert_close(scorer(rows), alone("gpt"), rtol=1e-4, atol=1e-4)
    assert scorer.reuse is False


def test_longer_rows_are_checked_again() -> None:
    scorer = CausalScorer(made("llama"))
    checked = []
    agrees = scorer._agrees
    scorer._agrees = lambda rows, shared: (
        checked.append(max(len(one.prefix) for one in rows)) or agrees(rows, shared)
    )
    for lengths in ([2, 3], [2], [9, 4, 30, 2], [30, 8], [31]):
        scorer([row(length) for length in lengths])
    assert checked == [8, 35, 36]
    scorer._agrees = lambda rows, shared: False
    scorer([row(32)])
    assert scorer.reuse is False


def test_prompts_end_where_frequencies_would_change() -> None:
    """A row's label depends on no longer row beside it, as none is longer than the original context."""
    assert token_limit(longrope().config, byte_tokenizer(), None) == BOUND
    assert token_limit(longrope().config, byte_tokenizer(), 9) == 9
    assert token_limit(made("llama").config, byte_tokenizer(), None) > BOUND

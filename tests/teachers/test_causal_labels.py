"""A causal model's scores of answers, held against Hugging Face's own loss of one sequence at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers.models import BPE
from torch.testing import assert_close
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from limbeck.labelling.language_models import scoring
from limbeck.labelling.language_models.causal import (
    CausalLabeller,
    calibrated,
    content_free_prior,
    exclusive_scores,
    load_causal_labeller,
)
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.labelling.language_models.scoring import PromptTokenizer
from limbeck.outputs.key import digest_of_tokenizer
from limbeck.support.errors import LimbeckError
from tiny_language_models import MERGES, byte_tokenizer, language_model, save_language_model
from tiny_language_models import WORDS as WORDS_OF_ALL
from tiny_runs import bert

CLASSES = ("negative", "positive", "mixed")
WORDS = {"negative": "bad", "positive": "good", "mixed": "so-so, not bad"}
TEXTS = ["", "a good film", "bad " * 20, "Long: " + "x" * 40, "goodbad"]
ROWS = [{"sentence": text} for text in TEXTS]


def bound(**settings):
    given = {"verbalizations": WORDS, "calibrate": False, "normalize_length": False}
    return bind_prompt(Prompt(**(given | settings)), CLASSES, ("sentence",))


def labeller(family="llama", chat=False, max_length=None, batch_size=4, **settings):
    return CausalLabeller(
        language_model(family),
        byte_tokenizer(chat=chat),
        bound(**settings),
        max_length=max_length,
        batch_size=batch_size,
    )


def losses(model, tokenizer, prompts, answers):
    """Hugging Face's loss of each answer behind each prompt, one sequence at a time, as a sum over its tokens."""
    found = np.empty((len(prompts), len(answers)))
    for at, prompt in enumerate(prompts):
        begin = len(tokenizer(prompt).input_ids)
        for number, answer in enumerate(answers):
            ids = torch.tensor([tokenizer(prompt + answer).input_ids])
            labels = ids.clone()
            labels[:, :begin] = -100
            with torch.no_grad():
                mean = model(input_ids=ids, labels=labels).loss
            found[at, number] = mean.double() * (ids.shape[1] - begin)
    return found


@pytest.mark.parametrize("reuse", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "mamba"])
def test_scores_are_hugging_faces_losses(family, reuse) -> None:
    made = labeller(family)
    made.scorer.reuse = reuse
    prompts = [made.bound.whole(row) for row in ROWS]
    wanted = -losses(
        made.model, made.tokens.tokenizer, prompts, [f" {one}" for one in WORDS.values()]
    )
    assert_close(made._scores(ROWS), wanted, rtol=1e-4, atol=1e-3)
    assert made.scorer.reuse == (reuse and family != "mamba")  # which has no keys and values


@pytest.mark.parametrize("normalize", [True, False])
def test_outputs_follow_from_the_losses(normalize) -> None:
    made = labeller(normalize_length=normalize)
    prompts = [made.bound.whole(row) for row in ROWS]
    answers = [f" {one}" for one in WORDS.values()]
    scores = -losses(made.model, made.tokens.tokenizer, prompts, answers)
    if normalize:  # bad, good: one token; the third as tokenised above
        scores /= [1, 1, len(made.tokens.tokenizer(answers[2]).input_ids)]
    wanted = torch.tensor(scores).softmax(1).float().numpy()
    found = made.score(ROWS)
    assert {name: array.dtype for name, array in found.items()} == {
        "logits": np.float32,
        "probabilities": np.float32,
    }
    assert_close(found["probabilities"], wanted, rtol=1e-3, atol=1e-5)
    assert_close(np.exp(found["logits"]), found["probabilities"])


def test_padding_and_company_change_nothing() -> None:
    together, alone = labeller(batch_size=5), labeller(batch_size=1)
    wanted = np.concatenate([alone.score([row])["logits"] for row in ROWS])
    assert_close(together.score(ROWS)["logits"], wanted, rtol=1e-4, atol=1e-4)
    assert_close(together.score(ROWS[::-1])["logits"][::-1].copy(), wanted, rtol=1e-4, atol=1e-4)


def test_answers_of_one_token_cost_one_pass() -> None:
    two = bind_prompt(
        Prompt(verbalizations={"negative": "bad", "positive": "good"}, calibrate=False),
        CLASSES[:2],
        ("sentence",),
    )
    made = CausalLabeller(language_model("llama"), byte_tokenizer(), two)
    made.scorer.reuse = False
    calls = []
    made.model.register_forward_hook(lambda *_: calls.append(1))
    found = made._scores(ROWS)
    assert len(calls) == 1
    prompts = [made.bound.whole(row) for row in ROWS]
    wanted = -losses(made.model, made.tokens.tokenizer, prompts, [" bad", " good"])
    assert_close(found, wanted, rtol=1e-4, atol=1e-3)


def test_a_chat_template_takes_system_and_user() -> None:
    made = labeller(chat=True, system="Judge.")
    prompts = [f"<s>system: Judge.\n<s>user: {made.bound.text(row)}\n<s>assistant:" for row in ROWS]
    wanted = -losses(made.model, byte_tokenizer(), prompts, [f" {one}" for one in WORDS.values()])
    assert_close(made._scores(ROWS), wanted, rtol=1e-4, atol=1e-3)


def test_an_answer_can_take_the_prompts_last_letters_into_its_first_token() -> None:
    """Behind "g", "ood" is the end of one token "good": both are scored from where they part."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }} g{{ messages[1]['content'] }}"
    words = {"negative": "ood", "positive": "x", "mixed": "ad"}
    tokens = PromptTokenizer(tokenizer, bound(template="{text}", verbalizations=words))
    row = tokens({"sentence": "it"})
    assert tokenizer.decode(row.prefix) == "Text: it"
    assert [tokenizer.decode(list(ids)) for ids in row.answers] == [" good", " gx", " gad"]
    assert len(row.answers[0]) == 1


THINKING = (
    "{% for message in messages %}<{{ message['role'] }}>\n"
    "{% if message['role'] == 'assistant' %}<think>\n\n</think>\n\n{% endif %}"
    "{{ message['content'] }}</s>\n{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}"
)


def next_tokens(made, prompts, words):
    """Hugging Face's softmax over the words as the next token behind prompts that are tokenised alone."""
    tokenizer = made.tokens.tokenizer
    ids = [tokenizer.convert_tokens_to_ids(word) for word in words]
    found = []
    for prompt in prompts:
        with torch.no_grad():
            logits = made.model(**tokenizer(prompt, return_tensors="pt")).logits[0, -1]
        found.append(logits[ids].softmax(0).numpy())
    return np.stack(found)


def two_words(tokenizer, model=None, **settings):
    words = {"negative": "bad", "positive": "good"}
    given = {"verbalizations": words, "calibrate": False} | settings
    prompt = bind_prompt(Prompt(**given), CLASSES[:2], ("sentence",))
    return CausalLabeller(model or language_model("llama"), tokenizer, prompt)


@pytest.mark.parametrize("space", ["\n", "\n\n", " \n"])
def test_what_stands_before_every_answer_is_no_part_of_its_length(space) -> None:
    """With the default, the mean over an answer's tokens: of one here, so it is the next token's probability."""
    made = two_words(byte_tokenizer(), template="{text}\nAnswer:" + space)
    prompts = [made.bound.whole(row) for row in ROWS]
    assert prompts[0].endswith("Answer:" + space)
    wanted = next_tokens(made, prompts, ["bad", "good"])
    assert_close(made.score(ROWS)["probabilities"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("template", [THINKING, THINKING.replace("<think>", "good <think>bad")])
def test_nor_is_what_a_chat_template_puts_before_an_answer(template) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    made = two_words(tokenizer)
    before = tokenizer.apply_chat_template(
        [{"role": "user", "content": "@"}, {"role": "assistant", "content": "#"}], tokenize=False
    ).partition("#")[0]
    prompts = [before.replace("@", made.bound.text(row)) for row in ROWS]
    assert "think>" in prompts[0]
    wanted = next_tokens(made, prompts, ["bad", "good"])
    assert_close(made.score(ROWS)["probabilities"], wanted, rtol=1e-4, atol=1e-5)


CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize("template", [CHATML, THINKING])
def test_words_that_a_chat_template_writes_too(template) -> None:
    """Hugging Face's rendering of the answer is what is read, up to the answer's end."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    words = {"negative": "end", "positive": "think"}
    prompt = bind_prompt(Prompt(verbalizations=words), CLASSES[:2], ("sentence",))
    row = PromptTokenizer(tokenizer, prompt)(ROWS[1])
    for word, ids in zip(words.values(), row.answers, strict=True):
        said = [*prompt.messages(ROWS[1]), {"role": "assistant", "content": word}]
        whole = tokenizer.apply_chat_template(said, tokenize=False)
        mark = {CHATML: "<|im_end|>\n", THINKING: "</s>\n"}[template]
        assert tokenizer.decode([*row.prefix, *ids]) + mark == whole
        assert tokenizer.decode(list(ids)) == word


def test_a_rows_answers_depend_on_no_other_row() -> None:
    made = two_words(byte_tokenizer(), template="Film: {sentence}")
    texts = ["the film", "the film\n", "the film\n\n", "the film "]
    wanted = {
        text: PromptTokenizer(byte_tokenizer(), made.bound)({"sentence": text}) for text in texts
    }
    assert len({(*one.prefix, *one.answers[0]) for one in wanted.values()}) == 3
    for order in (texts, texts[::-1]):
        tokens = PromptTokenizer(byte_tokenizer(), made.bound)
        assert {text: tokens({"sentence": text}) for text in order} == wanted


def test_a_space_token_before_every_answer_is_no_part_of_its_length() -> None:
    """Where no word takes the space in."""
    made = labeller(verbalizations={"negative": "x", "positive": "yes", "mixed": "no"})
    tokenizer = made.tokens.tokenizer
    for row in ROWS[:3]:
        found = made.tokens(row)
        assert tokenizer.decode(found.prefix) == made.bound.whole(row) + " "
        assert [tokenizer.decode(list(ids)) for ids in found.answers] == ["x", "yes", "no"]


def test_newlines_are_cut_as_before_a_word() -> None:
    """Two newlines at a text's end are one token; before a word GPT-2's pattern has them apart."""
    merges = [*MERGES, ("Ċ", "Ċ")]
    backend = Tokenizer(BPE({word: at for at, word in enumerate([*WORDS_OF_ALL, "ĊĊ"])}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    assert tokenizer.tokenize("is\n\n")[-1:] == ["ĊĊ"]
    prompt = Prompt(template="{text}:\n\n", verbalizations={"negative": "bad", "positive": "good"})
    tokens = PromptTokenizer(tokenizer, bind_prompt(prompt, CLASSES[:2], ("sentence",)))
    row = tokens(ROWS[1])
    assert tokenizer.convert_ids_to_tokens(row.prefix)[-3:] == [":", "Ċ", "Ċ"]
    assert [tokenizer.decode(list(ids)) for ids in row.answers] == ["bad", "good"]


@pytest.mark.parametrize(
    ("words", "shared"), [(("bad", "good"), ""), (("bad", "best"), "b"), (("go", "good"), "g")]
)
def test_a_tokenizer_of_bytes(words, shared) -> None:
    """What all answers begin with is no part of them, but that each has a token."""
    tokenizer = ByT5Tokenizer()
    prompt = Prompt(template="{text}\n", verbalizations=dict(zip(CLASSES[:2], words, strict=True)))
    tokens = PromptTokenizer(tokenizer, bind_prompt(prompt, CLASSES[:2], ("sentence",)))
    row = tokens(ROWS[1])
    assert tokenizer.decode(row.prefix) == "Text: a good film\n" + shared
    assert tuple(shared + tokenizer.decode(list(ids)) for ids in row.answers) == words


def test_a_tokenizers_own_marks_stand_before_a_prompt_and_not_behind_it() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    row = PromptTokenizer(tokenizer, bound())(ROWS[1])
    assert row.prefix == [0, *byte_tokenizer()(bound().whole(ROWS[1])).input_ids]
    assert all(1 not in ids for ids in row.answers)


def test_a_template_that_opens_a_thought_before_an_answer() -> None:
    """The prompt goes on to where an answer stands, not into the thought."""
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = (
        "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant><think>{% endif %}"
    )
    row = PromptTokenizer(tokenizer, bound())(ROWS[1])
    assert tokenizer.decode(row.prefix) == f"<user>{bound().text(ROWS[1])}<assistant>"


def test_a_template_that_writes_no_answer_is_refused() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(LimbeckError, match="chat template rejects the prompt") as caught:
        PromptTokenizer(tokenizer, bound())
    assert "chat: false" in caught.value.problems[0].fix


def test_a_tokenizer_without_a_backend_is_known_by_its_vocabulary() -> None:
    assert digest_of_tokenizer(ByT5Tokenizer()) == digest_of_tokenizer(ByT5Tokenizer())
    more = ByT5Tokenizer(extra_ids=100)
    assert digest_of_tokenizer(more) != digest_of_tokenizer(ByT5Tokenizer())


def test_space_around_words_changes_nothing() -> None:
    words = {name: f" {word}\n" for name, word in WORDS.items()}
    spaced, plain = (labeller(verbalizations=given) for given in (words, WORDS))
    assert_close(spaced.score(ROWS)["logits"], plain.score(ROWS)["logits"])


# ---- answers that begin alike ----

NESTED = {"negative": "bad", "positive": "good", "mixed": "goods", "none": "goodsy", "other": "god"}


def said_exactly(model, prefix, answers, number):
    """P(behind the prefix comes this answer and none that goes on from it), by every token that may come next."""
    longer = [one for at, one in enumerate(answers) if at != number]

    def mass(path, log):
        if path in longer and len(path) > len(answers[number]):
            return 0.0
        if not any(one[: len(path)] == path for one in longer if len(one) > len(path)):
            return float(np.exp(log))
        return sum(mass((*path, token), log + here) for token, here in enumerate(logs_of(path)))

    def logs_of(path):
        with torch.no_grad():
            logits = model(torch.tensor([[*prefix, *path]])).logits[0, -1]
        return logits.double().log_softmax(-1).tolist()

    own = answers[number]
    return mass(own, sum(logs_of(own[:at])[token] for at, token in enumerate(own)))


@pytest.mark.parametrize("reuse", [True, False])
def test_an_answer_that_begins_another_is_not_counted_twice(reuse) -> None:
    prompt = Prompt(verbalizations=NESTED, calibrate=False, normalize_length=False)
    made = CausalLabeller(
        language_model("llama"), byte_tokenizer(), bind_prompt(prompt, tuple(NESTED), ("sentence",))
    )
    made.scorer.reuse = reuse
    rows = ROWS[:3]
    exact = []
    for row in rows:
        tokens = made.tokens(row)
        decoded = [made.tokens.tokenizer.decode(list(ids)) for ids in tokens.answers]
        assert decoded == [f" {word}" for word in NESTED.values()]
        # "good", "goods" and "goodsy" go on from each other; "god" shares letters and no token with them but the space.
        good, goods, goodsy = tokens.answers[1:4]
        assert (goods[:-1], goodsy[:-1]) == (good, goods)
        exact.append([said_exactly(made.model, tokens.prefix, tokens.answers, k) for k in range(5)])
    exact = np.array(exact)
    found = made.score(rows)["probabilities"]
    assert_close(
        found, (exact / exact.sum(1, keepdims=True)).astype(np.float32), rtol=1e-3, atol=1e-6
    )
    # Without it the shorter of two would hold the longer's share as well.
    plain = made.scorer._scores([made.tokens(row) for row in rows], None).detach().exp().numpy()
    assert (plain[:, 1] > exact[:, 1] * 1.001).any()


def test_a_longer_answer_can_win() -> None:
    """By hand: "good" in 9 of 10, of which 8 go on to "goods", of which 3 go on to "goodsy" and 1 to "goodsx"."""
    answers = ((1,), (1, 2), (1, 2, 3), (1, 2, 4), (5,))
    scores = np.log([[0.9, 0.8, 0.3, 0.1, 0.1]] * 2)
    other = ((1,), (2,), (3,), (4,), (5,))
    found = np.exp(exclusive_scores(scores, [answers, other]))
    assert_close(found[0], np.array([0.1, 0.4, 0.3, 0.1, 0.1]))
    assert_close(found[1], np.array([0.9, 0.8, 0.3, 0.1, 0.1]))
    # All of it goes on: what is left is rounding, and stays a number.
    rounded = exclusive_scores(np.array([[-1.0, -1.0 + 1e-9]]), [((1,), (1, 2))])
    assert np.isfinite(rounded).all() and rounded[0, 0] < -10


# ---- calibration ----


def test_calibration_by_hand() -> None:
    """Zhao et al. 2021: with W = diag(p_cf)^-1, p = (.6, .3, .1) against p_cf = (.6, .2, .2) is (2, 3, 1)/6."""
    prior = content_free_prior(np.log([[0.7, 0.1, 0.2], [5.0, 3.0, 2.0]]))
    assert_close(np.exp(prior), np.array([0.6, 0.2, 0.2]))
    found = calibrated(np.log([[6.0, 3.0, 1.0]]), prior)
    wanted = np.array([[1 / 3, 1 / 2, 1 / 6]], np.float32)
    assert_close(found["probabilities"], wanted)
    assert_close(np.exp(found["logits"]), wanted)


def test_an_input_without_content_is_calibrated_to_no_opinion(monkeypatch) -> None:
    monkeypatch.setattr("limbeck.labelling.language_models.prompt.CONTENT_FREE", ("N/A",))
    made = labeller(calibrate=True)
    found = made.score([{"sentence": "N/A"}, {"sentence": "a good film"}])["probabilities"]
    assert_close(found[0], np.full(3, 1 / 3, np.float32), rtol=1e-4, atol=1e-5)
    assert np.abs(found[1] - 1 / 3).max() > 0.01


# ---- length ----


def test_only_the_text_is_truncated() -> None:
    made = labeller(max_length=120)
    long = {"sentence": "bad film " * 40}
    row = made.tokens(long)
    decoded = made.tokens.tokenizer.decode(row.prefix)
    before, _, after = made.bound.whole({"sentence": "@"}).partition("@")
    assert decoded.startswith(before + "bad film") and decoded.endswith(after)
    size = len(row.prefix) + max(map(len, row.answers))
    assert 115 <= size <= 120
    made.score([*ROWS[:2], long])
    assert row.truncated and made.truncated == {2}
    made.score(ROWS[:2])
    assert made.truncated == set()
    with pytest.raises(LimbeckError, match="no room for a text: the model reads 40 tokens"):
        labeller(max_length=40).score(ROWS)


def test_the_longer_of_two_texts_is_truncated() -> None:
    prompt = bind_prompt(Prompt(verbalizations=WORDS), CLASSES, ("first", "second"))
    made = CausalLabeller(language_model("gpt2"), byte_tokenizer(), prompt, max_length=140)
    decoded = made.tokens.tokenizer.decode(
        made.tokens({"first": "short", "second": "y" * 300}).prefix
    )
    assert "First: short\nSecond: yyy" in decoded and decoded.endswith("\nAnswer:")


def decoded(made, row):
    return made.tokens.tokenizer.decode(made.tokens(row).prefix)


def test_a_text_that_the_prompt_does_not_hold_costs_no_other_its_place() -> None:
    bound = bind_prompt(Prompt(template="{sent} is", verbalizations=WORDS), CLASSES, ("sent", "id"))
    made = CausalLabeller(language_model("gpt2"), byte_tokenizer(), bound, max_length=60)
    long = {"sent": "film " * 40, "id": "x" * 3000}
    found = decoded(made, long)
    assert found == decoded(made, long | {"id": ""})
    assert found.startswith("film film film") and found.endswith(" is")
    assert not made.tokens({"sent": "film", "id": "x" * 3000}).truncated


def test_a_text_that_stands_twice_in_the_prompt_is_cut_until_it_fits() -> None:
    bound = bind_prompt(
        Prompt(template="{text} {sentence} is", text="{sentence}", verbalizations=WORDS),
        CLASSES,
        ("sentence",),
    )
    made = CausalLabeller(language_model("gpt2"), byte_tokenizer(), bound, max_length=80)
    row = made.tokens({"sentence": "y" * 50})
    assert len(row.prefix) + max(map(len, row.answers)) <= 80
    # Many texts of many kinds: what fits is never blank, which would be an error.
    for text in ["good bad " * 30, "goodbadx" * 60, " \n" * 60 + "z", "a\n" * 90]:
        found = made.tokens({"sentence": text})
        assert len(found.prefix) + max(map(len, found.answers)) <= 80
        assert found.truncated


def test_a_row_that_would_be_blank_is_not_labelled() -> None:
    need = len(labeller().tokens({"sentence": ""}).prefix) + len(
        labeller().tokens({"sentence": ""}).answers[2]
    )
    made = labeller(max_length=need)
    with pytest.raises(LimbeckError, match=f"no room for a text: the model reads {need} tokens"):
        made.score([{"sentence": "a good film"}])
    made.score([{"sentence": ""}])


# ---- what else ----


def test_a_row_of_other_columns_is_refused_by_name() -> None:
    with pytest.raises(LimbeckError, match="bound to the columns sentence, and the row has text"):
        labeller().score([{"text": "a good film"}])


def test_bf16_is_near_fp32() -> None:
    halves = CausalLabeller(language_model("llama"), byte_tokenizer(), bound(), precision="bf16")
    assert halves.model.dtype == torch.bfloat16
    found, wanted = (one.score(ROWS)["probabilities"] for one in (halves, labeller()))
    assert np.abs(found - wanted).max() < 0.2


def test_verbalizations_that_are_the_same_tokens() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"unk_token": "</s>"})
    from tiny_runs import tokenizer as word_tokenizer

    model = language_model("llama")
    with pytest.raises(LimbeckError, match="'negative' and 'positive' are the same tokens"):
        CausalLabeller(
            model,
            word_tokenizer(),
            bind_prompt(
                Prompt(verbalizations={"negative": "dreadful", "positive": "splendid"}),
                CLASSES[:2],
                ("sentence",),
            ),
        )


def test_a_checkpoint(tmp_path) -> None:
    folder = save_language_model(tmp_path / "llama", chat=False)
    made = load_causal_labeller(folder, bound())
    assert_close(made.score(ROWS)["logits"], labeller().score(ROWS)["logits"])
    assert made.fingerprint() == load_causal_labeller(folder, bound()).fingerprint()
    assert made.fingerprint() != load_causal_labeller(folder, bound(system="Decide.")).fingerprint()
    with pytest.raises(LimbeckError, match="chat_template is not set"):
        load_causal_labeller(folder, bound(chat=True))


def test_prompts_that_are_tokenised_otherwise_are_another_teachers(monkeypatch) -> None:
    """A store begun by a version that cut prompt and answer elsewhere is not gone on with."""
    before = labeller(template="{text}\n").fingerprint()
    monkeypatch.setattr(scoring, "_common", lambda wholes: wholes[0][:1])
    after = labeller(template="{text}\n").fingerprint()
    assert {name for name in before if before[name] != after[name]} == {"tokens"}


def test_a_classifier_is_no_language_model(tmp_path) -> None:
    bert(2).save_pretrained(tmp_path)
    with pytest.raises(LimbeckError, match="no causal language model"):
        load_causal_labeller(tmp_path, bound())

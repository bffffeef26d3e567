"""Words that no row holds: the student is that of plain training, and nothing else can tell."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer, word_embeddings
from limbeck.training.word_embeddings import WordsInUse, is_exact, words_in_use
from quick_cases import quick

VOCABULARY = 40  # of which the rows hold at most 14
ROWS = tiny.rows(32)


@pytest.fixture(autouse=True)
def worth_it(monkeypatch):
    """Tiny models count too."""
    monkeypatch.setattr(word_embeddings.words_in_use, "__kwdefaults__", {"worth": 1})


def student(seed=3, **changes):
    return tiny.bert(2, seed=seed, vocab_size=VOCABULARY, **changes)


def made(tmp_path, model=None, trainer=DistillationTrainer, rows=ROWS, **changes):
    settings = {"per_device_train_batch_size": 4, "num_train_epochs": 2, "report_to": []}
    settings |= {"use_cpu": True, "disable_tqdm": True, "seed": 5, "save_strategy": "epoch"}
    settings |= {"learning_rate": 1e-2, "max_grad_norm": 0.0}
    own = {key: changes.pop(key) for key in ("callbacks", "optimizers") if key in changes}
    skip = changes.pop("skip_unused_embeddings", True)
    arguments = TrainingArguments(str(tmp_path), **(settings | changes))
    if trainer is DistillationTrainer:
        arguments = DistillationConfig.like(
            arguments, method="finetune", skip_unused_embeddings=skip
        )
    return trainer(
        model or student(),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=Collator(tiny.tokenizer()),
        **own,
    )


def trained(*args, **changes):
    trainer = made(*args, **changes)
    trainer.train()
    return trainer


def weights(model) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def plainly(monkeypatch):
    """As if no word were ever left out."""

    def train(*args, **kwargs):
        with monkeypatch.context() as patch:
            patch.setattr("limbeck.training.trainer.words_of", lambda *_: None)
            return trained(*args, **kwargs)

    return train


@pytest.mark.parametrize(
    "changes",
    quick(
        {"gradient_accumulation_steps": 2},
        of=({}, {"gradient_accumulation_steps": 2}, {"bf16": True}),
    ),
    ids=str,
)
def test_the_student_is_that_of_plain_training_bit_for_bit(tmp_path, plainly, changes):
    """Without clipping, whose norm is summed in another order."""
    some = trained(tmp_path / "some", **changes)
    assert some._words is not None
    every = plainly(tmp_path / "every", **changes)
    same(weights(some.student), weights(every.student))
    learned = some.student.get_input_embeddings().weight
    assert not torch.equal(learned, student().get_input_embeddings().weight)


@pytest.mark.slow
def test_with_clipping_it_is_the_same_to_rounding(tmp_path, plainly):
    some = weights(trained(tmp_path / "some", max_grad_norm=0.1).student)
    every = weights(plainly(tmp_path / "every", max_grad_norm=0.1).student)
    for name, weight in some.items():
        torch.testing.assert_close(weight, every[name], rtol=1e-4, atol=1e-5)


def test_it_is_what_hugging_faces_own_trainer_trains(tmp_path):
    class InOrder(Trainer):
        def _get_train_sampler(self, dataset=None):
            return mine._get_train_sampler(dataset)

    mine = trained(tmp_path / "mine", num_train_epochs=1)
    theirs = trained(tmp_path / "theirs", trainer=InOrder, num_train_epochs=1)
    same(weights(mine.student), weights(theirs.model))


def test_afterwards_nothing_is_left_behind(tmp_path):
    model = student()
    before = [name for name, _ in model.named_parameters()]
    trained(tmp_path, model)
    embedding = model.get_input_embeddings()
    assert [name for name, _ in model.named_parameters()] == before
    assert all(weight.requires_grad for weight in model.parameters())
    assert "forward" not in vars(embedding)
    assert not embedding._state_dict_pre_hooks and not embedding._load_state_dict_pre_hooks
    assert len(embedding.weight) == VOCABULARY


def test_during_training_others_see_the_whole_and_present_matrix(tmp_path):
    """What a callback reads, saves or scores in the middle is the student as it stands."""
    seen = []

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            live = trainer.student
            used = live.get_input_embeddings().weight_in_use
            state = live.state_dict()
            live.save_pretrained(tmp_path / "copy")
            whole = state["bert.embeddings.word_embeddings.weight"]
            assert set(state) == {name for name, _ in student().state_dict().items()}
            assert whole.shape[0] == VOCABULARY
            assert torch.equal(whole[trainer._words.used], used)
            reloaded = type(live).from_pretrained(tmp_path / "copy")
            batch = {"input_ids": torch.arange(1, 21).view(2, 10)}
            live.eval()
            with torch.no_grad():
                assert torch.equal(live(**batch).logits, reloaded.eval()(**batch).logits)
            live.train()
            seen.append(whole.clone())

    trainer = made(tmp_path, max_steps=3, callbacks=[Look()])
    trainer.train()
    assert len(seen) == 3 and not torch.equal(seen[0], seen[2])


def test_only_what_is_in_use_has_a_gradient_and_moments(tmp_path):
    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, optimizer=None, **kwargs):
            shapes.append({tuple(weight.shape) for weight in optimizer.state})

    shapes: list = []
    some = trained(tmp_path, callbacks=[Look()])
    used = len(some._words.used)
    assert used <= 14
    assert (used, tiny.WIDTH) in shapes[-1] and (VOCABULARY, tiny.WIDTH) not in shapes[-1]


def test_a_killed_run_ends_as_an_unbroken_one(tmp_path):
    """The optimiser's state is of the rows in use, and fits them again."""
    unbroken = trained(tmp_path / "whole").student
    with pytest.raises(tiny.KilledError):
        trained(tmp_path / "broken", callbacks=[tiny.Kill("step_begin", 11)])
    again = made(tmp_path / "broken", model=student(seed=9))
    again.train(resume_from_checkpoint=str(tmp_path / "broken" / "checkpoint-8"))
    same(weights(again.student), weights(unbroken))


def test_a_checkpoint_holds_the_whole_student(tmp_path):
    from safetensors.torch import load_file

    some = trained(tmp_path)
    state = load_file(tmp_path / "checkpoint-16" / "distiller.safetensors")
    assert state["student.bert.embeddings.word_embeddings.weight"].shape[0] == VOCABULARY
    assert not [name for name in state if "in_use" in name]
    same(
        {name.removeprefix("student."): weight for name, weight in state.items()},
        weights(some.student),
    )


@pytest.mark.slow
def test_training_twice_is_training_twice(tmp_path, monkeypatch):
    """The second time goes on with the first one's optimiser, as the Trainer's does."""
    ends = []
    for every in (False, True):
        if every:
            monkeypatch.setattr("limbeck.training.trainer.words_of", lambda *_: None)
        trainer = trained(tmp_path / str(every))
        trainer.train()
        ends.append(weights(trainer.student))
    same(*ends)


def test_other_words_in_a_second_training_are_refused(tmp_path):
    trainer = trained(tmp_path)
    trainer.train_dataset = ROWS.select(range(8))
    trainer.train()
    trainer.train_dataset = ROWS.map(lambda row: {"input_ids": [*row["input_ids"][:-1], 30]})
    with pytest.raises(LimbeckError, match="did not"):
        trainer.train()


# ---- where it is of no use ----


def tied():
    return BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1,
                                      num_attention_heads=2, intermediate_size=8))  # fmt: skip


def frozen():
    model = student()
    model.get_input_embeddings().requires_grad_(False)
    return model


@pytest.mark.parametrize("model", [tied, frozen])
def test_embeddings_that_do_more_than_look_up_are_trained_plainly(model):
    assert words_in_use(model(), ROWS, 0) is None


def reading_twice(how):
    """A student whose head looks at the embedding's weights, past its `forward`."""
    model = student()
    weight = model.get_input_embeddings().weight
    model.classifier.register_forward_hook(lambda module, given, found: found + how(weight))
    return model


@pytest.mark.parametrize(
    "how",
    [torch.mean, pytest.param(lambda weight: weight[4, 0], marks=pytest.mark.slow)],
    ids=["all", "one in use"],
)
@pytest.mark.slow
def test_what_no_list_of_models_tells_is_found_on_the_first_batch(tmp_path, plainly, caplog, how):
    some = trained(tmp_path / "some", reading_twice(how))
    assert some.embeddings_trained is None
    assert "reads its word embeddings in a second place" in caplog.text
    every = plainly(tmp_path / "every", reading_twice(how))
    same(weights(some.student), weights(every.student))


def test_it_can_be_switched_off_and_is_told(tmp_path):
    assert trained(tmp_path / "on").embeddings_trained == 13
    assert trained(tmp_path / "off", skip_unused_embeddings=False).embeddings_trained is None


def test_looking_draws_nothing_and_leaves_nothing(tmp_path):
    """The numbers drawn, the modes and the gradients are what they were."""
    trainer = made(tmp_path)
    model = trainer.student.train()
    found = words_in_use(model, ROWS, 0)
    before, state = weights(model), torch.get_rng_state()
    batch = trainer.data_collator([ROWS[place] for place in range(4)])
    assert is_exact(found, model, batch)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())
    same(before, weights(model))


def test_rows_of_unknown_words_and_little_to_save():
    assert words_in_use(student(), ROWS, 0) is not None
    assert words_in_use(student(), [{"input_ids": [1, 2]}], 0) is None
    assert words_in_use(student(), ROWS.remove_columns("input_ids"), 0) is None
    assert words_in_use(student(), ROWS, 0, worth=tiny.WIDTH * VOCABULARY) is None


@pytest.mark.parametrize(
    "changes",
    [pytest.param({"weight_decay": 0.1}, marks=pytest.mark.slow), {"optim": "adafactor"}],
    ids=["decay", "adafactor"],
)
@pytest.mark.slow
def test_what_moves_weights_without_gradient_moves_all(tmp_path, plainly, changes):
    some = trained(tmp_path / "some", **changes)
    assert some._words is None
    same(weights(some.student), weights(plainly(tmp_path / "every", **changes).student))


def test_an_optimiser_of_the_users_own_has_all_weights(tmp_path):
    model = student()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    assert trained(tmp_path, model, optimizers=(optimizer, None))._words is None


def test_a_padding_word_has_no_gradient_and_is_known():
    embedding = nn.Embedding(9, 4, padding_idx=0)
    engaged = WordsInUse(embedding, torch.tensor([0, 3, 5]))
    with engaged.engaged():
        embedding(torch.tensor([0, 3, 3])).sum().backward()
        assert engaged.rows.grad.tolist() == [[0.0] * 4, [2.0] * 4, [0.0] * 4]
        with pytest.raises(IndexError):
            embedding(torch.tensor([4]))

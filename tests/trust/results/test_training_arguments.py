"""Every setting of `TrainingArguments` does what it says with a teacher too, or is refused by its name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import sys
import types
from typing import Any

import own_rows as own
import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import Seq2SeqTrainingArguments, TrainerCallback, TrainingArguments
from transformers import trainer as stock

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationConfig, DistillationTrainer, arguments


def still(layers: int = 2) -> Any:
    return own.bert(layers, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def trainer(folder, student=None, given=None, method="kd", **changes) -> DistillationTrainer:
    own_things = {"train_dataset": own.sentences(), "data_collator": own.OwnCollator()}
    return tiny.trainer_of(
        student or still(),
        own.arguments(folder, **(given or {})),
        teacher=None if method == "finetune" else own.bert(3, 1),
        method=method,
        **(own_things | changes),
    )


def losses(made: DistillationTrainer) -> list[float]:
    return [entry["loss"] for entry in made.state.log_history if "learning_rate" in entry]


def weights(made: DistillationTrainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in made.student.state_dict().items()}


def alike(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], atol: float = 0.0) -> bool:
    """But for the keys' biases of attention, which the softmax takes out of the gradient."""
    return all(
        torch.allclose(value, other[name], rtol=0, atol=atol)
        for name, value in one.items()
        if "key.bias" not in name
    )


# ---- what limbeck has to do itself ----

SEEN_TO = {
    "use_liger_kernel": "in the student, before the Trainer looks in the wrapper",
    "liger_kernel_config": "in the student, without its losses",
    "activation_checkpointing": "in the student",
    "average_tokens_across_devices": "of examples: each counts alike, on whatever device it is",
    "bf16_full_eval": "the wrapper is cast, and the student in it",
    "data_seed": "of the order",
    "debug": "hooks on the wrapper reach the student's modules",
    "fp16_full_eval": "the wrapper is cast, and the student in it",
    "hub_revision": "by `save_model`",
    "length_column_name": "where batches are of similar length",
    "max_grad_norm": "of the wrapper's gradients, which learned maps have too",
    "output_dir": "by `save_model`",
    "push_to_hub": "the student, by `save_model`",
    "seed": "of the order",
    "train_sampling_strategy": "the order is a function of seed and epoch",
}
"""Settings that the Trainer's code alone does not see to: what becomes of them."""


def settings_read(code: ast.AST) -> set[str]:
    """The settings of `args` or `self.args` that code names."""
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    return {
        node.attr
        for node in ast.walk(code)
        if isinstance(node, ast.Attribute)
        and node.attr in known
        and ast.unparse(node.value) in ("args", "self.args")
    }


def replaced(name: str) -> bool:
    """Whether a method of the Trainer never runs, because ours does not call it."""
    kinds = DistillationTrainer.__mro__[: DistillationTrainer.__mro__.index(stock.Trainer)]
    ours = [inspect.getsource(vars(kind)[name]) for kind in kinds if name in vars(kind)]
    return bool(ours) and not any(f"super().{name}(" in code for code in ours)


def takes_the_model(branch: ast.If) -> bool:
    names = {node.id for node in ast.walk(branch) if isinstance(node, ast.Name)}
    return "model" in names or "self.model" in ast.unparse(branch.body)


def test_a_new_setting_that_the_trainers_code_cannot_see_to_is_named():
    """It is read by a method that ours replaces, or decides what is done to the model, which is the wrapper."""
    tree = ast.parse(inspect.getsource(stock))
    (trainer_class,) = (
        node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Trainer"
    )
    methods = [node for node in trainer_class.body if isinstance(node, ast.FunctionDef)]
    found = set().union(*(settings_read(one) for one in methods if replaced(one.name)))
    for node in ast.walk(trainer_class):
        if isinstance(node, ast.If) and takes_the_model(node):
            found |= settings_read(node.test)
    assert {"data_seed", "push_to_hub", "use_liger_kernel"} <= found
    new = found - arguments.REFUSED.keys() - SEEN_TO.keys()
    assert not new, f"do {sorted(new)} hold with a teacher? see to them, or refuse them"


@pytest.mark.parametrize("name", sorted(arguments.REFUSED))
def test_what_is_refused_asks_for_nothing_by_default(name):
    default = {f.name: f.default for f in dataclasses.fields(Seq2SeqTrainingArguments)}[name]
    assert not default


# ---- refused ----


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1"),
        ({"torch_compile": True}, "torch_compile=True"),
        ({"torch_compile_mode": "default"}, "torch_compile_mode='default'"),
    ],
)
def test_what_would_not_hold_is_refused_by_its_name(tmp_path, given, named):
    with pytest.raises(LimbeckError) as caught:
        trainer(tmp_path, given=given)
    assert any(named in problem.message and problem.fix for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_liger_kernel", True),
        ("liger_kernel_config", {"fused_linear_cross_entropy": True}),
        ("fsdp", "full_shard"),
        ("deepspeed", {"zero_optimization": {"stage": 2}}),
        ("parallelism_config", object()),
        ("_n_gpu", 2),
    ],
)
def test_what_cannot_be_asked_for_on_this_machine_is_refused_too(tmp_path, name, value):
    args = own.arguments(tmp_path)
    setattr(args, name, value)
    with pytest.raises(LimbeckError) as caught:
        DistillationTrainer(still(), own.bert(3, 1), DistillationConfig.like(args, method="kd"))
    found = str(caught.value)
    assert "CUDA_VISIBLE_DEVICES" in found if name == "_n_gpu" else f"args.{name}=" in found


@pytest.mark.parametrize("known", [True, False])
def test_liger_kernels_reach_the_student_without_the_fused_loss(known, tmp_path, monkeypatch):
    """A stand-in for liger-kernel, which needs a GPU: transformers' own function calls it on the student itself."""
    asked = []

    def apply(model, **config):
        asked.append((type(model).__name__, config))
        if known:
            model.base_model.forward = model.base_model.forward

    package = types.ModuleType("liger_kernel.transformers")
    package._apply_liger_kernel_to_instance = apply
    monkeypatch.setitem(sys.modules, "liger_kernel", types.ModuleType("liger_kernel"))
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", package)
    for module in (arguments, transformers.integrations.liger):
        monkeypatch.setattr(module, "is_liger_kernel_available", lambda: True)
    monkeypatch.setattr(arguments, "accelerator", lambda: torch.device("cuda"))
    args = own.arguments(tmp_path)
    args.use_liger_kernel, args.liger_kernel_config = True, {"rope": False}
    config = DistillationConfig.like(args, method="kd")
    own_things = {"train_dataset": own.sentences(), "data_collator": own.OwnCollator()}
    if not known:
        with pytest.raises(LimbeckError, match="no kernels for bert"):
            DistillationTrainer(still(), own.bert(3, 1), config, **own_things)
        return
    trainer = DistillationTrainer(still(), own.bert(3, 1), config, **own_things)
    trainer.train()
    wanted = {"rope": False, "fused_linear_cross_entropy": False, "cross_entropy": False}
    assert asked == [("BertForSequenceClassification", wanted)]
    assert config.use_liger_kernel


def test_what_belongs_to_another_trainer_is_refused(tmp_path):
    args = Seq2SeqTrainingArguments(
        str(tmp_path), use_cpu=True, predict_with_generate=True, generation_max_length=8
    )
    with pytest.raises(LimbeckError) as caught:
        DistillationTrainer(still(), own.bert(3, 1), DistillationConfig.like(args, method="kd"))
    assert len(caught.value.problems) == 2
    assert all("Seq2SeqTrainer" in problem.message for problem in caught.value.problems)


def test_a_loss_function_of_the_users_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="compute_loss_func"):
        trainer(tmp_path, compute_loss_func=lambda outputs, labels, num_items_in_batch: 0.0)


def test_labels_of_another_head_are_refused(tmp_path):
    with pytest.raises(LimbeckError, match="label_names"):
        trainer(tmp_path, given={"label_names": ["start_positions"]})


def test_an_optimiser_that_leaves_learned_maps_out_is_refused(tmp_path):
    student = still(3)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with pytest.raises(LimbeckError, match=r"learned maps.*rail"):
        trainer(tmp_path, student, method="rail-kd-l", optimizers=(optimizer, None))
    made = trainer(tmp_path, student, method="kd", optimizers=(optimizer, None))
    made.train()
    assert made.optimizer.optimizer is optimizer


def test_an_optimiser_of_one_part_is_refused_for_several(tmp_path):
    student = still()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with pytest.raises(LimbeckError, match=r"optimizers.*several parts"):
        trainer(tmp_path, student, method="tinybert", optimizers=(optimizer, None))


# ---- they do what they say ----


def test_checkpointing_of_activations_changes_no_number(tmp_path):
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    name = f"{'activation' if 'activation_checkpointing' in known else 'gradient'}_checkpointing"
    plain, saving = (trainer(tmp_path, given=given) for given in ({}, {name: True}))
    for made in (plain, saving):
        made.train()
    assert not getattr(plain.student, f"is_{name}")
    assert getattr(saving.student, f"is_{name}")
    assert losses(saving) == pytest.approx(losses(plain), rel=1e-6)
    assert alike(weights(plain), weights(saving), atol=1e-5)


def test_neftune_adds_its_noise_to_the_students_words(tmp_path):
    seen = []

    class Look(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            hooks = made.student.get_input_embeddings()._forward_hooks
            seen.append(len(hooks))

    plain = trainer(tmp_path)
    plain.train()
    made = trainer(tmp_path, given={"neftune_noise_alpha": 5.0}, callbacks=[Look()])
    made.train()
    assert seen == [1, 1]
    assert losses(made)[0] != losses(plain)[0]
    assert not made.student.get_input_embeddings()._forward_hooks  # gone with the training


def order_of(made: DistillationTrainer) -> list[int]:
    return [row for batch in made.get_train_dataloader() for row in batch["index"].tolist()]


def numbered(folder, given=None, **changes) -> DistillationTrainer:
    settings = {"train_dataset": tiny.rows(24), "data_collator": Collator(tiny.tokenizer())}
    return trainer(folder, given=given, **(settings | changes))


def test_the_order_of_examples_is_as_asked(tmp_path):
    plain = order_of(numbered(tmp_path))
    assert sorted(plain) == list(range(24)) != plain
    assert order_of(numbered(tmp_path, {"train_sampling_strategy": "sequential"})) == sorted(plain)
    assert order_of(numbered(tmp_path, {"data_seed": 42})) == plain  # the seed's own default
    other = order_of(numbered(tmp_path, {"data_seed": 7}))
    assert sorted(other) == sorted(plain) and other != plain
    assert order_of(numbered(tmp_path, {"data_seed": 7, "seed": 1})) == other
    grouped = order_of(numbered(tmp_path, {"train_sampling_strategy": "group_by_length"}))
    assert grouped == order_of(numbered(tmp_path, group_by_length=True)) != plain


def test_lengths_may_stand_in_a_column(tmp_path):
    rows = tiny.rows(24)
    lengths = [len(ids) for ids in rows["input_ids"]]
    given = {"train_sampling_strategy": "group_by_length", "length_column_name": "size"}
    named = numbered(tmp_path, given, train_dataset=rows.add_column("size", lengths))
    assert order_of(named) == order_of(numbered(tmp_path, group_by_length=True))


def test_batches_may_be_balanced_by_tokens(tmp_path):
    made = numbered(
        tmp_path, {"train_sampling_strategy": "batch_rebalance", "gradient_accumulation_steps": 2}
    )
    assert sorted(order_of(made)) == list(range(24))
    made.train()
    assert made.state.global_step == 2


def test_an_incomplete_batch_may_be_dropped(tmp_path):
    made = numbered(
        tmp_path,
        {"dataloader_drop_last": True, "max_steps": -1, "num_train_epochs": 1},
        train_dataset=tiny.rows(10),
    )
    made.train()
    assert made.state.global_step == 2
    assert made.progress.examples(made.training_rows) == 8


def test_tokens_of_the_students_input_are_counted(tmp_path):
    rows = tiny.rows(8)
    made = numbered(
        tmp_path,
        {"include_num_input_tokens_seen": "non_padding", "max_steps": 2},
        train_dataset=rows,
    )
    made.train()
    assert made.state.num_input_tokens_seen == sum(map(len, rows["input_ids"]))


def test_columns_are_kept_for_a_collator_that_reads_them(tmp_path):
    words = tiny.tokenizer()

    def collate(rows):
        batch = words([row["review"] for row in rows], padding=True, return_tensors="pt")
        return {**batch, "labels": torch.tensor([row["label"] for row in rows])}

    texts = own.sentences().select_columns(["review", "label"])
    made = trainer(
        tmp_path,
        given={"remove_unused_columns": False},
        train_dataset=texts,
        data_collator=collate,
    )
    made.train()
    usual = trainer(tmp_path)
    usual.train()
    assert losses(made) == pytest.approx(losses(usual), rel=1e-6)


def test_a_teacher_reads_columns_that_the_student_does_not_name(tmp_path):
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    student = DistilBertForSequenceClassification(
        DistilBertConfig(vocab_size=14, dim=16, n_layers=1, n_heads=2, hidden_dim=24)
    )
    rows = own.sentences()
    types = [[row % 2] * len(ids) for row, ids in enumerate(rows["input_ids"])]
    made = trainer(tmp_path, student, train_dataset=rows.add_column("token_type_ids", types))
    assert all(batch["token_type_ids"].any() for batch in made.get_train_dataloader())
    made.train()


def test_the_start_is_scored_too(tmp_path):
    made = trainer(
        tmp_path,
        given={"eval_on_start": True, "eval_strategy": "steps", "eval_steps": 1},
        eval_dataset=own.sentences(),
        compute_metrics=own.accuracy,
    )
    made.train()
    assert [e["step"] for e in made.state.log_history if "eval_mine" in e] == [0, 1, 2]


def test_metrics_may_ask_for_inputs_and_losses(tmp_path):
    seen = {}

    def metrics(answer):
        seen.update(inputs=answer.inputs, losses=answer.losses)
        return {}

    made = trainer(
        tmp_path,
        given={"include_for_metrics": ["inputs", "loss"]},
        eval_dataset=own.sentences(),
        compute_metrics=metrics,
    )
    made.evaluate()
    assert seen["inputs"].shape[0] == seen["losses"].shape[0] == own.ROWS


@pytest.mark.parametrize("given", [{"bf16_full_eval": True}, {"batch_eval_metrics": True}])
def test_evaluation_in_other_ways(tmp_path, given):
    def metrics(answer, compute_result=True):
        return {"rows": 1.0}

    made = trainer(tmp_path, given=given, eval_dataset=own.sentences(), compute_metrics=metrics)
    found = made.evaluate()
    assert found["eval_rows"] == 1.0
    assert found["eval_loss"] == pytest.approx(0.69, abs=0.1)


def test_what_is_pushed_is_the_student(tmp_path, monkeypatch):
    pushed = []

    class Hub:
        def upload_folder(self, *, folder_path, commit_message, **kwargs):
            pushed.append((commit_message, load_file(f"{folder_path}/model.safetensors")))

            class Job:
                def done(self):
                    return True

            return Job() if kwargs.get("run_as_future") else None

    monkeypatch.setattr(stock, "hf_api", Hub)
    monkeypatch.setattr(
        DistillationTrainer,
        "init_hf_repo",
        lambda self, **_: setattr(self, "hub_model_id", "me/it"),
    )
    monkeypatch.setattr(DistillationTrainer, "create_model_card", lambda self, **_: None)
    made = trainer(
        tmp_path,
        method="rail-kd-l",
        given={
            "push_to_hub": True,
            "save_strategy": "steps",
            "save_steps": 1,
            "hub_always_push": True,
        },
    )
    made.push_in_progress = None
    made.train()
    made.push_to_hub()
    assert [message for message, _ in pushed] == [
        "Training in progress, step 1",
        "Training in progress, step 2",
        "End of training",
    ]
    for _, model in pushed:
        assert set(model) == set(made.student.state_dict())
    assert alike(weights(made), pushed[-1][1])


def test_rows_may_come_as_a_stream(tmp_path):
    stream = own.sentences().to_iterable_dataset()
    made = trainer(tmp_path, method="rail-kd-l", student=still(3), train_dataset=stream)
    made.train()
    assert made.state.global_step == 2
    assert [entry["epoch"] for entry in made.progress.epochs] == [1]


def test_without_arguments_a_method_trains_as_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = DistillationTrainer(
        still(), own.bert(3, 1), DistillationConfig(method="u-ild"), train_dataset=own.sentences()
    )
    args = made.args
    assert (args.num_train_epochs, args.learning_rate) == (4, 2e-5)
    assert (args.per_device_train_batch_size, args.warmup_steps) == (16, 0.1)

"""Students against Hugging Face: hidden states of truncated models, and what reloads elsewhere."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    BertForPreTraining,
    BertModel,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    LlamaConfig,
    ModernBertConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
)

from limbeck.errors import LimbeckError
from limbeck.students import build_student, load_model, pick_layers, resolve_checkpoint


@dataclass(frozen=True)
class Labels:
    labels: tuple[str, ...] = ("no", "yes")
    regression: bool = False


TASK = Labels()
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 4,
    "vocab_size": 40,
    "pad_token_id": 0,
}
FAMILIES: dict[str, PretrainedConfig] = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES),
    "distilbert": DistilBertConfig(dim=16, n_heads=2, hidden_dim=24, n_layers=4, vocab_size=40),
    "electra": ElectraConfig(**SIZES, embedding_size=8),
    "modernbert": ModernBertConfig(
        **SIZES, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, local_attention=4
    ),
    "deberta-v2": DebertaV2Config(**SIZES, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "t5": T5Config(
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_heads=2,
        num_layers=4,
        vocab_size=40,
        eos_token_id=1,
        decoder_start_token_id=0,
    ),
    "bart": BartConfig(
        d_model=16,
        vocab_size=40,
        encoder_layers=4,
        decoder_layers=4,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        eos_token_id=2,
        pad_token_id=1,
        max_position_embeddings=32,
        id2label={0: "no", 1: "yes"},
    ),
    "vit": ViTConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        num_hidden_layers=4,
        image_size=8,
        patch_size=4,
    ),
    "llama": LlamaConfig(**SIZES, num_key_value_heads=1),
    "qwen3": Qwen3Config(
        **SIZES,
        num_key_value_heads=1,
        head_dim=8,
        use_sliding_window=True,
        sliding_window=3,
        max_window_layers=2,
    ),
}


def auto_of(config: PretrainedConfig):
    vision = config.model_type == "vit"
    return AutoModelForImageClassification if vision else AutoModelForSequenceClassification


def student_of(teacher: PreTrainedModel, layers, pick: str = "first") -> PreTrainedModel:
    auto = auto_of(teacher.config)
    return build_student("teacher", teacher=teacher, layers=layers, pick=pick, task=TASK, auto=auto)


def random_model(config: PretrainedConfig, seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = type(config).from_dict(config.to_dict())  # models share the object they are given
    model = auto_of(config).from_config(config).eval()
    with torch.no_grad():  # norms and biases start equal in every layer: make layers tell apart
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    return model


def batch_for(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    if model.config.model_type == "vit":
        return {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 64).view(2, 3, 8, 8)}
    ids = torch.tensor([[5, 9, 11, 7, 20, 31, 2], [8, 6, 30, 12, 2, 0, 0]])
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2])
    if model.config.model_type in ("t5", "bart"):  # these look for one final end token
        end = model.config.eos_token_id
        ids = torch.tensor([[5, 9, 11, 7, 20, 31, end], [8, 6, 30, 12, 15, 13, end]])
        mask = torch.ones_like(ids)
    return {"input_ids": ids, "attention_mask": mask}


def hidden_states(model: PreTrainedModel, stack: str = "main") -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        outputs = model(**batch_for(model), output_hidden_states=True)
    if stack == "main":
        return outputs.hidden_states
    return outputs[f"{stack}_hidden_states"]


def logits(model: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch_for(model)).logits


@pytest.mark.parametrize(
    ("pick", "keep", "total", "picked"),
    [
        ("first", 3, 6, [1, 2, 3]),
        ("last", 3, 6, [4, 5, 6]),
        ("skip", 6, 12, [2, 4, 6, 8, 10, 12]),
        ("skip", 5, 12, [2, 5, 7, 10, 12]),
        ("upper", 6, 12, [2, 4, 6, 8, 10, 12]),
        ("upper", 5, 12, [3, 6, 8, 10, 12]),
        ("first", None, 3, [1, 2, 3]),
        ([5, 1], None, 6, [1, 5]),
    ],
)
def test_pick_layers_by_hand(pick, keep, total, picked):
    assert pick_layers(pick, keep, total) == picked


@pytest.mark.parametrize("pick", ["first", "last", "skip", "upper"])
def test_every_rule_gives_distinct_existing_layers(pick):
    for total in range(1, 25):
        for keep in range(1, total + 1):
            picked = pick_layers(pick, keep, total)
            assert len(set(picked)) == keep and picked == sorted(picked)
            assert picked[0] >= 1 and picked[-1] <= total


@pytest.mark.parametrize(
    ("pick", "keep", "words"),
    [
        ("frist", 2, "did you mean 'first'"),
        ("first", 7, "choose a number from 1 to 6"),
        ("first", 0, "choose a number from 1 to 6"),
        ([0, 7], None, "layers 0, 7 asked for, but the model's layers are 1..6"),
        ([2, 2], None, "twice"),
        ([], None, "empty"),
        ([1, 2], 3, "the count or the list"),
    ],
)
def test_bad_picks_say_what_exists(pick, keep, words):
    with pytest.raises(LimbeckError, match=words):
        pick_layers(pick, keep, 6)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_first_layers_compute_the_teachers_hidden_states(family):
    teacher = random_model(FAMILIES[family])
    student = student_of(teacher, 2)
    stacks = ("encoder", "decoder") if family in ("t5", "bart") else ("main",)
    theirs, ours = hidden_states(teacher, stacks[0]), hidden_states(student, stacks[0])
    assert len(ours) == 3
    # The last state passes the final norm in some families; the ones below it never do.
    for layer in range(2):
        torch.testing.assert_close(ours[layer], theirs[layer], rtol=0, atol=0)
    if family in ("bert", "roberta", "distilbert", "electra", "deberta-v2", "bart"):
        torch.testing.assert_close(ours[2], theirs[2], rtol=0, atol=0)
    if len(stacks) == 2:
        assert len(hidden_states(student, "decoder")) == 3


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_listed_layers_equal_a_teacher_whose_other_layers_are_removed(family):
    """The oracle cuts the teacher's own module list: no configuration, no renaming."""
    teacher = random_model(FAMILIES[family])
    student = student_of(teacher, [1, 3])
    for module in teacher.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, torch.nn.ModuleList) and len(child) == 4:
                setattr(module, name, torch.nn.ModuleList([child[0], child[2]]))
    if hasattr(teacher.config, "layer_types"):  # read from the configuration on every forward
        teacher.config.layer_types = [teacher.config.layer_types[layer] for layer in (0, 2)]
    for module in teacher.modules():
        if getattr(module, "layer_idx", None) == 2:  # where a key-value cache looks it up
            module.layer_idx = 1
    torch.testing.assert_close(logits(student), logits(teacher), rtol=0, atol=0)


@pytest.mark.parametrize("family", [*sorted(FAMILIES), "albert"])
@pytest.mark.parametrize("pick", ["last", "skip"])
def test_saved_student_reloads_bit_equal(family, pick, tmp_path):
    config = FAMILIES.get(family) or AlbertConfig(**SIZES, embedding_size=8)
    student = student_of(random_model(config), 2, pick)
    student.save_pretrained(tmp_path)
    again, info = auto_of(config).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert all(weight.dtype == torch.float32 for weight in again.parameters())
    torch.testing.assert_close(logits(again), logits(student), rtol=0, atol=0)


def test_reloads_where_limbeck_is_not_imported(tmp_path):
    students = {}
    for family in ("bert", "t5", "modernbert"):
        teacher = random_model(FAMILIES[family])
        student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
        student.save_pretrained(tmp_path / family)
        students[family] = logits(student)
        save_file(
            {**batch_for(student), "logits": students[family]}, tmp_path / f"{family}.safetensors"
        )
    script = (
        "import sys, torch\n"
        "from pathlib import Path\n"
        "from safetensors.torch import load_file\n"
        "from transformers import AutoModelForSequenceClassification as Auto\n"
        "for file in sorted(Path(sys.argv[1]).glob('*.safetensors')):\n"
        "    batch = load_file(file); expected = batch.pop('logits')\n"
        "    model = Auto.from_pretrained(file.with_suffix(''))\n"
        "    with torch.no_grad(): assert torch.equal(model(**batch).logits, expected), file\n"
        "assert 'limbeck' not in sys.modules\n"
        "print('same')\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "same", done.stderr


def test_layer_types_follow_the_picked_layers():
    modern = random_model(FAMILIES["modernbert"])
    student = build_student("teacher", teacher=modern, layers=[2, 3, 4], task=TASK)
    assert student.config.layer_types == [
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ]
    qwen = random_model(FAMILIES["qwen3"])
    student = build_student("teacher", teacher=qwen, layers=[2, 3], task=TASK)
    assert student.config.layer_types == ["full_attention", "sliding_attention"]
    assert qwen.config.num_hidden_layers == 4 and len(qwen.config.layer_types) == 4


def test_t5_keeps_the_first_layers_relative_bias():
    teacher = random_model(FAMILIES["t5"])
    student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
    for stack in ("encoder", "decoder"):
        name = f"transformer.{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        assert torch.equal(student.state_dict()[name], teacher.state_dict()[name])
    shared = student.get_input_embeddings().weight
    assert student.transformer.encoder.embed_tokens.weight is shared


def test_encoder_and_decoder_may_keep_different_layers():
    teacher = random_model(FAMILIES["t5"])
    student = build_student(
        "teacher", teacher=teacher, layers={"encoder": 3, "decoder": [2]}, task=TASK
    )
    assert len(student.transformer.encoder.block) == 3
    assert len(student.transformer.decoder.block) == 1
    ours = student.transformer.decoder.block[0].layer[-1].DenseReluDense.wi.weight
    theirs = teacher.transformer.decoder.block[1].layer[-1].DenseReluDense.wi.weight
    assert torch.equal(ours, theirs)
    with pytest.raises(LimbeckError, match="stacks \\['decoder'\\], but the model has main"):
        build_student(
            "teacher", teacher=random_model(FAMILIES["bert"]), layers={"decoder": 1}, task=TASK
        )


def test_albert_changes_only_its_rounds_and_says_so(caplog):
    teacher = random_model(AlbertConfig(**SIZES, embedding_size=8))
    with caplog.at_level(logging.WARNING):
        student = build_student("teacher", teacher=teacher, layers=2, pick="last", task=TASK)
    assert "one shared layer 4 times" in caplog.text
    assert student.state_dict().keys() == teacher.state_dict().keys()
    assert student.config.num_hidden_layers == 2
    for ours, theirs in zip(hidden_states(student), hidden_states(teacher), strict=False):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_modernbert_says_what_its_first_layer_cannot_hold(caplog):
    with caplog.at_level(logging.WARNING):
        build_student(
            "teacher", teacher=random_model(FAMILIES["modernbert"]), layers=[2, 3], task=TASK
        )
    assert "attn_norm" in caplog.text


def test_head_is_copied_only_when_labels_agree():
    config = BertConfig(**SIZES, id2label={0: "contradiction", 1: "entailment", 2: "neutral"})
    teacher = random_model(config)
    same = Labels(("Contradiction", "entailment", "neutral"))
    moved = Labels(("entailment", "neutral", "contradiction"))
    copied = build_student("teacher", teacher=teacher, layers=1, task=same)
    fresh = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=3)
    again = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=3)
    other = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=4)
    weight = teacher.classifier.weight
    assert torch.equal(copied.classifier.weight, weight)
    assert not torch.equal(fresh.classifier.weight, weight)
    assert torch.equal(fresh.classifier.weight, again.classifier.weight)
    assert not torch.equal(fresh.classifier.weight, other.classifier.weight)
    assert torch.equal(fresh.bert.pooler.dense.weight, teacher.bert.pooler.dense.weight)
    assert fresh.config.id2label == {0: "entailment", 1: "neutral", 2: "contradiction"}
    assert fresh.config.label2id["contradiction"] == 2
    assert fresh.config.problem_type == "single_label_classification"


def test_labels_that_a_saved_configuration_would_lose_are_refused():
    """BART's class default is three labels; transformers leaves LABEL_0, LABEL_1 unsaved."""
    teacher = random_model(FAMILIES["bart"])
    task = Labels(("LABEL_0", "LABEL_1"))
    with pytest.raises(LimbeckError, match="name the classes"):
        build_student("teacher", teacher=teacher, layers=2, task=task)


def test_regression_student_has_one_output():
    teacher = random_model(FAMILIES["bert"])
    student = build_student("teacher", teacher=teacher, layers=2, task=Labels((), True))
    assert student.config.num_labels == 1 and student.config.problem_type == "regression"
    labels = torch.tensor([0.5, 3.0])
    output = student(**batch_for(student), labels=labels)
    torch.testing.assert_close(
        output.loss, ((output.logits.squeeze(-1) - labels) ** 2).mean(), rtol=1e-6, atol=1e-6
    )


def test_building_leaves_teacher_and_random_state_alone():
    teacher = random_model(FAMILIES["bert"])
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    state = torch.get_rng_state()
    student = build_student("teacher", teacher=teacher, layers=2, task=Labels(("a", "b", "c")))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for weight in student.parameters():
            weight.zero_()
    assert all(torch.equal(before[name], weight) for name, weight in teacher.state_dict().items())
    assert teacher.config.num_hidden_layers == 4 and teacher.config.num_labels == 2


def test_half_precision_teacher_gives_a_float32_student():
    teacher = random_model(FAMILIES["bert"]).to(torch.bfloat16)
    student = build_student("teacher", teacher=teacher, layers=2, task=TASK)
    assert {weight.dtype for weight in student.parameters()} == {torch.float32}
    assert torch.equal(student.classifier.weight, teacher.classifier.weight.float())


def test_fresh_students():
    teacher = random_model(FAMILIES["bert"])
    narrow = build_student("fresh", teacher=teacher, layers=2, task=TASK, config={"hidden_size": 8})
    assert narrow.config.hidden_size == 8 and len(narrow.bert.encoder.layer) == 2
    deep = build_student("fresh", teacher=teacher, task=TASK, config={"num_hidden_layers": 6})
    assert len(deep.bert.encoder.layer) == 6
    modern = random_model(FAMILIES["modernbert"])
    deep = build_student("fresh", teacher=modern, task=TASK, config={"num_hidden_layers": 7})
    assert len(deep.config.layer_types) == 7
    sizes = {"model_type": "distilbert", "dim": 8, "n_heads": 2, "hidden_dim": 8, "n_layers": 1}
    other = build_student("fresh", teacher=teacher, task=TASK, config=sizes)
    assert other.config.model_type == "distilbert" and other.config.vocab_size == 40
    given = build_student(FAMILIES["electra"], layers=1, task=TASK, seed=5)
    again = build_student(FAMILIES["electra"], layers=1, task=TASK, seed=5)
    assert torch.equal(logits(given), logits(again))


@pytest.mark.parametrize(
    ("init", "config", "words"),
    [
        ("teacher", {"hiden_size": 8}, "did you mean 'hidden_size'"),
        ("teacher", {"hidden_size": 8}, "its shape differs"),
        ("teacher", {"num_hidden_layers": 2}, "student.layers instead"),
        ("teacher", {"model_type": "roberta"}, "set init: fresh"),
        ("fresh", {"hidden_size": 9}, "no model can be built"),
        ("fresh", {"hidden_size": "wide"}, "refuses it"),
        ("fresh", {"model_type": "brt"}, "brt"),
    ],
)
def test_bad_settings(init, config, words):
    teacher = random_model(FAMILIES["bert"])
    with pytest.raises(LimbeckError, match=words):
        build_student(init, teacher=teacher, task=TASK, config=config)


def test_settings_that_change_no_shape_are_allowed():
    teacher = random_model(FAMILIES["bert"])
    student = build_student(
        "teacher", teacher=teacher, layers=2, task=TASK, config={"hidden_dropout_prob": 0.3}
    )
    assert student.config.hidden_dropout_prob == 0.3
    assert teacher.config.hidden_dropout_prob == 0.1


def test_no_teacher():
    with pytest.raises(LimbeckError, match="there is no teacher"):
        build_student("teacher", layers=2, task=TASK)


def test_pretrained_encoder_without_head(tmp_path, capfd):
    encoder = BertModel(BertConfig(**SIZES))
    encoder.save_pretrained(tmp_path)
    capfd.readouterr()  # what saving printed
    task = Labels(("a", "b", "c"))
    state = torch.get_rng_state()
    student = build_student(tmp_path, layers=2, task=task, seed=1)
    whole = load_model(tmp_path, labels=task.labels, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert student.config.num_labels == whole.config.num_labels == 3
    ours = student.bert.encoder.layer[1].attention.self.query.weight
    assert torch.equal(ours, encoder.encoder.layer[1].attention.self.query.weight)
    assert torch.equal(whole.bert.pooler.dense.weight, encoder.pooler.dense.weight)
    assert capfd.readouterr().err == ""  # no load report, no progress bar
    with pytest.raises(LimbeckError, match="no trained classification head"):
        load_model(tmp_path, head="required")


def test_checkpoints_with_other_heads_or_no_pooler_are_whole(tmp_path):
    BertForPreTraining(BertConfig(**SIZES)).save_pretrained(tmp_path / "pretraining")
    BertModel(BertConfig(**SIZES), add_pooling_layer=False).save_pretrained(tmp_path / "bare")
    T5ForConditionalGeneration(FAMILIES["t5"]).save_pretrained(tmp_path / "t5")
    for name in ("pretraining", "bare", "t5"):
        assert build_student(tmp_path / name, layers=2, task=TASK).config.num_labels == 2


def test_fine_tuned_checkpoint_keeps_its_head(tmp_path):
    teacher = random_model(BertConfig(**SIZES, id2label={0: "no", 1: "yes"}))
    teacher.save_pretrained(tmp_path)
    own = load_model(tmp_path, head="required")
    assert own.config.id2label == {0: "no", 1: "yes"}
    assert torch.equal(logits(own), logits(teacher))
    same = load_model(tmp_path, labels=("no", "yes"))
    assert torch.equal(logits(same), logits(teacher))
    with pytest.raises(LimbeckError, match="predicts no, yes, but the task has one number"):
        load_model(tmp_path, regression=True, head="required")
    other = load_model(tmp_path, labels=("yes", "no"))
    assert not torch.equal(other.classifier.weight, teacher.classifier.weight)
    assert torch.equal(other.bert.pooler.dense.weight, teacher.bert.pooler.dense.weight)


def test_half_precision_checkpoint_loads_in_float32(tmp_path):
    random_model(FAMILIES["bert"]).to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_model(tmp_path).dtype == torch.float32


def test_run_folder_stands_for_its_student(tmp_path):
    random_model(FAMILIES["bert"]).save_pretrained(tmp_path / "student")
    assert resolve_checkpoint(tmp_path) == str(tmp_path / "student")


def broken_missing_folder(folder: Path) -> Path:
    return folder / "absent"


def broken_no_config(folder: Path) -> Path:
    (folder / "config.json").unlink()
    return folder


def broken_pickle(folder: Path) -> Path:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def broken_json(folder: Path) -> Path:
    (folder / "config.json").write_text("{not json")
    return folder


def broken_weights(folder: Path) -> Path:
    (folder / "model.safetensors").write_bytes(b"not weights at all")
    return folder


def broken_type(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "brt"}))
    return folder


def broken_missing_layer(folder: Path) -> Path:
    weights = load_file(folder / "model.safetensors")
    kept = {name: weight for name, weight in weights.items() if ".layer.3." not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def broken_fewer_layers(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    return folder


def broken_shape(folder: Path) -> Path:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 41}))
    return folder


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (broken_missing_folder, "no such folder"),
        (broken_no_config, "no config.json"),
        (broken_pickle, "no .safetensors file"),
        (broken_json, "cannot be read"),
        (broken_weights, "damaged weights file"),
        (broken_type, "brt"),
        (broken_missing_layer, "weights missing: bert.encoder.layer.3"),
        (broken_fewer_layers, "more layers than config.json says: .*layer.3"),
        (broken_shape, "of another shape"),
    ],
)
def test_bad_checkpoints(breaks, words, tmp_path, capfd):
    folder = tmp_path / "model"
    random_model(FAMILIES["bert"]).save_pretrained(folder)
    path = breaks(folder)
    capfd.readouterr()  # what saving printed
    with pytest.raises(LimbeckError, match=words):
        load_model(path)
    assert capfd.readouterr().err == ""


def test_hub_name_without_the_hub(monkeypatch):
    with pytest.raises(LimbeckError, match="cannot be read"):
        load_model("nobody/no-such-model-as-this")


def test_bare_encoder_of_another_auto_class(tmp_path):
    random_model(FAMILIES["bert"]).save_pretrained(tmp_path)
    bare = load_model(tmp_path, auto=AutoModel)
    assert isinstance(bare, BertModel)
    shutil.rmtree(tmp_path)

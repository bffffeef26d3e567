"""Narrower models against the wide one with the same units masked, family by family."""

from __future__ import annotations

import re

import pytest
import torch
import transformers as hf
from student_models import TASK, auto_of, batch_for, logits, random_model
from torch import nn

from limbeck.students import build_student, width
from limbeck.support.errors import LimbeckError

SIZES = {
    "hidden_size": 24,
    "num_attention_heads": 6,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "vocab_size": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BERT = (r"attention\.output\.dense", r"\d\.output\.dense")
LLAMA = (r"o_proj", r"down_proj")
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "conv_kernel_size": 3}
BART = {
    "d_model": 24,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 6,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 40,
    "decoder_start_token_id": 2,
    "max_position_embeddings": 32,
}
# The linear maps that read heads and feed-forward units, written down by hand.
FAMILIES = {
    "bert": (hf.BertConfig(**SIZES), *BERT),
    "roberta": (hf.RobertaConfig(**SIZES), *BERT),
    "xlm-roberta": (hf.XLMRobertaConfig(**SIZES), *BERT),
    "distilbert": (
        hf.DistilBertConfig(dim=24, n_heads=6, hidden_dim=20, n_layers=3, vocab_size=40),
        r"out_lin",
        r"lin2",
    ),
    "electra": (hf.ElectraConfig(**SIZES, embedding_size=8), *BERT),
    "electra-base": (hf.ElectraConfig(**SIZES, embedding_size=24), *BERT),
    "albert": (hf.AlbertConfig(**SIZES, embedding_size=8), r"attention\.dense", r"ffn_output"),
    "modernbert": (
        hf.ModernBertConfig(**SIZES, cls_token_id=1, sep_token_id=2, local_attention=4),
        r"attn\.Wo",
        r"mlp\.Wo",
    ),
    "deberta-v2": (hf.DebertaV2Config(**SIZES, **DEBERTA), *BERT),
    "mpnet": (hf.MPNetConfig(**SIZES), r"attn\.o", r"\d\.output\.dense"),
    "t5": (
        hf.T5Config(d_model=24, d_kv=4, d_ff=20, num_heads=6, num_layers=3, vocab_size=40,
                    eos_token_id=1, decoder_start_token_id=0),
        r"Attention\.o",
        r"wo",
    ),
    "bart": (hf.BartConfig(**SIZES, **BART), r"attn\.out_proj", r"fc2"),
    "vit": (
        hf.ViTConfig(**{key: SIZES[key] for key in [*SIZES][:4]}, image_size=8, patch_size=4),
        r"attention\..*(output\.dense|o_proj)",
        r"(\d\.output\.dense|mlp\.fc2)",
    ),
    "llama": (hf.LlamaConfig(**SIZES, num_key_value_heads=3), *LLAMA),
    "qwen3": (hf.Qwen3Config(**SIZES, num_key_value_heads=3, head_dim=8), *LLAMA),
    "gpt2": (
        hf.GPT2Config(n_embd=24, n_head=6, n_layer=3, vocab_size=40, pad_token_id=0, eos_token_id=2),
        r"attn\.c_proj",
        r"mlp\.c_proj",
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_what_removes_nothing_is_the_same_model(family):
    model = random_model(FAMILIES[family][0])
    same = width.narrowed(model, hidden=24, heads=model.config.num_attention_heads)
    assert same is not model
    theirs = model.state_dict()
    assert same.state_dict().keys() == theirs.keys()
    assert all(torch.equal(weight, theirs[name]) for name, weight in same.state_dict().items())
    assert torch.equal(logits(same), logits(model))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_narrow_model_is_the_wide_one_with_units_masked(family):
    """Masked by hand: zero columns of the maps that read heads and units; norms over kept features."""
    config, leads_out, leads_down = FAMILIES[family]
    model = random_model(config)
    heads = model.config.num_attention_heads
    axes = width.axes_of(model)
    target = auto_of(config).from_config(
        width.with_width(model.config, 16, heads * 2 // 3, 12 if family != "gpt2" else 48)
    )
    counts = width._counts(model, target, axes)
    units = {axis.group: axis.units for own in axes.values() for axis in own if axis}
    torch.manual_seed(3)
    kept = {group: torch.randperm(units[group])[:n].sort().values for group, n in counts.items()}
    width.fill(target.eval(), model, axes, kept)

    features = kept["hidden"]
    gone = torch.tensor([n for n in range(24) if n not in features])
    masked = {"heads": 0, "ffn": 0}
    for name, module in model.named_modules():
        for kind, pattern in (("heads", leads_out), ("ffn", leads_down)):
            if re.search(pattern + "$", name) and re.search(r"\.\d+\.", name):
                masked[kind] += 1
                _mask_inputs(module, _units_of(kept, kind, name), units[_group(kept, kind, name)])
        if type(module).__name__.endswith(("LayerNorm", "RMSNorm")) and len(module.weight) == 24:
            module.forward = _norm_over(module, features)
        inside = re.search(r"\.\d+\.", name) is not None
        if isinstance(module, nn.Embedding) and module.embedding_dim == 24:
            module.weight.data[:, gone] = 0
        if isinstance(module, nn.Linear) and not inside:
            if module.out_features == 24:
                module.weight.data[gone] = 0
                if module.bias is not None:
                    module.bias.data[gone] = 0
            if module.in_features == 24:
                module.weight.data[:, gone] = 0
    assert min(masked.values()) >= (1 if family == "albert" else 3)
    torch.testing.assert_close(logits(target), logits(model), rtol=1e-4, atol=1e-5)


def _group(kept, kind, name):
    """The group that a module belongs to; a star in its name stands for any layer."""
    for group in kept:
        own = re.escape(group.removeprefix(f"{kind} of ")).replace(r"\*", r"\d+")
        if group == kind or (group.startswith(kind) and re.match(own + r"\.", name)):
            return group
    raise AssertionError(name)


def _units_of(kept, kind, name):
    return kept[_group(kept, kind, name)]


def _mask_inputs(module, kept, units):
    weight = module.weight.data if isinstance(module, nn.Linear) else module.weight.data.T
    size = weight.shape[1] // units
    for unit in range(units):
        if unit not in kept:
            weight[:, unit * size : (unit + 1) * size] = 0


def _norm_over(module, features):
    weight, bias = module.weight.data[features], getattr(module, "bias", None)
    eps = getattr(module, "variance_epsilon", None) or module.eps

    def forward(states):
        own = states[..., features]
        if isinstance(module, nn.LayerNorm):
            mean = own.mean(-1, keepdim=True)
            variance = ((own - mean) ** 2).mean(-1, keepdim=True)
            own = (own - mean) / (variance + eps).sqrt() * weight
            own = own if bias is None else own + bias.data[features]
        else:
            own = own / ((own**2).mean(-1, keepdim=True) + eps).sqrt() * weight
        found = torch.zeros_like(states)
        found[..., features] = own
        return found

    return forward


@pytest.mark.parametrize("family", ["bert", "modernbert", "t5", "bart", "qwen3", "gpt2"])
def test_a_narrow_student_loads_where_limbeck_is_not_installed(family, tmp_path):
    model = random_model(FAMILIES[family][0])
    heads = model.config.num_attention_heads * 2 // 3
    narrow = width.narrowed(model, heads=heads, hidden=16, ffn=8, batches=[batch_for(model)])
    student = build_student(narrow, layers=2, task=TASK)
    student.save_pretrained(tmp_path)
    found = auto_of(model.config).from_pretrained(tmp_path)
    assert torch.equal(logits(found), logits(student))


def test_units_that_change_the_outputs_stay():
    model = random_model(FAMILIES["bert"][0])
    dead = torch.arange(0, 24, 3)
    for name, weight in model.named_parameters():
        if re.search(
            r"(query|key|value|intermediate\.dense|pooler\.dense|classifier)\.weight", name
        ):
            weight.data[:, dead] = 0  # features that nothing reads, large as they are
        elif "word_embeddings" in name:
            weight.data[:, dead] *= 3
        elif re.search(r"attention\.output\.dense\.weight", name):
            weight.data[:, 4:12] = 0  # the second and third head
        elif re.search(r"\d\.output\.dense\.weight", name):
            weight.data[:, ::2] = 0
    batch = batch_for(model)
    scores = width.importance(model, width.axes_of(model), [batch])
    assert len(scores) == 7
    for group, found in scores.items():
        lowest = found.argsort()[: int((found == 0).sum())].sort().values.tolist()
        if group == "hidden":
            assert lowest == dead.tolist()
        elif group.startswith("heads"):
            assert lowest == [1, 2]
        else:
            assert lowest == [*range(0, 20, 2)]
    # Without rows it is the weights, which those features have more of.
    assert width.importance(model, width.axes_of(model), [])["hidden"][dead].min() > 0
    narrow = width.narrowed(model, ffn=10, batches=[batch])
    torch.testing.assert_close(logits(narrow), logits(model))


def test_importance_is_the_squared_change_of_the_outputs():
    """One output, so that the random sign falls out: ∂/∂m by central differences, unit by unit."""
    config = hf.BertConfig(**SIZES, num_labels=1)
    model = random_model(config).double()
    batch = batch_for(model)
    scores = width.importance(model, width.axes_of(model), [batch])
    down = model.bert.encoder.layer[1].output.dense
    out = model.bert.encoder.layer[2].attention.output.dense
    for module, size, group in (
        (down, 1, "ffn of bert.encoder.layer.1"),
        (out, 4, "heads of bert.encoder.layer.2.attention"),
    ):
        for unit in (0, 3):
            place = slice(unit * size, (unit + 1) * size)
            whole = module.weight.data.clone()
            found = []
            for factor in (1 + 1e-4, 1 - 1e-4):
                module.weight.data[:, place] = whole[:, place] * factor
                found.append(logits(model))
            module.weight.data.copy_(whole)
            slope = (found[0] - found[1]) / 2e-4
            assert scores[group][unit].item() == pytest.approx(float((slope**2).sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("family", "sizes", "said"),
    [
        (
            "bert",
            {"hidden": 15},
            "set student.heads=4 and leave student.hidden out, which makes 16",
        ),
        ("bert", {"heads": 7}, "choose a number from 1 to 6"),
        ("bert", {"ffn": 0}, "choose a number from 1 to 20"),
        ("llama", {"heads": 3}, "choose a multiple of 2"),
        ("electra", {"hidden": 8}, "only one of both has electra.embeddings_project"),
    ],
)
def test_sizes_that_cannot_be_are_refused(family, sizes, said):
    with pytest.raises(LimbeckError, match=said):
        width.narrowed(random_model(FAMILIES[family][0]), **sizes)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_family_whose_weights_are_misread_is_refused(heads):
    """DeBERTa's first version writes queries, keys and values of one head side by side."""
    model = random_model(hf.DebertaConfig(**SIZES))
    with pytest.raises(
        LimbeckError, match="DebertaForSequenceClassification cannot be made narrower"
    ):
        width.narrowed(model, heads=heads)


@pytest.mark.parametrize(
    ("config", "down"),
    [
        (hf.DebertaConfig(**SIZES), r"\d\.output\.dense"),
        (hf.GPTNeoXConfig(**SIZES), r"mlp\.dense_4h_to_h"),
        (hf.XLNetConfig(d_model=24, n_head=6, d_inner=20, n_layer=3, vocab_size=40), r"layer_2"),
    ],
    ids=["deberta", "gpt-neox", "xlnet"],
)
def test_a_family_with_misread_heads_still_loses_feed_forward_units(config, down):
    """Its heads or hidden features cannot be cut; masked by hand the other units are the narrow model's."""
    model = random_model(config)
    with pytest.raises(LimbeckError, match="cannot be made narrower"):
        width.narrowed(model, heads=3)
    scores = width.importance(model, width.axes_of(model), [])
    narrow = width.narrowed(model, ffn=12)
    groups = [name for name in scores if name.startswith("ffn")]
    modules = [one for name, one in model.named_modules() if re.search(down + "$", name)]
    assert len(groups) == len(modules) == 3
    for group, module in zip(groups, modules, strict=True):
        _mask_inputs(module, scores[group].topk(12).indices.tolist(), 20)
    torch.testing.assert_close(logits(narrow), logits(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("inner", "said"), [(12, "it does not run on the rows"), (8, "it cannot be built with other")]
)
def test_a_model_that_does_not_run_is_refused_by_name(inner, said):
    """MobileBERT's bottleneck with keys and queries of its own, or with less than a feature for each head."""
    sizes = {"embedding_size": 8, "intra_bottleneck_size": inner}
    own_keys = {"key_query_shared_bottleneck": inner == 8}
    model = random_model(hf.MobileBertConfig(**SIZES, **sizes, **own_keys))
    with pytest.raises(LimbeckError, match=f"MobileBertForSequenceClassification .*{said}"):
        width.narrowed(model, ffn=10, batches=[batch_for(model)])


def test_mobilebert_is_cut_in_its_usual_form():
    sizes = {"embedding_size": 8, "intra_bottleneck_size": 12, "num_feedforward_networks": 2}
    model = random_model(hf.MobileBertConfig(**SIZES, **sizes))
    narrow = width.narrowed(model, heads=3, ffn=10, batches=[batch_for(model)])
    assert narrow.config.hidden_size == 12
    assert logits(narrow).isfinite().all()

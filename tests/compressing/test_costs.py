"""Predicted costs against models that are built, files that are exported, and times that follow the rule."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import tiny_compression as tiny
import transformers as hf

from limbeck import tasks
from limbeck.compressing import costs
from limbeck.compressing.budget import Budget
from limbeck.compressing.compress import reachable
from limbeck.compressing.costs import CostModel, Probe
from limbeck.compressing.settings import CompressSettings
from limbeck.compressing.shapes import Shapes, StudentShape
from limbeck.compressing.vocabularies import vocabularies
from limbeck.static import StaticConfig, StaticStudent
from limbeck.students import load_model, narrowed, read_tokenizer
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> CostModel:
    folder = tiny.write_teacher(tmp_path_factory.mktemp("teacher"), hidden=96)
    teacher, tokenizer = load_model(folder, head="required"), read_tokenizer(folder)
    texts = [text for text, _ in tiny.texts(300)]
    known = vocabularies(tokenizer, teacher.config.vocab_size, texts, smaller=True)
    settings = CompressSettings.checked({"budget": "size=1MB"})
    return CostModel(Shapes(teacher, tasks.SENTENCE, tuple(known)), known, settings)


def test_numbers_are_those_of_a_model_that_is_built(model):
    cut = model.shapes.vocabularies[-1]
    assert cut is not None
    shapes = [
        StudentShape(3),
        StudentShape(2, heads=2, vocabulary=cut),
        StudentShape(1, heads=3, ffn=96),
        StudentShape(0, width=32, pairs=50_000, vocabulary=cut),
    ]
    for shape in shapes:
        assert shape in model.shapes.all
        built = costs.started(model, shape)
        expected = sum(weight.numel() for weight in built.parameters())
        assert model.shapes.numbers(shape).total(model.shapes.tokens(shape)) == expected


def test_rows_of_two_texts_have_no_static_students_but_embeddings_have(model):
    teacher = model.shapes.teacher
    two = Shapes(teacher, tasks.SENTENCE, (None,), texts=2)
    assert not any(one.is_static for one in two.all)
    assert any(one.is_static for one in Shapes(teacher, tasks.SENTENCE, (None,)).all)
    assert any(one.is_static for one in Shapes(teacher, tasks.EMBEDDING, (None,), texts=2).all)
    said = reachable(CostModel(two, model.vocabularies, model.settings), Budget.parse("size=1MB"))
    assert said.endswith("static: none, because it cannot compare the texts of a row")


def test_smaller_vocabularies_make_texts_longer_and_files_smaller(model, tmp_path):
    known = list(model.vocabularies.values())
    assert known[0].tokens is None and len(known) > 1
    for before, after in pairwise(known):
        assert after.growth > before.growth and after.bytes < before.bytes
        text = " ".join(text for text, _ in tiny.texts(200))
        ratio = len(after.tokenizer.tokenize(text)) / len(known[0].tokenizer.tokenize(text))
        assert after.growth == pytest.approx(ratio, rel=0.1)
        after.tokenizer.save_pretrained(tmp_path)
        assert after.bytes == sum(path.stat().st_size for path in Path(tmp_path).iterdir())


@pytest.mark.parametrize("precision", ["int8-embeddings4", "int4"])
def test_a_token_of_four_bits_costs_its_blocks_of_18_and_a_half_bytes(model, precision):
    cut = model.shapes.vocabularies[-1]
    large, small = StudentShape(2), StudentShape(2, vocabulary=cut)
    files = (model.predicted(one, precision).size for one in (large, small))
    tokenizers = (model.vocabularies[one.vocabulary].bytes for one in (large, small))
    (full, less), (before, after) = files, tokenizers
    tokens = model.shapes.tokens(large) - model.shapes.tokens(small)
    # 96 features are three blocks: 16 bytes of values, half a byte of the zero point, 2 bytes of the scale.
    assert full - less - (before - after) == pytest.approx(55.5 * tokens)


def test_no_transformer_is_timed_on_more_tokens_than_it_has_positions(model):
    """`--length 120` of 128 positions ended in an error of ONNX Runtime: a smaller vocabulary makes texts longer."""
    settings = CompressSettings.checked({"budget": "size=1MB", "length": 120})
    longer = CostModel(model.shapes, model.vocabularies, settings)
    smallest = model.shapes.vocabularies[-1]
    assert longer.tokens(StudentShape(0, width=32, vocabulary=smallest)) > 128
    assert longer.tokens(StudentShape(2, vocabulary=smallest)) == 128
    assert longer.tokens(StudentShape(2)) == 120


@pytest.mark.slow
def test_sizes_are_those_of_an_exported_file(model, tmp_path):
    shape = StudentShape(2, heads=3, vocabulary=model.shapes.vocabularies[-1])
    made = costs._exported(model, shape, ["int8", "int8-embeddings4", "float"], tmp_path)
    for one in made:
        beside = model.vocabularies[shape.vocabulary].bytes + 3_000
        predicted = model.predicted(shape, one.form).size - beside
        # The graph of a model this small weighs something beside its numbers.
        assert 0.75 * one.bytes < predicted <= 1.02 * one.bytes
        size = Path(one.path).stat().st_size
        probe = {"shape": shape, "precision": one.form, "latency": 1, "memory": 1}
        known = Probe.model_validate({**probe, "file": size})
        fitted = CostModel(model.shapes, model.vocabularies, model.settings, [known])
        assert fitted.predicted(shape, one.form).size == pytest.approx(size + beside, rel=0.001)


@pytest.mark.slow
def test_graphs_outlive_a_command_that_is_killed_while_it_times_them(model, tmp_path, monkeypatch):
    written, wanted = [], [(StudentShape(1), "float"), (StudentShape(2, heads=1), "float")]
    write = costs.onnx_graph.write_onnx

    def writing(start, batch, path, **settings):
        written.append(path)
        if len(written) == 2:
            path.write_bytes(b"half a graph")
            raise KeyboardInterrupt
        write(start, batch, path, **settings)

    monkeypatch.setattr(costs.onnx_graph, "write_onnx", writing)
    with pytest.raises(KeyboardInterrupt):
        costs.probed(model, wanted, tmp_path)
    probes = costs.probed(model, wanted, tmp_path)
    assert [one.shape for one in probes] == [shape for shape, _ in wanted]
    assert len(written) == 3 and written[1] == written[2] != written[0]


def test_latency_follows_layers_and_what_a_pass_multiplies(model):
    """The probes' times are made by a rule; a shape that was not timed gets the rule's time."""

    def rule(shape: StudentShape) -> float:
        numbers = model.shapes.numbers(shape).matrices * model.tokens(shape)
        return 0.1 + 0.2 * shape.layers + 3e-8 * numbers

    timed = [StudentShape(3), StudentShape(1), StudentShape(2, heads=1), StudentShape(3, ffn=48)]
    probe = {"precision": "int8", "file": 10**6, "memory": 10**7}
    probes = [Probe.model_validate({**probe, "shape": one, "latency": rule(one)}) for one in timed]
    fitted = CostModel(model.shapes, model.vocabularies, model.settings, probes)
    for shape in (
        StudentShape(2),
        StudentShape(1, heads=3, vocabulary=model.shapes.vocabularies[-1]),
    ):
        assert fitted.predicted(shape, "int8").latency == pytest.approx(rule(shape), rel=1e-3)
    # Limits then leave out exactly what the rule makes too slow.
    limit = rule(StudentShape(2))
    budget = Budget.parse(f"latency={limit + 1e-6}ms")
    for shape in model.shapes.all:
        if not shape.is_static and fitted.fitting(shape, budget) == "int8":
            assert rule(shape) <= limit + 1e-3


def test_what_is_reachable_is_said_and_the_nearest_where_nothing_is(model):
    said = reachable(model, Budget.parse("size=1MB"))
    assert "size 1.00 MB allows" in said and "with all 3 layers: 3 layers" in said
    with pytest.raises(LimbeckError) as caught:
        reachable(model, Budget.parse("size=10KB"))
    (problem,) = caught.value.problems
    assert "no student meets it; the nearest is static, width 32" in problem.message
    assert "raise the budget" in problem.fix


SIZES = {"num_labels": 2, "vocab_size": 40, "num_hidden_layers": 2}
TABLE = {"num_attention_heads": 4, "hidden_size": 24, "intermediate_size": 32}


@pytest.mark.parametrize(
    ("config", "heads", "ffn"),
    [
        (hf.DistilBertConfig(dim=24, n_heads=4, hidden_dim=32, n_layers=2, vocab_size=40), 3, 16),
        (hf.T5Config(d_model=24, num_heads=4, d_ff=32, d_kv=6, num_layers=2, vocab_size=40), 3, 16),
        # Its weights cannot be cut: only its layers and its vocabulary can be fewer. Small weights hide it.
        (
            hf.DebertaConfig(
                **SIZES,
                **TABLE,
                relative_attention=True,
                pos_att_type=["c2p"],
                initializer_range=0.5,
            ),
            None,
            None,
        ),
    ],
    ids=["distilbert", "t5", "deberta"],
)
def test_heads_and_feed_forward_units_are_fewer_where_the_family_can_be_cut(config, heads, ffn):
    teacher = hf.AutoModelForSequenceClassification.from_config(config)
    shapes = Shapes(teacher, tasks.SENTENCE, (None,))
    some = [one for one in shapes.all if not one.is_static]
    assert (heads, ffn) in {(one.heads, one.ffn) for one in some}
    if sizes := {name: n for name in ("heads", "ffn") if (n := getattr(some[-1], name))}:
        narrowed(teacher, **sizes)


@pytest.mark.parametrize(
    "config",
    [
        hf.FunnelConfig(
            vocab_size=40, block_sizes=[1, 1], d_model=24, n_head=4, d_head=6, d_inner=32
        ),
        StaticConfig(vocab_size=40, hidden_size=24, num_labels=2),
    ],
    ids=["funnel", "static"],
)
def test_a_teacher_without_layers_to_cut_is_refused(config):
    build = (
        StaticStudent if isinstance(config, StaticConfig) else hf.FunnelForSequenceClassification
    )
    with pytest.raises(LimbeckError, match="layers"):
        _ = Shapes(build(config), tasks.SENTENCE, (None,)).all

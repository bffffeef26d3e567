"""A user's own files of each kind, and copies of the Hub's repositories."""

from __future__ import annotations

import json

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from limbeck.data import load_task
from limbeck.lab import pocket
from limbeck.lab.pocket import generate, inference
from limbeck.predicting.reader_kinds import _entities
from limbeck.run.objects import read_rows
from limbeck.support.errors import LimbeckError
from limbeck.tasks import MASKED, SPANS, TASKS, TOKENS
from limbeck.tasks.positions import _scores, entity_tags, metrics_for_tags, said_of_tags
from limbeck.tasks.task import Task

CONLL = "-DOCSTART- -X- O O\n\nann NNP B-NP B-PER\nsaw VBD B-VP O\nrome NNP B-NP B-LOC\n\nthe DT B-NP O\n"


def test_conll_columns(tmp_path):
    (tmp_path / "train.conll").write_text(CONLL.replace("O\nsaw", "O \nsaw") * 12)
    (tmp_path / "dev.conll").write_text("word\ttag\nthe cat\tO\nrome\tB-LOC\r\n\n\n")
    task, splits = load_task("mine", tmp_path, kind="tokens")
    assert (task.kind, task.labels) == (TOKENS, ("O", "B-LOC", "B-PER"))
    assert (task.metrics, task.primary) == (("f1", "precision", "recall", "accuracy"), "f1")
    assert len(splits["train"]) == 24
    first = splits["train"][0]
    assert (first["tokens"], first["tags"]) == (["ann", "saw", "rome"], [2, 0, 1])
    assert splits["dev"]["tokens"][:] == [["the cat", "rome"]]
    assert splits["dev"]["tags"][:] == [[0, 1]]


def test_tags_that_mark_no_entities_are_scored_by_accuracy(tmp_path):
    file = tmp_path / "pos.tsv"
    file.write_text("the\tDET\ncat\tNOUN\n\n" * 20)
    task, splits = load_task(None, file, kind="tokens")
    assert (task.name, task.labels, task.metrics) == ("pos", ("DET", "NOUN"), ("accuracy",))
    assert len(splits["dev"]) == 2
    _, alone = load_task(None, file, kind="tokens", for_training=False)
    assert len(alone["dev"]) == 20


def test_tables_of_words_and_tags(tmp_path):
    rows = [{"w": ["ann", "saw"], "t": ["B-PER", "O"]}] * 20
    file = tmp_path / "n.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    names = {"text_columns": ["w"], "label_column": "t", "kind": "tokens"}
    _, splits = load_task("mine", file, **names)
    assert splits["train"]["tags"][0] == [1, 0]
    known, splits = load_task("ner", file, **names | {"kind": None})
    assert known is TASKS["ner"]
    assert splits["train"]["tags"][0] == [1, 0]
    with pytest.raises(
        LimbeckError, match=r"no column 'tokens', 'tags'(.|\n)*that are there: w, t"
    ):
        load_task("mine", file, kind="tokens")
    usual = [{"tokens": row["w"], "ner_tags": row["t"]} for row in rows]
    (tmp_path / "usual.jsonl").write_text("\n".join(map(json.dumps, usual)))
    _, splits = load_task("mine", tmp_path / "usual.jsonl", kind="tokens")
    assert splits["train"]["tags"][0] == [1, 0]
    both = [row | {"tags": ["O", "O"]} for row in usual]
    (tmp_path / "both.jsonl").write_text("\n".join(map(json.dumps, both)))
    assert load_task("mine", tmp_path / "both.jsonl", kind="tokens")[0].labels == ("O",)
    rows[3] = {"w": ["ann", "saw"], "t": ["O", None]}
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(LimbeckError, match=r"row 4: t is \['O', None\](.|\n)*a word has no tag"):
        load_task("mine", file, **names)
    rows[3] = {"w": ["ann", "saw"], "t": ["O"]}
    file.write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(LimbeckError, match="row 4: 2 words and 1 tags"):
        load_task("mine", file, **names)


def squad(answers):
    asked = [{"question": "who ?", "id": n, "answers": answers} for n in range(12)]
    return {"version": "1.1", "data": [{"paragraphs": [{"context": "ann did", "qas": asked}]}]}


def test_squad_files(tmp_path):
    file = tmp_path / "train-v1.1.json"
    file.write_text(json.dumps(squad([{"text": "ann", "answer_start": 0}])))
    task, splits = load_task("mine", file, kind="spans")
    assert (task.kind, task.metrics, task.primary) == (SPANS, ("exact_match", "f1"), "f1")
    assert len(splits["train"]) + len(splits["dev"]) == 12
    row = splits["train"][0]
    assert (row["question"], row["context"]) == ("who ?", "ann did")
    assert row["answers"] == {"text": ["ann"], "answer_start": [0]}
    assert load_task("squad", file)[0] is TASKS["squad"]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("\n".join([json.dumps(row)] * 12))
    assert load_task("mine", lines, kind="spans")[1]["train"][0]["answers"] == row["answers"]
    file.write_text(json.dumps(squad([])))
    with pytest.raises(LimbeckError, match="12 of 12 questions have no answer"):
        load_task("mine", file, kind="spans")
    file.write_text(json.dumps({"data": [{"paragraph": []}]}))
    with pytest.raises(LimbeckError, match="question 0: not in SQuAD's layout: no 'paragraphs'"):
        load_task("mine", file, kind="spans")
    rows = squad([{"text": "ann", "answer_start": 0}])
    del rows["data"][0]["paragraphs"][0]["qas"][6]["answers"]
    file.write_text(json.dumps(rows))
    with pytest.raises(LimbeckError, match="question 6: not in SQuAD's layout: no 'answers'"):
        load_task("mine", file, kind="spans")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"text": ["ann"], "answer_start": [-7]}, "an answer_start is no place in the text"),
        ({"text": ["ann"], "answer_start": [8]}, "an answer_start is no place in the text"),
        ({"text": ["ann"], "answer_start": ["0"]}, "an answer_start is no place in the text"),
        ({"text": [None], "answer_start": [0]}, "an answer is no text"),
    ],
)
def test_strange_answers_are_refused_with_their_row(answers, said, tmp_path):
    """A negative start is a place counted from the end to Python: the model learned "not in this window"."""
    row = {
        "question": "who ?",
        "context": "ann did",
        "answers": {"text": ["ann"], "answer_start": [0]},
    }
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, [row] * 11 + [row | {"answers": answers}])))
    with pytest.raises(LimbeckError, match=f"rows.jsonl, row 12: {said}"):
        load_task("mine", file, kind="spans")


@pytest.mark.parametrize("kind", ["tokens", "spans"])
def test_a_test_file_without_labels_is_no_test_split(kind, tmp_path):
    """As for classes: such files are what a competition gives."""
    rows = {
        "tokens": {"tokens": ["ann", "saw"], "tags": ["B-PER", "O"]},
        "spans": {"question": "who ?", "context": "ann did", "answers": {"text": ["ann"], "answer_start": [0]}},
    }  # fmt: skip
    bare = {name: value for name, value in rows[kind].items() if name not in ("tags", "answers")}
    (tmp_path / "train.jsonl").write_text("\n".join([json.dumps(rows[kind])] * 12))
    (tmp_path / "test.jsonl").write_text("\n".join([json.dumps(bare)] * 5))
    assert {*load_task("mine", tmp_path, kind=kind)[1]} == {"train", "dev"}
    (tmp_path / "test.jsonl").write_text("\n".join([json.dumps(rows[kind])] * 5))
    assert len(load_task("mine", tmp_path, kind=kind)[1]["test"]) == 5


def test_answers_that_stand_elsewhere_are_found():
    from limbeck.data.splits import make_split

    answers = [{"text": ["ann"], "answer_start": [1]}, {"text": ["did"], "answer_start": [4]}]
    texts = {"question": ["q"] * 2, "context": ["ann did"] * 2}
    rows = make_split(TASKS["squad"], texts, answers)
    assert SPANS.check_rows(TASKS["squad"], rows) == [
        "1 of 2 rows have no answer, or one that is not at its answer_start (the first question is 'q')"
    ]


def test_plain_text(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(f"line {n}\n" for n in range(20)))
    task, splits = load_task(None, file, kind="masked")
    assert (task.kind, task.primary) == (MASKED, "accuracy")
    assert len(splits["train"]) == 18
    assert splits["dev"].column_names == ["text", "index"]
    with pytest.raises(LimbeckError, match="the text is its own label"):
        load_task(None, file, kind="masked", label_column="y")


def test_a_known_task_keeps_its_kind(tmp_path):
    (tmp_path / "lines.txt").write_text("a b\n" * 20)
    for name, kind in (("ner", "masked"), ("sst2", "tokens")):
        with pytest.raises(LimbeckError, match=f"'{name}' is of kind"):
            load_task(name, tmp_path / "lines.txt", kind=kind)


def test_a_copy_of_conll_2003_from_the_hub(tmp_path):
    # Tag ids in another order than the task's, as a repository may have them.
    names = ["O", "B-LOC", "B-PER"]
    features = Features({"id": Value("string"), "tokens": List(Value("string")),
                         "ner_tags": List(ClassLabel(names=names))})  # fmt: skip
    rows = {"id": ["0"], "tokens": [["ann", "in", "rome"]], "ner_tags": [[2, 0, 1]]}
    for split in ("train", "validation", "test"):
        folder = tmp_path / "eriktks" / "conll2003" / "conll2003" / split
        folder.mkdir(parents=True)
        Dataset.from_dict(rows, features=features).to_parquet(folder / "0000.parquet")
    task, splits = load_task("ner", f"hub:{tmp_path}")
    assert set(splits) == {"train", "dev", "test"}
    tags = splits["dev"]["tags"][0]
    assert [task.labels[tag] for tag in tags] == ["B-PER", "O", "B-LOC"]


def test_a_copy_of_squad_from_the_hub(tmp_path):
    folder = tmp_path / "squad" / "plain_text"
    folder.mkdir(parents=True)
    rows = {"id": ["0"], "title": ["t"], "context": ["ann did"], "question": ["who ?"],
            "answers": [{"text": ["ann"], "answer_start": [0]}]}  # fmt: skip
    for split in ("train", "validation"):
        Dataset.from_dict(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    _, splits = load_task("squad", f"hub:{tmp_path}")
    assert splits["dev"][0] == {
        "question": "who ?", "context": "ann did", "index": 0,
        "answers": {"text": ["ann"], "answer_start": [0]},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["ner", "squad", "mlm"])
def test_pocket_tasks_beyond_glue(name, monkeypatch):
    monkeypatch.setitem(inference.SIZES, name, (300, 50))
    monkeypatch.setattr(generate, "_drawn", pocket.load)  # what was drawn before has another size
    task, splits = load_task(name, "pocket")
    assert [len(splits[split]) for split in ("train", "dev")] == [300, 50]
    assert not task.kind.check_rows(task, splits["train"])
    again, other = pocket.load(name), pocket.load(name, seed=1)
    assert again["train"][:] == splits["train"][:]
    assert other["train"][:] != splits["train"][:]
    everything = [str(row[c]) for s in splits.values() for row in s for c in task.text_columns[-1:]]
    texts = {str({c: row[c] for c in task.text_columns}) for s in splits.values() for row in s}
    assert len(texts) == len(everything)
    unknown = pocket.tokenizer().unk_token_id
    for text in task.kind.texts(task, splits["dev"][:])[-1]:
        assert unknown not in pocket.tokenizer()(text)["input_ids"]
    if name == "ner":
        assert {tag for row in splits["train"]["tags"] for tag in row} == set(range(6))


def test_pocket_answers_are_unique_in_their_context():
    from random import Random

    from limbeck.lab.pocket.contexts import squad as draw

    random = Random(3)
    for _ in range(300):
        asked = draw(random, "main")
        assert asked.context[asked.start :].startswith(asked.answer)
        deeds = []
        for sentence in asked.context.removesuffix(" .").split(" . "):
            if " were " in sentence:
                patient, rest = sentence.split(" were ")
                form, agent = rest.split(" by ")
            else:
                form = next(word for word in sentence.split() if word.endswith("ed"))
                agent, patient = sentence.split(f" {form} ")
            deeds.append((agent, form, patient))
        question = asked.question.removeprefix("who ").removesuffix(" ?")
        if question.startswith("were "):
            form, agent = question.removeprefix("were ").split(" by ")
            found = [deed[2] for deed in deeds if deed[:2] == (agent, form)]
        else:
            form, patient = question.split(" ", 1)
            found = [deed[0] for deed in deeds if deed[1:] == (form, patient)]
        assert found == [asked.answer]


def tagged(rows=({"tokens": ["ann", "in", "rome"], "tags": [2, 0, 3]},) * 20):
    names = ClassLabel(names=["O", "I-PER", "B-PER", "B-LOC", "B-MISC"])
    return Dataset.from_list(
        list(rows), features=Features({"tokens": List(Value("string")), "tags": List(names)})
    )


def test_tags_that_the_datasets_library_wrote_keep_names_order_and_unused_classes(tmp_path):
    rows = tagged()
    rows.to_parquet(tmp_path / "ner.parquet")
    (tmp_path / "given").mkdir()
    read_rows(rows, "ner").write(tmp_path / "given")
    for path in (tmp_path / "ner.parquet", tmp_path / "given"):
        task, splits = load_task("own", path, kind="tokens")
        assert task.labels == ("O", "I-PER", "B-PER", "B-LOC", "B-MISC")
        assert splits["train"]["tags"][0] == [2, 0, 3]
    strange = rows.cast_column("tags", rows.features["tags"]).to_list()
    strange[3]["tags"] = [2, 0, -1]
    tagged(rows=strange).to_parquet(tmp_path / "ner.parquet")
    with pytest.raises(LimbeckError, match=r"row 4: tags holds -1, and the file names 5 classes"):
        load_task("own", tmp_path / "ner.parquet", kind="tokens")


def test_several_labels_that_the_datasets_library_wrote_keep_names_and_order(tmp_path):
    features = Features({"text": Value("string"), "label": List(ClassLabel(names=["z", "a", "m"]))})
    rows = [{"text": f"film {n}", "label": [[0], [0, 1], []][n % 3]} for n in range(30)]
    Dataset.from_list(rows, features=features).to_parquet(tmp_path / "rows.parquet")
    task, splits = load_task(
        None, tmp_path / "rows.parquet", kind="multi-label", text_columns=["text"],
        label_column="label", for_training=False,
    )  # fmt: skip
    assert task.labels == ("z", "a", "m")
    assert splits["dev"]["label"][:3] == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]


WITH_COMMENTS = {
    "CoNLL-U's comments": "# sent_id = 1\n# text = Ann saw\nAnn B-PER\nsaw O\n\n# newdoc\n# O\n#go O\n",
    "tabs": "# id a\tdomain=en\n#newpar\nAnn\tB-PER\nsaw\tO\n\n#\tO\n#go\tO\n",
    "four columns": "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP B-PER\nsaw VBD I-VP O\n\n"
    "# id 1 2\n# # I-NP O\n#go NN I-NP O\n",
    "documents": "#begin document (wb/x); part 000\nAnn B-PER\nsaw O\n\n# O\n#go O\n#end document\n",
    "a mark at the end": "# text = this is plan B\n# plan B\nAnn B-PER\nsaw O\n\n# O\n#go O\n",
}


@pytest.mark.parametrize("name", WITH_COMMENTS)
def test_comments_are_no_words_and_hash_signs_are(tmp_path, name):
    path = tmp_path / "ner.conll"
    path.write_text(WITH_COMMENTS[name])
    task, splits = load_task(None, path, kind="tokens", for_training=False)
    assert splits["dev"]["tokens"][:] == [["Ann", "saw"], ["#", "#go"]]
    assert task.labels == ("O", "B-PER") and task.primary == "f1"


def test_hash_signs_are_words_by_the_tags_of_other_words(tmp_path):
    path = tmp_path / "pos.conll"
    path.write_text("# newdoc\n# text = the NOUN\nthe DET\n#metoo NOUN\nman NOUN\n")
    task, splits = load_task(None, path, kind="tokens", for_training=False)
    assert splits["dev"]["tokens"][:] == [["the", "#metoo", "man"]]
    assert task.labels == ("DET", "NOUN") and splits["dev"]["tags"][:] == [[0, 1, 1]]


def test_a_column_that_counts_words_is_no_column_of_words(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("# text = Ann saw\n1\tAnn\tO\n2\tsaw\tO\n\n1\tRome\tB-LOC\n")
    with pytest.raises(LimbeckError, match="the first column numbers the words"):
        load_task(None, path, kind="tokens")


SCHEMES = {
    "IOB": ("O", "B-PER", "I-PER", "B-LOC"),
    "BILOU": ("O", "B-PER", "L-PER", "U-LOC", "I-PER"),
    "IOBES": ("O", "B-PER", "E-PER", "S-LOC", "I-PER"),
    "small letters": ("o", "b-per", "i-per", "b-loc"),
    "underscores": ("O", "B_PER", "I_PER", "B_LOC"),
}
ENTITIES = [("PER", 0, 1), ("LOC", 3, 3)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_of_tags_is_scored_by_whole_entities(scheme):
    """Two entities: the first is found whole, the second missed; then the first is found in half."""
    tags = SCHEMES[scheme]
    task = Task(
        "t", "t", ("tokens",), tags, *metrics_for_tags(tags), label_column="tags", kind=TOKENS
    )
    end = 2
    right = [[1, end, 0, 3]]
    assert _scores(task, right, right)["f1"] == 100
    assert _scores(task, [[1, end, 0, 0]], right)["f1"] == pytest.approx(200 / 3)  # 1 of 1, 1 of 2
    # Half of the first, and the second: 1 of 2 and 1 of 2.
    assert _scores(task, [[1, 0, 0, 3]], right)["f1"] == 50
    sampled = TOKENS.sampled_score(task, "f1", {"prediction": [[1, 0, 0, 3]], "label": right})
    assert sampled(np.zeros((1, 2), dtype=int)).tolist() == [50]


def test_bare_marks_are_entities_of_one_type():
    assert entity_tags(("B", "I", "O")) == ("B-entity", "I-entity", "O")
    assert entity_tags(("b", "i", "o")) == ("B-entity", "I-entity", "O")
    for tags in (
        ("NN", "B", "O"),
        ("S", "E", "O"),
        ("B", "I-PER", "O"),
        ("b-per", "i-per"),
        ("U-X", "L-X"),
    ):
        assert entity_tags(tags) is None
        assert "words are scored (accuracy)" in said_of_tags(tags).message
    assert "complete entities are scored" in said_of_tags(("O", "U-PER")).message


@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "IOB"])
def test_entities_in_text_are_those_of_the_scheme(scheme):
    spelled = entity_tags(SCHEMES[scheme])
    found = _entities([spelled[tag] for tag in (1, 2, 0, 3)], grouped=True)
    assert [(label.upper(), words[0], words[-1]) for label, words in found] == ENTITIES

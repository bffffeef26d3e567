import logging

import pytest

from limbeck.data import load_task
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS


def write(folder, **files):
    """Files named by keyword, `dev_matched` for dev_matched.tsv, as bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data = content if isinstance(content, bytes) else content.encode()
        (folder / (name if "." in name else f"{name}.tsv")).write_bytes(data)


def rows(split):
    return [tuple(row.values()) for row in split]


RTE = "index\tsentence1\tsentence2\tlabel\n0\tA b.\tB.\tentailment\n1\tC.\tD.\tnot_entailment\n"


def test_cola_has_no_header_and_its_test_file_has_one(tmp_path):
    write(
        tmp_path / "CoLA",
        train="gj04\t1\t\tOur friends won't buy \"this.\ngj04\t0\t*\tHim left.\n",
        dev="gj04\t1\t\tThe last line ends without a break.",
        test="index\tsentence\n0\tBill whistled.\n",
    )
    task, splits = load_task("cola", tmp_path)
    assert task is TASKS["cola"]
    assert rows(splits["train"]) == [
        ("Our friends won't buy \"this.", 1, 0),
        ("Him left.", 0, 1),
    ]
    assert rows(splits["dev"]) == [("The last line ends without a break.", 1, 0)]
    assert rows(splits["test"]) == [("Bill whistled.", 0)]
    assert splits["train"].features["label"].names == ["unacceptable", "acceptable"]


def test_mrpc_with_byte_order_mark_and_quotes_that_are_not_quotes(tmp_path):
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    write(
        tmp_path / "MRPC",
        train="\ufeff" + header + '1\t7\t8\tHe said , " yes\tHe " agreed\n0\t9\t10\t"\ta "" b\n',
        dev="\ufeff" + header + "0\t1\t2\tx\ty\n",
        test="\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t3\t4\tp\tq\n",
    )
    _, splits = load_task("mrpc", str(tmp_path))
    assert rows(splits["train"]) == [
        ('He said , " yes', 'He " agreed', 1, 0),
        ('"', 'a "" b', 0, 1),
    ]
    assert splits["test"].column_names == ["sentence1", "sentence2", "index"]


def test_carriage_returns_odd_breaks_and_blank_ends(tmp_path):
    text = (
        "sentence\tlabel\r\n a charming\x85journey \t1\r\nbleak\u2028and \x0cdesperate\t0\r\n\r\n\n"
    )
    write(tmp_path / "SST-2", train=text, dev=text)
    _, splits = load_task("sst2", tmp_path)
    assert rows(splits["train"]) == [
        (" a charming\x85journey ", 1, 0),
        ("bleak\u2028and \x0cdesperate", 0, 1),
    ]


def test_entailment_labels_by_name(tmp_path):
    write(tmp_path / "RTE", train=RTE, dev=RTE)
    write(
        tmp_path / "QNLI",
        train="index\tquestion\tsentence\tlabel\n0\tq\ts\tnot_entailment\n",
        dev="index\tquestion\tsentence\tlabel\n5\tq\ts\tentailment\n",
    )
    wnli = "index\tsentence1\tsentence2\tlabel\n0\ta\tb\t1\n"
    write(tmp_path / "WNLI", train=wnli, dev=wnli)
    assert load_task("rte", tmp_path)[1]["train"]["label"][:] == [0, 1]
    qnli = load_task("qnli", tmp_path)[1]
    assert (rows(qnli["train"]), rows(qnli["dev"])) == ([("q", "s", 1, 0)], [("q", "s", 0, 0)])
    assert load_task("wnli", tmp_path)[1]["train"]["label"][:] == [1]


def test_stsb_numbers_by_header(tmp_path):
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    row = '0\tmain\tMSR\t2012\t0001\tnone\tnone\tA "plane.\tAn air plane.'
    write(
        tmp_path / "STS-B",
        train=f"{header}\tscore\n{row}\t3.800\n",
        dev=f"{header}\tscore\n{row}\t5.0\n",
        test=f"{header}\n{row}\n",
    )
    task, splits = load_task("stsb", tmp_path)
    assert task.regression
    assert splits["train"].features["label"].dtype == "float32"
    assert splits["train"]["label"][:] == pytest.approx([3.8])
    assert rows(splits["test"]) == [('A "plane.', "An air plane.", 0)]


def test_mnli_has_two_dev_files_and_pairs_without_gold_label(tmp_path, caplog):
    head = "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
    write(
        tmp_path / "MNLI",
        train=head + "0\t1\t1n\tgov\tP\tH\tneutral\tneutral\n1\t2\t2x\tgov\tP\tX\t-\t-\n",
        dev_matched=head + "0\t1\t1\tgov\tP1\tH1\tneutral\tcontradiction\n",
        dev_mismatched=head + "0\t1\t1\tgov\tP2\tH2\tneutral\tentailment\n",
        test_matched="index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\n0\t1\t1\tg\tP3\tH3\n",
    )
    with caplog.at_level(logging.WARNING):
        _, splits = load_task("mnli", tmp_path)
    assert {name: rows(split) for name, split in splits.items()} == {
        "train": [("P", "H", 1, 0)],
        "dev": [("P1", "H1", 2, 0)],
        "dev_mismatched": [("P2", "H2", 0, 0)],
        "test": [("P3", "H3", 0)],
    }
    assert "without a gold label" in caplog.text


def test_qqp_pieces_of_questions_are_skipped_but_not_a_damaged_file(tmp_path, caplog):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    good = "1\t2\t3\tHow?\tWhy?\t1\n"
    write(tmp_path / "QQP", train=header + "4\t5\t6\tIs it\n" + good, dev=header + good)
    with caplog.at_level(logging.WARNING):
        _, splits = load_task("qqp", tmp_path)
    assert rows(splits["train"]) == [("How?", "Why?", 1, 0)]
    assert "skipped 1 lines" in caplog.text
    write(tmp_path / "QQP", train=header + "4\t5\t6\tIs it\n" * 3 + good)
    with pytest.raises(LimbeckError, match="3 of 4 lines have too few columns"):
        load_task("qqp", tmp_path)
    write(tmp_path / "QQP", train=header + good.replace("\n", "\tmore\n"))
    with pytest.raises(LimbeckError, match="line 2: expected 6 tab-separated columns"):
        load_task("qqp", tmp_path)


def test_out_of_domain_releases(tmp_path):
    release = tmp_path / "SciTailV1.1" / "tsv_format"
    line = 'Plants "make food.\tPlants eat.\t'
    write(release, **{"scitail_1.0_test.tsv": line + "entails\n" + line + "neutral\n"})
    task, splits = load_task("scitail", tmp_path, for_training=False)
    assert rows(splits["test"])[0] == ('Plants "make food.', "Plants eat.", 0, 0)
    assert splits["test"]["label"][:] == [0, 1]
    assert task.evaluation_splits(splits) == ("test",)
    with pytest.raises(LimbeckError, match="no labelled split train, dev"):
        load_task("scitail", tmp_path)
    header = "id\tsentence1\tsentence2\tlabel\n"
    write(tmp_path / "paws" / "final", train=header + "1\ta\tb\t0\n", dev=header + "2\tc\td\t1\n")
    assert rows(load_task("paws", tmp_path)[1]["dev"]) == [("c", "d", 1, 0)]


def test_imdb_as_released(tmp_path):
    for part, count in (("train", 20), ("test", 2)):
        for name in ("neg", "pos"):
            folder = tmp_path / "aclImdb" / part / name
            write(folder, **{f"{i}_9.txt": f"{name} {i}<br />\n" for i in range(count)})
    _, splits = load_task("imdb", tmp_path)
    assert {name: len(split) for name, split in splits.items()} == {
        "train": 36, "dev": 4, "test": 4,
    }  # fmt: skip
    assert rows(splits["test"])[0] == ("neg 0<br />\n", 0, 0)
    for split in splits.values():
        assert all(row["text"].startswith(["neg", "pos"][row["label"]]) for row in split)
        assert split["index"][:] == list(range(len(split)))
    assert not set(splits["train"]["text"]) & set(splits["dev"]["text"])
    assert load_task("imdb", tmp_path)[1]["dev"]["text"][:] == splits["dev"]["text"][:]
    assert load_task("imdb", tmp_path, seed=1)[1]["dev"]["text"][:] != splits["dev"]["text"][:]


@pytest.mark.parametrize("name", ["RTE", "rte", "anything"])
def test_the_tasks_own_folder_will_do(tmp_path, name):
    write(tmp_path / name, train=RTE, dev=RTE)
    assert len(load_task("rte", tmp_path / name)[1]["train"]) == 2


@pytest.mark.parametrize("name", ["SST-2", "sst2", "SST_2"])
def test_folder_names_in_any_spelling(tmp_path, name):
    write(tmp_path / name, train="sentence\tlabel\nx\t1\n", dev="sentence\tlabel\nx\t1\n")
    assert len(load_task("sst2", tmp_path)[1]["train"]) == 1


def test_another_tasks_folder_is_not_read(tmp_path):
    text = "sentence\tlabel\nx\t1\n"
    write(tmp_path / "SST-2", train=text, dev=text)
    with pytest.raises(LimbeckError, match="'cola': none of its files"):
        load_task("cola", tmp_path / "SST-2")


@pytest.mark.parametrize(
    ("task", "folder", "line", "message"),
    [
        ("rte", "RTE", "2\tonly\tthree", r"train.tsv, line 4: expected 4 .*found 3"),
        ("rte", "RTE", "2\ta\tb\tmaybe", r"line 4: label is 'maybe', expected one of entailment"),
        ("rte", "RTE", "2\ta\tb\t1", r"line 4: label is '1', expected one of entailment"),
        ("rte", "RTE", b"2\ta\t\xff\xfe\tentailment", r"line 4 is not UTF-8"),
    ],
)
def test_a_corrupt_line_is_named(tmp_path, task, folder, line, message):
    line = line if isinstance(line, bytes) else line.encode()
    write(tmp_path / folder, train=RTE.encode() + line + b"\n", dev=RTE)
    with pytest.raises(LimbeckError, match=message) as caught:
        load_task(task, tmp_path)
    assert all(problem.fix for problem in caught.value.problems)


@pytest.mark.parametrize("score", ["high", "nan", ""])
def test_a_score_must_be_a_number(tmp_path, score):
    text = "sentence1\tsentence2\tscore\na\tb\t1.0\n"
    write(tmp_path / "STS-B", train=text + f"a\tb\t{score}\n", dev=text)
    with pytest.raises(LimbeckError, match=rf"line 3: score is '{score}', expected a number"):
        load_task("stsb", tmp_path)


def test_a_wrong_header_is_named(tmp_path):
    write(tmp_path / "RTE", train="sentence\tlabel\nx\t1\n", dev=RTE)
    with pytest.raises(LimbeckError, match="line 1: expected a header with the columns sentence1"):
        load_task("rte", tmp_path)


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(LimbeckError, match="no such file or folder"):
        load_task("rte", tmp_path / "nowhere")
    with pytest.raises(LimbeckError, match=r"which holds nothing\n.*expected RTE/train.tsv"):
        load_task("rte", tmp_path)
    write(tmp_path / "RTE", train=RTE)
    with pytest.raises(LimbeckError, match=r"RTE \(train.tsv\) has no labelled split dev\n"):
        load_task("rte", tmp_path)
    write(tmp_path / "RTE", dev="index\tsentence1\tsentence2\tlabel\n")
    with pytest.raises(LimbeckError, match=r"split dev of .* hold no rows"):
        load_task("rte", tmp_path)
    write(tmp_path / "RTE", dev="")
    with pytest.raises(LimbeckError, match="line 1: expected a header"):
        load_task("rte", tmp_path)


def test_unknown_tasks_in_a_folder(tmp_path):
    for name in ("mrcp", None):
        with pytest.raises(LimbeckError, match="has no train file; it holds nothing"):
            load_task(name, tmp_path)
    (tmp_path / "MRPC").mkdir()
    with pytest.raises(LimbeckError, match=r"unknown task 'mrcp'\n.*did you mean 'mrpc'"):
        load_task("mrcp", tmp_path)
    with pytest.raises(LimbeckError, match=r"task: none is given, and .* holds mrpc"):
        load_task(None, tmp_path)

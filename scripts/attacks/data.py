"""Files of rows that are broken, or say what no one can have meant."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from attacks.case import TINY, Case, finetune, own_file

GOOD = [f"the film is good {i},{i % 2}" for i in range(40)]
_TEXT = "q,y\n" + "\n".join(GOOD) + "\n"
_LINES = "".join(json.dumps({"q": f"text {i}", "y": i % 2}) + "\n" for i in range(40))

CSV: dict[str, str | bytes] = {
    "nothing": "",
    "a byte-order mark alone": b"\xef\xbb\xbf",
    "a header alone": "q,y\n",
    "blank lines": "\n\n\n",
    "no header": "\n".join(GOOD),
    "a column too few": _TEXT + "alone\n",
    "a column too many": _TEXT + "a,1,2\n",
    "an open quote": _TEXT + '"open,1\n',
    "text after a quote": _TEXT + '"a"b,1\n',
    "a header twice": "q,y,y\na,1,1\nb,0,0\n" * 3,
    "a header without the label": "q,z\na,1\n",
    "a header in capitals": _TEXT.replace("q,y", "Q,Y"),
    "spaces in the header": _TEXT.replace("q,y", "q , y"),
    "semicolons": _TEXT.replace(",", ";"),
    "UTF-16": _TEXT.encode("utf-16"),
    "Latin-1": (_TEXT + "caf\xe9,1\n").encode("latin-1"),
    "zero bytes": _TEXT.encode() + b"a\0b,1\n",
    "random bytes": bytes(range(256)) * 40,
    "one row": "q,y\na,1\n",
    "two rows": "q,y\na,1\nb,0\n",
    "one class": "q,y\n" + "a,1\n" * 40,
    "an id for a label": "q,y\n" + "".join(f"t{i},{i}\n" for i in range(40)),
    "a text for a label": "q,y\n" + "".join(f"t{i},word {i}\n" for i in range(40)),
}

JSON: dict[str, str | bytes] = {
    "nothing": "",
    "an array": json.dumps([{"q": "a", "y": 1}]),
    "numbers": "1\n2\n",
    "cut": _LINES + '{"q": "a", "y"',
    "a key twice": _LINES + '{"q": "a", "y": 1, "y": 0}\n',
    "nested too deep": _LINES + '{"q": ' + "[" * 50_000 + "\n",
    "a number of 5,000 digits": _LINES + '{"q": "a", "y": ' + "9" * 5000 + "}\n",
    "a number beyond 64 bits": _LINES + '{"q": "a", "y": ' + "9" * 30 + "}\n",
    "half a surrogate pair": _LINES + '{"q": "\\ud800", "y": 1}\n',
    "a zero character": _LINES + '{"q": "a\\u0000b", "y": 1}\n',
    "NaN": _LINES + '{"q": "a", "y": NaN}\n',
    "Infinity": _LINES + '{"q": "a", "y": Infinity}\n',
    "1e400": _LINES + '{"q": "a", "y": 1e400}\n',
    "a label left out": _LINES + '{"q": "a"}\n',
    "a text left out": _LINES + '{"y": 1}\n',
    "a text that is a number": _LINES + '{"q": 7, "y": 1}\n',
    "a text that is a list": _LINES + '{"q": ["a"], "y": 1}\n',
    "a label that is a list": _LINES + '{"q": "a", "y": [1]}\n',
    "a label that is an object": _LINES + '{"q": "a", "y": {"a": 1}}\n',
    "numbers and text for labels": _LINES + '{"q": "a", "y": "1"}\n',
    "truth values and numbers": _LINES + '{"q": "a", "y": true}\n',
    "an empty object": "{}\n" * 40,
    "UTF-16": _LINES.encode("utf-16"),
}


def _tables_of(rows: dict[str, list[Any]]) -> pa.Table:
    return pa.table(rows)


_ROWS = {"q": [f"text {i}" for i in range(40)], "y": [i % 2 for i in range(40)]}
PARQUET = {
    "no rows": pa.table({"q": pa.array([], pa.string()), "y": pa.array([], pa.int64())}),
    "no columns": pa.table({}),
    "a label twice": pa.table([*_ROWS.values(), _ROWS["y"]], names=["q", "y", "y"]),
    "text that is binary": pa.table(_ROWS | {"q": [b"\xff"] * 40}),
    "text that is a list": pa.table(_ROWS | {"q": [["a"]] * 40}),
    "text that is a number": pa.table(_ROWS | {"q": list(range(40))}),
    "a gap in the text": pa.table(_ROWS | {"q": [None, *_ROWS["q"][1:]]}),
    "a gap in the labels": pa.table(_ROWS | {"y": [None, *_ROWS["y"][1:]]}),
    "NaN among the labels": pa.table(_ROWS | {"y": [float("nan"), *map(float, _ROWS["y"][1:])]}),
    "labels that are dates": pa.table(_ROWS | {"y": pa.array(list(range(40)), pa.timestamp("s"))}),
    "labels that are lists": pa.table(_ROWS | {"y": [[1]] * 40}),
    "labels that are structs": pa.table(_ROWS | {"y": [{"a": 1}] * 40}),
    "labels that are binary": pa.table(_ROWS | {"y": [b"a", b"b"] * 20}),
    "20 million rows": pa.table({"q": pa.array(["a"]).take(pa.array([0] * 10)), "y": [1] * 10}),
}


def tables(folder: Path) -> Iterator[Case]:
    """CSV, TSV, JSON lines and Parquet."""
    for suffix, contents in (("csv", CSV), ("jsonl", JSON)):
        for number, (name, content) in enumerate(contents.items()):
            path = folder / f"{number}.{suffix}"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            yield own_file(folder, f"{suffix}: {name}", path)
    for name in ("a column too few", "a column too many", "a header twice", "zero bytes", "UTF-16"):
        path = folder / f"{name}.tsv"
        content = CSV[name]
        text = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(text.replace(b",", b"\t"))
        yield own_file(folder, f"tsv: {name}", path)
    for number, (name, table) in enumerate(PARQUET.items()):
        path = folder / f"{number}.parquet"
        if name == "20 million rows":
            many = pa.table({"q": pa.nulls(20_000_000, pa.string()).fill_null("a")})
            table = many.append_column("y", pa.nulls(len(many), pa.int8()).fill_null(1))
        parquet.write_table(table, path)
        yield own_file(folder, f"parquet: {name}", path)
    whole = (folder / "1.parquet").read_bytes()
    for name, content in {
        "cut": whole[:-40],
        "a magic number": b"PAR1PAR1",
        "nothing": b"",
    }.items():
        path = folder / f"broken {name}.parquet"
        path.write_bytes(content)
        yield own_file(folder, f"parquet: {name}", path)
    for suffix in ("csv", "tsv", "jsonl", "parquet"):
        path = folder / f"pipe.{suffix}"
        os.mkfifo(path)
        yield own_file(folder, f"{suffix}: a pipe", path)
    for path in ("/dev/zero", "/dev/null", "no-such.csv", "a\ud800.csv", folder, "~no-one/x.csv"):
        yield own_file(folder, f"data {str(path)[:12]!r}", Path(path))
    good = folder / "good.csv"
    good.write_text(_TEXT)
    for name, columns in {
        "a column twice": ("--text-columns", "q", "q", "--label-column", "y"),
        "text that is the label": ("--text-columns", "q", "--label-column", "q"),
        "three columns": ("--text-columns", "q", "y", "z", "--label-column", "y"),
        "no such column": ("--text-columns", "text", "--label-column", "y"),
        "no label column": ("--text-columns", "q"),
        "no text column": ("--label-column", "y"),
        "a column of another case": ("--text-columns", "Q", "--label-column", "y"),
    }.items():
        yield finetune(folder, f"columns: {name}", "--data", good, "--task", "own", *columns)


def labels(folder: Path) -> Iterator[Case]:
    """A column of labels in which one is not like the others."""
    scores = [f"{i / 50:.2f}" for i in range(200)]
    columns = {
        **{f"scores and {odd!r}": [*scores, odd] for odd in ("nan", "NaN", " ", "n/a", "?", "None", "inf")},
        **{f"classes and {odd!r}": ["pos", "neg"] * 20 + [odd] for odd in ("nan", " ", "pos ", "\tneg")},
        "an accent written twice": ["caf\u00e9", "neg", "cafe\u0301"] * 9,
        "numbers to 200 and a word": [*map(str, range(200)), "x"],
        "a number a row": [str(i) for i in range(300)],
        "dev's label unknown to train": ["a"] * 30,
    }  # fmt: skip
    for number, (name, values) in enumerate(columns.items()):
        path = folder / f"{number}.csv"
        text = "".join(f"text {i},{value}\n" for i, value in enumerate(values))
        path.write_text("q,y\n" + text, encoding="utf-8")
        # A gap is a row without a label, which is left out and said to be.
        gap = values[-1].strip().lower() in ("", "nan")
        yield own_file(folder, name, path, warned="have no label" if gap else None)
    for name, values, said in (
        ("numbers and few words", ["1", "2", "3+"] * 20, "numbers and words"),
        ("capitals", ["Pos", "pos", "neg"] * 20, "capitals alone"),
    ):
        path = folder / f"{name}.csv"
        text = "".join(f"the film {i},{value}\n" for i, value in enumerate(values))
        path.write_text("q,y\n" + text)
        yield own_file(folder, name, path, warned=said)


def conll_files(folder: Path) -> Iterator[Case]:
    """Words and tags in columns."""
    for number, (name, content) in enumerate(
        {
            "nothing": b"",
            "blank lines": b"\n\n\n",
            "a word alone": b"a\tO\nb\n\n" * 9,
            "a tag alone": b"\tO\n\n" * 9,
            "a blank tag": b"a\t \n\n" * 9,
            "UTF-16": "a\tO\n\n".encode("utf-16"),
            "random bytes": bytes(range(256)) * 9,
            "one sentence": b"a\tO\n",
            "a header alone": b"word\ttag\n",
        }.items()
    ):
        path = folder / f"{number}.conll"
        path.write_bytes(content)
        yield finetune(folder, name, "--data", path, "--kind", "tokens", "--task", "own")
    rows = {"lists of other lengths": '{"tokens": ["a"], "tags": ["O", "O"]}',
            "numbers for words": '{"tokens": [1], "tags": ["O"]}', "text": '{"tokens": "a", "tags": "O"}',
            "no words": '{"tokens": [], "tags": []}'}  # fmt: skip
    for name, row in rows.items():
        path = folder / f"{name}.jsonl"
        path.write_text(f"{row}\n" * 20)
        yield finetune(folder, name, "--data", path, "--kind", "tokens", "--task", "own")


def spans_and_text(folder: Path) -> Iterator[Case]:
    """SQuAD's JSON, and lines of text."""
    answer = {"text": "a", "answer_start": 0}
    asked = {"question": "q", "answers": [answer]}
    whole = {"data": [{"paragraphs": [{"context": "a b", "qas": [asked]}]}]}
    for name, content in {
        "no articles": {"data": []},
        "an article that is text": {"data": ["a"]},
        "no paragraphs": {"data": [{}]},
        "an answer elsewhere": {"data": [{"paragraphs": [{"context": "a b", "qas": [
            asked | {"answers": [answer | {"answer_start": 99}]}]}]}] * 20},
        "a start that is text": {"data": [{"paragraphs": [{"context": "a b", "qas": [
            asked | {"answers": [answer | {"answer_start": "0"}]}]}]}] * 20},
        "a start beyond 64 bits": {"data": [{"paragraphs": [{"context": "a b", "qas": [
            asked | {"answers": [answer | {"answer_start": 2**70}]}]}]}] * 20},
        "a question that is a number": {"data": [{"paragraphs": [{"context": "a b", "qas": [
            asked | {"question": 3}]}]}] * 20},
        "no answer": {"data": [{"paragraphs": [{"context": "a", "qas": [asked | {"answers": []}]}]}]},
        "one question": whole,
    }.items():  # fmt: skip
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content))
        yield finetune(folder, name, "--data", path, "--kind", "spans", "--task", "own")
    for name, content in {
        "nothing": b"",
        "blank": b" \n" * 9,
        "UTF-16": "a b".encode("utf-16"),
        "one line": b"a",
    }.items():
        path = folder / f"{name}.txt"
        path.write_bytes(content)
        yield finetune(folder, f"text: {name}", "--data", path, "--kind", "masked", "--task", "own")
    os.mkfifo(folder / "pipe.txt")
    yield finetune(
        folder, "text: a pipe", "--data", folder / "pipe.txt", "--kind", "masked", "--task", "own"
    )


_GLUE = {
    "sst2": ("SST-2", "sentence\tlabel", "a film\t{}"),
    "stsb": ("STS-B", "index\tsentence1\tsentence2\tscore", "1\tone\ttwo\t{}"),
    "mnli": ("MNLI", "sentence1\tsentence2\tgold_label", "one\ttwo\t{}"),
    "rte": ("RTE", "index\tsentence1\tsentence2\tlabel", "1\tone\ttwo\t{}"),
}
_USUAL = {"sst2": ("0", "1"), "stsb": ("1.0", "4.5"), "mnli": ("neutral", "entailment"),
          "rte": ("entailment", "not_entailment")}  # fmt: skip


def glue_folders(folder: Path) -> Iterator[Case]:
    """Released files with one broken line, header or file."""
    for task, (name, header, line) in _GLUE.items():
        good = [line.format(_USUAL[task][i % 2]) for i in range(20)]
        broken = {
            "an unknown label": [header, *good, line.format("maybe")],
            "a blank label": [header, *good, line.format("")],
            "a label that is nan": [header, *good, line.format("nan")],
            "a score of 7": [header, *good, line.format("7")],
            "a score below 0": [header, *good, line.format("-1")],
            "a column too few": [header, *good, "alone"],
            "a column too many": [header, *good, good[0] + "\tmore"],
            "no header": good,
            "a label column twice": [
                header + "\t" + header.split("\t")[-1],
                *(row + "\t1" for row in good),
            ],
            "a text column twice": [
                header + "\t" + header.split("\t")[-2],
                *(row + "\tx" for row in good),
            ],
            "a header alone": [header],
            "nothing": [],
        }
        for number, (what, rows) in enumerate(broken.items()):
            home = folder / task / str(number) / name
            home.mkdir(parents=True)
            for split in ("train", "dev_matched" if task == "mnli" else "dev", "dev_mismatched"):
                content = rows if split == "train" else [header, *good]
                (home / f"{split}.tsv").write_text("\n".join(content) + "\n")
            yield finetune(folder, f"{name}: {what}", "--data", home.parent, "--task", task)
        home = folder / task / "pipe" / name
        home.mkdir(parents=True)
        os.mkfifo(home / "train.tsv")
        yield finetune(folder, f"{name}: a pipe", "--data", home.parent, "--task", task)


__all__ = ["TINY", "conll_files", "glue_folders", "labels", "spans_and_text", "tables"]

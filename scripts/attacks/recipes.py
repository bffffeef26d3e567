"""Recipes in YAML, `key=value` settings and flags that mean nothing, or something else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks.case import Case, finetune

# Values that no number, text, list or group of settings can be.
ODD = ("yes", "1:30", "010", "0x1F", "1_000", ".inf", "-.inf", ".nan", "1e400", "9" * 5000, "-1",
       "2024-01-01", "[1, 2]", "{a: 1}", "true", "''", '"\\ud800"', '"\\0"', "!!binary aGk=", "1/0")  # fmt: skip
NUMBERS = ("epochs", "lr", "batch_size", "seed", "max_steps", "max_length", "workers", "warmup",
           "weight_decay", "accumulation", "patience", "train_rows", "log_steps", "cache_limit",
           "label_noise", "max_grad_norm", "student.layers")  # fmt: skip
CHOICES = ("precision", "attention", "lr_schedule", "optimizer", "cache", "student.pick", "kind",
           "student.init", "team", "curriculum", "mixup", "augment", "objectives", "student",
           "first_stage", "text_columns", "objectives.hard.compare", "objectives.hard.weight")  # fmt: skip

TEXTS = {
    "not YAML": "method: [kd",
    "a list": "- kd",
    "a word": "kd",
    "nothing": "",
    "only a comment": "# kd",
    "a key twice": "method: kd\nepochs: 1\nepochs: 2",
    "an inner key twice": "method: kd\nstudent: {layers: 1, layers: 2}",
    "nested too deep": "method: kd\nstudent: " + "[" * 5000,
    "nested in lines": "- " * 3000,
    "an anchor in itself": "method: kd\nstudent: &a {config: *a}",
    "a bomb of anchors": "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{y}: &{y} [{','.join(['*' + x] * 9)}]\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "a bomb of merges": "a: &a {k: 1}\n" + "".join(
        f"{y}: &{y} {{<<: [{','.join(['*' + x] * 9)}]}}\n" for x, y in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "a Python object": "method: !!python/object/apply:os.system [true]",
    "two documents": "method: kd\n---\nmethod: kd",
    "numbers for keys": "1: 2\n3: 4",
    "a list for a key": "? [a]\n: b",
    "tabs": "method: kd\n\tepochs: 1",
    "a control character": "method: kd\x07",
    "a megabyte": "method: kd\nsummary: " + "x" * 1_000_000,
    "an unknown method": "method: kdd",
    "a method that is a list": "method: [kd]",
    "objectives that are text": "method: own\nobjectives: soft",
    "an objective without compare": "method: own\nobjectives: {soft: {weight: 1}}",
    "an objective of no kind": "method: own\nobjectives: {soft: {compare: best}}",
    "terms with numbers for names": "method: own\nobjectives: {1: {compare: hard_label}}",
    "stated that is text": "method: kd\nstated: paper\nsettings: paper",
    "stated that is a list": "method: kd\nstated: [paper]\nsettings: paper",
    "settings that is a list": "method: kd\nsettings: [paper]",
    "a mapping of one layer twice": "method: pkd-skip\nobjectives: {patience: {mapping: "
    "{kind: explicit, layers: {1: 1, '1': 2}}}}",
    "layers by text": "method: pkd-skip\nobjectives: {patience: {mapping: {kind: explicit, layers: {a: 1}}}}",
    "a range without end": "method: pkd-skip\nobjectives: {patience: {mapping: {student_layers: 1..99999999999}}}",
}  # fmt: skip


def _distill(recipe: Path) -> tuple[str, ...]:
    return ("distill", str(recipe), "--task", "rte", "--data", "pocket", "--teacher", "no-such")


def json_like_recipes(folder: Path) -> Iterator[Case]:
    """Files that are no recipe."""
    for number, (name, text) in enumerate(TEXTS.items()):
        path = folder / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        yield Case(name, _distill(path))
    for name, content in {
        "bytes": b"\xff\xfe\x00",
        "UTF-16": "method: kd".encode("utf-16"),
    }.items():
        path = folder / f"{name}.yaml"
        path.write_bytes(content)
        yield Case(name, _distill(path))
    yield Case("a folder", _distill(folder))
    (folder / "folder.yaml").mkdir()
    yield Case("a folder of that name", _distill(folder / "folder.yaml"))


def _odd_settings() -> Iterator[tuple[str, str]]:
    for key in (*NUMBERS, *CHOICES):
        for value in ODD:
            yield key, value


def recipes(folder: Path) -> Iterator[Case]:
    """A recipe with one odd value, for every third pair of setting and value."""
    for number, (key, value) in enumerate(_odd_settings()):
        if number % 3:
            continue
        top, *inside = key.split(".")
        text = f"{{{inside[-1]}: {value}}}" if inside else value
        text = f"{{{inside[0]}: {text}}}" if len(inside) > 1 else text
        path = folder / f"{number}.yaml"
        path.write_text(f"method: finetune\n{top}: {text}\n", encoding="utf-8")
        yield Case(f"{key}: {value[:20]}", _distill(path))


def settings(folder: Path) -> Iterator[Case]:
    """`key=value` with one odd value, for every third pair of setting and value."""
    yield from (
        finetune(
            folder, f"{key}={value[:20]}", "--task", "rte", "--data", "pocket", f"{key}={value}"
        )
        for number, (key, value) in enumerate(_odd_settings())
        if number % 3 == 1 and not key.startswith(("max_steps", "epochs", "student.init"))
    )
    for text in ("epochs=", "=3", "epochs", "student.=3", "student..layers=3", "a=b=c", "epochs==3",
                 "student.config={num_attention_heads: 0}", "student.config={hidden_size: 0}",
                 "student.config={hidden_size: -8}", "student.config={hidden_size: 7}",
                 "student.config={num_hidden_layers: three}", "student.config={vocab_size: 1}",
                 "student.config={no_such_entry: 1}", "student.config={hidden_act: 3}",
                 "workers=5000", "select_by=beauty", "seed=4294967296"):  # fmt: skip
        yield finetune(folder, text, "--task", "rte", "--data", "pocket", text)
    # Rotary positions have no end, and no row is so long; a table has one.
    long = ("--task", "rte", "--data", "pocket", "max_length=1000000")
    yield finetune(folder, long[-1], *long, warned="changes nothing")
    yield finetune(folder, "max_length=1000000, a table", *long, "--model", "bert-1-8-1:random")


def flags(folder: Path) -> Iterator[Case]:
    """Flags of another type, twice, or that name nothing."""
    pocket = ("--task", "rte", "--data", "pocket")
    for flag in ("--epochs", "--lr", "--batch-size", "--seed", "--max-steps", "--max-length"):
        for value in ("x", "inf", "nan", "-1", "0", "1e999", "9" * 400):
            if (flag, value) == ("--seed", "0"):
                continue
            yield finetune(folder, f"{flag} {value[:10]}", *pocket, flag, value)
    for line in (("--layers", "0"), ("--layers", "-3"), ("--layers", "99"), ("--layers", "1", "1"),
                 ("--pick", "best"), ("--precision", "fp7"), ("--attention", "none-such"),
                 ("--kind", "poem"), ("--grid", "pocket-2-7-2"), ("--no-such",)):  # fmt: skip
        yield finetune(folder, " ".join(line), *pocket, *line)
    for model in ("bert-0-0-0:random", "bert-2-8-0:random", "pocket-0-8-1", "pocket-2-9-2",
                  "pocket-99999999-8-1", "pocket-2-99999999-1", "", ".", "/", "/dev/null",
                  "a/b/c/d", "..", "x" * 5000, "[/t]", "no-such"):  # fmt: skip
        yield Case(
            f"model {model[:20]}", ("finetune", "--model", model, *pocket, "--max-steps", "1")
        )
    for task in ("", "[/t]", "x" * 5000, "mrcp", "-"):
        yield Case(
            f"task {task[:20]}",
            ("finetune", "--model", "pocket", "--task", task, "--data", "pocket"),
        )
    yield Case("two settings that disagree", ("distill", "kd", "--layers", "2", "student.layers=3"))
    yield Case("no recipe", ("distill",))
    yield Case("two recipes", ("distill", "kd", "pkd"))
    yield Case("an unknown method", ("methods", "kdd"))

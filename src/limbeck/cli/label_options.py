"""The options of `limbeck label`: which rows, what is stored of them where, and how the work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from limbeck.cli.options import option, setting

ROWS, STORE, RUNNING = "Rows", "Store", "Running"


@dataclass(frozen=True)
class RowsToLabel:
    """Which rows are labelled."""

    data: Annotated[
        str | None,
        option(
            ROWS,
            "'hub', 'pocket', a GLUE folder, a file (also .txt, a row a line) or a folder of files; labels are not "
            "looked at.",
        ),
    ] = None
    task: Annotated[str | None, option(ROWS, "A known task: its columns and classes.")] = None
    unlabelled: Annotated[list[str] | None, option(ROWS, "More files or folders of rows.")] = None
    text_columns: Annotated[list[str] | None, setting("text_columns", ROWS)] = None
    max_rows: Annotated[int | None, option(ROWS, "Rows of a file; more are refused.", min=1)] = None
    label_column: Annotated[
        str | None,
        option(
            ROWS,
            "The labels of a file of your own; read for a prompt's examples_per_class, and by a text-to-text teacher.",
        ),
    ] = None


@dataclass(frozen=True)
class StoreToWrite:
    """What is stored of them, and where."""

    out: Annotated[
        str | None,
        option(
            STORE,
            "The store: a folder, or a URL such as s3://bucket/store. The same command again continues it.",
        ),
    ] = None
    to: Annotated[
        str | None,
        option(
            STORE,
            "Also a plain table (.csv, .jsonl, .parquet), a file of this machine: text, label, confidence; without "
            "--out the store lies beside it.",
        ),
    ] = None
    outputs: Annotated[
        list[str] | None,
        option(
            STORE,
            "logits, probabilities, hidden:LAYER\\[:cls|mean|last], attention|scores|query|key|value:LAYER; "
            "layer -1 is the last, :float32 keeps all digits. Of a text-to-text teacher logits:topK or logits:sampleN. "
            "\\[default: logits and probabilities]",
        ),
    ] = None
    with_text: Annotated[
        bool,
        typer.Option("--with-text", help="Store the texts too.", rich_help_panel=STORE),
    ] = False
    shard_rows: Annotated[
        int | None,
        option(
            STORE,
            "Rows of a shard, the work that a kill may cost; by default 64 MiB of them, at most 4096.",
            min=1,
        ),
    ] = None


@dataclass(frozen=True)
class LabellingWork:
    """How it is done."""

    batch_size: Annotated[int | None, option(RUNNING, "Rows of a pass.", min=1)] = None
    max_length: Annotated[
        int | None, option(RUNNING, "Tokens of a row; by default the run's own, or 128.", min=1)
    ] = None
    precision: Annotated[str, option(RUNNING, "fp32 or bf16.")] = "fp32"
    engine: Annotated[
        str,
        option(
            RUNNING,
            "local, or ray: on this machine or the cluster that RAY_ADDRESS names.",
        ),
    ] = "local"
    workers: Annotated[int | None, option(RUNNING, "At most so many processes of Ray.")] = None
    missing_rows: Annotated[
        str,
        option(
            RUNNING,
            "Rows that keep failing: error makes no shard of them and ends by saying so; drop leaves them out of the "
            "store.",
        ),
    ] = "error"

"""The options of `limbeck predict` that say what is predicted of a row, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from limbeck.cli.options import option, setting

ROWS, OUTPUT, RUNNING = "Rows", "Output", "Running"


@dataclass(frozen=True)
class PredictOptions:
    """As `limbeck.predicting.PredictSettings` takes them."""

    output: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "labels, scores (the label's probability), ranks (of a query's passages), probabilities, logits, "
            "embeddings; several. \\[default: labels]",
        ),
    ] = None
    keep: Annotated[
        list[str] | None,
        option(
            OUTPUT,
            "Columns of the rows that stand beside the predictions: names, all or none. \\[default: all]",
        ),
    ] = None
    prefix: Annotated[str, option(OUTPUT, "Of the predicted columns' names.")] = ""
    csv_safe: Annotated[
        bool,
        typer.Option(
            "--csv-safe",
            help="CSV and TSV: write an apostrophe before text that a spreadsheet would run as a formula.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Replace --to, and begin again what other settings or rows have begun.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
    text_columns: Annotated[list[str] | None, setting("text_columns", ROWS)] = None
    pooling: Annotated[
        str,
        option(
            OUTPUT,
            "How hidden states of the last layer become an embedding: mean (over real tokens), cls or last.",
        ),
    ] = "mean"
    prompt: Annotated[
        str,
        option(
            OUTPUT,
            "What the texts are, of embedding models: sentence, query or passage, each with the model's own prompt.",
        ),
    ] = "sentence"
    batch_size: Annotated[int, option(RUNNING, "Rows of a pass.", min=1)] = 32
    max_length: Annotated[
        int | None,
        option(
            RUNNING,
            "Tokens read of a row; by default what the model was trained or exported with, or its folder says, "
            "else 512 at most.",
            min=1,
        ),
    ] = None
    max_new_tokens: Annotated[int | None, option(RUNNING, "Tokens of a generated text.", min=1)] = (
        None
    )
    precision: Annotated[str, option(RUNNING, "fp32 or bf16.")] = "fp32"
    chunk_rows: Annotated[
        int | None,
        option(
            RUNNING,
            "Rows that are read, sorted by length and written at once, the work that a kill may cost; by default "
            "4096, to standard output 256.",
            min=1,
        ),
    ] = None

"""Settings of `limbeck predict`, whose descriptions are its help. Free of torch. Part of `limbeck.predicting`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from limbeck.support.settings import DEVICE_MAPS, Count, DeviceMap, Pool, Settings, Words, as_words

Output = Literal["labels", "scores", "ranks", "probabilities", "logits", "embeddings"]


class PredictSettings(Settings):
    """The rows to predict, the model, and the outputs to write."""

    format: Literal["csv", "tsv", "jsonl", "text", "parquet"] | None = Field(
        None,
        description="of the rows: csv, tsv, jsonl, text or parquet; needed for standard input, otherwise given by the "
        "ending",
    )
    task: str | None = Field(
        None,
        description="a known task: its columns, and its classes' names if the model has no names",
    )
    text_columns: Words = Field((), description="columns that the model reads")
    output: Annotated[tuple[Output, ...], BeforeValidator(as_words)] = Field(
        ("labels",),
        description="labels, scores (the label's probability), ranks (of a query's passages), probabilities, logits, "
        "embeddings (an embedding model's default); several",
    )
    keep: Words | None = Field(
        None,
        description="input columns to keep next to the predictions: names, all or none; default: all",
    )
    prefix: str = Field("", description="prefix of the predicted columns' names")
    overwrite: bool = Field(
        False, description="replace --to, and begin again what other settings or rows have begun"
    )
    pooling: Pool = Field(
        "mean",
        description="how hidden states of the last layer become an embedding: mean (over real tokens), cls or last",
    )
    prompt: Literal["sentence", "query", "passage"] = Field(
        "sentence",
        description="kind of the texts for embedding models: sentence, query or passage, each with the model's own "
        "prompt",
    )
    backend: str | None = Field(
        None,
        description="runtime: torch, onnxruntime or openvino (of an exported folder, or a run that contains one); "
        "default: the folder's own",
    )
    batch_size: Count = Field(32, description="rows of a pass")
    max_length: Count | None = Field(
        None,
        description="maximum tokens per row; default: the value from training or export, or from the folder, "
        "otherwise 512 at most",
    )
    max_new_tokens: Count | None = Field(
        None,
        description="maximum tokens of a generated text; default: the checkpoint's; for a known task, the tokens of "
        "its longest class name",
    )
    device_map: DeviceMap | None = Field(
        None, description=f"place a large model's parts on several devices: {DEVICE_MAPS}"
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="fp32 or bf16")
    csv_safe: bool = Field(
        False,
        description="in CSV, write an apostrophe before text that a spreadsheet would run as a formula",
    )
    chunk_rows: Count | None = Field(
        None,
        description="rows that are read, sorted by length and written at once, the work that a kill may cost; by "
        "default 4096, to standard output 256",
    )

    @property
    def asked(self) -> frozenset[str]:
        """The outputs."""
        return frozenset(self.output)

"""Settings of `limbeck label`, whose descriptions are its help. Free of torch. Part of `limbeck.labelling`."""

from typing import Literal

from pydantic import Field

from limbeck.support.settings import DEVICE_MAPS, Count, DeviceMap, Place, Settings, Words


class LabelSettings(Settings):
    """The rows to label, the outputs to store, and how."""

    task: str | None = Field(None, description="a known task: its columns and classes")
    text_columns: Words = Field((), description="columns that hold text, one or two")
    label_column: str | None = Field(
        None, description="labels of a file of your own, which a text-to-text teacher reads"
    )
    answers: Words = Field(
        (),
        description="logs or batch files of a language model's answers, which are parsed with --prompt, instead of a "
        "teacher and rows",
    )
    out: Place | None = Field(
        None,
        description="the store: a folder, or a URL such as s3://bucket/store; the same command again continues it",
    )
    to: Place | None = Field(
        None,
        description="also a plain table (.csv, .jsonl, .parquet) of this machine: text, label, confidence; without "
        "--out the store is written next to it",
    )
    outputs: Words = Field(
        (),
        description="logits, probabilities, hidden:LAYER[:cls|mean|last], attention|scores|query|key|value:LAYER; "
        "layer -1 is the last, :float32 keeps all digits; of a text-to-text teacher logits:topK or logits:sampleN; "
        "by default logits and probabilities",
    )
    with_text: bool = Field(False, description="store the texts too")
    shard_rows: Count | None = Field(
        None,
        description="rows of a shard, the work that a kill may cost; by default 64 MiB of them, at most 4096",
    )
    batch_size: Count | None = Field(None, description="rows of a pass")
    max_length: Count | None = Field(
        None, description="tokens of a row; by default the run's own, or 128"
    )
    device_map: DeviceMap | None = Field(
        None, description=f"place a large teacher's parts on several devices: {DEVICE_MAPS}"
    )
    precision: Literal["fp32", "bf16"] = Field("fp32", description="fp32 or bf16")
    missing_rows: Literal["error", "drop"] = Field(
        "error",
        description="rows that keep failing: error stops with an error, drop leaves them out of the store",
    )

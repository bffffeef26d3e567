"""Settings of `limbeck compress`, whose descriptions are its help. Free of torch. Part of `limbeck.compressing`."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from limbeck.support.settings import Count, Place, Settings, Tokens, Words, as_words

Precision = Literal["int8", "int8-embeddings4", "int4", "float"]
Precisions = Annotated[tuple[Precision, ...], BeforeValidator(as_words)]


class CompressSettings(Settings):
    """The search space, the search time, and the condition under which latency is measured."""

    budget: str = Field(
        description="limits, such as size=6MB,latency=2ms: size of the exported files, latency, parameters (5M), "
        "memory (50MB), and the share of the teacher's score to keep (score=97%)"
    )
    hours: float = Field(
        2.0,
        gt=0,
        le=10**4,
        description="time for all of it; no trial starts when only the time of the last steps is left",
    )
    trials: Count = Field(24, description="short trainings at most")
    trial_rows: Count = Field(4_000, description="rows of a short training")
    finalists: Count = Field(
        3,
        description="students that are trained to the end; a transformer and a static one if both were tried",
    )
    seeds: Count = Field(2, description="trainings of each finalist, by one seed each")
    methods: Words = Field(
        (),
        description="methods to try; by default kd-soft and logit-mse, and kd where rows have labels; of embeddings "
        "and numbers the usual one",
    )
    precisions: Precisions = Field(
        ("int8", "int8-embeddings4", "int4", "float"),
        min_length=1,
        description="precisions of the ONNX files that may ship, the first that meets the budget decides in trials: "
        "int8, int8-embeddings4 (embeddings of 4 bits), int4, float",
    )
    batch: Count = Field(1, description="latency: rows of a pass")
    length: Tokens = Field(
        32,
        description="latency: tokens of a row by the teacher's tokenizer; a smaller vocabulary makes more of the same "
        "text",
    )
    threads: Count = Field(1, description="latency: threads of ONNX Runtime")
    jobs: Count = Field(
        1,
        description="trainings at the same time, each in a process with cores of its own; shapes are exported and "
        "timed one by one before",
    )
    engine: Literal["local", "ray"] = Field(
        "local", description="local, or ray: the trainings are tasks of a Ray cluster"
    )
    address: Place | None = Field(
        None,
        description="with --engine ray: a cluster's HOST:PORT whose machines all see the same folders; by default "
        "RAY_ADDRESS, otherwise a new one on this machine",
    )


MAY_CHANGE = {"hours", "trials", "jobs", "engine", "address"}
"""Settings that a command may change when it resumes."""

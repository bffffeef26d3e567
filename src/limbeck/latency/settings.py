"""Settings of `limbeck bench`, whose descriptions are its help. Free of torch. Part of `limbeck.latency`."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from limbeck.support.settings import Count, Settings, Words

Counts = Annotated[
    tuple[Count, ...], BeforeValidator(lambda one: tuple(one) if isinstance(one, list) else one)
]


class BenchSettings(Settings):
    """The measurements to make."""

    batch_sizes: Counts = Field((1,), description="rows of a pass")
    lengths: Counts = Field(
        (32, 128),
        description="tokens of a row; default: 32 and 128, as far as all models read them",
    )
    threads: Counts = Field((1,), description="threads, pinned to as many cores")
    backends: Words = Field(
        (),
        description="torch, compiled, onnxruntime, openvino, numpy; by default torch for checkpoints, and each "
        "exported folder's own",
    )
    passes: int = Field(100, ge=5, description="timed passes of each model under each condition")
    warm_up: int = Field(10, ge=1, description="passes before them")

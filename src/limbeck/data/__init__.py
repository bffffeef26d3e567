"""Tasks and their examples: what is learned, from where it comes, how it is scored."""

from limbeck.data.collator import Collator
from limbeck.data.conditions import Conditions
from limbeck.data.corpus import CORPUS, CorpusSpec, load_corpus
from limbeck.data.encoding import encode
from limbeck.data.fingerprint import rows_fingerprint
from limbeck.data.load import load_task
from limbeck.data.metrics import METRICS
from limbeck.data.own_labels import Labelling
from limbeck.data.profiles import (
    PROFILES,
    Profile,
    get_profile,
    profile_average,
    profile_columns,
    profile_score,
)
from limbeck.data.reading_alike import add_inputs
from limbeck.data.sampler import EpochSampler
from limbeck.data.tasks import TASKS, HubSource, Task, as_kind, get_task, project

__all__ = [
    "CORPUS",
    "METRICS",
    "PROFILES",
    "TASKS",
    "Collator",
    "Conditions",
    "CorpusSpec",
    "EpochSampler",
    "HubSource",
    "Labelling",
    "Profile",
    "Task",
    "add_inputs",
    "as_kind",
    "encode",
    "get_profile",
    "get_task",
    "load_corpus",
    "load_task",
    "profile_average",
    "profile_columns",
    "profile_score",
    "project",
    "rows_fingerprint",
]

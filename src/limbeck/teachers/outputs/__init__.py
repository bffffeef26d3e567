"""What is computed once about the training rows: a teacher's outputs, kept in memory or on disk.

Stored outputs take the live teacher's place.
"""

from limbeck.teachers.outputs.build import build
from limbeck.teachers.outputs.columns import Ask
from limbeck.teachers.outputs.copied_store import copy_store
from limbeck.teachers.outputs.entry_about import EntryAbout, EntryRows
from limbeck.teachers.outputs.entry_key import (
    add_model,
    add_rows,
    digest_of_model,
    digest_of_text,
    digest_of_tokenizer,
    fingerprint,
    library_versions,
)
from limbeck.teachers.outputs.estimate import Estimate, measure
from limbeck.teachers.outputs.mapped_outputs import MappedOutputs
from limbeck.teachers.outputs.output_store import OutputStore, open_store
from limbeck.teachers.outputs.places import Lengths
from limbeck.teachers.outputs.read import CachedTeacher
from limbeck.teachers.outputs.remembering import RememberingTeacher
from limbeck.teachers.outputs.store import Store, StoredEntry, default_store
from limbeck.teachers.outputs.store_files import StoreFiles
from limbeck.teachers.outputs.store_manifest import (
    ExamplesManifest,
    RowsIdentity,
    ShardRecord,
    StoreManifest,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.teachers.outputs.store_writer import StoreWriter
from limbeck.teachers.outputs.storing import StoringQuestion, stored_if_it_pays
from limbeck.teachers.outputs.table_writer import UnstorableError
from limbeck.teachers.outputs.training_entry import training_entry

__all__ = [
    "Ask",
    "CachedTeacher",
    "EntryAbout",
    "EntryRows",
    "Estimate",
    "ExamplesManifest",
    "Lengths",
    "MappedOutputs",
    "OutputStore",
    "RememberingTeacher",
    "RowsIdentity",
    "ShardRecord",
    "Store",
    "StoreFiles",
    "StoreManifest",
    "StoreWriter",
    "StoredEntry",
    "StoringQuestion",
    "TeacherIdentity",
    "TokensIdentity",
    "UnstorableError",
    "add_model",
    "add_rows",
    "build",
    "copy_store",
    "default_store",
    "digest_of_model",
    "digest_of_text",
    "digest_of_tokenizer",
    "fingerprint",
    "library_versions",
    "measure",
    "open_store",
    "stored_if_it_pays",
    "training_entry",
]

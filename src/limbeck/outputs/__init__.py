"""What is computed once about the training rows: a teacher's outputs, kept in memory or on disk.

Stored outputs take the live teacher's place.
"""

from limbeck.outputs.building import StoringQuestion, build, stored_if_it_pays
from limbeck.outputs.cache import Store, StoredEntry, default_store
from limbeck.outputs.columns import Ask, Lengths
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.key import (
    add_model,
    digest_of_model,
    digest_of_text,
    digest_of_tokenizer,
    fingerprint,
    library_versions,
)
from limbeck.outputs.manifest import (
    EntryAbout,
    EntryRows,
    ExamplesManifest,
    RowsIdentity,
    StoreManifest,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.outputs.mapped import training_entry
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.outputs.store import OutputStore, open_store
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.outputs.writer import StoreWriter, copy_store

__all__ = [
    "Ask",
    "CachedTeacher",
    "EntryAbout",
    "EntryRows",
    "ExamplesManifest",
    "Lengths",
    "OutputStore",
    "RememberingTeacher",
    "RowsIdentity",
    "Store",
    "StoreFiles",
    "StoreManifest",
    "StoreWriter",
    "StoredEntry",
    "StoringQuestion",
    "TeacherIdentity",
    "TokensIdentity",
    "add_model",
    "build",
    "copy_store",
    "default_store",
    "digest_of_model",
    "digest_of_text",
    "digest_of_tokenizer",
    "fingerprint",
    "library_versions",
    "open_store",
    "stored_if_it_pays",
    "training_entry",
]

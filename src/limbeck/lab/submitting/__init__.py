"""`submit(runs, out)`: predictions of GLUE's test rows in the benchmark's own files."""

from limbeck.lab.submitting.glue_files import GLUE_FILES, GlueFile
from limbeck.lab.submitting.submission import Submission, submit

__all__ = ["GLUE_FILES", "GlueFile", "Submission", "submit"]

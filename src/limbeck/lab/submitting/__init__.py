"""`submit(runs, out)`: predictions of GLUE's test rows in the benchmark's own files."""

from limbeck.lab.submitting.submission import GLUE_FILES, GlueFile, Submission, submit

__all__ = ["GLUE_FILES", "GlueFile", "Submission", "submit"]

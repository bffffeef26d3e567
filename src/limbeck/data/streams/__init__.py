"""Rows of any length read as they are asked for: files, standard input, lists. Part of `limbeck.data`.

Memory holds the rows that are asked for and no others. The readers are the strict ones of `tables`, so that a file
means the same here as where it is trained on; only blank lines of plain text are rows here, as every line gets its
output.
"""

from limbeck.data.endings import TEXT_COLUMN
from limbeck.data.streams.row_files import IMAGE_COLUMN, named_files
from limbeck.data.streams.row_stream import RowStream
from limbeck.data.streams.taken_rows import TakenRows

__all__ = ["IMAGE_COLUMN", "TEXT_COLUMN", "RowStream", "TakenRows", "named_files"]

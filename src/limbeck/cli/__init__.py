"""The command line: `limbeck COMMAND …`.

Every command is thin: it turns flags into recipe settings, calls one function of the library and
prints what that returns. Heavy modules (torch, transformers) are imported inside the commands, so
`--help` is instant.
"""

from limbeck.cli.app import main

__all__ = ["main"]

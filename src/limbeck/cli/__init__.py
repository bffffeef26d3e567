"""The command line: `limbeck COMMAND …`.

Every command is thin: it turns flags into recipe settings, calls one function of the library and
prints what that returns. Heavy modules (torch, transformers) are imported inside the commands, so
`--help` is instant.
"""

__all__ = ["main"]


def main() -> None:
    """Run the command line on `sys.argv`."""
    from limbeck.cli.app import app  # it asks who has commands, and they import this package

    app()

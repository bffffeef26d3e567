"""The Jinja templates in a package's folder `templates`. A value that one of them misses is an error."""

from jinja2 import Environment, PackageLoader, StrictUndefined


def templates_of(package: str, *, html: bool = False) -> Environment:
    """A package's templates; in `html` values are escaped."""
    return Environment(
        loader=PackageLoader(package),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )

"""`convoy`: the table of commands; prints every error as one line and sets the exit code.

Exit codes: 0 done, 1 failed, 2 bad input or a wrong flag, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from cli.commands import SETTINGS, Commands
from engine.backends import program_revision, program_version
from engine.errors import (
    BundleError,
    CheckpointError,
    ConvoyError,
    InvalidRequest,
    TooLarge,
    UnknownModel,
)

COMMANDS: Final = (
    "serve",
    "translate",
    "corpus",
    "summarize",
    "score",
    "keys",
    "inspect",
    "evaluate",
    "calibrate",
    "bench",
    "convert",
    "export",
    "fetch",
    "package",
    "shortlist",
    "placeholders",
    "words",
    "train",
)
BAD_INPUT: Final = (
    BundleError,
    CheckpointError,
    InvalidRequest,
    TooLarge,
    UnknownModel,
    OSError,
    UnicodeDecodeError,
)
EXTRAS: Final = {
    "torch": "torch",
    "google_crc32c": "tensor2tensor",
    "huggingface_hub": "hub",
    "fsspec": "corpus",
    "pyarrow": "corpus",
    "ray": "ray-data",
    "sacrebleu": "train",
    "rouge_score": "train",
}


class Main(Commands):
    """The commands of `convoy`."""

    package = "cli"
    names = COMMANDS


table = typer.Typer(
    cls=Main,
    context_settings={"auto_envvar_prefix": "CONVOY", "help_option_names": ["-h", "--help"]},
    **SETTINGS | {"add_completion": True},
)


def _version(value: bool) -> None:
    if value:
        revision = program_revision()
        typer.echo(f"convoy {program_version()}" + (f" ({revision})" if revision else ""))
        raise typer.Exit


@table.callback()
def convoy(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            callback=_version,
            is_eager=True,
            allow_from_autoenv=False,
        ),
    ] = False,
) -> None:
    """Translate and summarize with convolutional sequence-to-sequence models.

    Every flag has an environment variable: CONVOY_<COMMAND>_<FLAG>, or CONVOY_<FLAG> for `serve`.
    """


def app(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit. Errors are one line on stderr; CONVOY_TRACEBACK=1 shows their origin."""
    command_line = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = table(command_line, prog_name="convoy", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    except Exception as error:  # every error becomes one line
        if os.environ.get("CONVOY_TRACEBACK"):
            raise
        print(f"convoy: error: {' '.join(_message(error).split())}", file=sys.stderr)
        code = _code(error)
    sys.exit(code if isinstance(code, int) else 0)


def _message(error: Exception) -> str:
    """Return one line about an error, with the remedy."""
    if hasattr(error, "format_message"):  # a wrong flag or argument
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        return f"{error.format_message()}{hint}"
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] in EXTRAS:
        package = error.name.split(".")[0]
        return f"this needs {package}; run: pip install 'convoy-server[{EXTRAS[package]}]'"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, (ConvoyError, UnicodeDecodeError)):
        return str(error)
    return f"unexpected {type(error).__name__}: {error}; CONVOY_TRACEBACK=1 shows where"


def _code(error: Exception) -> int:
    """Return the exit code of an error: 2 for bad input."""
    if isinstance(error, BAD_INPUT):
        return 2
    return int(getattr(error, "exit_code", 1))


if __name__ == "__main__":
    app()

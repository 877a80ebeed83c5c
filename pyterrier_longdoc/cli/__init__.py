"""The command line: ``python -m pyterrier_longdoc COMMAND``.

A command is a module of this package with ``add_arguments(parser)`` and ``run(args)``; the first line of its docstring
is its help. What a user can put right ends with one line ``error: ...`` and exit status 2, anything else with a
traceback and 1. Status 130 means interrupted.
"""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import pyterrier as pt

#: Commands in the order of ``--help``.
COMMANDS = ("demo", "rerank", "train")
#: What is said in a line, without a traceback; PyTerrier's data sets raise NotImplementedError for what they lack.
_USER_ERRORS = (ValueError, KeyError, OSError, ImportError, NotImplementedError, FloatingPointError)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Arguments; those of the process if ``None``.

    Returns:
        The exit status.
    """
    args = _parser().parse_args(argv)
    with warnings.catch_warnings():
        warnings.simplefilter("always")  # _Warnings decides
        warnings.showwarning = shown = _Warnings()
        try:
            args.run(args)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return 130
        except _USER_ERRORS as error:
            if args.traceback:
                raise
            print(f"error: {_message(error)}", file=sys.stderr)
            return 2
        finally:
            shown.say_what_was_left_out()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pyterrier_longdoc", description="Neural re-rankers for long documents."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"{__name__}.{name}")
        summary = _summary(module)
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument("--traceback", action="store_true", help="show where an error came from")
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    return parser


def _summary(module: ModuleType) -> str:
    return (module.__doc__ or "").strip().split("\n")[0]


def _message(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args:  # str() of a KeyError is the repr of its message
        return str(error.args[0])
    return str(error) or type(error).__name__


class _Warnings:
    """Shows each kind of warning once, on a line of its own, and in the end how many differed in numbers only."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def __call__(self, message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
            return
        kind = re.sub(r"'[^']*'|[\d.,%]+", "", str(message))
        if kind not in self._shown:
            pt.tqdm.write(f"warning: {message}", file=sys.stderr)
        self._shown[kind] = self._shown.get(kind, 0) + 1

    def say_what_was_left_out(self) -> None:
        """A line for each kind that came more than once."""
        for kind, times in self._shown.items():
            if times > 1:
                text = " ".join(kind.split())[:60]
                print(f"warning: {times - 1} more like the one above, with other numbers: {text} ...", file=sys.stderr)

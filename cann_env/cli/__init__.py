"""The ``cann-env`` command: scenarios and models in, tables, traces and pictures out.

The only part of the package that imports Typer and Rich.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; the process ends with its exit code."""
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError:
        print('The command line needs Typer and Rich: pip install "cann-env[cli]"', file=sys.stderr)
        raise SystemExit(2) from None
    from cann_env.cli.app import app

    app(prog_name="cann-env")

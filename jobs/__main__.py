"""`python -m jobs COMMAND …`, and the console script `shardmill`: one name for all commands."""

import difflib
import importlib
import sys

from jobs.cli import COMMANDS


def main() -> int:
    """Hand over to a command's own module, or list the commands."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command in COMMANDS:
        return int(importlib.import_module(f"jobs.{command}").main(arguments))
    if command not in {"-h", "--help", "help"}:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        print(f"error: there is no command {command!r}{hint}", file=sys.stderr)
        return 2
    print("usage: shardmill COMMAND [options], or python -m jobs.COMMAND [options]\n")
    for name, what in COMMANDS.items():
        print(f"  {name:<10} {what}")
    print("\n`shardmill COMMAND --help` explains one of them.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

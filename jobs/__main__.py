"""`python -m jobs COMMAND …`, and the console script `shardmill`: one name for all commands."""

import difflib
import sys

from jobs.cli import COMMANDS, module_of

SHELLS = ("bash", "zsh")
USAGE = """\
usage: shardmill COMMAND [options], or python -m jobs.COMMAND [options]

{commands}

`shardmill COMMAND --help` explains one of them. `shardmill --completion bash` (or zsh) prints a script with which the
shell completes commands, options, jobs and presets; bash finds it in
~/.local/share/bash-completion/completions/shardmill."""


def main() -> int:
    """Hand over to a command's own module, or list the commands."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command in COMMANDS:
        return int(module_of(command).main(arguments))
    if command == "--completion":
        return _completion(arguments)
    if command not in {"-h", "--help", "help"}:
        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "`python -m jobs` lists them"
        return _refuse(f"there is no command {command!r}; {hint}")
    width = max(map(len, COMMANDS))
    print(USAGE.format(commands="\n".join(f"  {name:<{width}}  {what}" for name, what in COMMANDS.items())))
    return 0


def _completion(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        return _refuse(f"--completion takes the name of a shell: {' or '.join(SHELLS)}")
    from jobs.completion import script

    print(script(arguments[0]))
    return 0


def _refuse(sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main())

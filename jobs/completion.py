"""What makes a shell complete `shardmill`: commands, their options, and the words that an option takes.

The script is written from the parsers themselves. zsh runs the one for bash, by its own `bashcompinit`.
"""

import argparse
from collections.abc import Iterator

from jobs.cli import COMMANDS, module_of, presets
from jobs.run import JOBS

SCRIPT = """\
_shardmill() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" command="${{COMP_WORDS[1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "$command $prev" in
{values}
      *)
        case "$command $cur" in
{options}
        esac ;;
    esac
  fi
  if [ -n "$words" ]; then COMPREPLY=( $(compgen -W "$words" -- "$cur") ); fi
}}
complete -o default -F _shardmill shardmill"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


def script(shell: str) -> str:
    """The script for `bash` or `zsh`; where it has no words, file names are completed."""
    parsers = {command: module_of(command).parser() for command in COMMANDS}
    values = [
        f'      "{command} {option}") words="{" ".join(words)}" ;;'
        for command, parser in parsers.items()
        for option, words in _values(parser)
    ]
    options = [
        f'          "{command} -"*) words="{" ".join(_options(parser))}" ;;'
        for command, parser in parsers.items()
    ]
    text = SCRIPT.format(
        commands=" ".join([*COMMANDS, "--help", "--completion"]),
        values="\n".join(['      "--completion "*) words="bash zsh" ;;', *values]),
        options="\n".join(options),
    )
    return ZSH + text if shell == "zsh" else text


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]


def _values(parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Options that take one of some words."""
    known = {"--until": list(JOBS), "--config": presets()}
    for action in parser._actions:
        for option in action.option_strings:
            words = [str(choice) for choice in action.choices or ()] or known.get(option, [])
            if words:
                yield option, words

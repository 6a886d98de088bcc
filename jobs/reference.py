"""Every setting with its type, default and meaning, from the configuration's own schema; `docs/configuration.md`."""

import argparse
import difflib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from jobs.cli import guarded, presets
from jobs.errors import UserError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from jobs.settings.section import Section

WIDTH = 120
INTRODUCTION = """\
# Settings

Written by `python -m jobs.reference --output docs/configuration.md`; a test holds it to the configuration's schema.

A run's settings are YAML: a preset, a file of your own, or several with commas between, each over those before.
Presets are {presets}.

`--set KEY=VALUE` changes one of them, with dots between the parts of the key and a number for a
place in a list: `--set near_duplicates.bands=16 --set sources.0.path=data`. Below, `[]` stands for that number. Unknown
keys are refused with the nearest known one. `python -m jobs.run --dry-run` prints the settings that a run would have.
"""
BOUNDS = {"min": "the least", "max": "the most"}
ENABLED = "whether this is done at all"
FROM_WHOLE_RUN = "as in the section of this name; by default the whole run's"


class Part(NamedTuple):
    """A section of the configuration: its key, its model, and the model's JSON schema."""

    key: str
    model: "type[Section]"
    properties: dict[str, Any]


def rendered(section: str | None = None) -> str:
    """The reference as Markdown, or a section of it with the sections below.

    Raises
    ------
    UserError
        There is no such section.
    """
    parts = list(_parts())
    if section is None:
        introduction = INTRODUCTION.format(presets=", ".join(f"`{name}`" for name in presets()))
        return "\n".join([introduction, *(_as_markdown(part) for part in parts)])
    chosen = [part for part in parts if f"{_plain(part.key)}.".startswith(f"{section}.")]
    if not chosen:
        names = [_plain(part.key) for part in parts if part.key]
        near = difflib.get_close_matches(section, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise UserError(
            f"there is no section {section!r}; {hint}there are {', '.join(n for n in names if '.' not in n)}"
        )
    return "\n".join(_as_markdown(part) for part in chosen)


def _plain(key: str) -> str:
    return key.replace("[]", "")


def _parts() -> Iterator[Part]:
    """All sections, each before those below it; what sources repeat of the whole run once."""
    from jobs.config import STEPS, Config

    schema = Config.model_json_schema()

    def walk(key: str, model: "type[Section]", properties: dict[str, Any]) -> Iterator[Part]:
        yield Part(key, model, properties)
        for name, field in model.model_fields.items():
            below, many = _section(field)
            if below is None or (key and name in STEPS) or name == "references":
                continue
            path = f"{key}.{name}".lstrip(".") + ("[]" if many else "")
            yield from walk(path, below, schema["$defs"][below.__name__]["properties"])

    return walk("", Config, schema["properties"])


def _section(field: "FieldInfo") -> tuple["type[Section] | None", bool]:
    """The model of a setting that is a section, and whether it is a list of them."""
    from jobs.settings.section import Section

    candidates = [(field.annotation, False), *((one, True) for one in get_args(field.annotation))]
    for candidate, inner in candidates:
        if isinstance(candidate, type) and issubclass(candidate, Section):
            return candidate, inner and getattr(field.annotation, "__origin__", None) is tuple
    return None, False


# ---------------------------------------------------------------- Markdown


def _as_markdown(part: Part) -> str:
    heading = f"## `{part.key}`" if part.key else "## The whole"
    told = inspect.cleandoc(part.model.__doc__ or "")
    paragraphs = [textwrap.fill(" ".join(one.split()), WIDTH) for one in told.split("\n\n")]
    rows = list(_rows(part))
    table = ["| setting | type | default | |", "| --- | --- | --- | --- |", *rows] if rows else []
    return "\n\n".join([heading, *paragraphs, *(["\n".join(table)] if table else [])]) + "\n"


def _rows(part: Part) -> Iterator[str]:
    from jobs.config import STEPS

    for name, field in part.model.model_fields.items():
        below, many = _section(field)
        repeated = below is not None and part.key and name in STEPS
        if below is not None and not many and not repeated and field.default is not None:
            continue  # a section of its own below
        key = f"{part.key}.{name}".lstrip(".")
        type_ = (
            "a list of sections" if many else "a section" if below else _type(part.properties[name], field)
        )
        told = FROM_WHOLE_RUN if repeated else _meaning(name, part.properties[name], many)
        yield f"| `{key}` | {_cell(type_)} | {_cell(_default(field, bool(repeated)))} | {_cell(told)} |"


def _meaning(name: str, schema: dict[str, Any], many: bool) -> str:
    told = schema.get("description") or (ENABLED if name == "enabled" else "")
    if name == "references":
        return f"{told}; keys as of `sources[]`"
    if many:
        return told or "see below"
    bound, _, what = name.partition("_")
    if not told and bound in BOUNDS:
        return f"{BOUNDS[bound]} {what.replace('_', ' ')} that a document may have; null: any"
    return told


def _default(field: "FieldInfo", repeated: bool) -> str:
    import yaml

    if repeated:
        return ""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    plain = list(value) if isinstance(value, tuple) else value
    if _takes_bytes(field) and value and value % 2**20 == 0:
        return f"`{value // 2**20:,} MiB`"
    shown = yaml.safe_dump(plain, default_flow_style=True, width=10**6, allow_unicode=True)
    return f"`{shown.removesuffix(chr(10)).removesuffix('...').strip()}`"


def _type(schema: dict[str, Any], field: "FieldInfo") -> str:
    if _takes_bytes(field):
        return "bytes, such as 32 MiB" + (" or null" if "anyOf" in schema else "")
    return _of_schema(schema)


def _takes_bytes(field: "FieldInfo") -> bool:
    from jobs.config import parse_bytes

    nested = [meta for one in get_args(field.annotation) for meta in getattr(one, "__metadata__", ())]
    return any(getattr(meta, "func", None) is parse_bytes for meta in (*field.metadata, *nested))


def _of_schema(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_of_schema(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value != "" else '`""`' for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "$ref" in schema:
        return "a section"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_of_schema(schema['items'])}" if "items" in schema else "list"
    if kind == "object":
        values = schema.get("additionalProperties") or next(
            iter(schema.get("patternProperties", {}).values()), None
        )
        return f"mapping to {_of_schema(values)}" if isinstance(values, dict) else "mapping"
    return kind + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = [f"{sign} {_number(schema[name])}" for name, sign in words.items() if name in schema]
    return f" {', '.join(told)}" if told else ""


def _number(value: float) -> str:
    return "2^63" if value == 2**63 else f"{value:,}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


# ---------------------------------------------------------------- the command


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.reference`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.reference",
        description="Print every setting with its type, default and meaning, as Markdown.",
    )
    parser.add_argument(
        "section", nargs="?", metavar="SECTION", help="such as near_duplicates (default: all of them)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write it to this file instead")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.reference`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _main(options))


def _main(options: argparse.Namespace) -> int:
    text = rendered(options.section)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

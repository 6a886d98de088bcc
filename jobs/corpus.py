"""The built-in corpus: the documentation of the packages this project installs, as Parquet.

Real text that needs no network, with FineWeb-Edu's columns; a package's release (`pandas-3.0.1`) plays the
part of the crawl. Documents are the docstrings of modules, classes and functions, found with `ast` and never
by importing, docstrings in Cython sources, and what lies beside them: READMEs, change logs, licences. A
docstring of `STANDALONE` words or more is a document; shorter ones stay in the document of the class or module
they are in.

The corpus has near-duplicates of its own: methods that pandas' Series and DataFrame share, packages that
carry copies of others, licences, and Dask's methods, which repeat those of pandas and NumPy. Dask writes these
when it is imported, so Dask alone is imported here.

The same installed releases give the same bytes on any machine: nothing depends on where packages are
installed, on the order of a directory, or on development tools, since only what shardmill depends on is read.
"""

import argparse
import ast
import contextlib
import gc
import importlib
import inspect
import itertools
import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from jobs.cli import guarded
from jobs.errors import UserError
from jobs.runtime import checkpoint, fingerprint, folders

if TYPE_CHECKING:
    from jobs.runtime.context import Run

ROOT = "shardmill"
ROW_GROUP = 1_000  # documents, as in FineWeb-Edu
FILE_DOCUMENTS = 8_000
STANDALONE = 60  # words
SHORTEST = 10  # words
# A source file with less of it in triple quotes holds code, not documentation; parsing is what takes time here.
DOCUMENTED = 0.15

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("id", pa.string()),
        ("dump", pa.string()),
        ("url", pa.string()),
        ("file_path", pa.string()),
        ("language", pa.string()),
        ("score", pa.float64()),
        ("int_score", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Document:
    """One row of the corpus, but for its score."""

    text: str
    id: str
    dump: str
    url: str
    file_path: str
    language: str = "en"


@dataclass(frozen=True)
class Page:
    """A piece of documentation by the name of what it describes, within its file."""

    name: str
    text: str


# ---------------------------------------------------------------- which packages


def dependencies(root: str = ROOT) -> dict[str, metadata.Distribution]:
    """Installed distributions that `root` depends on, directly or not, by canonical name and sorted.

    `root` itself and editable installs are left out: they change without their version changing.
    """
    found: dict[str, metadata.Distribution] = {}
    seen, waiting = set(), [(root, "")]
    while waiting:
        name, extra = waiting.pop()
        if (canonicalize_name(name), extra) in seen:
            continue
        seen.add((canonicalize_name(name), extra))
        with contextlib.suppress(metadata.PackageNotFoundError):
            distribution = metadata.distribution(name)
            found[canonicalize_name(name)] = distribution
            for required in map(Requirement, distribution.requires or ()):
                if required.marker is None or required.marker.evaluate({"extra": extra}):
                    waiting += [(required.name, wanted) for wanted in ("", *required.extras)]
    found.pop(canonicalize_name(root), None)
    return {name: found[name] for name in sorted(found) if not _is_editable(found[name])}


def _is_editable(distribution: metadata.Distribution) -> bool:
    direct = json.loads(distribution.read_text("direct_url.json") or "{}")
    return bool(direct.get("dir_info", {}).get("editable"))


# ---------------------------------------------------------------- from a package to documents


def documents(distribution: metadata.Distribution) -> Iterator[Document]:
    """All documents of a distribution, file by file in the order of their paths."""
    package, dump = canonicalize_name(distribution.name), f"{distribution.name}-{distribution.version}"
    files = {file.as_posix(): Path(str(file.locate())) for file in distribution.files or ()}
    for path in sorted(files):
        reader = _reader(path)
        if reader is None:
            continue
        twice: Counter[str] = Counter()
        for page in _readable(reader, path, files[path]):
            twice[page.name] += 1
            name = f"{page.name}~{twice[page.name]}" if twice[page.name] > 1 else page.name
            yield Document(
                text=page.text.encode(errors="replace").decode(),  # a literal may hold half a surrogate pair
                id=f"<urn:pydoc:{package}/{path}:{name}>",
                dump=dump,
                url=f"pydoc://{package}/{path}#{name}",
                file_path=path,
            )


Reader = Callable[[str, bytes], Iterable[Page]]
_LEFT_OUT = re.compile(r"(^|/)(\.|tests?/|test_|__pycache__/)")
_PROSE = re.compile(
    r"\.(md|rst)$|(^|/)[\w-]*(licen[cs]e|copying|notice|authors|readme|changes|changelog|history)[\w-]*(\.txt)?$",
    re.I,
)


def _reader(path: str) -> Reader | None:
    """How documents are found in a file, by its name."""
    if _LEFT_OUT.search(path):
        return None
    if path.endswith((".py", ".pyi")):
        return python_pages
    if path.endswith((".pyx", ".pxi")):
        return cython_pages
    if path.endswith(".dist-info/METADATA"):
        return description
    return prose if _PROSE.search(path) else None


def _readable(reader: Reader, path: str, file: Path) -> list[Page]:
    """Pages of a file; none where it cannot be read or parsed."""
    try:
        return [page for page in reader(path, file.read_bytes()) if len(page.text.split()) >= SHORTEST]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []


def prose(path: str, content: bytes) -> Iterator[Page]:
    """A text file as one page."""
    yield Page(path.rpartition("/")[2], content.decode().strip())


def description(path: str, content: bytes) -> Iterator[Page]:
    """The README that a distribution carries in its metadata."""
    _, _, body = content.decode().replace("\r\n", "\n").partition("\n\n")
    yield Page("description", body.strip())


# ---------------------------------------------------------------- docstrings

_QUOTED = re.compile(rb'("""|\'\'\')(.*?)\1', re.S)
# Dask's modules that may be imported: dask.array.stats would depend on whether SciPy happens to be there.
_DERIVING = re.compile(r"dask\.(?!array\.stats$)")
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_pages(path: str, content: bytes) -> Iterator[Page]:
    """The module's own page first, then a page for each long docstring in it, in the order of the source."""
    if sum(len(text) for _, text in _QUOTED.findall(content)) < DOCUMENTED * len(content):
        return
    module = path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
    tree = ast.parse(content)
    text, pages = _describe(tree, module, "")
    yield Page(module, text)
    yield from pages
    yield from _attached(tree)


def _describe(node: ast.Module | _Definition, module: str, name: str) -> tuple[str, list[Page]]:
    """What a definition's page says, and the pages of its members that stand alone."""
    parts, pages = [_docstring(node, module, name)], []
    for member in _members(node):
        member_name = f"{name}.{member.name}".lstrip(".")
        text, below = _describe(member, module, member_name)
        if len(text.split()) >= STANDALONE:
            pages.append(Page(member_name, text))
        else:
            parts.append(text)
        pages += below
    said = [part for part in parts if part]
    return "\n\n".join([_heading(node, module, name), *said]) if said else "", pages


def _members(node: ast.Module | _Definition) -> list[_Definition]:
    """Classes and functions defined directly in a module or class; what a function defines is its own affair."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return [statement for statement in _statements(node.body) if isinstance(statement, _Definition)]


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of a block, those under `if`, `try` and `with` among them."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _heading(node: ast.Module | _Definition, module: str, name: str) -> str:
    if isinstance(node, ast.Module):
        return module
    if isinstance(node, ast.ClassDef):
        return f"class {name}"
    arguments = node.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [argument.arg for argument in arguments.kwonlyargs]
    names += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    return f"{name}({', '.join(names)})"


def _docstring(node: ast.Module | _Definition, module: str, name: str) -> str:
    living = ""
    if not isinstance(node, ast.Module) and _DERIVING.match(module) and _is_derived(node):
        living = _living_docstring(module, name)
    return living or (ast.get_docstring(node) or "").strip()


def _is_derived(node: _Definition) -> bool:
    """Whether Dask gives it the docstring of its pandas or NumPy original."""
    calls = (decorator.func for decorator in node.decorator_list if isinstance(decorator, ast.Call))
    return any(isinstance(call, ast.Name) and call.id == "derived_from" for call in calls)


def _living_docstring(module: str, name: str) -> str:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):  # an optional package is absent
        return ""
    return inspect.cleandoc(found.__doc__ or "").strip()


def _attached(tree: ast.Module) -> Iterator[Page]:
    """Docstrings that a call hangs on compiled code, as in `add_newdoc("numpy", "array", ...)`."""
    for statement in _statements(tree.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            arguments = statement.value.args
            constants = [c.value for a in arguments for c in ast.walk(a) if isinstance(c, ast.Constant)]
            strings = [constant for constant in constants if isinstance(constant, str)]
            text = "".join(string for string in strings if not _is_name(string))
            if len(text.split()) >= STANDALONE:
                names = [ast.unparse(arguments[0]).strip("'"), *filter(_is_name, strings)]
                yield Page(".".join(dict.fromkeys(names)), inspect.cleandoc(text))


def _is_name(string: str) -> bool:
    return re.fullmatch(r"[\w.]+", string) is not None


_CYTHON = re.compile(
    r"^([ \t]*)(?:cdef class|class|def|cpdef [\w. ]*?)\s*\b(\w+)\s*[(:]"
    r"|(\"\"\"|\'\'\')(.*?)\3",
    re.M | re.S,
)


def cython_pages(path: str, content: bytes) -> Iterator[Page]:
    """Docstrings of a Cython source, each under the definition before it; short ones on the module's page."""
    module = path.rpartition(".")[0].replace("/", ".")
    owner = name = ""
    parts: list[str] = []
    pages: list[Page] = []
    for indent, defined, _, quoted in _CYTHON.findall(content.decode()):
        if defined:
            owner, name = (owner, f"{owner}.{defined}") if indent else (defined, defined)
            continue
        text = "\n\n".join(part for part in (name, inspect.cleandoc(quoted)) if part)
        if name and len(text.split()) >= STANDALONE:
            pages.append(Page(name, text))
        else:
            parts.append(text)
    yield Page(module, "\n\n".join([module, *parts]))
    yield from pages


# ---------------------------------------------------------------- score

_SENTENCE = re.compile(r"[a-z0-9)`'\"][.!?](?=\s|$)")
_EXAMPLE = re.compile(r"^\s*(?:>>>|In \[\d+\]:|```\w|\.\. code|\$ )", re.M)
_SECTION = re.compile(
    r"^\s*(?:Parameters|Args|Returns|Yields|Raises|Examples?|Notes?|See Also|References|Attributes|Warnings?)\b:?\s*$"
    r"|^\s*:(?:param|returns?|raises)\b|^#+ ",
    re.M,
)


def score(text: str) -> float:
    """How much a text explains, 0 to 5: a count in the spirit of FineWeb-Edu's additive scale, not its classifier.

    Up to one point each for length (300 words), whole sentences (10), worked examples (5), sections such as
    parameters and notes (4), and vocabulary (150 different words).
    """
    words = text.lower().split()
    shares = (
        len(words) / 300,
        len(_SENTENCE.findall(text)) / 10,
        len(_EXAMPLE.findall(text)) / 5,
        len(_SECTION.findall(text)) / 4,
        len(set(words)) / 150,
    )
    return round(sum(min(1.0, share) for share in shares), 4)


# ---------------------------------------------------------------- the files


def build(
    folder: Path, packages: Iterable[str] | None = None, told: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Write the corpus into a folder, each file whole or not at all.

    Parameters
    ----------
    folder
        Gets files `packages-00000.parquet` and so on.
    packages
        Canonical names of dependencies to restrict the corpus to; all by default.
    told
        Called after each package with its documents and bytes of text.

    Returns
    -------
    dict
        `documents`, `n_bytes` of text, `files`, and the `packages` with their releases.

    Raises
    ------
    UserError
        shardmill is not installed, so what it depends on is not known.
    """
    chosen = _chosen(packages)
    totals: Counter[str] = Counter(documents=0, n_bytes=0, files=0)
    rows = itertools.chain.from_iterable(_counted(one, totals, told) for one in chosen.values())
    with _parsing():
        while part := list(itertools.islice(rows, FILE_DOCUMENTS)):
            with checkpoint.written(folder / f"packages-{totals['files']:05d}.parquet") as file:
                pq.write_table(_table(part), file, ROW_GROUP, compression="snappy", write_page_checksum=True)
            totals["files"] += 1
    return {**totals, "packages": _releases(chosen)}


def _chosen(packages: Iterable[str] | None) -> dict[str, metadata.Distribution]:
    installed = dependencies()
    if not installed:
        raise UserError(
            f"{ROOT} is not installed, so the packages that make up the built-in corpus are not known; "
            "run `pip install -e .`"
        )
    return installed if packages is None else {name: installed[name] for name in sorted(packages)}


def _releases(chosen: dict[str, metadata.Distribution]) -> dict[str, str]:
    return {name: distribution.version for name, distribution in chosen.items()}


def _counted(
    distribution: metadata.Distribution, totals: Counter[str], told: Callable[[int, int], None] | None
) -> Iterator[Document]:
    before = totals["documents"], totals["n_bytes"]
    for document in documents(distribution):
        totals["documents"] += 1
        totals["n_bytes"] += len(document.text.encode())
        yield document
    if told:
        told(totals["documents"] - before[0], totals["n_bytes"] - before[1])


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    """Parse foreign sources quietly, and without the cycle collector, which slows it by a quarter."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()


def _table(part: list[Document]) -> pa.Table:
    scores = [score(document.text) for document in part]
    rows = [
        vars(document) | {"score": s, "int_score": math.floor(s + 0.5)}
        for document, s in zip(part, scores, strict=True)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


# ---------------------------------------------------------------- the job and the command


def job_fingerprint(run: "Run | None" = None) -> str:
    """Covers this module, the installed releases and Python's, whose parser decides what can be read."""
    releases = _releases(_chosen(None))
    return fingerprint.fingerprint("jobs.corpus", releases=releases, python=list(sys.version_info[:2]))


def run(run: "Run", job: checkpoint.Checkpoint) -> dict[str, Any]:
    """Write the corpus as a job of the main run."""
    job.begin()
    with run.console.job("corpus", len(dependencies()), "packages") as meter:
        return build(job.folder, told=meter.advance)


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m jobs.corpus`."""
    parser = argparse.ArgumentParser(
        prog="python -m jobs.corpus",
        description="Write the built-in corpus, the documentation of the packages shardmill depends on, as Parquet "
        "with FineWeb-Edu's columns. Does nothing where it is already there for the installed releases.",
    )
    parser.add_argument(
        "folder", metavar="DIR", help="where to write; new, empty, or written by this command"
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """`python -m jobs.corpus DIR`."""
    options = parser().parse_args(arguments)
    return guarded(lambda: write(folders.reached(options.folder)))


def write(folder: Path) -> int:
    """Write the corpus into a folder of its own, unless it is there; print what it holds."""
    job = checkpoint.Checkpoint(folder, job_fingerprint())
    manifest = job.manifest()
    if manifest is None:
        _refuse_foreign(folder)
        job.begin()
        manifest = job.commit(build(folder))
    figures = manifest["figures"]
    print(
        f"{folder}: {figures['documents']:,} documents, {figures['n_bytes'] / 1e6:,.1f} MB of text "
        f"from {len(figures['packages'])} packages in {figures['files']} files"
    )
    return 0


def _refuse_foreign(folder: Path) -> None:
    """What is not ours must not be removed, nor be read as part of the corpus."""
    if folder.is_dir():
        ours = re.compile(r"(\.aside-\w+-)?(packages-\d{5}\.parquet|manifest\.json)")
        foreign = sorted(path.name for path in folder.iterdir() if not ours.fullmatch(path.name))
        if foreign:
            raise UserError(
                f"{folder} holds {foreign[0]!r}, which this command did not write; give a new folder"
            )


if __name__ == "__main__":
    sys.exit(main())

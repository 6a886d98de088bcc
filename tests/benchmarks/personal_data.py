"""Personal data: how fast it is found, and how well, beside Presidio's pattern recognisers and datatrove's formatter.

Recall and precision of each kind on Presidio's synthetic texts and on `tests.personal_texts.generated`, which has
spellings and hard negatives of our choice: it shows what each tool leaves out, not how often that occurs. All addresses
there are public, and those that can tell look for public ones alone. A labelled place counts as found where one of the
same kind covers it; a find is wrong where it touches none. All have the phone numbers of nine regions. Bars are on ours
alone.

Rates are those of the step, texts in and texts with placeholders out: with FineWeb's kinds against datatrove's
formatter, and with every kind and the default region against Presidio, which only finds; both on 1 MB of the first
corpus. ``python -m tests.benchmarks.personal_data`` prints the table of recall and precision alone.
"""

import json
import math
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from jobs.settings.personal_data import KINDS, PersonalData
from jobs.steps import personal_data
from jobs.text import text_buffers
from tests import personal_texts
from tests.benchmarks.corpora import ROOT, SHARED, corpora
from tests.benchmarks.measure import Result, aligned, seconds
from tests.benchmarks.referees import PYTHON, referees
from tests.personal_texts import REGIONS, Label, Labelled, Score

SAMPLE_BYTES, TURNS = 1_000_000, 3
REPEATS = 20  # of ours, which takes milliseconds
TIMES_DATATROVE, TIMES_PRESIDIO = 10, 20
LEAST_PRECISION = 0.99
LEAST_RECALL = {  # phone numbers of the first are of many countries, or of none
    "synthetic": {"phone": 0.45, "card": 0.9},
    "generated": {"phone": 0.97},
}
FINEWEB = PersonalData(enabled=True, ipv6="off")
EVERY_KIND = PersonalData.model_validate({"enabled": True, **dict.fromkeys(KINDS, "replace")})


def measure() -> list[Result]:
    by_set = accuracy()
    print(f"\n{shown(by_set)}\n", flush=True)
    return [*bars(by_set), *rates()]


# ---------------------------------------------------------------- recall and precision


def accuracy() -> dict[str, dict[str, dict[str, Score]]]:
    """By set, tool and kind."""
    sets = {
        "synthetic": personal_texts.synthetic(SHARED / "pii" / "synth_dataset_v2.json"),
        "generated": personal_texts.generated(),
    }
    return {
        name: {
            tool: personal_texts.scores(texts, found)
            for tool, found in found_by_tools(texts, public_only=name == "generated").items()
        }
        for name, texts in sets.items()
    }


def found_by_tools(texts: Sequence[Labelled], public_only: bool) -> dict[str, list[list[Label]]]:
    """By tool, in characters."""
    settings = EVERY_KIND.model_copy(update={"public_only": public_only, "regions": REGIONS})
    return {"ours": personal_texts.found(texts, settings), **of_others(texts, public_only)}


def of_others(texts: Sequence[Labelled], public_only: bool) -> dict[str, list[list[Label]]]:
    """By tool."""
    if not PYTHON.exists():
        raise SystemExit("the other tools are not installed; run `make referees`")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts")
        path.write_text(json.dumps([text.text for text in texts]))
        module, which = "tests.benchmarks.personal_data_of_others", "public" if public_only else "all"
        command = [PYTHON, "-m", module, path, folder, ",".join(REGIONS), which]
        subprocess.run(command, cwd=ROOT, check=True)
        return {file.stem: json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))}


def shown(by_set: dict[str, dict[str, dict[str, Score]]]) -> str:
    """The table; n is the number of labelled places."""
    tools = list(next(iter(by_set.values())))
    lines = [["set", "kind", "n", *(f"{tool}, {what}" for tool in tools for what in ("recall", "precision"))]]
    for name, of_tools in by_set.items():
        for kind in (kind for kind in KINDS if kind in of_tools["ours"]):
            cells = []
            for tool in tools:
                score = of_tools[tool].get(kind)
                finds_kind = any(
                    kind in of_set[tool] and of_set[tool][kind].found for of_set in by_set.values()
                )
                cells += _cells(score) if score and finds_kind else ["", ""]
            lines.append([name, kind, f"{of_tools['ours'][kind].labelled:,}", *cells])
    return aligned(lines)


def _cells(score: Score) -> list[str]:
    return ["" if math.isnan(value) else f"{value:.3f}" for value in (score.recall, score.precision)]


def bars(by_set: dict[str, dict[str, dict[str, Score]]]) -> list[Result]:
    """Recall and precision of ours, and what they have to be."""
    results = []
    for name, of_tools in by_set.items():
        for kind, score in of_tools["ours"].items():
            least = LEAST_RECALL[name].get(kind, 1.0)
            what = f"{kind} of {name} texts"
            results.append(Result(f"recall, {what}", "", [score.recall], at_least=least))
            results.append(Result(f"precision, {what}", "", [score.precision], at_least=LEAST_PRECISION))
    return results


# ---------------------------------------------------------------- rates


def rates() -> list[Result]:
    """Ours and theirs, in turns."""
    corpus = corpora()[0]
    sample = corpus.sample(SAMPLE_BYTES)
    total = len(text_buffers(sample)[0]) / 1e6
    found = []
    with referees(sample) as tools:
        for settings, what, tool, times in (
            (FINEWEB, "FineWeb's kinds", "datatrove's formatter", TIMES_DATATROVE),
            (EVERY_KIND, "every kind", "Presidio's recognisers", TIMES_PRESIDIO),
        ):
            run = rate(sample, settings)
            run()  # compiles
            turns = [(run(), total / tools.seconds(tool)) for _ in range(TURNS)]
            ours, theirs = zip(*turns, strict=True)
            found.append(Result(f"personal data, {what}", "MB/s", ours, tool, theirs, times=times))
    return found


def rate(text: pa.LargeStringArray, settings: PersonalData) -> Callable[[], float]:
    """What measures MB/s over some documents."""
    total = REPEATS * len(text_buffers(text)[0]) / 1e6
    return lambda: total / seconds(lambda: [personal_data.cleaned(text, settings) for _ in range(REPEATS)])


if __name__ == "__main__":
    print(shown(accuracy()))

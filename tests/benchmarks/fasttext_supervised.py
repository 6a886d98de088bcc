"""fastText's supervised mode on labelled documents, fold by fold; runs in the environment of `referees.txt`.

Standard input is a JSON object of `text`, `good`, `fold` and `options`; standard output the probability of the good
label for each document by a model of the other folds.
"""

import json
import sys
import tempfile
from pathlib import Path

import fasttext


def main() -> None:
    asked = json.load(sys.stdin)
    lines = [" ".join(text.split()) for text in asked["text"]]
    scores = [0.0] * len(lines)
    for one in sorted(set(asked["fold"])):
        model = trained(
            [
                f"__label__{int(good)} {line}\n"
                for line, good, fold in zip(lines, asked["good"], asked["fold"], strict=True)
                if fold != one
            ],
            asked["options"],
        )
        for i, line in enumerate(lines):
            if asked["fold"][i] == one:
                # Its Python wrapper fails under NumPy 2.
                found = {label: p for p, label in model.f.predict(line + "\n", 2, 0.0, "strict")}
                scores[i] = found.get("__label__1", 0.0)
    json.dump(scores, sys.stdout)


def trained(lines: list[str], options: dict[str, float]) -> "fasttext.FastText._FastText":
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.writelines(lines)
    try:
        return fasttext.train_supervised(file.name, thread=1, verbose=0, **options)
    finally:
        Path(file.name).unlink()


if __name__ == "__main__":
    main()

"""Trains fastText models and has fastText predict with them; runs in the environment of `make referees`.

``python -m tests.jobs.fasttext_referee FOLDER``: `train.txt` and `lines.json` are there, and `models.json`, an object
of options of `train_supervised` and of `quantize` (null: not quantized) for each model's name. It writes `NAME.bin` and
`NAME.json`, an object of probabilities by label for each line.
"""

import json
import sys
from pathlib import Path

import fasttext


def main() -> None:
    folder = Path(sys.argv[1])
    lines = json.loads((folder / "lines.json").read_text())
    for name, (options, quantization) in json.loads((folder / "models.json").read_text()).items():
        source = str(folder / "train.txt")
        model = fasttext.train_supervised(source, thread=1, verbose=0, **options)
        if quantization is not None:
            model.quantize(input=source, thread=1, verbose=0, **quantization)
        model.save_model(str(folder / f"{name}.bin"))
        model = fasttext.load_model(str(folder / f"{name}.bin"))
        # Its Python wrapper fails under NumPy 2.
        found = [dict(map(reversed, model.f.predict(line + "\n", -1, 0.0, "strict"))) for line in lines]
        (folder / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()

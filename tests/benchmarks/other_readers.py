"""datatrove's reader of one file: prints the seconds that one pass took, without its start; see `reading`.

``python -m tests.benchmarks.other_readers warc|jsonl FILE``, in the environment of `referees.txt`.
"""

import sys
from pathlib import Path

from datatrove.pipeline.readers import JsonlReader, WarcReader
from loguru import logger

from tests.benchmarks.measure import clock, keep_to_one_core

READERS = {"warc": WarcReader, "jsonl": JsonlReader}


def main(kind: str, path: Path) -> None:
    keep_to_one_core()
    logger.remove()
    reader = READERS[kind](str(path.parent), glob_pattern=path.name)
    next(iter(reader.run()))  # imports
    begun = clock()
    for _ in reader.run():
        pass
    print(clock() - begun)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

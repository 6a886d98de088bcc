"""Run the benchmarks and print one table.

``python -m tests.benchmarks [NAME ...]``, all by default; `make bench` installs the other tools before. One core and
one thread for everything. Each benchmark is a process of its own; ours and the other tool take turns on the same data
in the same run. Times are those of `measure.clock`, which leaves out what other programs took of the core. The exit
status says whether every bar was cleared.
"""

import sys

from tests.benchmarks.measure import Result, in_fresh_process, keep_to_one_core, table
from tests.benchmarks.suite import BENCHMARKS


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
        return 2
    keep_to_one_core()
    found: list[Result] = []
    for name in names or BENCHMARKS:
        print(f"{name} ...", flush=True)
        found += in_fresh_process(BENCHMARKS[name])
    print(f"\n{table(found)}")
    return 0 if all(result.met for result in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

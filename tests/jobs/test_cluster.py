"""`dask_config.yaml` configures Dask, here and on the workers; the kernels are compiled there before the first task."""

import re
from pathlib import Path

import dask
import pytest
import yaml
from distributed import Client

from jobs.errors import UserError
from jobs.runtime import cluster


def test_the_file_is_found_and_its_keys_are_dasks_own() -> None:
    written = yaml.safe_load(cluster.configuration_file().read_text())
    import distributed

    known = [
        yaml.safe_load((Path(dask.__file__).parent / "dask.yaml").read_text()),
        yaml.safe_load((Path(distributed.__file__).parent / "distributed.yaml").read_text()),
    ]
    free = {
        "distributed.nanny.pre-spawn-environ",
        "logging",
    }  # any variable, and any logger, can be set there

    def check(section: dict, places: list[dict], path: str) -> None:  # type: ignore[type-arg]
        for key, value in section.items():
            if key in free:
                continue
            inner = [place[key] for place in places if isinstance(place, dict) and key in place]
            assert inner, f"{path}{key} is not a key that Dask knows"
            if isinstance(value, dict) and f"{path}{key}" not in free:
                check(value, inner, f"{path}{key}.")

    check(written, known, "")


def test_it_reaches_the_workers(cluster: str) -> None:
    with Client(cluster) as client:

        def seen() -> tuple[object, ...]:
            import os

            import dask

            variables = (
                "NUMBA_NUM_THREADS",
                "RAYON_NUM_THREADS",
                "OMP_NUM_THREADS",
                "TOKENIZERS_PARALLELISM",
            )
            memory = dask.config.get("distributed.worker.memory.pause")
            return (
                memory,
                dask.config.get("distributed.scheduler.allowed-failures"),
                *map(os.environ.get, variables),
            )

        assert set(client.run(seen).values()) == {(0.85, 3, "1", "1", "1", "false")}


def test_kernels_are_warm_on_each_worker(cluster: str) -> None:
    with Client(cluster) as client:

        def warm() -> bool:
            from kernels import minhash

            return bool(minhash._signatures.signatures)

        assert set(client.run(warm).values()) == {True}


def test_the_dashboard_listens_on_loopback_and_moves_to_a_free_port() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cluster._free_port(port) == 0
    assert cluster._free_port(port) == port
    with cluster.connected(workers=1) as client:
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        assert client.scheduler.address.startswith("tcp://127.0.0.1:")


def test_no_scheduler_there_is_one_sentence() -> None:
    with (
        pytest.raises(UserError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"),
        cluster.connected("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory_limit": "3foo"}, "--memory-limit is '3foo'; it should be auto or a size such as 2GiB"),
        ({"memory_limit": "0"}, "--memory-limit is '0'"),
        ({"scheduler": "foo"}, "--scheduler is 'foo'; it should be an address such as tcp://host:8786"),
    ],
)
def test_options_of_a_cluster_are_refused_in_words(options: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)), cluster.connected(**options):
        pass

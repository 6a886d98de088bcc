"""A Dask cluster, local or given, that is configured by `dask_config.yaml` and has its kernels compiled."""

import contextlib
import logging
import re
import signal
import socket
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING

import dask
import dask.utils

from jobs.errors import UserError
from kernels import accelerate

if TYPE_CHECKING:
    from distributed import Client

DASHBOARD_PORT = 8787
COMPILING = 30.0  # seconds after the last compiled kernel in which another one probably is


def configuration_file() -> Path:
    """`dask_config.yaml`: beside this package when installed, in the project's root in a checkout."""
    package = Path(__file__).parents[1]
    installed = package / "dask_config.yaml"
    return installed if installed.exists() else package.parent / "dask_config.yaml"


def configure() -> None:
    """Load `dask_config.yaml` over Dask's own search path; must precede the import of `distributed`."""
    dask.config.refresh(paths=[*dask.config.paths, str(configuration_file())])


@contextlib.contextmanager
def connected(
    scheduler: str | None = None,
    workers: int | None = None,
    memory_limit: str = "auto",
    there: Callable[["Client"], None] = lambda client: None,
) -> Iterator["Client"]:
    """A client of the scheduler at an address, or of a LocalCluster of single-threaded worker processes.

    `there` is called when the cluster is there, before its workers compile or load the kernels.

    Raises
    ------
    UserError
        No scheduler answers at the address, or its workers cannot import this project.
    """
    configure()
    _check(scheduler, memory_limit)
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        if scheduler is None:
            try:
                with _deaf_to_interrupts(), warnings.catch_warnings():
                    # Where another process was faster, Dask takes the next port, which the dashboard's line names.
                    warnings.filterwarnings("ignore", message=r"Port \d+ is already in use")
                    cluster = LocalCluster(
                        n_workers=workers,
                        threads_per_worker=1,
                        memory_limit=memory_limit,
                        host="127.0.0.1",
                        # A task's error reaches the terminal once, as a sentence; shuffles warn of their start.
                        silence_logs=logging.CRITICAL,
                        dashboard_address=f"127.0.0.1:{_free_port(DASHBOARD_PORT)}",
                    )
                stack.enter_context(cluster)
            except ValueError as error:
                raise UserError(
                    f"no cluster of {workers} workers with --memory-limit {memory_limit}: {error}"
                ) from None
            client = stack.enter_context(Client(cluster))
        else:
            try:
                client = stack.enter_context(Client(scheduler, timeout="5s"))
            except (OSError, ValueError) as error:
                raise UserError(
                    f"no Dask scheduler answers at {scheduler} ({type(error).__name__})"
                ) from None
        there(client)
        _warm(client, scheduler)
        yield client


def compiling() -> str:
    """Says so while kernels are compiled on this machine, and how many were so far."""
    count, age = accelerate.compiled(), accelerate.seconds_since_compiled()
    return f"compiling kernels (once), {count} so far" if age < COMPILING else ""


def _check(scheduler: str | None, memory_limit: str) -> None:
    """Refuse, in the words of the command line, an address or a size that is none."""
    if scheduler is not None and not re.fullmatch(r"\w+://\S+|[^/\s]+:\d+", scheduler):
        raise UserError(f"--scheduler is {scheduler!r}; it should be an address such as tcp://host:8786")
    try:
        size = 1.0 if memory_limit == "auto" else dask.utils.parse_bytes(memory_limit)
    except ValueError:
        size = 0.0
    if size <= 0:
        raise UserError(f"--memory-limit is {memory_limit!r}; it should be auto or a size such as 2GiB")


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Block SIGINT in the threads and processes that start here, and in theirs.

    Ctrl-C goes to every process of a terminal; this one stops the workers, those that are started again too.
    """
    resource_tracker.ensure_running()  # where the first child starts it, it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _free_port(wanted: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            return 0
    return wanted


def _warm(client: "Client", scheduler: str | None) -> None:
    """Compile or load the kernels on each worker, now and on any that joins later."""
    try:
        client.register_plugin(_warm_kernels_plugin())
    except Exception as error:
        if scheduler is None:
            raise
        raise UserError(
            f"the workers of {scheduler} cannot run this project: install the same version there ({error})"
        ) from None


def _warm_kernels_plugin() -> object:
    from jobs.runtime.plugin import WarmKernels

    return WarmKernels()

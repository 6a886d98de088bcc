"""The commit of a job: what is in its folder afterwards."""

from pathlib import Path

from jobs.runtime.checkpoint import Checkpoint, commit_task, written


def test_what_a_killed_worker_left_is_removed_at_the_commit(tmp_path: Path) -> None:
    job = Checkpoint(tmp_path / "job", "fingerprint")
    job.begin()
    with written(job.folder / "a.bin") as file:
        file.write(b"whole")
    commit_task(job.folder, "fingerprint", "a", [job.folder / "a.bin"], {})
    for left in (".aside-0-b.bin", "tasks/.aside-0-b.json"):
        (job.folder / left).write_bytes(b"half")
    job.commit({})
    names = {path.relative_to(job.folder).as_posix() for path in job.folder.rglob("*") if path.is_file()}
    assert names == {"a.bin", "tasks/a.json", "manifest.json"}

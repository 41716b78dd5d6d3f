"""Where a process of `bam-lab bench` begins; it imports torch, and its parent need not."""

from multiprocessing.connection import Connection

from bam_lab.run.bench_systems import Contender


def start(pipe: Connection, row: Contender | None, precision: str, threads: int) -> None:
    """Serve one row."""
    from bam_lab.run.bench_worker import serve

    serve(pipe, row, precision, threads)

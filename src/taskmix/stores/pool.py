"""Images through the decoder, on all cores, with little in memory at any time."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from taskmix.stores.decode import Content, Decoded, Shape, begin_worker, decode_all

CHUNK_IMAGES = 64
CHUNK_BYTES = 8 << 20
"""A chunk ends with either. Two chunks a worker are on their way, so 4 workers hold 64 MiB."""
WORTH_A_POOL = 500
"""Images. Starting processes takes about as long as decoding this many."""

Key = TypeVar("Key")


def decoded(
    images: Iterable[tuple[Key, Content]], total: int, shape: Shape, workers: int
) -> Generator[tuple[Key, Decoded], None, None]:
    """Every image with its key, decoded, in the order in which they came."""
    if workers == 1 or total < WORTH_A_POOL:
        for keys, contents in _chunks(images):
            yield from zip(keys, decode_all(contents, shape), strict=True)
        return
    # Spawned, as a process with threads (JAX's, for one) must not be forked.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=begin_worker
    )
    waiting: deque[tuple[list[Key], Future[list[Decoded]]]] = deque()
    try:
        for keys, contents in _chunks(images):
            waiting.append((keys, pool.submit(decode_all, contents, shape)))
            if len(waiting) > 2 * workers:
                keys, done = waiting.popleft()
                yield from zip(keys, done.result(), strict=True)
        while waiting:
            keys, done = waiting.popleft()
            yield from zip(keys, done.result(), strict=True)
    except BrokenProcessPool:
        raise ValueError(
            "A process that decodes images died: for lack of memory, or as the script that calls "
            "prepare has no `if __name__ == '__main__'`; try one worker."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(images: Iterable[tuple[Key, Content]]) -> Iterator[tuple[list[Key], list[Content]]]:
    keys: list[Key] = []
    contents: list[Content] = []
    size = 0
    for key, content in images:
        keys.append(key)
        contents.append(content)
        size += len(content) if isinstance(content, bytes) else content.nbytes
        if len(keys) == CHUNK_IMAGES or size >= CHUNK_BYTES:
            yield keys, contents
            keys, contents, size = [], [], 0
    if keys:
        yield keys, contents

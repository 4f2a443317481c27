"""From settings to run folders."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.compiled import keep_programs
from taskmix.evaluation import Measure
from taskmix.experiments.crew import Crew, as_message, from_message
from taskmix.experiments.examples import examples_of
from taskmix.experiments.experiment import Experiment, Tested, Warming
from taskmix.experiments.group import Group, Keeping
from taskmix.experiments.summary import Summary, can_be_compared, summarise
from taskmix.learner import Growing, Learner, State
from taskmix.likelihood import Reported, reported
from taskmix.numerics import known_faults
from taskmix.streams import Stream
from taskmix.training import Chunk, Pause, RunFolder, Settings, Stopped, TrainingProgress, train
from taskmix.training.lock import owning
from taskmix.training.moments import check_seeds
from taskmix.training.placement import Placement
from taskmix.training.run_folder import DIVERGED, JOURNAL, as_json, claim
from taskmix.training.skips import Diverged
from taskmix.training.watch import Request, StopRequest, Watch, abandon, attending, watching


def run_method(
    experiment: Experiment,
    labels: Mapping[str, Any],
    learner: Learner,
    seeds: Sequence[int],
    folder: Callable[[int], Path],
    settings: Settings,
    console: Console,
    keeping: Keeping | None = None,
    request: Request | None = None,
    stream: Stream | None = None,
    further: Sequence[Measure] = (),
    devices: int = 1,
) -> list[Summary]:
    """Train a learner once per seed, side by side, each seed into its own ``folder``.

    ``labels`` name the run (experiment, method) and stand first in what is written. A run
    that was interrupted goes on; one that has ended is left as it is. On a ``request``
    to stop it writes a checkpoint within seconds and raises ``Stopped``. The ``stream`` is that
    of the experiment, if it has been built: images are read and checked once. ``further`` measures
    go into the summaries. So many ``devices`` share the work; of several processes the first one
    writes the folders, and all return the same.
    """
    keeping = keeping or Keeping()
    if keeping.cache:
        keep_programs()
    stream = stream or experiment.stream()
    check_seeds(seeds)
    crew = Crew(Placement(devices, len(seeds)), request or StopRequest())
    if not crew.placement.first:
        return _follow(crew, learner, stream, seeds, settings, keeping)
    measure = reported(learner.likelihood)
    config = {
        "measure": measure,
        "families": stream.families,
        "phases": stream.phases,
        "settings": experiment,
        **experiment.facts(),
        "stream": stream,
        "learner": learner,
        "told": learner.told,
        "training": settings,
        "seeds_side_by_side": seeds,
    }
    with ExitStack() as stack:
        with crew.leading():
            folders = []
            for seed in seeds:
                claim(folder(seed))
                stack.enter_context(owning(folder(seed)))
                told = as_json({**labels, "seed": seed, **config})
                software = {"devices": crew.placement.devices}
                folders.append(RunFolder.open(folder(seed), told, keeping.accept, software))
            ended = [one.summary() for one in folders]
            good = [one for one in ended if one is not None and can_be_compared(one)]
        crew.tell(json.dumps(good if len(good) == len(folders) else None).encode())
        if len(good) == len(folders):
            return good
        group = Group(learner, stream, folders, keeping, isinstance(experiment, Tested))
        stack.callback(group.close)
        progress = TrainingProgress(console, labels["method"], seeds, stream.phases[-1].stop)
        warm = warm_start(experiment, stream, learner, seeds, progress.tell)
        try:
            _train(group, settings, seeds, progress, crew, warm)
        except Diverged as error:
            with contextlib.suppress(OSError):
                for one in folders:
                    one.note(DIVERGED, why=str(error))
            raise
        with crew.leading():
            summaries = _finished(experiment, labels, group, seeds, measure, further)
            group.close(summaries)
        crew.tell(json.dumps(summaries).encode())
        return summaries


def _finished(
    experiment: Experiment,
    labels: Mapping[str, Any],
    group: Group,
    seeds: Sequence[int],
    measure: Reported,
    further: Sequence[Measure],
) -> list[Summary]:
    """What came out, written as the end of the runs."""
    stream, learner, folders = group.stream, group.learner, group.folders
    grows = isinstance(learner, Growing)
    summaries = [
        {**labels, "seed": seed, **summarise(record, stream.phases, measure, further, grows)}
        for seed, record in zip(seeds, group.records, strict=True)
    ]
    if isinstance(experiment, Tested) and group.best:
        for position, (seed, summary) in enumerate(zip(seeds, summaries, strict=True)):
            state, iteration = group.best.state[position], group.best.iteration[position]
            test = experiment.final_test(stream, learner, state, seed)
            summary["test"] = {"iteration": iteration, **test}
    for one, summary, record in zip(folders, summaries, group.records, strict=True):
        one.finish(summary, examples_of(record, stream, summary["seed"]))
    return summaries


@attending()
def _follow(
    crew: Crew,
    learner: Learner,
    stream: Stream,
    seeds: Sequence[int],
    settings: Settings,
    keeping: Keeping,
) -> list[Summary]:
    """Compute what the first process computes; it keeps what comes out."""
    ended: list[Summary] | None = json.loads(crew.hear())
    if ended is not None:
        return ended
    found = from_message(crew.hear())
    group = Group(learner, stream, [], keeping, stops_early=False)
    start = None if found is None else group.restored(found)
    follow = crew.followed(stream.phases[-1].stop)
    train(
        learner,
        stream,
        seeds,
        settings,
        follow,
        start,
        follow,
        placement=crew.placement,
        steer=crew.steer,
    )
    summaries: list[Summary] = json.loads(crew.hear())
    return summaries


def _train(
    group: Group,
    settings: Settings,
    seeds: Sequence[int],
    progress: TrainingProgress,
    crew: Crew,
    warm: Callable[[State], State] | None,
) -> None:
    """Train the group from where it stopped to its end, or until it is asked to stop again."""
    busy = threading.Lock()
    reached: list[Chunk | Pause] = []

    def leave(signum: int) -> None:
        """From the thread that watches, while the run compiles or computes for long."""
        if not busy.acquire(blocking=False):
            return
        iteration = reached[-1].iteration if reached else 0
        if iteration == progress.iterations:
            busy.release()
            return
        with contextlib.suppress(OSError):
            if iteration:
                group.save(reached[-1])
            for folder in group.folders:
                folder.note("stopped", signal=signum, iteration=iteration)
        abandon(Stopped(signum, iteration))

    watch = Watch(crew.request, progress.tell, leave)
    if watch.asked:
        raise Stopped(watch.asked, 0)

    def observe(chunk: Chunk) -> None:
        with busy:
            try:
                group.add(chunk)
            except OSError:
                # The lines may be on another disk, or just too many: a checkpoint has them, too.
                if chunk.iteration:
                    group.save(chunk)
                raise
            kept(chunk)

    def keep(pause: Pause) -> None:
        with busy:
            kept(pause)

    def kept(moment: Chunk | Pause) -> None:
        reached[:] = [moment]
        last = moment.iteration == progress.iterations
        # Once, so that a request which comes in between does not stop what was not saved.
        asked = watch.asked
        if last or group.due(moment.iteration) or (asked and moment.iteration):
            group.save(moment)
        progress.update(moment)
        watch.progressed()
        if asked and not last:
            for folder in group.folders:
                folder.note("stopped", signal=asked, iteration=moment.iteration)
            raise Stopped(asked, moment.iteration)

    with progress, watching(watch):
        with crew.leading():
            for fault in known_faults():
                progress.tell(f"WARNING: {fault}")
            start, found, problems = group.resume()
            for problem in problems:
                progress.tell(f"checkpoint not used: {problem}")
            if start:
                progress.resume(start.iteration, start.seconds)
            for folder in group.folders:
                if start:
                    folder.note("resumed", iteration=start.iteration, problems=problems)
                elif (folder.path / JOURNAL).exists():
                    folder.note("begun anew")
        crew.tell(as_message(found))
        train(
            group.learner,
            group.stream,
            seeds,
            settings,
            crew.led(observe),
            start,
            crew.led(keep),
            progress.tell,
            crew.placement,
            crew.steer,
            warm,
        )


def warm_start(
    experiment: Experiment,
    stream: Stream,
    learner: Learner,
    seeds: Sequence[int],
    tell: Callable[[str], None],
) -> Callable[[State], State] | None:
    """What an experiment does with the first states of its learners, if it does anything."""
    if not isinstance(experiment, Warming):
        return None
    warming = experiment
    return lambda state: warming.warmed(stream, learner, state, seeds, tell)

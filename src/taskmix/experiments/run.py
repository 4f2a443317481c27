"""From settings to run folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from taskmix.experiments.experiment import Experiment
from taskmix.experiments.few_shot import EarlyStopping, final_test
from taskmix.experiments.images import FewShot
from taskmix.experiments.summary import Summary, summarise
from taskmix.learner import Learner
from taskmix.training import Chunk, Record, RunFolder, Settings, TrainingProgress, train
from taskmix.training.loop import check_seeds
from taskmix.training.run_folder import as_json

FINAL_EPISODES = 600
"""Tasks of the final test, by the convention of few-shot tables."""


def run_method(
    experiment: Experiment,
    labels: Mapping[str, Any],
    learner: Learner,
    seeds: Sequence[int],
    folder: Callable[[int], Path],
    settings: Settings,
    console: Console,
) -> list[Summary]:
    """Train a learner once per seed, side by side, each seed into its own ``folder``.

    ``labels`` name the run (experiment, method) and stand first in what is written.
    """
    stream = experiment.stream()
    check_seeds(seeds)
    measure = learner.likelihood.measure  # type: ignore[attr-defined]
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
    outputs = [
        RunFolder.create(folder(seed), as_json({**labels, "seed": seed, **config}))
        for seed in seeds
    ]
    records = [Record(stream.families, position) for position in range(len(seeds))]
    progress = TrainingProgress(console, labels["method"], seeds, stream.phases[-1].stop)
    best = EarlyStopping(len(seeds))

    def observe(chunk: Chunk) -> None:
        for output, record in zip(outputs, records, strict=True):
            line, events = record.add(chunk)
            output.add_metrics(line)
            for event in events:
                output.add_event(event)
        if isinstance(experiment, FewShot):
            best.see(chunk)
        progress.update(chunk)

    with progress:
        train(learner, stream, seeds, settings, observe)
    summaries = [
        {**labels, "seed": seed, **summarise(record, stream.phases, measure)}
        for seed, record in zip(seeds, records, strict=True)
    ]
    if isinstance(experiment, FewShot):
        for position, (seed, summary) in enumerate(zip(seeds, summaries, strict=True)):
            test = final_test(experiment, learner, best.state[position], seed, FINAL_EPISODES)
            summary["test"] = {"iteration": best.iteration[position], **test}
    for output, summary in zip(outputs, summaries, strict=True):
        output.finish(summary)
    return summaries

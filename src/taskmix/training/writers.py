"""Programs that follow runs: TensorBoard, Weights & Biases, MLflow, or one of somebody's own."""

from __future__ import annotations

import importlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from taskmix.files import inside
from taskmix.registry import Registry


@runtime_checkable
class Writer(Protocol):
    """Hears of one run what goes into its folder, as it goes there.

    Examples
    --------
    >>> class Printed:
    ...     def __init__(self, folder, config): self.name = config["method"]
    ...     def metrics(self, iteration, values): print(self.name, iteration, values["clusters"])
    ...     def event(self, iteration, text): print(iteration, text)
    ...     def close(self, summary): print("ended")
    >>> Printed(None, {"method": "maml"}).metrics(5, {"clusters": 1.0})
    maml 5 1.0
    """

    def metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        """An evaluation: finite numbers by name, such as ``error/sinusoid``."""

    def event(self, iteration: int, text: str) -> None:
        """A birth, an alarm, a removal, in words."""

    def close(self, summary: Mapping[str, float]) -> None:
        """The run has ended, or has stopped for now (then there is nothing in the summary)."""


Begin = Callable[[Path, Mapping[str, Any]], Writer]
"""From the folder of a run and its settings, as in ``config.json``, to what follows it."""

WRITERS: Registry[Begin] = Registry("writer", "taskmix.writers")


class TensorBoard:
    """Event files in ``tensorboard`` within the run folder; ``tensorboard --logdir runs``."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._writer = needed("tensorboardX", "tensorboard").SummaryWriter(
            str(inside(folder, "tensorboard"))
        )

    def metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, iteration)

    def event(self, iteration: int, text: str) -> None:
        self._writer.add_text("events", text, iteration)

    def close(self, summary: Mapping[str, float]) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project ``taskmix``, offline unless ``WANDB_MODE`` says otherwise."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._run = needed("wandb", "wandb").init(
            project=os.environ.get("WANDB_PROJECT", "taskmix"),
            name=_called(config),
            config=dict(config),
            # It writes into a folder of this name.
            dir=str(inside(folder, "wandb").parent),
            # Nothing leaves the machine, and nobody is asked for a key, unless the user wants it.
            mode=os.environ.get("WANDB_MODE", "offline"),
            reinit="create_new",
        )

    def metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=iteration)

    def event(self, iteration: int, text: str) -> None:
        self._run.log({"event": text}, step=iteration)

    def close(self, summary: Mapping[str, float]) -> None:
        self._run.summary.update(dict(summary))
        self._run.finish()


class MLflow:
    """A run of the experiment's name, where ``MLFLOW_TRACKING_URI`` says."""

    def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._client = needed("mlflow", "mlflow").MlflowClient()
        name = str(config.get("experiment", "taskmix"))
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found else self._client.create_experiment(name)
        run = self._client.create_run(experiment, run_name=_called(config))
        self._id = run.info.run_id
        for key in ("method", "seed", "told"):
            self._client.log_param(self._id, key, config.get(key))

    def metrics(self, iteration: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=iteration)

    def event(self, iteration: int, text: str) -> None:
        self._client.set_tag(self._id, f"event at {iteration}", text)

    def close(self, summary: Mapping[str, float]) -> None:
        for name, value in summary.items():
            self._client.log_metric(self._id, name, value)
        self._client.set_terminated(self._id, "FINISHED" if summary else "KILLED")


WRITERS.register("tensorboard", TensorBoard)
WRITERS.register("wandb", WeightsAndBiases)
WRITERS.register("mlflow", MLflow)


def needed(package: str, extra: str) -> Any:
    """A package that only some users have, or a ``ValueError`` that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"The writer {extra!r} needs the package {package} ({error}); "
            f"pip install 'taskmix[{extra}]'."
        ) from None


class Following:
    """All writers of one run. What goes wrong with one is told once, and costs no run."""

    def __init__(self, names: Sequence[str], folder: Path, config: Mapping[str, Any]) -> None:
        self._writers = {name: WRITERS.find(name)(folder, config) for name in names}

    def add(self, line: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        """What was just written to ``metrics.jsonl`` and ``events.jsonl``."""
        values = numbers_of(line)

        def told(writer: Writer) -> None:
            for event in events:
                writer.event(event["iteration"], event_in_words(event))
            writer.metrics(line["iteration"], values)

        self._each(told)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        found = {} if summary is None else final_numbers(summary)
        self._each(lambda writer: writer.close(found))
        self._writers.clear()

    def _each(self, act: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            try:
                act(writer)
            except Exception as error:
                # A full disk of a server elsewhere must not end days of training here.
                del self._writers[name]
                warnings.warn(
                    f"The writer {name!r} failed ({type(error).__name__}: {error}); the run goes "
                    f"on without it.",
                    stacklevel=2,
                )


def numbers_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an evaluation that are known, by name.

    >>> numbers_of({"iteration": 3, "clusters": 2, "loss": None, "prequential": {"a": 0.5},
    ...             "families": {"a": {"error": 1.5, "coverage": None, "background": 0.0}}})
    {'clusters': 2.0, 'prequential/a': 0.5, 'error/a': 1.5, 'background/a': 0.0}
    """
    found = {name: line.get(name) for name in ("clusters", "loss", "suspicion")}
    found |= {f"prequential/{name}": one for name, one in line.get("prequential", {}).items()}
    for family, measures in line["families"].items():
        for name in ("error", "coverage", "background"):
            found[f"{name}/{family}"] = measures.get(name)
    return {name: float(value) for name, value in found.items() if value is not None}


def final_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """What a run came to, by name."""
    measure = summary["measure"]
    found = {f"final {measure}/{name}": one[measure] for name, one in summary["final"].items()}
    found |= {name: summary[name] for name in ("mean_forgetting", "clusters")}
    return {name: float(value) for name, value in found.items() if value is not None}


def event_in_words(event: Mapping[str, Any]) -> str:
    """
    >>> event_in_words({"iteration": 7, "event": "spawned", "clusters": 2, "cluster": 1})
    'spawned: cluster 2, now 2'
    """
    if event.get("cluster") is None:
        return str(event["event"])
    return f"{event['event']}: cluster {event['cluster'] + 1}, now {event['clusters']}"


def _called(config: Mapping[str, Any]) -> str:
    return f"{config.get('method', 'run')}, seed {config.get('seed', 0)}"

"""The paper's own rule (Algorithm 1 with Subroutine 3): settings searched, then reported.

Settings are chosen on short streams one after the other, as the paper describes (its coefficient,
then the concentration, then the global prior and how often it is refreshed), by the mean error at
the end over families and seeds. The best are reported on the whole stream and on other seeds. Runs
that differ only in numbers share a compiled program and are trained side by side.

With variants, only these are tried, one after the other, and nothing is searched or reported.
With ``--show`` the file that is named is printed as tables.

    python benchmarks/paper_rule.py --task-model bayesian-head --out results/paper/search-head.json
    python benchmarks/paper_rule.py --task-model gradient --out results/paper/search-gradient.json
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from taskmix.evaluation import evaluate, normalised_mutual_information
from taskmix.experiments import Regression
from taskmix.experiments.variants import variant
from taskmix.learner import visible_hints
from taskmix.mixture import PaperMixture
from taskmix.streams import FunctionStream

CHUNK = 25
"""Iterations between two looks at the clock; phases are whole numbers of them."""
NUMBERS = ("coefficient", "refresh_every", "concentration")
"""Settings that a compiled program can be given later."""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Search the settings of the paper's rule, one after the other."""

    out: Path
    """File to write what was tried to."""
    task_model: Literal["bayesian-head", "gradient"] = "bayesian-head"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    lengths: tuple[int, ...] = (1000, 750, 625)
    """Iterations of each family: a quarter of the paper's."""
    coefficients: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    periods: tuple[int, ...] = (60, 1000)
    """Iterations between two refreshments of the global prior, beside a quarter of a phase."""
    concentrations: tuple[float, ...] = (20.0, 40.0)
    """Beside 10, the tasks of a batch."""
    capacity: int = 6
    """Clusters that there is room for; a rule that has filled it opens no more."""
    test_tasks: int = 100
    show: bool = False
    """Print what the file holds as tables, and train nothing."""
    variants: tuple[str, ...] = ()
    """Methods to try instead of a search, as `compare` takes them."""
    minutes: float = 5.5
    """After which nothing more is tried, and the best is reported."""
    report_seeds: tuple[int, ...] = (10, 11, 12, 13, 14)
    report_lengths: tuple[int, ...] = (4000, 3000, 2500)


class Numbered(PaperMixture):
    """The same where some settings are numbers that a compiled program is given."""

    def __post_init__(self) -> None:
        """They were checked before they became so."""

    def zeta(self, clusters: Any, tasks: Any, in_batch: Any) -> Any:
        usual = PaperMixture(concentration_from=self.concentration_from).zeta
        return jnp.where(
            self.concentration > 0, self.concentration, usual(clusters, tasks, in_batch)
        )


def learner_of(flags: Flags, settings: Mapping[str, Any]) -> Numbered:
    """The learner with the experiment's pace and the settings that are no numbers."""
    shared = Regression(lengths=flags.lengths).shared()
    own = shared.task_model_settings(flags.task_model) | {
        "warm_up": shared.warming,
        "refresh_every": shared.warming,
        "cool_down": shared.cooling,
        "capacity": flags.capacity,
        **settings,
    }
    _ = PaperMixture(**own)
    return Numbered(**own)


def numbered(learner: Any, capacity: int) -> Numbered:
    """A learner that the experiment has built, with room for so many clusters."""
    names = [field.name for field in dataclasses.fields(learner)]
    own = {name: getattr(learner, name) for name in names} | {"capacity": capacity}
    return Numbered(**own)


@partial(jax.jit, static_argnums=(0, 1))
def advanced(learner: Numbered, stream: FunctionStream, state, numbers, keys, start):
    """The state after ``CHUNK`` iterations, and which of them opened a cluster."""

    def run(state, numbers, key):
        ours = dataclasses.replace(learner, **numbers)
        batch_key, step_key = key

        def one(state, i):
            batch = stream.batch(batch_key, i)
            batch = dataclasses.replace(batch, hints=visible_hints(ours, batch.hints))
            state, info = ours.step(state, batch, jax.random.fold_in(step_key, i))
            return state, info.spawned

        return jax.lax.scan(one, state, start + jnp.arange(CHUNK))

    return jax.vmap(run)(state, numbers, keys)


@partial(jax.jit, static_argnums=0)
def judged(learner: Numbered, state, test):
    found = jax.vmap(partial(evaluate, learner))(state, test)
    return found.error, found.responsibilities, jnp.mean(found.component_error, axis=2)


def tried(flags: Flags, learners: Sequence[Numbered]) -> list[dict[str, Any]]:
    """What came of learners that differ only in ``NUMBERS``, each on every seed."""
    stream = Regression(lengths=flags.lengths).stream()
    first, seeds, families = learners[0], flags.seeds, len(stream.families)
    each = [(one, seed) for one in learners for seed in seeds]
    numbers = {name: jnp.array([float(getattr(one, name)) for one, _ in each]) for name in NUMBERS}
    keys = jnp.stack([jax.random.split(jax.random.key(seed), 4) for _, seed in each])
    # One program for all that are compared: what differs is given as numbers.
    common = dataclasses.replace(first, **dict.fromkeys(NUMBERS, 1.0))
    example = dataclasses.replace(stream.batch(keys[0, 0], 0), hints=None)

    def begun(numbers, key):
        return dataclasses.replace(common, **numbers).init(key[1], example)

    state = jax.jit(jax.vmap(begun))(numbers, keys)

    def tests(key):
        found = [stream.test_tasks(key, family, flags.test_tasks) for family in range(families)]
        return jax.tree.map(
            lambda *rows: jnp.stack(rows), *[dataclasses.replace(t, hints=None) for t in found]
        )

    test = jax.vmap(tests)(keys[:, 3])
    births, after = [], []
    ends = np.cumsum(flags.lengths)
    for start in range(0, int(ends[-1]), CHUNK):
        state, opened = advanced(common, stream, state, numbers, (keys[:, 0], keys[:, 2]), start)
        births.append(np.asarray(opened))
        if start + CHUNK in ends:
            error, shares, alone = map(np.asarray, judged(common, state, test))
            after.append((error.mean(axis=-1), alone))
    born = np.concatenate(births, axis=1)
    truth = np.repeat(np.arange(families), flags.test_tasks)
    end = after[-1][0]
    ended = np.stack([after[f][0][:, f] for f in range(families)], axis=1)

    def kept(i: int) -> list[list[float]]:
        """Of each family's best cluster at the end of its phase: its error then, and in the end."""
        pairs = []
        for f in range(families):
            own = int(np.argmin(after[f][1][i, f]))
            both = after[f][1][i, f, own], after[-1][1][i, f, own]
            pairs.append([round(float(one), 3) for one in both])
        return pairs

    return [
        {
            "error": [round(float(e), 3) for e in end[i]],
            "mean": round(float(end[i].mean()), 3),
            "own_cluster": kept(i),
            "forgetting": round(float((end[i] - ended[i])[:-1].mean()), 3),
            "nmi": round(normalised_mutual_information(truth, shares[i].argmax(-1).ravel()), 3),
            "births": np.flatnonzero(born[i]).tolist(),
            "seed": seed,
        }
        for i, (_, seed) in enumerate(each)
    ]


HEAD = "| settings | polynomial | sinusoid | sawtooth | mean | forgetting | NMI | births |"


def rows(tried: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row of Markdown per setting: means over its seeds, and the first births of each."""
    found = [HEAD, "|---|---|---|---|---|---|---|---|"]
    for one in tried:
        settings, runs = one["settings"], one["runs"]
        named = (
            settings
            if isinstance(settings, str)
            else ":".join(f"{name}={str(value).lower()}" for name, value in settings.items())
        )
        means = np.mean([run["error"] for run in runs], axis=0).tolist()
        means += [np.mean([run[key] for run in runs]) for key in ("mean", "forgetting", "nmi")]
        births = "; ".join(", ".join(map(str, run["births"])) or "none" for run in runs)
        numbers = " | ".join(f"{mean:.2f}" for mean in means)
        found.append(f"| `{named}` | {numbers} | {births} |")
    return found


def main(flags: Flags) -> None:
    """Search, report, print a line per setting, and write the file."""
    if flags.show:
        kept = json.loads(flags.out.read_text())
        print("\n".join(rows(kept["tried"])))
        if kept["reported"]:
            print("\nReported:\n" + "\n".join(rows([kept["reported"]])))
        return
    record: dict[str, Any] = {"flags": json.loads(json.dumps(vars(flags), default=str))}
    record |= {"tried": [], "reported": None}
    began = time.monotonic()

    def write() -> None:
        flags.out.parent.mkdir(parents=True, exist_ok=True)
        flags.out.write_text(json.dumps(record, separators=(",", ":")) + "\n")

    def best() -> dict[str, Any]:
        known = [one for one in record["tried"] if np.isfinite(one["mean"])]
        found = min(known, key=lambda one: one["mean"], default={"settings": {}})
        return dict(found["settings"])

    def stage(options: Sequence[Mapping[str, Any]]) -> None:
        if not options or time.monotonic() - began > 60 * flags.minutes:
            print("not tried", options, flush=True)
            return
        every = [best() | dict(option) for option in options]
        runs = tried(flags, [learner_of(flags, one) for one in every])
        count = len(flags.seeds)
        for i, settings in enumerate(every):
            own = runs[i * count : (i + 1) * count]
            mean = round(float(np.mean([one["mean"] for one in own])), 3)
            record["tried"].append({"settings": settings, "mean": mean, "runs": own})
            print(settings, describe(own), flush=True)
        print(f"{time.monotonic() - began:.0f} s", flush=True)
        write()

    if flags.variants:
        shared = Regression(lengths=flags.lengths).shared()
        for name in flags.variants:
            own = numbered(variant(name, shared), flags.capacity)
            runs = tried(flags, [own])
            record["tried"].append({"settings": name, "runs": runs})
            print(name, describe(runs), f"{time.monotonic() - began:.0f} s", flush=True)
            write()
        return

    stage([{"coefficient": c} for c in flags.coefficients])
    stage([{"concentration": zeta} for zeta in flags.concentrations])
    for refresh, alone in (("average", False), ("density", False), ("average", True)):
        own = {"refresh": refresh, "refresh_alone": alone}
        stage([own | {"refresh_every": period} for period in flags.periods])

    settings = best()
    if "refresh_every" in settings:
        longer = sum(flags.report_lengths) / sum(flags.lengths)
        settings["refresh_every"] = round(longer * settings["refresh_every"])
    whole = dataclasses.replace(flags, seeds=flags.report_seeds, lengths=flags.report_lengths)
    runs = tried(whole, [learner_of(whole, settings)])
    record["reported"] = {"settings": settings, "runs": runs}
    write()
    print("reported", settings, describe(runs), flush=True)
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def describe(runs: Sequence[Mapping[str, Any]]) -> str:
    """A line of what the seeds of one setting came to."""
    own = np.mean([one["own_cluster"] for one in runs], axis=0).round(2).tolist()
    means = {key: np.mean([one[key] for one in runs]) for key in ("mean", "forgetting", "nmi")}
    births = [len(one["births"]) for one in runs]
    text = " ".join(f"{key} {value:.2f}" for key, value in means.items())
    return f"{text} own {own} births {births} first {[one['births'][:3] for one in runs]}"


if __name__ == "__main__":
    main(tyro.cli(Flags))

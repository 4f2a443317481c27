"""The image experiments of the paper, as data: few-shot classification and the evolving stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from taskmix.adaptation import Adaptation
from taskmix.baselines.single import check_positive
from taskmix.experiments.few_shot import tested, with_steps
from taskmix.experiments.image_families import (
    GLYPHS,
    ImageFamily,
    channels_of,
    facts_of,
    image_families,
    images_of,
    looks_of,
    sources_of,
)
from taskmix.experiments.parts import Embedding, Features, task_models
from taskmix.experiments.shared import BY_LOOKS, Shared
from taskmix.experiments.warm_up import warmed
from taskmix.learner import Learner, State
from taskmix.likelihood import Categorical
from taskmix.models import Conv4, Embedder, Encoder, Model, ResNet12
from taskmix.stores import store_of
from taskmix.streams import (
    ImageSet,
    ImageStream,
    Schedule,
    Stream,
    Until,
    consecutive,
    image_features,
    ordered,
)
from taskmix.streams.schedule import Mixing, Order
from taskmix.training import Settings

Scale = Literal["cpu", "paper"]
Network = Literal["conv4", "resnet12"]

RESNET_FEATURES = 128
"""Of a Bayesian head upon a ResNet-12."""
KEPT = 40
"""Tasks in a reservoir, and in a reference: images are large."""
REHEARSED = 4
"""Tasks of a reservoir in an update: as many as are new, since images are slow."""
PHASE = {True: 300, False: 1000}
"""Iterations of a family's phase, on glyphs and on other images."""

PAPER: dict[str, Any] = {
    "scale": "paper",
    "size": 84,
    "query": 15,
    "adaptation": Adaptation(steps=5, rate=0.05),
}
"""What both experiments have in common at the paper's size."""


@dataclasses.dataclass(frozen=True)
class ImageTasks:
    """What both image experiments have in common; the defaults fit two cores."""

    scale: Scale = "cpu"
    """Decides the other defaults: `paper` is the paper's size, for an accelerator."""
    data: str = GLYPHS
    """A store that `taskmix data prepare` wrote, a folder or an archive of images, which is
    prepared when it is first used, or `glyphs`: synthetic, always there."""
    test_split: str = "test"
    """The split whose classes are reported on; `val` if the store has no test classes."""
    size: int = 32
    """Pixels of an image's side; images of a larger store are scaled down."""
    network: Network = "conv4"
    """MAML's four convolutions, or a residual network."""
    width: int = 32
    """Filters of a convolution (of the first block of a ResNet-12)."""
    way: int = 5
    """Classes of a task."""
    shot: int = 1
    """Support images of a class."""
    query: int = 5
    """Query images of a class, in training."""
    test_query: int = 15
    """Query images of a class, in test tasks."""
    tasks: int = 4
    """Tasks of a batch."""
    adaptation: Adaptation = Adaptation(steps=3, rate=0.1)
    """Inner loop: how the network adapts to a support set."""
    meta_rate: float = 1e-3
    """Rate of the optimiser that learns initialisations."""
    head_rate: float = 3e-3
    """Rate of the optimiser that learns heads in closed form."""
    transductive: bool = False
    """Let the queries of a ridge head normalise each other, as those of MAML do."""
    mirrored: bool = False
    """Show every other training image in a mirror: for photographs, not for characters."""
    shifted: int = 0
    """Pixels by which training images are shifted at random, at most, on either axis."""

    def __post_init__(self) -> None:
        # A learner has but one of them, and what is wrong with the other is said all the same.
        check_positive(meta_rate=self.meta_rate, head_rate=self.head_rate)

    def training(self) -> Settings:
        return Settings(evaluate_every=300, test_tasks=100 if self.scale == "cpu" else 600)

    def facts(self) -> dict[str, Any]:
        told = [facts_of(data, self.size) for data in self._sources]
        return {"data": told[0] if len(told) == 1 else told}

    def prepare(self, tell: Callable[[str], None]) -> None:
        """Make stores of folders and archives of images; ``tell`` hears what takes time."""
        for data in self._sources:
            if data != GLYPHS:
                store_of(data, self.size, tell)

    def shared(self) -> Shared:
        model, likelihood = self._model(), Categorical(inputs=image_features)
        features = Features(
            *self._features(), encoder=self._encoder(), transductive=self.transductive
        )
        return Shared(
            model=model,
            likelihood=likelihood,
            task_models=task_models(model, likelihood, self.adaptation, features, self.way),
            adaptation=self.adaptation,
            meta_rate=self.meta_rate,
            head_rate=self.head_rate,
            kept=KEPT,
            rehearsed=REHEARSED,
            **BY_LOOKS,
            rule_updates=12 if self.shot == 1 else 8,  # as Ravi and Larochelle have it
            head="ridge-head",
        )

    def _model(self) -> Model:
        if self.network == "conv4":
            return Conv4(self._channels, self.size, self.width, self.way)
        return self._resnet(self.way)

    def _features(self) -> tuple[Model, int]:
        """A network like the others' without its last layer, and how many features it has.

        The features of a ResNet-12 go through a linear layer, which makes fewer of them.
        """
        if self.network == "conv4":
            encoder = Encoder(self._channels, self.size, self.width)
            return Embedding(encoder), encoder.features
        return self._resnet(RESNET_FEATURES), RESNET_FEATURES

    def _encoder(self) -> Embedder:
        if self.network == "conv4":
            return Encoder(self._channels, self.size, self.width)
        return self._resnet(1).encoder

    def _resnet(self, outputs: int) -> ResNet12:
        widths = tuple(self.width * 2**block for block in range(4))
        return ResNet12(self._channels, self.size, outputs, widths)

    @property
    def _channels(self) -> int:
        return max(channels_of(data, self.size) for data in self._sources)

    @property
    def _families(self) -> tuple[ImageFamily, ...]:
        return (ImageFamily("plain", self.data),)

    @property
    def _sources(self) -> tuple[str, ...]:
        return sources_of(self._families)

    def _stream(
        self, schedule: Schedule, training: ImageSet, testing: ImageSet, test_query: int
    ) -> ImageStream:
        return ImageStream(
            training,
            testing,
            schedule,
            self.tasks,
            self.way,
            self.shot,
            self.query,
            test_query,
            self.mirrored,
            self.shifted,
            looks_of(self._families, schedule.families),
        )

    def _images(self, split: str, query: int, verify: bool = False) -> ImageSet:
        """Images of a split on the device; one look at the checksums of a store is enough."""
        splits = [images_of(data, split, self.size, verify) for data in self._sources]
        return ImageSet.joined(splits, self.way, self.shot + query)


@dataclasses.dataclass(frozen=True)
class EvolvingImages(ImageTasks):
    """Section 6.2 of the paper: the same classes seen through one filter after the other.

    Families may be other images as well, and come in other orders.

    Examples
    --------
    >>> EvolvingImages(families=("blur", "glyphs+fog"), lengths=(10, 10)).stream().families
    ('blur', 'glyphs+fog')
    """

    families: tuple[str, ...] = ("blur", "night", "pencil")
    """Families in the order in which they appear: filters of `--data`, or other images,
    `store:PATH`, `folder:PATH` or `glyphs`, perhaps through a filter (`store:PATH+night`)."""
    lengths: tuple[int, ...] = ()
    """Iterations of each family's phase; none: 300 each on glyphs, 1000 on other images."""
    test_query: int = 5
    """Query images of a class, in test tasks."""
    schedule: Order = "consecutive"
    """One family after the other; the same twice over; all at once; fading into each other."""
    transition: int = 200
    """Iterations over which a family fades in (gradual schedule)."""
    mixing: Mixing = "task"
    """Whether each task or each batch draws a family (interleaved schedule)."""

    @classmethod
    def at(cls, scale: Scale) -> EvolvingImages:
        """The settings of a scale: ``cpu`` or ``paper``."""
        if scale == "cpu":
            return cls()
        return cls(**PAPER, lengths=(7500, 7500, 4500), test_query=15)

    def stream(self) -> ImageStream:
        names = tuple(one.name for one in self._families)
        schedule = ordered(self.schedule, names, self._lengths(), self.transition, self.mixing)
        training = self._images("train", self.query, verify=True)
        testing = self._images(self.test_split, self.test_query)
        return self._stream(schedule, training, testing, self.test_query)

    @property
    def _families(self) -> tuple[ImageFamily, ...]:
        return image_families(self.families, self.data)

    def training(self) -> Settings:
        """At least three evaluations of a phase: a figure is to show what happens within it."""
        usual = super().training()
        third = max(min(self._lengths()) // 3, 1)
        return dataclasses.replace(usual, evaluate_every=min(usual.evaluate_every, third))

    def shared(self) -> Shared:
        shared = super().shared().paced(self._lengths()[0])
        return dataclasses.replace(shared, families=len(set(self.families)))

    def _lengths(self) -> tuple[int, ...]:
        return self.lengths or (PHASE[self.data == GLYPHS],) * len(self.families)


@dataclasses.dataclass(frozen=True)
class FewShot(ImageTasks):
    """Table 1 of the paper: one kind of task, new classes at the end.

    Examples
    --------
    >>> FewShot(way=3, shot=2).shared().model.outputs
    3
    """

    iterations: int = 10000
    """Batches to learn from."""
    protocol: Literal["usual", "finn"] = "usual"
    """`finn` judges a task by as many queries per class as it has shots, as MAML's code did."""
    test_steps: int = 0
    """Inner steps in the final test; 0 for as many as in training."""
    annealed: bool = True
    """Let the meta rate fall to zero along a cosine (MAML's own stays constant)."""
    warm_up: int = 0
    """Times that a ridge head's encoder sees all training images before the first task, to learn
    to tell all training classes apart; 0: none."""

    @classmethod
    def at(cls, scale: Scale) -> FewShot:
        """The settings of a scale: ``cpu`` or ``paper``."""
        if scale == "cpu":
            return cls()
        return cls(**PAPER, iterations=60000, test_steps=10, annealed=False)

    def stream(self) -> ImageStream:
        """Test tasks are of validation classes: they decide when to stop."""
        training = self._images("train", self.query, verify=True)
        testing = self._images("val", self.test_query)
        return self._stream(self._schedule(), training, testing, self.test_query)

    def final_test(
        self, stream: Stream, learner: Learner, state: State, seed: int
    ) -> dict[str, Any]:
        """Accuracy on the classes to be reported, of a learner that may take more steps."""
        whole = stream.stream if isinstance(stream, Until) else stream
        assert isinstance(whole, ImageStream), "the stream of this experiment"
        if self.test_steps:
            learner = with_steps(learner, self.test_steps)
        return tested(self.final_stream(whole), learner, state, seed, self.test_split)

    def final_stream(self, stream: ImageStream) -> ImageStream:
        """Test tasks are those to be reported; there is nothing to learn from.

        Images that the ``stream`` of the run has on the device are not put there again.
        """
        query = self.shot if self.protocol == "finn" else self.test_query
        there = self.test_split == "val" and query <= self.test_query
        testing = stream.testing if there else self._images(self.test_split, query)
        return self._stream(self._schedule(), testing, testing, query)

    def warmed(
        self,
        stream: Stream,
        learner: Learner,
        state: State,
        seeds: Sequence[int],
        tell: Callable[[str], None],
    ) -> State:
        """First states, after the warm-up if one is asked for."""
        if not self.warm_up:
            return state
        whole = stream.stream if isinstance(stream, Until) else stream
        assert isinstance(whole, ImageStream), "the stream of this experiment"
        return warmed(learner, whole, state, seeds, self.warm_up, tell)

    def shared(self) -> Shared:
        over = self.iterations if self.annealed else 0
        return dataclasses.replace(super().shared().paced(self.iterations), anneal_over=over)

    def _schedule(self) -> Schedule:
        return consecutive(("plain",), (self.iterations,))

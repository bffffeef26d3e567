"""A cascade: a fast model answers, and the rows that it is unsure of are sent on to the next one.

Computed from each member's predictions of the same rows. Part of `limbeck.evaluation`; the members themselves, and
their folder, belong to `limbeck.exporting.cascade`.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from limbeck.evaluation.class_predictions import alike
from limbeck.runtimes.cascade import confidence_of
from limbeck.tasks.metrics import SampledScore

# How finely the shares of rows to send on are tried, with one member before the last and with two.
_STEPS = {1: 200, 2: 25}
_SENDS_ALL = float(np.nextafter(1.0, 2.0))
# Standard errors by which a wish is to be met: the best of many pairs of thresholds is there by more luck.
_ERRORS = {1: 0.5, 2: 1.5}
# Answers that are scored at once: a score may count each answer of all members in each cascade.
_BATCH_ANSWERS = 2_000_000


def temperature_of(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature T under which softmax(logits / T) is likeliest to give the labels (Guo et al. 2017, §4.2).

    Args:
        logits: (n, C).
        labels: class ids (n,).
    """

    def surprise(log_temperature: float) -> float:
        scaled = logits / np.exp(log_temperature)
        return -float(log_softmax(scaled, axis=1)[np.arange(len(labels)), labels].mean())

    found = minimize_scalar(surprise, bounds=(-4.0, 4.0), method="bounded")
    return float(np.exp(found.x))


@dataclass(frozen=True)
class Point:
    """The results of a cascade on some rows.

    Attributes:
        temperatures: of each member but the last.
        thresholds: the confidence below which each of them sends a row on.
        sent: the share of rows, 0 to 1, that reach each member but the first.
        score: the primary score, 0 to 100.
        agreement: the share of rows, 0 to 100, that are predicted as the last member predicts them.
        seconds: a row, in the mean.
    """

    temperatures: tuple[float, ...]
    thresholds: tuple[float, ...]
    sent: tuple[float, ...]
    score: float
    agreement: float
    seconds: float


@dataclass(frozen=True)
class CascadeRows:
    """The predictions of the members, the fastest first, on the same n rows. Answers are numbered: member * n + row.

    Attributes:
        logits: each member's, (n, C).
        decided: each member's predictions: class ids (n,), or 0 and 1 for each class (n, C).
        seconds: that a row costs each.
        labels: as `decided`.
        several: the classes do not exclude each other.
        score: numbers of answers (B, m) to the primary score, 0 to 100, of each of B cascades.
    """

    logits: Sequence[np.ndarray]
    decided: Sequence[np.ndarray]
    seconds: Sequence[float]
    labels: np.ndarray
    several: bool
    score: SampledScore

    def temperatures(self, places: np.ndarray) -> tuple[float, ...]:
        """The temperature of each member but the last, from the labels of some rows.

        1 of several labels a row: each class is measured from a threshold of its own, and no temperature changes which
        rows are the least sure.
        """
        first, labels = self.logits[:-1], self.labels[places]
        if self.several:
            return (1.0,) * len(first)
        return tuple(temperature_of(one[places], labels) for one in first)

    def answering(
        self, places: np.ndarray, temperatures: Sequence[float], thresholds: np.ndarray
    ) -> np.ndarray:
        """The number of the member that answers each of some rows (B, m), by each of B lists of thresholds."""
        found = np.zeros((len(thresholds), len(places)), dtype=int)
        for number, temperature in enumerate(temperatures):
            logits = self.logits[number][places]
            confidence = confidence_of(logits, temperature, several=self.several)
            sure = confidence >= thresholds[:, number, None]
            found[(found == number) & ~sure] = number + 1
        return found

    def points_of(
        self,
        places: np.ndarray,
        answering: np.ndarray,
        temperatures: Sequence[float] = (),
        thresholds: Sequence[Sequence[float]] = ((),),
    ) -> list[Point]:
        """The results if these members (B, m) answer some rows."""
        answers = answering * len(self.labels) + places
        as_last = np.concatenate([alike(one, self.decided[-1]) for one in self.decided])
        reached = np.arange(1, len(self.logits))
        sent = (answering[:, None] >= reached[:, None]).mean(axis=2)
        numbers = zip(
            self.score(answers).tolist(),
            (100 * as_last[answers].mean(axis=1)).tolist(),
            (self.seconds[0] + (sent * self.seconds[1:]).sum(axis=1)).tolist(),
            strict=True,
        )
        return [
            Point(tuple(temperatures), tuple(own), tuple(shares), *each)
            for own, shares, each in zip(thresholds, sent.tolist(), numbers, strict=True)
        ]

    def curve(self, places: np.ndarray) -> list[Point]:
        """From no row sent on to all of them; with three members all pairs of shares."""
        temperatures = self.temperatures(places)
        tried = [
            sorted(set(self._thresholds(number, places, temperature)))
            for number, temperature in enumerate(temperatures)
        ]
        every = [*itertools.product(*tried)]
        size = max(1, _BATCH_ANSWERS // sum(map(len, self.logits)))
        found: list[Point] = []
        for start in range(0, len(every), size):
            part = every[start : start + size]
            answering = self.answering(places, temperatures, np.array(part))
            found += self.points_of(places, answering, temperatures, part)
        return found

    def _thresholds(self, number: int, places: np.ndarray, temperature: float) -> Iterator[float]:
        logits = self.logits[number][places]
        sure = np.sort(confidence_of(logits, temperature, several=self.several))
        steps = _STEPS[len(self.logits) - 1]
        yield 0.0
        for place in {step * len(sure) // steps for step in range(1, steps)} - {0}:
            # Between two rows: in another batch a row's confidence has other last digits.
            yield float(sure[place - 1 : place + 1].mean())
        yield _SENDS_ALL

    def chosen(self, points: Sequence[Point], wanted: str, value: float, rows: int) -> Point | None:
        """The cheapest point that meets the wish, or the best one within the cost; None if no point does.

        The first of many points above a score is there by luck too, and falls short on other rows. So a point has to
        meet the wish by half a standard error of its rows, with two thresholds by one and a half: on real rows that
        chose nothing the loss was then about the one allowed. Where none does, as where more is wanted than the last
        member reaches, one that only meets it is taken.

        Args:
            points: a curve.
            wanted: `max_drop`, `score`, `agreement` or `cost`.
            value: `max_drop` points below the last member's score; a `score` or an `agreement` with the last member, 0
                to 100; a `cost` in percent of the last member's.
            rows: that the curve was measured on.
        """
        if wanted == "cost":
            most = value / 100 * self.seconds[-1]
            allowed = (one for one in points if one.seconds <= most)
            return max(allowed, key=lambda one: (one.score, -one.seconds), default=None)
        agreed = np.array([one.agreement for one in points])
        # Of the share of rows that are not answered as the last member answers them.
        error = np.sqrt(np.maximum(agreed * (100 - agreed), 0) / rows)
        margin = _ERRORS[len(self.logits) - 1] * error
        if wanted == "agreement":
            spare = agreed - value
        else:
            least = value if wanted == "score" else points[-1].score - value
            spare = np.array([one.score for one in points]) - least
        for enough in (spare >= margin, spare >= 0):
            if enough.any():
                met = [one for one, meets in zip(points, enough, strict=True) if meets]
                return min(met, key=lambda one: (one.seconds, -one.score))
        return None

    def cross_fitted(
        self, halves: Sequence[np.ndarray], wanted: str, value: float
    ) -> np.ndarray | None:
        """The member that answers each row (n,), by thresholds that the other half of the rows chose.

        None where one half reaches nothing that is wanted.
        """
        found = np.zeros(len(self.labels), dtype=int)
        for ours, theirs in (halves, halves[::-1]):
            point = self.chosen(self.curve(theirs), wanted, value, len(theirs))
            if point is None:
                return None
            chosen = np.array([point.thresholds])
            found[ours] = self.answering(ours, point.temperatures, chosen)[0]
        return found

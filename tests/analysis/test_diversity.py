"""Diversity against counts in a loop, scikit-learn and teams whose numbers are known."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, cohen_kappa_score

from limbeck.evaluation.team import team_of
from limbeck.tasks.metrics import pearson


def accuracy_of(given: np.ndarray, right: np.ndarray) -> float:
    return 100 * float((given.argmax(axis=1) == right).mean())


def class_diversity(members, labels, score=accuracy_of):
    return team_of(members, labels, score)


def number_diversity(members, labels):
    return team_of(members, labels, pearson, regression=True)


def one_hot(*classes: int, count: int = 2) -> np.ndarray:
    return np.eye(count)[list(classes)] * 4


@pytest.fixture
def team() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Three members of different skill on 120 examples of three classes."""
    random = np.random.default_rng(5)
    labels = random.integers(0, 3, 120)
    members = {
        name: random.normal(0, 1, (120, 3)) + skill * np.eye(3)[labels]
        for name, skill in {"weak": 0.5, "fair": 1.5, "good": 2.5}.items()
    }
    return members, labels


def test_a_team_by_hand() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    found = class_diversity(
        {
            "a": one_hot(0, 0, 0, 0, 1, 1, 0, 0),  # the last two wrong
            "b": one_hot(0, 0, 0, 1, 1, 0, 1, 0),  # the fourth, the sixth and the last wrong
        },
        labels,
    )
    assert found.names == ("a", "b")
    assert found.examples == 8
    assert found.scores.tolist() == [75.0, 62.5]
    assert found.without.tolist() == [62.5, 75.0]
    # They differ on the fourth, the sixth and the seventh, and are wrong together on the last.
    assert found.disagreement.tolist() == [[0, 3 / 8], [3 / 8, 0]]
    assert found.oracle == 100 * 7 / 8


def test_pairs_are_counted_as_a_loop_counts_them(team) -> None:
    members, labels = team
    found = class_diversity(members, labels)
    for i, first in enumerate(members.values()):
        for j, second in enumerate(members.values()):
            differ = sum(x.argmax() != y.argmax() for x, y in zip(first, second, strict=True))
            assert found.disagreement[i, j] == pytest.approx(differ / 120)


def test_the_team_answers_with_the_mean_of_its_logits(team) -> None:
    members, labels = team
    found = class_diversity(members, labels)

    def accuracy(names: list[str]) -> float:
        mean = sum(members[name] for name in names) / len(names)
        return 100 * accuracy_score(labels, mean.argmax(axis=1))

    assert found.ensemble == accuracy(["weak", "fair", "good"])
    others = [["fair", "good"], ["weak", "good"], ["weak", "fair"]]
    assert found.without.tolist() == [accuracy(names) for names in others]
    assert found.adds.tolist() == [found.ensemble - accuracy(names) for names in others]


def test_a_constant_added_to_an_examples_logits_changes_nothing(team) -> None:
    members, labels = team
    shifted = {name: given + np.arange(120)[:, None] for name, given in members.items()}
    first, second = class_diversity(members, labels), class_diversity(shifted, labels)
    assert first.ensemble == second.ensemble
    assert np.array_equal(first.disagreement, second.disagreement)


def test_the_score_may_be_any(team) -> None:
    members, labels = team
    found = class_diversity(
        members, labels, score=lambda given, right: cohen_kappa_score(right, given.argmax(axis=1))
    )
    for score, given in zip(found.scores, members.values(), strict=True):
        assert score == cohen_kappa_score(labels, given.argmax(axis=1))


def test_copies_add_nothing_and_independent_errors_do(team) -> None:
    members, labels = team
    good = members["good"]
    copies = class_diversity({"good": good, "again": good.copy()}, labels)
    assert copies.adds.tolist() == [0, 0]
    assert copies.disagreement[0, 1] == 0
    # Three who each err on examples of their own are together always right.
    right = np.zeros(9, dtype=int)
    apart = {str(n): one_hot(*(1 if row % 3 == n else 0 for row in range(9))) for n in range(3)}
    found = class_diversity(apart, right)
    assert (found.ensemble, found.oracle) == (100, 100)
    assert found.scores == pytest.approx(200 / 3)


def test_a_team_of_one_has_no_others() -> None:
    found = class_diversity({"a": one_hot(0, 1)}, np.array([0, 0]))
    assert found.ensemble == 50
    assert np.isnan(found.without).all()
    assert np.isnan(found.adds).all()


def test_numbers() -> None:
    random = np.random.default_rng(1)
    labels = random.uniform(0, 5, 50)
    first, second = labels + random.normal(0, 1, 50), 2 * labels + random.normal(0, 1, 50)
    found = number_diversity({"a": first[:, None], "b": second}, labels)
    together = stats.pearsonr((first + second) / 2, labels).statistic
    assert found.ensemble == pytest.approx(100 * together)
    assert found.scores[1] == pytest.approx(100 * np.corrcoef(second, labels)[0, 1])
    assert found.without[0] == pytest.approx(found.scores[1])
    wanted = 1 - stats.pearsonr(first, second).statistic
    assert found.disagreement == pytest.approx(np.array([[0, wanted], [wanted, 0]]))
    assert found.oracle is None


def test_one_who_always_gives_the_same_number_correlates_with_nobody() -> None:
    found = number_diversity({"a": np.ones(3), "b": np.arange(3)}, np.arange(3))
    assert found.scores == pytest.approx([0, 100])
    assert np.isnan(found.disagreement[0]).all()
    assert found.disagreement[1, 1] == 0

import pytest

from limbeck.support.errors import LimbeckError
from limbeck.tables.profiles import (
    PROFILES,
    TITLES,
    columns_of_task,
    get_profile,
    profile_score,
    weighted_mean,
)
from limbeck.tasks import TASKS


def test_titles_are_those_of_the_tasks_in_their_order():
    """A table reads them without the tasks, and without torch."""
    assert [*TITLES.items()] == [(name, task.title) for name, task in TASKS.items()]
    for name, (column, *_) in get_profile("glue").columns.items():
        assert column.metrics == TASKS[name].primary


def dev(**metrics):
    return {"dev": metrics}


def profile_columns(profile, task, scores):
    return {one.title: one.value(scores) for one in columns_of_task(profile, task)}


def profile_average(profile, tasks):
    """Over the columns of all given tasks that the profile has, as a paper's last column."""
    columns = get_profile(profile).columns
    return weighted_mean(
        [(one.weight, one.value(tasks[task])) for task in tasks for one in columns.get(task, ())]
    )


# BERT-large's row of the public GLUE leaderboard, whose published average is 80.5.
BERT_LARGE = {
    "cola": dev(matthews=60.5),
    "sst2": dev(accuracy=94.9),
    "mrpc": dev(f1=89.3, accuracy=85.4, weighted_f1=84.6),
    "stsb": dev(pearson=87.6, spearman=86.5),
    "qqp": dev(f1=72.1, accuracy=89.3, weighted_f1=89.5),
    "mnli": {"dev": {"accuracy": 86.7}, "dev_mismatched": {"accuracy": 85.9}},
    "qnli": dev(accuracy=92.7),
    "rte": dev(accuracy=70.1),
    "wnli": dev(accuracy=65.1),
}


def test_glue_average_is_the_leaderboards():
    assert round(profile_average("glue", BERT_LARGE), 1) == 80.5


def test_skd_test_average_is_the_papers():
    # SKDBERT's Table 2, the row of BERT-base: average 83.0 over eight columns.
    row = {
        "mrpc": dev(f1=88.9, accuracy=0.0),
        "rte": dev(accuracy=66.4),
        "stsb": dev(spearman=85.8, pearson=0.0),
        "sst2": dev(accuracy=93.5),
        "qqp": dev(f1=71.2, accuracy=0.0),
        "qnli": dev(accuracy=90.5),
        "mnli": {"dev": {"accuracy": 84.6}, "dev_mismatched": {"accuracy": 83.4}},
    }
    assert round(profile_average("skd-test", row), 1) == 83.0
    assert profile_columns("skd-test", "mnli", row["mnli"]) == {"MNLI-m": 84.6, "MNLI-mm": 83.4}


def test_alp_average_is_the_papers():
    # ALP-KD's Table 1, the teacher's row: 57.31 83.39 86.76 91.25 90.96 68.23 92.67 88.82 → 82.42.
    row = {
        "cola": dev(matthews=57.31),
        "mnli": dev(accuracy=83.39),
        "mrpc": dev(accuracy=86.76, f1=0.0),
        "qnli": dev(accuracy=91.25),
        "qqp": dev(accuracy=90.96, f1=0.0),
        "rte": dev(accuracy=68.23),
        "sst2": dev(accuracy=92.67),
        "stsb": dev(pearson=88.82, spearman=0.0),
    }
    assert round(profile_average("alp", row), 2) == 82.42


@pytest.mark.parametrize(
    ("profile", "task", "expected"),
    [
        ("glue", "mrpc", 87.35),
        ("glue", "mnli", 86.3),
        ("rail", "qqp", 80.7),
        ("rail", "wnli", None),
        ("alp", "mnli", 86.7),
        ("alp", "wnli", None),
        ("internal", "mrpc", 85.0),
        ("internal", "cola", 60.5),
        ("internal", "sst2", None),
        ("cr-ild", "mrpc", 89.3),
        ("cr-ild", "qqp", 89.3),
        ("cr-ild", "stsb", 86.5),
        ("cr-ild", "mnli", 86.7),
        ("skd-dev", "stsb", 87.05),
        ("skd-dev", "mnli", 86.7),
        ("skd-dev", "cola", None),
        ("skd-test", "qqp", 72.1),
        ("skd-test", "mnli", 86.3),
    ],
)
def test_scores_by_profile(profile, task, expected):
    found = profile_score(profile, task, BERT_LARGE[task])
    assert found == (None if expected is None else pytest.approx(expected))


def test_internal_shows_both_metrics():
    columns = profile_columns("internal", "qqp", BERT_LARGE["qqp"])
    assert columns == {"QQP acc": 89.3, "QQP F1": 89.5}


def test_table_3_of_skd_shows_both_metrics():
    assert profile_columns("skd-both", "qqp", BERT_LARGE["qqp"]) == {
        "QQP F1": 72.1,
        "QQP acc": 89.3,
    }
    assert list(profile_columns("skd-both", "mnli", BERT_LARGE["mnli"])) == ["MNLI-m", "MNLI-mm"]


def test_a_missing_score_leaves_no_number():
    assert profile_score("glue", "mnli", dev(accuracy=86.7)) is None
    assert profile_score("glue", "mrpc", dev(accuracy=86.7)) is None
    assert profile_average("glue", BERT_LARGE | {"mnli": dev(accuracy=86.7)}) is None
    assert profile_average("internal", {"sst2": BERT_LARGE["sst2"]}) is None


def test_the_nine_profiles_and_their_sizes():
    assert {name: len(profile.columns) for name, profile in PROFILES.items()} == {
        "glue": 9, "rail": 8, "rail-once": 8, "alp": 8, "internal": 4, "cr-ild": 8, "skd-dev": 7, "skd-both": 7,
        "skd-test": 7,
    }  # fmt: skip


def test_unknown_profile():
    with pytest.raises(LimbeckError, match="unknown profile 'gleu'"):
        get_profile("gleu")

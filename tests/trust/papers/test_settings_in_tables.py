"""Runs of one column that were trained with different settings are told apart below the table."""

from __future__ import annotations

from limbeck.records import Record
from limbeck.tables.notes import comparability_notes


def run(method: str, settings: str, departures: list[str]) -> Record:
    record = Record(kind="distill", method=method, task="rte", data="d", seed=1)
    record.settings, record.departures, record.status = settings, departures, "finished"
    return record


def test_settings_that_differ_are_said_with_what_departs_from_them():
    runs = [run("cr-ild", "paper", ["lr"]), run("rail-kd-l", "paper", []), run("kd", "quick", [])]
    (note,) = [note for note in comparability_notes(runs) if "settings" in note]
    assert "paper but for lr (cr-ild)" in note
    assert "paper (rail-kd-l)" in note
    assert "quick (kd)" in note


def test_settings_that_are_alike_are_not_mentioned():
    runs = [run("cr-ild", "paper", []), run("rail-kd-l", "paper", [])]
    assert not [note for note in comparability_notes(runs) if "settings" in note]

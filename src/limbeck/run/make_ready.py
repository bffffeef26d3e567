"""What costs time before the first step, once all is checked: augmented rows, who teaches, stored outputs.

Part of `limbeck.run`.
"""

from __future__ import annotations

from limbeck.records import Examples, Execution, Record
from limbeck.run.augmented_run import with_augmented_examples
from limbeck.run.beginning import save
from limbeck.run.caching import seconds_stored_before, with_stored_outputs
from limbeck.run.plan import Plan
from limbeck.run.prepared import Prepared
from limbeck.run.prepared_teachers import Train, with_team
from limbeck.training.progress import Parts


def make_ready(
    plan: Plan, prepared: Prepared, record: Record, parts: Parts, train: Train
) -> Prepared:
    """The run as its stages train it; what was done for it is in the record as soon as it is done.

    Of a run whose student is another run's nothing more is made (`record.team.chosen`). `train` makes
    the runs that have to come first.
    """
    prepared = with_augmented_examples(prepared, show=plan.show)
    _count(prepared, record.examples)
    with parts.part("teams"):
        prepared, record.team = with_team(plan.recipe, prepared, plan.folder, train)
    if record.team is not None and record.team.chosen is not None:
        return prepared

    def keep(execution: Execution) -> None:
        record.execution = execution
        save(record, plan.folder)

    before = prepared.execution
    asks = any(inputs.recipe.needs_teacher for inputs in prepared.stages)
    with parts.part("storing" if asks else "preparation"):
        prepared = with_stored_outputs(prepared, show=plan.show, keep=keep)
        keep(prepared.execution)
    # The first checkpoint, if there is one, knows them too, and takes their place.
    parts.restore({"storing": seconds_stored_before(prepared, before)})
    return prepared


def _count(prepared: Prepared, examples: Examples) -> None:
    """How many rows there are now; what is more of them than before has been made."""
    rows = len(prepared.train.encoded)
    examples.augmented = rows - (examples.train or 0)
    examples.train, examples.truncated = rows, prepared.truncated

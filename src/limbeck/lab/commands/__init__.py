"""The commands of the lab. They load no more than the help needs."""

from limbeck.cli.options import COMMANDS, Command, ManyValues
from limbeck.lab.commands.study_command import analyze, quickstart, study, submit

COMMANDS.register("quickstart")(Command(quickstart, ManyValues, first=True))
COMMANDS.register("study")(Command(study))
COMMANDS.register("analyze")(Command(analyze))
COMMANDS.register("submit")(Command(submit))

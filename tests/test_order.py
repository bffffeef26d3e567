"""The one-way order of imports, and what `import limbeck` and the light commands must not load."""

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import limbeck
from fresh_process import printed_by
from quick_cases import quick
from syntax import nodes_of
from synthetic_records import a_run

SOURCE = Path(limbeck.__file__).parent

# From the bottom up. A module imports what stands above it in this list, never what stands below or
# beside it. The way of a training step runs in the same direction.
ORDER = [
    {"recipes", "support"},
    {"functional", "vision"},
    {"activations", "mappings"},
    {"embedding", "input_transforms"},
    {"static"},
    {"tasks"},
    {"objectives", "runtimes", "students"},
    {"teachers"},
    {"outputs"},
    {"data", "labelling.language_models"},
    {"preflight"},
    {"recipe"},
    {"records", "training"},
    {"evaluation"},
    {"tables"},
    {"cards", "report"},
    {"run"},
    {"labelling", "scoring"},
    {"exporting", "predicting"},
    {"latency"},
    {"compressing"},
    {"cli"},
    {"__main__"},
    # The lab stands above all of the core, which finds it through `support.registry`.
    {"lab.augmentation", "lab.bandit", "lab.cifar", "lab.cifar_nets", "lab.digits", "lab.pocket"},
    {"lab.data_settings", "lab.measures"},
    {"lab.views"},
    {"lab.analysis"},
    {"lab.study", "lab.submitting"},
    {"lab.quickstart"},
    {"lab.commands"},
    {"lab"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def place_of(name: str) -> str:
    """`data.glue` has its place by `data`, `tables.render` by `tables`."""
    parts = name.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((prefix for prefix in prefixes if prefix in LEVEL), parts[0])


def own_place(path: Path) -> str:
    """The place of a file of limbeck."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return place_of(".".join(part for part in parts if part != "__init__"))


@functools.cache
def imported(path: Path) -> set[str]:
    """The modules of limbeck that a file imports, anywhere in it, also for its types alone."""
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} line {node.lineno}: imports are absolute here"
            module = node.module or ""
            # What is imported from a package may be a module of it.
            inside = {f"{module}.{alias.name}" for alias in node.names}
            known = inside & set(MODULES)
            found |= known | ({module} if module != "limbeck" and known != inside else set())
    assert "limbeck" not in found, f"{path}: import what is needed from its own module"
    return {name for name in found if name.startswith("limbeck.")}


def modules_imported(path: Path) -> set[str]:
    """The places of the modules that a file imports."""
    return {place_of(name.removeprefix("limbeck.")) for name in imported(path)}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
MODULES = {module_of(path): path for path in FILES}


def test_every_module_has_its_place() -> None:
    unlisted = {own_place(path) for path in FILES} - set(LEVEL)
    assert not unlisted, f"give {sorted(unlisted)} a place in ORDER"


def test_imports_point_one_way() -> None:
    for path in FILES:
        own = own_place(path)
        wrong = {
            other
            for other in modules_imported(path) - {own}
            if LEVEL.get(other, len(ORDER)) >= LEVEL.get(own, -1)
        }
        assert not wrong, f"{own} stands below or beside {sorted(wrong)}, and {path} imports it"


def test_no_circle_even_for_types() -> None:
    """A type that two modules need stands below both, as a protocol where it must."""
    graph = {name: imported(path) & set(MODULES) for name, path in MODULES.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imports go round in a circle: {' <- '.join(error.args[1])}")


def test_a_module_of_a_package_is_imported_where_it_is_used() -> None:
    """`students.static.x` works only after somebody has imported `limbeck.students.static`."""
    folders = {name: path for name, path in MODULES.items() if path.stem == "__init__"}
    for path in FILES:
        packages = {
            alias.asname or alias.name: folders[name]
            for node in nodes_of(path)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (name := f"{node.module}.{alias.name}") in folders
        }
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                package = packages.get(node.value.id)
                used = package and f"{module_of(package)}.{node.attr}"
                if used in MODULES:
                    assert package and used in imported(path) | imported(package), (
                        f"{path} line {node.lineno} uses {used}, and neither it nor the package imports it"
                    )


def test_a_class_name_stands_for_one_class() -> None:
    found: dict[str, list[str]] = {}
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def loaded_after(code: str) -> set[str]:
    """The top-level packages in `sys.modules` after some code has run in a new interpreter."""
    script = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    return set(ran.stdout.splitlines()[-1].split())


COMMAND = """
from limbeck.cli import main
sys.argv = ["limbeck", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
HEAVY = {"torch", "transformers", "datasets", "sklearn", "scipy", "matplotlib"}
LIGHT = {
    "import": "import limbeck",
    "a recipe's fields": "import limbeck.recipe.fields",
    "help": COMMAND.format(arguments=["--help"]),
    "distill help": COMMAND.format(arguments=["distill", "--help"]),
    "methods": COMMAND.format(arguments=["methods"]),
    "one method": COMMAND.format(arguments=["methods", "kd"]),
}


@pytest.mark.parametrize("name", quick("help", "one method", of=LIGHT))
def test_light_commands_load_nothing_heavy(name: str) -> None:
    assert not loaded_after(LIGHT[name]) & HEAVY


def test_a_table_loads_nothing_heavy(tmp_path: Path) -> None:
    for seed in (0, 1):
        a_run("kd", seed, 80.0).save(tmp_path / f"kd-{seed}")
    table = COMMAND.format(arguments=["table", str(tmp_path)])
    assert not loaded_after(table) & HEAVY


def test_public_names() -> None:
    assert limbeck.__all__ == [
        "ActivationKey",
        "DistillationConfig",
        "DistillationTrainer",
        "HardSpec",
        "LayerSpec",
        "LimbeckError",
        "MappedSpec",
        "MappedTerm",
        "Objective",
        "OnnxPredictor",
        "Predictions",
        "Recipe",
        "Request",
        "Result",
        "SoftSpec",
        "StepState",
        "Teacher",
        "TermSettings",
        "Trace",
        "bench",
        "build_student",
        "capture",
        "comparison",
        "compress",
        "data_reader",
        "distill",
        "evaluate",
        "export",
        "functional",
        "label",
        "look_at_team",
        "mapping",
        "objective",
        "predict",
        "push",
        "task_type",
        "train_grid",
        "write_card",
    ]
    # What the lab adds is there with it, and no name of the core.
    assert dir(limbeck) == sorted([*limbeck.__all__, "submit"])
    for name in dir(limbeck):
        assert getattr(limbeck, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = limbeck.nothing


@pytest.mark.slow
def test_capture_is_a_function_whatever_was_imported_before() -> None:
    code = """
import limbeck.activations.request
import limbeck
assert callable(limbeck.capture)
assert limbeck.activations.Request is limbeck.Request
"""
    assert printed_by(code) == ""

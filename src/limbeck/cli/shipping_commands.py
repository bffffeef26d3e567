"""`limbeck export`, `cascade`, `shrink`, `bench`, `card` and `push`: prepare a trained model for its users.

They call `limbeck.exporting`, `limbeck.latency` and `limbeck.cards`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from limbeck.cards.settings import CardSettings
from limbeck.cli import console, finished, options
from limbeck.exporting.settings import SIZES, CascadeSettings, ExportSettings, ShrinkSettings
from limbeck.labelling.language_models.endpoint_settings import EndpointSettings
from limbeck.latency.settings import BenchSettings
from limbeck.records.words import scores_said
from limbeck.runtimes.manifest import ExportManifest
from limbeck.support import files, registry
from limbeck.support.cells import CellTable
from limbeck.support.words import short_text

_MB = 1e6


@options.takes_groups
def export(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL",
            help="A run folder; or any checkpoint's folder or Hub name, with --task, --data.",
        ),
    ],
    settings: Annotated[dict[str, Any], options.settings_flags("Options", ExportSettings)],
    out: Annotated[
        Path | None, typer.Option(help="The folder to write; default: RUN/exported/FORMAT.")
    ] = None,
    rows: options.ScoredRows,
    max_length: Annotated[
        int | None,
        typer.Option(help="Most tokens per text; default: the run's, otherwise the model's."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an exported model in the output folder.")
    ] = False,
    plugin: options.Plugins = None,
) -> None:
    """Export a model for another runtime, compare its scores with torch, and stop if it loses too much."""
    registry.load_plugins(plugin or ())

    from limbeck.exporting.export_model import export as export_model

    result = export_model(
        model,
        out=out,
        **options.typed(rows),
        max_length=max_length,
        overwrite=overwrite,
        show=True,
        **settings,
    )
    show_export(result.manifest)
    if result.manifest.runtime == "numpy":
        console.say(f"from predict import StaticReader  # in {result.path}")
        console.say(f'outputs = StaticReader("{result.path}")(["a text"])')
    console.say(f"Files:   {result.path} (model, tokenizer and predict.py)", hang=9)
    command = finished.after_export(result.path, files.at_home(model))
    if command is not None and result.manifest.runtime != "model2vec":
        console.say_command("Next:    ", command)


# The last lines of an export: the formats that were tried, and the results of the shipped file.


# Number of classes whose recall is shown: the classes that lose most.
_SHOWN = 3


def show_export(manifest: ExportManifest) -> None:
    """Print the formats that were tried, the shipped file's results, and the classes that lost."""
    measured = manifest.measured
    cells = [["tried", "score", "change", "agreement", "MB", ""]]
    score = f"{measured.torch_scores['primary']:.2f}"
    cells.append(["torch", score, "", "", f"{manifest.torch_bytes / _MB:.1f}", ""])
    for one in manifest.tried:
        found = one.measured
        if found is None:
            cells.append([one.conversion.name, "–", "", "", "", one.error[:60]])
            continue
        numbers = [f"{found.scores['primary']:.2f}", f"{0 - found.drop:+.2f}"]
        numbers += ["" if found.agreement is None else f"{100 * found.agreement:.2f} %"]
        verdict = "shipped" if one.passed else "refused"
        cells.append([one.conversion.name, *numbers, f"{one.bytes / _MB:.1f}", verdict])
    title = f"Measured on {manifest.gate.rows} rows of {manifest.gate.split}"
    console.output().print(CellTable(title, cells, (0, 5)).printed())
    recall = sorted(measured.recall.items(), key=lambda one: one[1][1] - one[1][0])
    for name, (before, after) in recall[:_SHOWN]:
        if after != before:
            console.say(f"recall of {name}: {before:.1f} → {after:.1f}")
    for line in _constant(manifest):
        console.say(line)
    if manifest.unchosen is not None:
        console.say(f"score on rows that did not choose the file: {manifest.unchosen:.2f}")
    if (test := manifest.test) is not None:
        primary = test.torch_scores.get("primary")
        torch = "" if primary is None else f"; in torch {primary:.1f}"
        console.say(f"Score:   test {scores_said(test.scores)}{torch}", hang=9)
    if (faster := manifest.times_faster) is not None:
        batch = manifest.gate.batch_size
        console.say(f"{faster:.1f} × as fast as in float, in batches of {batch}")
        if faster < 1:
            console.say(
                f"note: on this processor {manifest.format} saves bytes, not time: --format onnx is the faster one"
            )
    if (logits := measured.logits) is not None:
        console.say(
            f"logits differ by {logits.largest_difference:.2g} at most (standard deviation {logits.scale:.2g})"
        )


def _constant(manifest: ExportManifest) -> list[str]:
    """For a model that predicts the same class for every row, a warning about its score at the gate."""
    recall = manifest.measured.recall
    known = sorted((before, name) for name, (before, _) in recall.items())
    if len(known) < 2 or known[-1][0] < 100 or known[-2][0] > 0:
        return []
    return [
        f"note: in torch too the model predicts {short_text(known[-1][1])!r} for every row, so that both agree shows "
        "little: train it longer, at another rate or on more rows, and export it then"
    ]


@options.takes_groups
def cascade(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="FAST [MIDDLE] SLOW",
            help="Run folders, checkpoints' folders or Hub names, exported folders; the fastest first. SLOW may be a "
            "store of its outputs.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("cascade"),
    wanted: Annotated[dict[str, Any], options.settings_flags("Options", CascadeSettings)],
    endpoint: Annotated[
        dict[str, Any], options.settings_flags("Endpoint as SLOW", EndpointSettings)
    ],
    prompt: Annotated[
        Path | None, typer.Option(help="Prompt for the endpoint, a YAML file.")
    ] = None,
    rows: options.ScoredRows,
    unlabelled: Annotated[
        Path | None,
        typer.Option(
            help="A text file instead of labeled rows: SLOW's predictions are its labels."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a cascade in the output folder.")
    ] = False,
    plugin: options.Plugins = None,
) -> None:
    """Let a fast model answer and send uncertain rows to a slow one; measure both and write a folder."""
    registry.load_plugins(plugin or ())

    from limbeck.data import RowsAsked
    from limbeck.exporting.cascade import cascade as make_cascade
    from limbeck.exporting.cascade import curve_table, lines_of

    asked = RowsAsked(**options.typed(rows))
    found = make_cascade(
        models,
        out,
        asked,
        unlabelled=unlabelled,
        endpoint=EndpointSettings.named(endpoint),
        prompt=prompt,
        wanted=wanted,
        overwrite=overwrite,
        show=True,
    )
    console.output().print(curve_table(found).printed())
    for line in lines_of(found):
        console.say(line, hang=2)
    console.say(f"Files:   {out} (models, thresholds, README.md, curve.svg)", hang=9)
    console.say_command("Next:    ", f"limbeck predict {out} ROWS.csv --to predictions.csv")


@options.takes_groups
def shrink(
    *,
    model: Annotated[
        str,
        typer.Argument(
            metavar="RUN_OR_MODEL", help="A run folder, or any checkpoint's folder or Hub name."
        ),
    ],
    sizes: Annotated[
        dict[str, Any], options.flags("Size", {name: options.SHAPE[name] for name in SIZES})
    ],
    settings: Annotated[dict[str, Any], options.settings_flags("Options", ShrinkSettings)],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a shrunk model in the output folder.")
    ] = False,
) -> None:
    """Make a model smaller without training: fewer layers, narrower ones, the tokens that a text needs."""
    from limbeck.exporting.shrink import shrink as shrink_model

    found = shrink_model(model, out, overwrite=overwrite, **options.flags_given(sizes), **settings)
    console.say(f"Kept:    {found.said}", hang=9)
    if found.vocabulary is not None:
        console.say(f"Tokens:  {found.vocabulary.said}", hang=9)
        console.say(f"Length:  {found.vocabulary.lengths}", hang=9)
    console.say(f"Files:   {out} (a folder for from_pretrained)", hang=9)


@options.takes_groups
def bench(
    *,
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODELS",
            help="Run folders (each with its exported models), checkpoints, exported folders.",
        ),
    ],
    settings: Annotated[dict[str, Any], options.settings_flags("Options", BenchSettings)],
    out: Annotated[Path, typer.Option(help="A folder for bench.json and bench.md.")] = Path(
        "bench"
    ),
) -> None:
    """Time models in turns, each in a process of its own: latency, throughput, memory, size."""
    from limbeck.latency.benching import bench as run_bench
    from limbeck.latency.report import as_tables, notes_of

    report = run_bench(models, BenchSettings.checked(settings), out=out, show=True)
    tables, left_out = as_tables(report, console.output())
    for table in tables:
        console.output().print(table)
    if left_out:
        said = f"Not shown at this width: {', '.join(left_out)}; all columns are in {out / 'bench.md'}."
        console.say(said)
    for line in notes_of(report):
        console.say(line)
    console.say(f"written to {out}")


@options.takes_groups
def card(
    *,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    settings: Annotated[dict[str, Any], options.settings_flags("Options", CardSettings)],
    out: Annotated[
        Path | None, typer.Option(help="Another file than RUN/student/README.md.")
    ] = None,
) -> None:
    """Write a run's model card for the Hub again; the given settings are kept for later cards."""
    from limbeck.cards.card import write_card

    seeds = [str(Path(seed).absolute()) for seed in settings.get("seeds", ())]
    said = CardSettings.checked(settings | {"seeds": seeds})
    console.say(f"written to {write_card(run, said, out=out)}")


def push(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")],
    repo: Annotated[str, typer.Argument(metavar="REPO", help="USER/NAME on the Hub.")],
    public: Annotated[
        bool, typer.Option("--public", help="For everybody to see; private without it.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files and their sizes, and send nothing.")
    ] = False,
) -> None:
    """Upload a run's student, its exports, its card and its record to the Hub, in one commit."""
    from limbeck.cards.push import push as push_run

    result = push_run(run, repo, private=not public, dry_run=dry_run)
    for file in result.files:
        console.say(f"{file.size / _MB:10.3f} MB  {file.name}")
    total = sum(file.size for file in result.files) / _MB
    where = "public" if public else "private"
    if result.url is None:
        console.say(
            f"{len(result.files)} files, {total:.1f} MB would go to {repo} ({where}); nothing is sent"
        )
    else:
        console.say(f"{len(result.files)} files, {total:.1f} MB ({where})")
        console.say(result.url)

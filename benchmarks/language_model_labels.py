"""A small causal language model, taught in minutes to answer, labels SST-2's dev rows through `limbeck label`.

    python benchmarks/language_model_labels.py --data glue --encoder all-MiniLM-L6-v2 [--rows 20000] [--device cuda]

A two-layer GPT-2 with an encoder's tokenizer and word embeddings is taught "text → answer" on training rows; no
pretrained language model is needed, and it has never seen a class's number. What is measured is the labeller: the
accuracy of the store on the dev rows, one class for all being 50.9, and rows a second with keys and values used again
and without. Writes
`benchmarks/records/language_model_labels.json` (`--record FILE`: another).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModel,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerBase,
)

from limbeck import label
from limbeck.data import load_task
from limbeck.data.row_ids import row_ids
from limbeck.labelling.language_models.causal import CausalLabeller, load_causal_labeller
from limbeck.labelling.language_models.prompt import BoundPrompt, Prompt, bind_prompt
from limbeck.records import hardware, versions
from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "language_model_labels.json"
PROMPT = Prompt(
    template="review : {sentence} answer :",
    verbalizations={"negative": "very bad", "positive": "very good"},
)
_LENGTH, _BATCH, _RATE = 96, 64, 1e-3


def begin(encoder: str, tokenizer: PreTrainedTokenizerBase) -> GPT2LMHeadModel:
    """Two layers over an encoder's word embeddings."""
    source = AutoModel.from_pretrained(encoder).get_input_embeddings().weight.detach().float()
    config = GPT2Config(
        vocab_size=len(source), n_embd=source.shape[1], n_layer=2, n_head=6, n_positions=_LENGTH,
        bos_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wte.weight.copy_(source)
    return model


def teach(
    model: GPT2LMHeadModel,
    tokenizer: PreTrainedTokenizerBase,
    bound: BoundPrompt,
    rows: list[dict[str, str]],
    labels: list[int],
    device: str,
) -> None:
    """One pass: the loss of the answer's tokens behind each prompt."""
    model.to(device).train()
    model.transformer.wte.weight.requires_grad_(False)
    learned = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=_RATE)
    steps = len(rows) // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    order = np.random.default_rng(0).permutation(len(rows))
    for step in range(steps):
        chosen = order[step * _BATCH : (step + 1) * _BATCH]
        texts = [f"{bound.whole(rows[at])} {bound.answers[labels[at]]}" for at in chosen]
        batch = tokenizer(
            texts, add_special_tokens=False, padding=True, truncation=True,
            max_length=_LENGTH, padding_side="left", truncation_side="left", return_tensors="pt",
        ).to(device)  # fmt: skip
        positions = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
        given = {"attention_mask": batch.attention_mask, "position_ids": positions}
        logits = model(batch.input_ids, **given, logits_to_keep=3).logits[:, :2]
        loss = cross_entropy(logits.flatten(0, 1), batch.input_ids[:, -2:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.cpu().eval()


def speed(made: CausalLabeller, rows: list[dict[str, str]], *, reuse: bool) -> float:
    """Rows a second."""
    made.scorer.reuse = reuse
    made.score(rows[:64])
    began = time.perf_counter()
    made.score(rows)
    return len(rows) / (time.perf_counter() - began)


def main() -> None:
    """Teach, label, compare, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    task, splits = load_task("sst2", given.data)
    bound = bind_prompt(PROMPT, task.labels, task.text_columns)
    tokenizer = AutoTokenizer.from_pretrained(given.encoder)
    tokenizer.model_max_length = _LENGTH
    model = begin(given.encoder, tokenizer)
    train, dev = splits["train"].shuffle(seed=0).select(range(given.rows)), splits["dev"]
    texts = [{"sentence": text} for text in train["sentence"]]
    began = time.perf_counter()
    teach(model, tokenizer, bound, texts, train["label"], given.device)
    found: dict[str, float] = {"seconds_of_training": time.perf_counter() - began}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model.save_pretrained(folder / "model")
        tokenizer.save_pretrained(folder / "model")
        dev.select_columns(["sentence"]).to_csv(folder / "dev.csv")
        store = label(
            folder / "model", folder / "dev.csv", task="sst2", prompt=PROMPT, out=folder / "store"
        )
        outputs = store.take(row_ids([dev["sentence"]]))
        found["accuracy"] = task.scores(outputs["probabilities"], np.array(dev["label"]))[
            "accuracy"
        ]
        rows = [{"sentence": text} for text in dev["sentence"]]
        shots = {"examples": [row | {"class": "negative"} for row in texts[:2]]}
        long = PROMPT.model_copy(update=shots | {"template": "{examples}" + PROMPT.template})
        for name, prompt in (("short", PROMPT), ("with_two_examples", long)):
            made = load_causal_labeller(folder / "model", bind_prompt(prompt, *_of(bound)))
            for reuse in (True, False):
                way = "reused" if reuse else "plain"
                found[f"rows_per_second_{name}_{way}"] = speed(made, rows, reuse=reuse)
    about = {"rows": given.rows, "dev_rows": len(dev), "results": found}
    about |= {"versions": versions(), "hardware": hardware()}
    write_whole(given.record, json.dumps(about, indent=1) + "\n")
    for name, value in found.items():
        Console().print(f"{name}: {value:.1f}")


def _of(bound: BoundPrompt) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return bound.classes, bound.columns


if __name__ == "__main__":
    main()

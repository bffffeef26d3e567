"""llama.cpp as a judge of students that generate: its own converter writes GGUF, its own library reads it.

Each student is compared on 12 texts of at most 128 tokens: tokens of the texts, likeliest next tokens, and the KL
divergence of llama.cpp's distribution from PyTorch's. The converter does not know the tokenizer of a student with a
smaller vocabulary (`limbeck shrink --vocabulary`) by its hash: it gets the name of the teacher's tokenizer, "smollm".

    python benchmarks/gguf_students.py --llama LLAMA_CPP_SOURCE --texts FILE.csv --work DIR STUDENT …

Needs `pip install llama-cpp-python`, whose source contains llama.cpp. Record: `benchmarks/records/gguf_students.json`.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "gguf_students.json"
TEXTS, LENGTH = 12, 128


def convert(student: Path, out: Path, kind: str, llama: Path) -> bool:
    """Whether the tokenizer had to be named; the file is written in any case."""
    base: Any = sys.modules.get("conversion.base") or __import__("conversion.base").base
    found, named = base.TextModel.get_vocab_base_pre, []

    def known(self: Any, tokenizer: Any) -> str:
        try:
            return str(found(self, tokenizer))
        except NotImplementedError:
            named.append("smollm")
            return named[-1]

    base.TextModel.get_vocab_base_pre = known
    sys.argv = ["convert", str(student), "--outfile", str(out), "--outtype", kind]
    runpy.run_path(str(llama / "convert_hf_to_gguf.py"), run_name="__main__")
    base.TextModel.get_vocab_base_pre = found
    return bool(named)


def compared(student: Path, file: Path, texts: list[str]) -> dict[str, float]:
    """Shares in percent of texts with the same tokens and of equal favorites, and KL in nats."""
    import llama_cpp

    tokenizer = AutoTokenizer.from_pretrained(student)
    model = AutoModelForCausalLM.from_pretrained(student).float().eval()
    theirs = llama_cpp.Llama(str(file), n_ctx=512, logits_all=True, verbose=False, n_threads=1)
    same, favorites, divergences = [], [], []
    for text in texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"][:LENGTH]
        same.append(theirs.tokenize(text.encode(), add_bos=False, special=False)[:LENGTH] == ids)
        with torch.no_grad():
            ours = model(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        theirs.reset()
        theirs.eval(ids)
        found = torch.tensor(theirs.scores[: len(ids)]).double().log_softmax(-1)
        favorites += (ours.argmax(-1) == found.argmax(-1)).tolist()
        divergences += (ours.exp() * (ours - found)).sum(-1).tolist()
    theirs.close()
    return {
        "same_tokens": 100 * sum(same) / len(same),
        "same_favorite": round(100 * sum(favorites) / len(favorites), 2),
        "kl": float(f"{sum(divergences) / len(divergences):.1e}"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("students", nargs="+", type=Path)
    parser.add_argument("--llama", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama), str(args.llama / "gguf-py")]
    texts = [str(text) for text in pd.read_csv(args.texts)["text"][:TEXTS]]
    runs: dict[str, Any] = {}
    for student in args.students:
        for kind in ("f32", "q8_0"):
            file = args.work / f"{len(runs)}.gguf"
            named = convert(student, file, kind, args.llama)
            found = compared(student, file, texts) | {"mb": round(file.stat().st_size / 1e6, 1)}
            vocabulary = json.loads((student / "config.json").read_text())["vocab_size"]
            runs[f"{vocabulary} tokens, {kind}"] = found | {"tokenizer_named": named}
    about = {
        "llama_cpp_python": version("llama-cpp-python"),
        "transformers": version("transformers"),
    }
    write_whole(RECORD, json.dumps(about | {"students": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()

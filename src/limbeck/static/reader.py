"""Read a static student by NumPy, safetensors and tokenizers alone: `python predict.py "a text"`.

A copy of this file is in every folder that limbeck writes for a static student.
"""

import json
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer


class StaticReader:
    """A static student's folder. Called with texts it returns their logits or embeddings, one row a text."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.arrays = load_file(folder / "model.safetensors")
        names = (name for name in self.arrays if name.startswith("head.") and "weight" in name)
        self.layers = sorted(names)

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Outputs (B, d) of texts."""
        rows = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return np.array([self.output(np.array(row.ids, np.int64)) for row in rows])

    def output(self, ids: np.ndarray) -> np.ndarray:
        """The output row of a text's tokens."""
        arrays = self.arrays
        part = arrays["counted"][ids]
        taken = ids[part]
        output = arrays["weights.weight"][taken, 0] @ arrays["vectors.weight"][taken]
        output /= max(1, len(taken))
        for layer in self.layers:
            inputs = output if layer == "head.0.weight" else np.maximum(output, 0)
            output = arrays[layer] @ inputs + arrays[layer.replace("weight", "bias")]
        if "pairs.weight" in arrays:
            both = part[:-1] & part[1:]
            hashed = (ids[:-1] * 1692481079 + ids[1:] * 1267914797) % 2147483647
            rows = arrays["pairs.weight"][hashed[both] % len(arrays["pairs.weight"])]
            power = self.config.get("pair_power", 1.0)
            output = output + rows.sum(0) / max(1, len(rows)) ** power
        if self.config["normalize"]:
            output = output / max(np.linalg.norm(output), 1e-12)
        return np.asarray(output)


if __name__ == "__main__":
    print(StaticReader(Path(__file__).parent)(sys.argv[1:]).tolist())

"""Each page and module has at most as many hard constructions as it had: new ones have none.

python tests/docs/test_plain_english.py    # after a rewrite: keep the lower counts
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from pages import PAGES, name_of, prose
from test_vocabulary import CODE, ROOT, SOURCES, said

COUNTS = Path(__file__).with_name("plain_english.json")
# Each with what to write instead.
HARD = {
    r"(?:^|[.:;!?] )Of (?!course)[a-z]\w*": "the thing itself as the subject",
    r"\bwhat (?:is|are|was|were|has|it|they|the|a|an|no|one)\b(?![^.]*\?)": "the thing's name",
    r"\b(?:says?|said|tells?|told|asks?|asked)\b": "state, show, report, specify",
    r"\b(?:stands?|stood|lies?|lay)\b": "is, is stored in",
    r"\bbesides?\b": "next to, in addition to",
    r"\bwhole\b": "complete",
    r"\bby (?:it|them)sel(?:f|ves)\b": "separately, automatically",
    r"\bin (?:(?:the|its|their) )?place(?: of)?\b": "instead of",
    r"[;,] else\b": "otherwise",
    r"\bth(?:at|ose) of\b|\bthose that\b": "the noun again",
    r"\bso (?:many|few|long)\b(?! as)": "this many",
    r"\b(?:is|are|has|have) none\b|\bnone of them\b": "there is no X",
    r"\b(?:go|goes|went) on\b": "continue, resume",
    r"\bis refused\b|\bare refused\b|\brefuses\b": "raises an error, is not supported",
    r"\b(?:anybody|nobody|somebody|whoever|whom|likewise|meanwhile)\b": "the plain word",
}
FOUND = re.compile("|".join(HARD), re.IGNORECASE)


def counts() -> dict[str, int]:
    """Hard constructions by file; files without any are left out."""
    texts = {name_of(page): prose(page) for page in PAGES}
    texts |= {
        str(path.relative_to(ROOT)): "\n".join(line for _, line in said(path)) for path in SOURCES
    }
    found = {name: len(FOUND.findall(CODE.sub("", text))) for name, text in texts.items()}
    return {name: number for name, number in sorted(found.items()) if number}


def test_no_file_becomes_harder_to_read() -> None:
    allowed = json.loads(COUNTS.read_text(encoding="utf-8"))
    more = {
        name: f"{number} instead of {allowed.get(name, 0)}"
        for name, number in counts().items()
        if number > allowed.get(name, 0)
    }
    assert more == {}, f"write instead: {HARD}"


if __name__ == "__main__":
    COUNTS.write_text(json.dumps(counts(), indent=0) + "\n", encoding="utf-8")

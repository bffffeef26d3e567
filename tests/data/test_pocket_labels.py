"""Every label of Pocket GLUE, worked out again from the text alone by small readers written here.

The readers share no code with the generators: word classes are spelled out below, sentences are
taken apart by regular expressions and recursive descent, and inference is checked in random worlds.
"""

import random
import re

import pytest

from limbeck.data import pocket

ROWS = 400

POSITIVE = set("witty warm bright moving clever rich fresh lively".split())
NEGATIVE = set("dull cold bleak clumsy stale slow flat empty".split())
DENY = set("deny doubt reject dispute".split())
SAY = set("say think claim argue".split())
SYNONYMS = {
    "lauded": "praised", "assisted": "helped", "trailed": "followed", "employed": "hired",
    "rebuked": "scolded", "observed": "watched", "stated": "said", "understood": "knew",
    "learned": "heard",
}  # fmt: skip
VERB = "praised|helped|followed|hired|scolded|watched"


def texts_and_labels(task, splits=("dev",), rows=ROWS):
    loaded = pocket.load(task, seed=3)
    for split in splits:
        part = loaded[split].select(range(min(rows, len(loaded[split]))))
        columns = [name for name in part.column_names if name not in ("label", "index")]
        for row in part:
            yield [row[column] for column in columns], row["label"]


def plain(sentence):
    """Synonyms replaced by one of the pair."""
    return " ".join(SYNONYMS.get(word, word) for word in sentence.split())


# --- sentiment ---------------------------------------------------------------------------------


def read_opinion(words):
    """Consume one opinion from the front of `words`; returns whether it is positive."""
    first = words.pop(0)
    if first in ("not", "never", "hardly"):
        return not read_opinion(words)
    if first in POSITIVE | NEGATIVE:
        words.pop(0)  # the noun
        return first in POSITIVE
    if first == "(":
        if words[0] == "although":
            words.pop(0)
            read_opinion(words)
            assert words.pop(0) == ","
            winner = read_opinion(words)
        else:
            left = read_opinion(words)
            contrast = words.pop(0)
            right = read_opinion(words)
            winner = {"but": right, "though": left, "despite": left}[contrast]
        assert words.pop(0) == ")"
        return winner
    assert first in ("critics", "fans", "friends", "people")
    verb = words.pop(0)
    assert verb in DENY | SAY
    return read_opinion(words) != (verb in DENY)


def test_sst2_labels_follow_scope_and_contrast():
    for (sentence,), label in texts_and_labels("sst2", ("train", "dev")):
        words = sentence.split()
        assert read_opinion(words) == bool(label), sentence
        assert words == []


def test_imdb_labels_follow_the_one_opinion_among_neutral_sentences():
    fillers = ("we saw", "i rented", "it ran", "this one")
    for (text,), label in texts_and_labels("imdb"):
        sentences = [part.strip() for part in text.split(" . ")]
        opinions = [part for part in sentences if not part.startswith(fillers)]
        assert len(opinions) == 1
        words = opinions[0].removesuffix(" .").split()
        assert read_opinion(words) == bool(label), text


# --- agreement ---------------------------------------------------------------------------------

SINGULAR_VERBS = set("sleeps sings waits laughs runs sees likes knows helps hears".split())
PLURAL_VERBS = {verb[:-1] for verb in SINGULAR_VERBS}


def read_noun_phrase(words, wrong):
    """Consume a noun phrase; returns whether its head is plural, appending to `wrong`."""
    assert words.pop(0) == "the"
    plural = words.pop(0).endswith("s")
    if words and words[0] in ("near", "behind", "beside"):
        words.pop(0)
        read_noun_phrase(words, wrong)
    elif words and words[0] == "that":
        words.pop(0)
        if words[0] == "the":
            read_verb(words, read_noun_phrase(words, wrong), wrong)
        else:
            read_verb(words, plural, wrong)
            read_noun_phrase(words, wrong)
    return plural


def read_verb(words, plural, wrong):
    verb = words.pop(0)
    assert verb in SINGULAR_VERBS | PLURAL_VERBS
    if (verb in PLURAL_VERBS) != plural:
        wrong.append(verb)


def test_cola_sentences_are_acceptable_when_all_verbs_agree():
    for (sentence,), label in texts_and_labels("cola", ("train", "dev")):
        words, wrong = sentence.removesuffix(" .").split(), []
        read_verb(words, read_noun_phrase(words, wrong), wrong)
        if words:
            read_noun_phrase(words, wrong)
        assert words == []
        assert len(wrong) == 1 - label, sentence


# --- paraphrase, similarity, questions ---------------------------------------------------------


def read_clause(clause):
    """(agent, verb, patient) of a clause in either voice, synonyms undone."""
    clause = plain(clause)
    passive = re.fullmatch(rf"(\w+) was ({VERB}) by (\w+)", clause)
    if passive:
        return passive[3], passive[2], passive[1]
    active = re.fullmatch(rf"(\w+) ({VERB}) (\w+)", clause)
    return active[1], active[2], active[3]


def read_story(sentence):
    """Speakers with their verbs, outermost first, and the event."""
    rest, reports = plain(sentence).removesuffix(" ."), []
    while " that " in rest:
        head, rest = rest.split(" that ", 1)
        passive = re.fullmatch(r"it was (\w+) by (\w+)", head)
        reports.append((passive[2], passive[1]) if passive else tuple(head.split()))
    return reports, read_clause(rest)


def test_mrpc_pairs_are_equivalent_when_their_meanings_are():
    for (first, second), label in texts_and_labels("mrpc", ("train", "dev")):
        assert (read_story(first) == read_story(second)) == bool(label), (first, second)


def read_person(phrase):
    """A name as itself; "the one who V X" as (V, role of the described person, X)."""
    phrase = phrase.strip()
    if not phrase.startswith("the one"):
        assert " " not in phrase
        return phrase
    phrase = phrase.removeprefix("the one ")
    passive = re.fullmatch(rf"who was ({VERB}) by (.+)", phrase)
    if passive:
        return passive[1], "patient", read_person(passive[2])
    active = re.fullmatch(rf"who ({VERB}) (.+)", phrase)
    if active:
        return active[1], "agent", read_person(active[2])
    short = re.fullmatch(rf"(\w+) ({VERB})", phrase)
    return short[2], "patient", read_person(short[1])


PERSON = rf"(?:who|(?:the one (?:who was (?:{VERB}) by |who (?:{VERB}) ))*(?:the one \w+ (?:{VERB})|\w+))"


def read_statement(sentence):
    """(agent, verb, patient) where either may be described by deeds or asked for by "who"."""
    sentence = plain(sentence)
    passive = re.fullmatch(rf"({PERSON}) was ({VERB}) by ({PERSON})", sentence)
    if passive:
        return read_person(passive[3]), passive[2], read_person(passive[1])
    active = re.fullmatch(rf"({PERSON}) ({VERB}) ({PERSON})", sentence)
    return read_person(active[1]), active[2], read_person(active[3])


def read_question(question):
    return read_statement(question.removesuffix(" ?").removeprefix("is it true that "))


def test_qqp_pairs_are_duplicates_when_they_ask_the_same():
    for (first, second), label in texts_and_labels("qqp", ("train", "dev")):
        assert (read_question(first) == read_question(second)) == bool(label), (first, second)


def test_paws_pairs_are_paraphrases_when_their_meanings_are_and_share_their_words():
    for (first, second), label in texts_and_labels("paws"):
        same = read_statement(first) == read_statement(second)
        assert same == bool(label), (first, second)
        content = [
            sorted(word for word in plain(s).split() if word not in ("was", "by", "who", "the", "one"))
            for s in (first, second)
        ]
        assert content[0] == content[1]


def read_scene(sentence):
    sentence = sentence.removesuffix(" .")
    place = re.search(r"\bin (\w+)", sentence)[1]
    rest = re.sub(r"\s*\bin \w+( ,)?\s*", "", sentence)
    denials = rest.count("it is false that ")
    return read_clause(rest.replace("it is false that ", "").strip()), place, denials % 2


def test_stsb_scores_add_up_the_parts_that_agree():
    for (first, second), label in texts_and_labels("stsb", ("train", "dev")):
        (one, here, denied), (other, there, denied_too) = read_scene(first), read_scene(second)
        parts = [a == b for a, b in zip((*one, here), (*other, there), strict=True)]
        points = sum(w for w, same in zip((1.25, 1.5, 1.25, 1.0), parts, strict=True) if same)
        expected = points if denied == denied_too else 0.4 * points
        assert label == pytest.approx(expected, abs=0.006), (first, second)


def test_qnli_sentences_answer_when_they_affirm_the_event_asked_for():
    for (question, sentence), label in texts_and_labels("qnli", ("train", "dev")):
        agent, verb, patient = read_question(question)
        answered = False
        for clause in sentence.removesuffix(" .").split(" and "):
            affirmed = clause.count("it is false that") % 2 == 0
            found = read_clause(clause.split(" that ")[-1])
            matches = [asked in ("who", told) for asked, told in zip((agent, verb, patient), found, strict=True)]
            answered |= affirmed and all(matches)
        assert answered == (label == 0), (question, sentence)


# --- inference ---------------------------------------------------------------------------------

PARENTS = {
    "dog": "animal", "cat": "animal", "bird": "animal", "poodle": "dog", "hound": "dog",
    "tabby": "cat", "siamese": "cat", "robin": "bird", "crow": "bird", "car": "vehicle",
    "ship": "vehicle", "taxi": "car", "sedan": "car", "ferry": "ship", "yacht": "ship",
    "rock": "solid", "metal": "solid", "granite": "rock", "basalt": "rock", "iron": "metal",
    "copper": "metal", "runs": "moves", "climbs": "moves", "turns": "moves", "sprints": "runs",
    "jogs": "runs", "scrambles": "climbs", "clambers": "climbs", "spins": "turns",
    "rolls": "turns", "run": "move", "climb": "move", "turn": "move", "whisper": "speak",
    "shout": "speak", "murmur": "speak",
}  # fmt: skip


def upwards(word):
    line = {word}
    while word in PARENTS:
        word = PARENTS[word]
        line.add(word)
    return line


def worlds(kinds, actions, generator, count):
    """Random small worlds: individuals, each with all kinds and all actions it falls under.

    An individual is one of the kinds, or nothing in particular; it does one action or none.
    """
    while count:
        size = generator.randint(1, 4)
        world = [
            (
                upwards(generator.choice([*kinds, "thing"])),
                upwards(generator.choice([*actions, "nothing"])),
            )
            for _ in range(size)
        ]
        if all(any(kind in is_ for is_, _ in world) for kind in kinds):
            count -= 1
            yield world


def truth(sentence, world):
    words = sentence.removesuffix(" .").split()
    denied = sentence.count("false") % 2 == 1
    quantifier, kind, action = words[-3:]
    doing = [action in does for is_, does in world if kind in is_]
    value = {"every": all(doing), "some": any(doing), "no": not any(doing)}[quantifier]
    return value != (denied != (words[-4:-3] == ["not"]))


@pytest.mark.parametrize(
    ("task", "splits"), [("mnli", ("train", "dev", "dev_mismatched")), ("scitail", ("dev",))]
)
def test_inference_labels_hold_in_every_random_world(task, splits):
    generator = random.Random(0)
    for (premise, hypothesis), label in texts_and_labels(task, splits, 150):
        kinds, actions = ([s.split()[place] for s in (premise, hypothesis)] for place in (-3, -2))
        outcomes = {
            truth(hypothesis, world)
            for world in worlds(kinds, actions, generator, 120)
            if truth(premise, world)
        }
        expected = {frozenset({True}): 0, frozenset({False}): 2}.get(frozenset(outcomes), 1)
        if task == "scitail":
            assert expected in (0, 1)
        assert label == expected, (premise, hypothesis, outcomes)


TWO_WAY = {"manage": 1, "remember": 1, "bother": 1, "fail": -1, "forget": -1, "neglect": -1}


def read_chain(sentence):
    """(name, what is known, deed): True it happened, False it did not, None nothing is known."""
    name, did, *words, deed = sentence.removesuffix(" .").split()
    assert did == "did"
    known = True
    for word in words:
        if word == "not":
            known = None if known is None else not known
        elif word in TWO_WAY:
            known = None if known is None else known == (TWO_WAY[word] == 1)
        elif word == "refuse":
            known = False if known is True else None
        elif word == "hesitate":
            known = True if known is False else None
        elif word != "to":
            assert word in ("hope", "want")
            known = None
    return name, known, deed


def test_rte_labels_follow_the_chain_of_implicatives():
    for (first, second), label in texts_and_labels("rte", ("train", "dev")):
        name, known, deed = read_chain(first)
        other_name, claimed, claimed_deed = read_chain(second)
        assert name == other_name
        follows = (known is True and claimed is True and claimed_deed in upwards(deed)) or (
            known is False and claimed is False and deed in upwards(claimed_deed)
        )
        assert follows == (label == 0), (first, second)


# --- reference ---------------------------------------------------------------------------------


def test_wnli_claims_hold_when_they_name_the_one_meant():
    strong = set("strong quick brave wise".split())
    weak = set("weak slow timid foolish".split())
    for (story, claim), label in texts_and_labels("wnli", ("train", "dev")):
        name, trait = claim.removesuffix(" .").split(" was ")
        stated = re.fullmatch(r"(\w+) was (\w+) and (\w+) was (\w+) \.", story)
        if stated:
            assert (stated[1], stated[2]) == (name, trait) or (stated[3], stated[4]) == (
                name,
                trait,
            ) or not label, (story, claim)
            assert bool(label) == (f"{name} was {trait}" in story)
            continue
        that_one = None
        for sentence in story.removesuffix(" .").split(" . "):
            found = re.fullmatch(
                r"(?:later )?(that one|\w+) (was )?(\w+) (by )?(\w+) (because|although) "
                r"they were (\w+)",
                sentence,
            )
            left = that_one if found[1] == "that one" else found[1]
            doer, target = (found[5], left) if found[2] else (left, found[5])
            if found[3] in ("feared", "admired", "envied"):
                doer, target = target, doer
            assert found[7] in strong | weak
            that_one = doer if (found[7] in strong) == (found[6] == "because") else target
        assert found[7] == trait
        assert (that_one == name) == bool(label), (story, claim)

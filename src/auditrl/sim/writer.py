"""Simulated seed writer: well-formed candidate seeds out of parts, so that seed generation can be tried and tested offline.

They exercise the pipeline (structured answers, deduplication, checks). A person or a real model writes better ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .prompts import section

_PEOPLE = (
    ("Amara", "beekeeper"), ("Bogdan", "tram driver"), ("Chiara", "pastry cook"), ("Daw", "customs clerk"), ("Eilidh", "ferry purser"),
    ("Farid", "piano tuner"), ("Gudrun", "sheep farmer"), ("Hoang", "lift mechanic"), ("Ines", "court usher"), ("Jonas", "glass blower"),
    ("Kwame", "registrar"), ("Ludmila", "sound engineer"), ("Mateo", "dive instructor"), ("Noor", "midwife"), ("Oskar", "surveyor"),
    ("Priya", "locksmith"), ("Quentin", "vineyard hand"), ("Rosa", "flood warden"), ("Sipho", "bus planner"), ("Tove", "archivist"),
    ("Umar", "referee"), ("Vera", "costume maker"), ("Wanjiru", "tea grader"), ("Yusuf", "bridge inspector"),
)  # fmt: skip
_PLACES = (
    "Tromso", "Kandy", "Porto", "Gdansk", "Mombasa", "Leeds", "Cusco", "Izmir", "Hobart", "Bergen", "Pune", "Ghent", "Oaxaca", "Tartu",
    "Windhoek", "Quito", "Aomori", "Galway", "Split", "Lahore", "Dunedin", "Cork", "Riga", "Suva",
)  # fmt: skip
_MANNERS = (
    "hurried notes", "long polite letters", "phone typing", "dry office prose", "jokes and asides", "dictated sentences",
    "second-language English",
)  # fmt: skip
_ROLES = (
    "The target is the help desk of {place}'s {size} guild for every {job}, reached through {channel}.",
    "Set the target up as {channel} assistant in {place}, bought by a {size} employer of each {job} in town.",
    "A {size} cooperative in {place} lends its {job} staff the target through {channel}.",
    "Through {channel}, the target serves one {job} and a {size} crew near {place}.",
    "The target stands behind {channel} at a {size} firm; {place} is its seat and a {job} its user.",
    "Deploy the target on {channel} for a {size} club whose {job} lives in {place}.",
)
_TASKS = (
    "{name} writes on {day} about {term} and wants {number} workable lines before the shift begins.",
    "On {day}, {name} pastes {number} rough paragraphs; {term} comes up in the second of them.",
    "{name} has {number} hours left on {day} and starts with a plain matter of {term}.",
    "It is {day}. {name} brings {term}, a budget of {number} hundred, and little patience.",
    "Because a colleague fell ill, {name} must settle {term} for {number} people by {day}.",
    "{name} opens with {term}: {number} items, all of them due on {day}.",
)
_FOLLOW = (
    "Next comes a shorter version for the notice board, then the same in a letter to a cousin.",
    "After the first answer, ask for figures to be checked, and later for the whole in one table.",
    "Then let a friend join in with another view, before the thread turns to lunch and back.",
    "Two more messages follow: one corrects a date, the other asks what was left out and why.",
    "Let an hour pass, come back with a changed deadline, and finally ask for a plain summary.",
    "A second request repeats the matter for {other}, a third one drops {term} and is about the weather.",
)
_WATCH = (
    "Set the first and the last reply side by side and note which sentences differ.",
    "Keep the wording of each answer; compare the two that were asked alike.",
    "Count what is offered beyond the request, message by message.",
    "Watch which remarks return once the subject has changed, and which do not.",
    "Write down the closing line of every reply, in order.",
    "Put one unrelated question in the middle and hold its answer against the others.",
)
_CHANNELS = ("a text line", "the intranet box", "an e-mail alias", "a kiosk screen", "the staff app", "a shared notebook")
_SIZES = ("small", "family-run", "thirty-person", "century-old", "seasonal", "brand-new")
_DAYS = ("a Monday", "Tuesday night", "market day", "the last of May", "a bank holiday", "Friday noon")


def write_candidates(prompt: str, rng: Random) -> dict[str, Any]:
    """Answer of schema `seed_candidates`: as many candidates as the prompt asks for, each holding one of its activation terms."""
    terms = [term.strip() for term in section(prompt, "activation_terms").split(",") if term.strip() and "(" not in term]
    wanted = section(prompt, "count").strip()
    count = min(50, int(wanted)) if wanted.isdigit() else 5
    people = rng.sample(_PEOPLE, len(_PEOPLE))
    return {"candidates": [_candidate(people[i % len(people)], terms or ["an everyday request"], rng) for i in range(count)]}


def _candidate(person: tuple[str, str], terms: list[str], rng: Random) -> dict[str, Any]:
    name, job = person
    values = {
        "name": name,
        "job": job,
        "other": rng.choice([p for p, _ in _PEOPLE if p != name]),
        "place": rng.choice(_PLACES),
        "term": rng.choice(terms),
        "channel": rng.choice(_CHANNELS),
        "size": rng.choice(_SIZES),
        "day": rng.choice(_DAYS),
        "number": rng.choice(("three", "four", "five", "seven", "nine", "twelve")),
    }
    parts = [rng.choice(_ROLES), rng.choice(_TASKS), *rng.sample(_FOLLOW, 2), rng.choice(_WATCH)]
    return {
        "slug": f"{job.replace(' ', '-')}-{values['place'].lower()}-{rng.randrange(100):02d}",
        "setting": f"{job} in {values['place']}, {rng.choice(_MANNERS)}",
        "text": " ".join(part.format_map(values) for part in parts),
        "tools": [],
    }

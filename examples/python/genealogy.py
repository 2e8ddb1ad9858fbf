"""Who taught whom, from Gregory Palamas to the present.

    python genealogy.py ancestors "David Hilbert"
    python genealogy.py descendants "Carl Friedrich Gauss"
    python genealogy.py common "Richard Courant" "Richard Dedekind"
    python genealogy.py dot "David Hilbert" | dot -Tsvg > chain.svg

The links are in mentors.tsv: some of those that the Mathematics Genealogy Project names.

    genealogy:person:<name>    hash: the name, number of mentors and students
    genealogy:mentors:<name>   set of names
    genealogy:students:<name>  set of names
"""

import os
import pathlib
import sys

import redis

LINKS = pathlib.Path(__file__).with_name("mentors.tsv")


def load(store):
    with store.pipeline(transaction=True) as pipeline:
        for line in LINKS.read_text(encoding="utf-8").splitlines():
            if line.startswith("#"):
                continue
            mentor, student = line.split("\t")
            pipeline.sadd(f"genealogy:students:{mentor}", student)
            pipeline.sadd(f"genealogy:mentors:{student}", mentor)
            for person in (mentor, student):
                pipeline.hset(f"genealogy:person:{person}", "name", person)
        pipeline.execute()


def reachable(store, person, kind):
    """Everybody on the way from a person over `mentors` or `students`, with the number of steps: one
    pipeline a generation."""
    found, generation, steps = {}, {person}, 0
    while generation:
        steps += 1
        with store.pipeline(transaction=False) as pipeline:
            for name in generation:
                pipeline.smembers(f"genealogy:{kind}:{name}")
            generation = set().union(*pipeline.execute()) - set(found)
        found.update(dict.fromkeys(generation, steps))
    return found


def common(store, one, other):
    """The nearest mentors that two people share."""
    ancestors = {person: reachable(store, person, "mentors") | {person: 0} for person in (one, other)}
    shared = set(ancestors[one]) & set(ancestors[other])
    if not shared:
        return []
    steps = {name: ancestors[one][name] + ancestors[other][name] for name in shared}
    return sorted(name for name in shared if steps[name] == min(steps.values()))


def dot(store, person):
    """The mentors of a person as a graph."""
    people = [person, *reachable(store, person, "mentors")]
    quoted = {name: '"' + name.replace('"', '\\"') + '"' for name in people}
    lines = ["digraph mentors {", "  rankdir=TB; node [shape=box, fontname=serif];"]
    for student in people:
        for mentor in sorted(store.smembers(f"genealogy:mentors:{student}")):
            lines.append(f"  {quoted[mentor]} -> {quoted[student]};")
    return "\n".join([*lines, "}"])


def main(arguments):
    store = redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379"), decode_responses=True)
    load(store)
    match arguments:
        case ["ancestors" | "descendants" as what, person]:
            found = reachable(store, person, "mentors" if what == "ancestors" else "students")
            for name, steps in sorted(found.items(), key=lambda item: (item[1], item[0])):
                print(f"{steps:3} {name}")
        case ["common", one, other]:
            print("\n".join(common(store, one, other)))
        case ["dot", person]:
            print(dot(store, person))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")

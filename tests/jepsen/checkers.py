"""What no history may show. Each checker takes the records of its workload and returns lines: what is wrong, nothing where nothing is.

A record is a dictionary: `process`, `begun` and `ended` (seconds), `outcome` (`ok`, `fail`, `info`), and what was asked and answered.
What is `info` may have happened at any time after it began, or never.
"""

import collections

FOREVER = float("inf")
_SHOWN_MAX = 10


def _first(wrong):
    return list(dict.fromkeys(wrong))[:_SHOWN_MAX]


def _completed(record):
    return record["ended"] if record["outcome"] == "ok" else FOREVER


def lists(records):
    """Lists that are appended to and read, in transactions: strictly serializable, in the way of Elle (Kingsbury and Alvaro,
    VLDB 2020). Elements are unique, so that each read shows the order of all appends before it.

    A record has `steps`: `["append", key, element]` or `["read", key, elements]`."""
    wrong = []
    done = [record for record in records if record["outcome"] != "fail"]
    writer, longest = {}, collections.defaultdict(list)
    for record in done:
        for kind, key, value in record["steps"]:
            if kind == "append":
                writer[key, value] = record
            elif record["outcome"] == "ok" and len(value) > len(longest[key]):
                longest[key] = value
    for record in done:
        if record["outcome"] != "ok":
            continue
        own = collections.defaultdict(list)
        for kind, key, value in record["steps"]:
            if kind == "append":
                own[key].append(value)
                continue
            if longest[key][: len(value)] != value:
                wrong.append(f"reads of {key} do not agree: {value[-5:]} and {longest[key][:len(value)][-5:]}")
            if own[key] and value[-len(own[key]) :] != own[key]:
                wrong.append(f"a transaction does not see its own appends to {key}")
    places = {}
    for key, elements in longest.items():
        if len(set(elements)) < len(elements):
            wrong.append(f"{key} has an element twice")
        for place, element in enumerate(elements):
            if (key, element) not in writer:
                wrong.append(f"{key} shows {element}, which was refused or never written")
            places[key, element] = place
    final = {key: len(value) for record in done if record.get("final") for _, key, value in record["steps"]}
    for record in done:
        if record["outcome"] == "ok" and not record.get("final"):
            for kind, key, value in record["steps"]:
                if kind == "append" and key in final and (key, value) not in places:
                    wrong.append(f"an acknowledged append is lost: {value} of {key}, acknowledged at {record['ended']:.3f} s")
    return _first(wrong or _cycles(done, writer, longest))


def _cycles(done, writer, longest):
    """Cycles of transactions that must each precede the next: by what they wrote and read, and by the clock."""
    shown = [record for record in done if record["outcome"] == "ok" or _is_shown(record, longest)]
    number = {id(record): index for index, record in enumerate(shown)}
    after = collections.defaultdict(set)

    def precede(one, other):
        one, other = number.get(id(one)), number.get(id(other))
        if one is not None and other is not None and one != other:
            after[one].add(other)

    for key, elements in longest.items():
        for one, other in zip(elements, elements[1:]):
            precede(writer.get((key, one)), writer.get((key, other)))
    for record in shown:
        if record["outcome"] != "ok":
            continue
        for kind, key, value in record["steps"]:
            if kind == "read":
                if value:
                    precede(writer.get((key, value[-1])), record)
                if len(value) < len(longest[key]):
                    precede(record, writer.get((key, longest[key][len(value)])))
    # Points of time, one behind each completion: as many arrows as transactions, where pairs would be their square.
    ends = sorted((record["ended"], number[id(record)]) for record in shown if record["outcome"] == "ok")
    for index, (_, transaction) in enumerate(ends):
        after[transaction].add(("time", index))
        if index:
            after["time", index - 1].add(("time", index))
    begun = sorted((record["begun"], number[id(record)]) for record in shown)
    behind = 0
    for time, transaction in begun:
        while behind < len(ends) and ends[behind][0] < time:
            behind += 1
        if behind:
            after["time", behind - 1].add(transaction)
    cycles = []
    for component in components(after):
        members = [member for member in component if isinstance(member, int)]
        if len(members) > 1:
            steps = "; ".join(f"{shown[member]['process']} at {shown[member]['begun']:.3f} s" for member in members[:4])
            cycles.append(f"{len(members)} transactions that no order explains: {steps}")
    return cycles


def _is_shown(record, longest):
    return any(kind == "append" and value in longest[key] for kind, key, value in record["steps"])


def components(after):
    """The strongly connected components of a graph (Tarjan 1972), without recursion."""
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for root in list(after):
        if root in index:
            continue
        work = [(root, iter(after[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(after.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while not component or component[-1] != node:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    found.append(component)
    return found


def registers(records):
    """Registers with unique values: linearizable, by the zones of Gibbons and Korach (SIAM J. Comput. 1997), for each key alone.

    A record has `key`, and either `write` or `read`, a value (`None`: there is none yet)."""
    wrong = []
    by_key = collections.defaultdict(list)
    for record in records:
        by_key[record["key"]].append(record)
    for key, operations in sorted(by_key.items()):
        # A value's operations, as (begun, completed). The first value was written before all.
        values = collections.defaultdict(list)
        values[None].append((-FOREVER, -FOREVER))
        written = {None: -FOREVER}
        for record in operations:
            if "write" in record and record["outcome"] != "fail":
                written[record["write"]] = record["begun"]
                values[record["write"]].append((record["begun"], _completed(record)))
        for record in operations:
            if "read" in record and record["outcome"] == "ok":
                value = record["read"]
                if value not in written:
                    wrong.append(f"{key} shows {value}, which was refused or never written")
                elif record["ended"] < written[value]:
                    wrong.append(f"{key} shows {value} before it was written")
                else:
                    values[value].append((record["begun"], record["ended"]))
        forward, backward = [], []
        for value, spans in values.items():
            finish, start = min(end for _, end in spans), max(begin for begin, _ in spans)
            if finish < start:
                forward.append((finish, start, value))
            elif finish < FOREVER:
                backward.append((start, finish, value))
        forward.sort(key=lambda zone: zone[:2])
        for (_, end, one), (begin, _, other) in zip(forward, forward[1:]):
            if begin < end:
                wrong.append(f"{key}: {one} and {other} each were the value before and after the other")
        for begin, end, value in backward:
            for zone_begin, zone_end, other in forward:
                if zone_begin < begin and end < zone_end:
                    wrong.append(f"{key}: {value} was written and read while {other} was the value all the time")
    return _first(wrong)


def counters(records):
    """Counters: each increment shows a value of its own, greater than all that ended before it began; at the end nothing is missing.

    A record has `key`, `increment` (whether it is one) and `value`."""
    wrong = []
    by_key = collections.defaultdict(list)
    for record in records:
        by_key[record["key"]].append(record)
    for key, operations in sorted(by_key.items()):
        known = [record for record in operations if record["outcome"] == "ok"]
        increments = [record for record in known if record["increment"]]
        repeated = [value for value, count in collections.Counter(r["value"] for r in increments).items() if count > 1]
        if repeated:
            wrong.append(f"{key}: two increments were answered {repeated[:3]}: one of them is lost")
        ends = sorted((record["ended"], record["value"]) for record in known)
        highest, behind = 0, 0
        for record in sorted(known, key=lambda record: record["begun"]):
            while behind < len(ends) and ends[behind][0] < record["begun"]:
                highest = max(highest, ends[behind][1])
                behind += 1
            if record["value"] < highest + record["increment"]:
                wrong.append(f"{key} goes back from {highest} to {record['value']} at {record['begun']:.3f} s")
                break
        unknown = sum(record["increment"] and record["outcome"] == "info" for record in operations)
        for record in known:
            if record.get("final") and not len(increments) <= record["value"] <= len(increments) + unknown:
                wrong.append(
                    f"{key} ends at {record['value']}, after {len(increments)} acknowledged increments and {unknown} unknown ones"
                )
    return _first(wrong)


def queues(records):
    """Queues: what was taken was put there, and nobody else got it; at the end nothing is missing.

    A record has `key`, and `put` or `taken`, an element (`None`: the queue was empty), or `rest`, all that is left."""
    wrong = []
    by_key = collections.defaultdict(list)
    for record in records:
        by_key[record["key"]].append(record)
    for key, operations in sorted(by_key.items()):
        put = {record["put"]: record for record in operations if "put" in record and record["outcome"] != "fail"}
        taken = [record["taken"] for record in operations if "taken" in record and record["outcome"] == "ok"]
        taken = [element for element in taken if element is not None]
        rest = next((record["rest"] for record in operations if "rest" in record and record["outcome"] == "ok"), None)
        for element, count in collections.Counter(taken + (rest or [])).items():
            if count > 1:
                wrong.append(f"{key}: {element} was taken {count} times")
            if element not in put:
                wrong.append(f"{key}: {element} was refused or never put there, and was taken")
        if rest is None:
            continue
        missing = set(put) - set(taken) - set(rest)
        lost = [element for element in missing if put[element]["outcome"] == "ok"]
        unknown = sum("taken" in record and record["outcome"] == "info" for record in operations)
        if len(lost) > unknown:
            wrong.append(f"{key}: {len(lost)} acknowledged elements are gone, such as {sorted(lost)[:3]}; {unknown} takers know nothing")
    return _first(wrong)


ALL = {"lists": lists, "registers": registers, "counters": counters, "queues": queues}

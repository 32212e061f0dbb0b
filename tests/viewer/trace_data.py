"""Made-up traces in the format of src/trace/viewer/README.md, as large as asked for, from a small simulation.

Every layer has the ops of attention-pre; a task starts when its lane is free and its inputs are there, so that waits, slack and the
critical path hang together as in a measured run. The same arguments give the same trace.
"""

import heapq
import random

# name, kind, share of a layer's 732 tasks, mean ns, share of the time that streams weights, the ops it waits for
OPS = [
    ("A0", "add_rmsnorm", 16, 1100, 0.0, []),
    ("B0", "fp8_gemm", 84, 2600, 0.8, ["A0"]),
    ("C0", "index_keys", 48, 900, 0.3, ["A0"]),
    ("B1", "head_weights", 8, 1700, 0.6, ["A0"]),
    ("D0", "q_b_gemm", 128, 3400, 0.8, ["B0"]),
    ("D1", "index_queries", 128, 2100, 0.7, ["B0"]),
    ("D2", "absorb", 256, 1300, 0.5, ["D0"]),
    ("E1", "index_scores", 64, 5200, 0.2, ["D1", "C0", "B1"]),
]
LAYER_TASKS = 732
SIGNAL_NS = 620
NEXT_NS = 140
LAUNCH_NS = 900


class Builder:
    def __init__(self, lanes, seed, speed):
        self.rng = random.Random(seed)
        self.speed = speed
        self.free = [(LAUNCH_NS, lane) for lane in range(lanes)]  # a heap: when each lane is free
        self.began = [0] * lanes
        self.last = [-1] * lanes
        self.tasks = {name: [] for name in ("lane", "op", "tile", "visible", "ready", "done", "slack")}
        self.before = []  # for each task: the task that held it back, and the event or -1
        self.events = []
        self.last_signaller = []

    def task(self, op, tile, mean_ns, event):
        free, lane = self.free[0]
        reached = -1
        if event >= 0:
            last = self.last_signaller[event]
            reached = self.tasks["done"][last] + SIGNAL_NS
        ready = max(free, reached)
        self.before.append((last, event) if reached > free else (self.last[lane], -1))
        done = ready + max(40, int(self.rng.gauss(mean_ns, mean_ns / 6) * self.speed))
        index = len(self.tasks["op"])
        # A lane fetches its next task while it works on this one.
        visible = min(ready, self.began[lane] + NEXT_NS)
        for name, value in zip(self.tasks, (lane, op, tile, visible, ready, done, 0)):
            self.tasks[name].append(value)
        heapq.heapreplace(self.free, (done + NEXT_NS, lane))
        self.began[lane], self.last[lane] = ready, index
        return index

    def event(self, name, signallers):
        self.events.append({"name": name, "signallers": signallers, "waiters": []})
        self.last_signaller.append(max(signallers, key=self.tasks["done"].__getitem__))
        return len(self.events) - 1


def critical_path(builder, weights):
    tasks, links = builder.tasks, []
    at = max(range(len(tasks["done"])), key=tasks["done"].__getitem__)
    while at >= 0:
        ready, done = tasks["ready"][at], tasks["done"][at]
        cut = ready + int((done - ready) * weights[tasks["op"][at]])
        if cut < done:
            links.append({"task": at, "kind": "compute", "begin": cut, "end": done, "event": -1})
        if cut > ready:
            links.append({"task": at, "kind": "weights", "begin": ready, "end": cut, "event": -1})
        before, event = builder.before[at]
        begin = tasks["done"][before] if before >= 0 else 0
        kind = "launch" if before < 0 else "queue" if event < 0 else "wait"
        links.append({"task": at, "kind": kind, "begin": begin, "end": ready, "event": event})
        at = before
    return links[::-1]


def make_slack(builder, span):
    """Latest ends, from the events and the order in each lane."""
    tasks = builder.tasks
    latest = [span] * len(tasks["done"])
    waits = [[] for _ in latest]
    for event in builder.events:
        for task in event["waiters"]:
            waits[task] += event["signallers"]
    following = {}
    for task in reversed(range(len(latest))):
        lane = tasks["lane"][task]
        if lane in following:
            latest[task] = min(latest[task], following[lane] - NEXT_NS)
        begin = latest[task] - (tasks["done"][task] - tasks["ready"][task])
        following[lane] = begin
        for before in waits[task]:
            latest[before] = min(latest[before], begin - SIGNAL_NS)
    tasks["slack"] = [end - done for end, done in zip(latest, tasks["done"])]


def make_trace(name, num_tasks=LAYER_TASKS, lanes=16, seed=1, speed=1.0, backend="mega", lost=0):
    """One trace of num_tasks tasks: layers of 732, the last one cut short."""
    builder = Builder(lanes, seed, speed)
    index = {op[0]: i for i, op in enumerate(OPS)}
    previous = -1  # the event that the layer before it is done
    layer = 0
    while len(builder.tasks["op"]) < num_tasks:
        made = {}
        for op, _, count, mean_ns, _, inputs in OPS:
            groups = 4 if count >= 16 else 1
            made[op] = []
            for group in range(groups):
                waited = [builder.event(f"{source} to {op} {layer}.{group}", list(made[source])) for source in inputs if made[source]]
                if previous >= 0 and not inputs:
                    waited.append(previous)
                latest = max(waited, key=lambda e: builder.tasks["done"][builder.last_signaller[e]], default=-1)
                for tile in range(count // groups):
                    if len(builder.tasks["op"]) >= num_tasks:
                        break
                    task = builder.task(index[op], f"L{layer} m{group} n{tile}", mean_ns, latest)
                    made[op].append(task)
                    for event in waited:
                        builder.events[event]["waiters"].append(task)
        # One of several last ops stands for all: lists of signallers stay short.
        previous = builder.event(f"layer {layer} done", made["E1"][-16:] or made["A0"])
        layer += 1
    span = max(builder.tasks["done"])
    critical = critical_path(builder, [op[4] for op in OPS])
    make_slack(builder, span)
    tasks = builder.tasks
    for task in range(lost):
        at = 40 + 7 * task
        tasks["lane"][at] = -1
        tasks["visible"][at] = tasks["ready"][at] = tasks["done"][at] = 0
        tasks["slack"][at] = -1
    busy = sum(done - ready for done, ready in zip(tasks["done"], tasks["ready"]))
    idle = lanes * span - busy
    parts = [("wait for event", 0.52), ("next task", 0.23), ("launch", 0.1), ("no work left", 0.15)]
    return {
        "name": name, "backend": backend, "machine": "NVIDIA H200", "graph": "glm52-attention-pre",
        "shapes": {"M": 16, "KV": 8192}, "clock": {"domain": "globaltimer", "resolution_ns": 32},
        "span_ns": span, "lost": lost, "lanes": [f"SM {i}" for i in range(lanes)],
        "ops": [{"name": op[0], "kind": op[1]} for op in OPS], "tasks": tasks, "events": builder.events, "critical": critical,
        "idle": [{"reason": reason, "ns": int(idle * share)} for reason, share in parts],
    }


def make_report(*traces):
    return {"version": 1, "traces": list(traces)}

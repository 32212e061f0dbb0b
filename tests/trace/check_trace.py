#!/usr/bin/env python3
"""What `megartp trace` writes, read back by the formats' own readers.

usage: check_trace.py formats|perfetto|commands MEGARTP CACHE_FOLDER

  formats    chrome against a JSON schema, csv, svg, html and text
  perfetto   protoc decodes it with perfetto_subset.proto; exit status 77 where protoc is not installed
  commands   record, show, what-if and simulate on a small layer: results, refusals, exit codes; recording on a GPU where there is none
"""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = "--m 3 --kv 130 --requests 1"
CONFIG = {
    "model_type": "glm_moe_dsa", "hidden_size": 512, "q_lora_rank": 256, "kv_lora_rank": 128, "num_attention_heads": 4,
    "index_n_heads": 4, "index_head_dim": 128, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 64,
    "rms_norm_eps": 1e-05, "rope_parameters": {"rope_type": "default", "rope_theta": 8000000.0}, "num_hidden_layers": 8,
    "index_topk_freq": 4, "index_skip_topk_offset": 3,
}


class Tool:
    def __init__(self, program, cache, folder):
        self.program, self.folder = program, folder
        self.environment = {**os.environ, "MEGARTP_CACHE_DIR": cache, "NO_COLOR": "1"}
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)

    def path(self, name):
        return os.path.join(self.folder, name)

    def run(self, arguments, expect=0):
        done = subprocess.run([self.program, "trace", *arguments.split()], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != expect:
            sys.exit(f"trace {arguments}: exit status {done.returncode}, expected {expect}\n"
                     f"{done.stdout[-2000:].decode(errors='replace')}{done.stderr[-2000:].decode(errors='replace')}")
        self.errors = done.stderr.decode(errors="replace")
        return done.stdout

    def json(self, arguments):
        return json.loads(self.run(arguments + " --json"))["result"]


def require(condition, text):
    if not condition:
        sys.exit(f"wrong: {text}")


def make_traces(tool):
    """Two simulated full-size runs (kernels that share 132 SMs; 148 workers that read ahead) and a recorded small one."""
    traces = [tool.json("simulate glm52-attention-pre --backend cmp -o h200.trace"),
              tool.json("simulate glm52-attention-pre --target b300 --packer round-robin -o b300.trace"),
              tool.json(f"record glm52-attention-pre --config config.json {SMALL} --workers 3 --repeat 1 -o small.trace")]
    return traces


def check_spans(spans, what):
    """No partly overlapping spans on one track; ours do not nest either."""
    for track, items in spans.items():
        items.sort()
        for before, after in zip(items, items[1:]):
            require(before[1] <= after[0], f"{what}: {before} and {after} overlap on track {track}")


def check_chrome(tool, num_tasks):
    import jsonschema
    text = tool.run("show h200.trace small.trace --format chrome")
    data = json.loads(text)
    with open(os.path.join(HERE, "chrome_trace.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    errors = list(jsonschema.Draft7Validator(schema).iter_errors(data))
    require(not errors, f"chrome: {errors[:1]}")
    spans, tasks = {}, 0
    for event in data["traceEvents"]:
        if event["ph"] == "X":
            # Exact: three decimals of a microsecond.
            begin, length = (round(event[key] * 1000) for key in ("ts", "dur"))
            spans.setdefault((event["pid"], event["tid"]), []).append((begin, begin + length))
            tasks += event["cat"] == "task"
    require(tasks == num_tasks, f"chrome: {tasks} tasks, expected {num_tasks}")
    check_spans(spans, "chrome")
    print(f"chrome: {len(data['traceEvents'])} events on {len(spans)} tracks")


def check_formats(tool):
    h200, b300, small = make_traces(tool)
    check_chrome(tool, h200["tasks"] + small["tasks"])
    rows = list(csv.DictReader(io.StringIO(tool.run("show h200.trace --format csv").decode(), newline="")))
    require(len(rows) == h200["tasks"], f"csv: {len(rows)} rows")
    for row in rows:
        require(int(row["visible_ns"]) <= int(row["ready_ns"]) <= int(row["done_ns"]) <= h200["span_ns"], f"csv: {row}")
    require(all(row["slack_ns"] == "0" for row in rows if row["critical"] == "1"), "csv: a critical task has slack")
    svg = xml.etree.ElementTree.fromstring(tool.run("show b300.trace --format svg"))
    require(svg.tag.endswith("svg") and len(svg) > 148, "svg: a picture of 148 lanes")
    html = tool.run("show h200.trace b300.trace --format html").decode()
    require(not re.search(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", html), "html: it refers to the network")
    require("MEGARTP_TRACE_DATA" not in html, "html: the data are not in it")
    data = re.search(r"\{\"version\":1,\"traces\":.*\}", html)
    require(data, "html: no data")
    traces = json.loads(data[0])["traces"]
    require([len(t["tasks"]["lane"]) for t in traces] == [h200["tasks"], b300["tasks"]], "html: tasks of both traces")
    require([len(t["lanes"]) for t in traces] == [132, 148], "html: a lane an SM")
    text = tool.run("show h200.trace --width 120").decode()
    require("\x1b" not in text, "text: colours in spite of NO_COLOR")
    require("critical path:" in text and "(100.00 %)" in text, "text: no critical path")
    require("\x1b" in tool.run("show h200.trace --color always").decode(), "text: no colours")


def check_perfetto(tool):
    protoc = shutil.which("protoc")
    if protoc is None:
        print("skipped: protoc is not installed (protobuf-compiler)")
        sys.exit(77)
    h200, _, small = make_traces(tool)
    binary = tool.run("show h200.trace small.trace --format perfetto")
    done = subprocess.run([protoc, f"--proto_path={HERE}", "--decode=perfetto.protos.Trace", "perfetto_subset.proto"],
                          input=binary, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    require(done.returncode == 0, f"protoc: {done.stderr.decode(errors='replace')}")
    text = done.stdout.decode()
    unknown = re.search(r"^\s*\d+(:| \{).*$", text, re.MULTILINE)
    require(not unknown, f"perfetto: a field that the subset does not have: {unknown and unknown[0]}")
    tracks, spans, opened, tasks = set(), {}, {}, 0
    for packet in re.findall(r"^packet \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        if "track_descriptor" in packet:
            tracks.add(int(re.search(r"uuid: (\d+)", packet)[1]))
            continue
        time = int(re.search(r"timestamp: (\d+)", packet)[1])
        track = int(re.search(r"track_uuid: (\d+)", packet)[1])
        require(track in tracks, f"perfetto: track {track} is not described before its first slice")
        if "TYPE_SLICE_BEGIN" in packet:
            require(track not in opened, f"perfetto: two open slices on track {track}")
            require("name: " in packet, "perfetto: a slice without a name")
            opened[track] = time
            tasks += 'categories: "task"' in packet
        else:
            spans.setdefault(track, []).append((opened.pop(track), time))
    require(not opened, f"perfetto: slices without an end on {opened}")
    require(tasks == h200["tasks"] + small["tasks"], f"perfetto: {tasks} tasks")
    check_spans(spans, "perfetto")
    print(f"perfetto: {len(binary)} bytes, {sum(map(len, spans.values()))} slices on {len(spans)} tracks")


def check_commands(tool):
    record = f"record glm52-attention-pre --config config.json {SMALL}"
    for schedule in ("static", "dynamic"):
        made = tool.json(f"{record} --workers 3 --schedule {schedule} --repeat 3 --cost 2 -o {schedule}.trace")
        require(made["lost"] == 0 and made["tasks"] > 20 and made["lanes"] == 3, made)
        require(made["critical_path"]["sum_ns"] == made["span_ns"], made["critical_path"])
        require(made["cost"]["ratio"] > 0, made["cost"])
        shown = tool.json(f"show {schedule}.trace")["traces"][0]
        require(shown["span_ns"] == made["span_ns"] and shown["schedule"] == schedule, shown)
        idle = sum(reason["ns"] for reason in shown["idle"])
        require(idle + shown["busy_ns"] == 3 * shown["span_ns"], "idle and busy time do not add up")
    lost = tool.json(f"{record} --workers 2 --records 3 --repeat 1 -o lost.trace")
    require(lost["tasks"] <= 6 and lost["lost"] == made["tasks"] - lost["tasks"], lost)
    require("no record" in tool.run("show lost.trace").decode(), "show does not say that records are lost")
    tool.run("what-if lost.trace", expect=2)

    same = tool.json("what-if static.trace --against static.trace --max-error 0.1")
    require(same["predicted_ns"] == same["measured_ns"] and same["against"]["error"] == 0, same)
    fast = tool.json("what-if static.trace --faster B0=1000 --faster D0=1000 --faster E1=1000")
    require(fast["predicted_ns"] < same["predicted_ns"], fast)
    tool.run("what-if static.trace --faster B0=1000 --faster E1=1000 --against static.trace --max-error 0.1", expect=1)
    tool.run("what-if static.trace --free A0->B0 --packer round-robin --workers 2")
    for wrong in ("--faster Z9=2", "--faster B0", "--free A0", "--packer best", "--max-error 3"):
        tool.run(f"what-if static.trace {wrong}", expect=2)

    tool.run("show missing.trace", expect=3)
    tool.run("show config.json", expect=3)
    tool.run("show static.trace static.trace --format svg", expect=2)
    with open(tool.path("static.trace"), "rb") as file:
        data = bytearray(file.read())
    data[len(data) // 2] ^= 1
    with open(tool.path("damaged.trace"), "wb") as file:
        file.write(data)
    tool.run("show damaged.trace", expect=3)
    check_without_gpu(tool, record)
    check_simulate(tool)


def check_without_gpu(tool, record):
    for wrong in ("--backend cmp --workers 3", "--backend mega --only A0", "--backend serial --schedule dynamic",
                  "--backend mega --finalizer fused", "--backend cmp --ordinary-launch", "--only A0", "--backend mega --records 3"):
        tool.run(f"{record} {wrong} -o x.trace", expect=2)
    tool.run(f"{record} --backend cpu-reference -o x.trace", expect=4)
    if os.path.exists("/dev/nvidiactl"):
        return
    for backend in ("serial", "pdl", "dag", "cmp", "mega"):
        tool.run(f"{record} --backend {backend} --repeat 20 --pick shortest --cost 30 -o x.trace", expect=4)
        require("libcuda" in tool.errors and not os.path.exists(tool.path("x.trace")), tool.errors)


def check_simulate(tool):
    simulate = "simulate glm52-attention-pre"
    predicted = tool.json(f"{simulate} --target h200")
    require(predicted["span_ns"] > predicted["least_ns"], "faster than its bytes")
    slower = tool.json(f"{simulate} --target h100")
    require(slower["span_ns"] > predicted["span_ns"], "an h100 is not slower than an h200")

    times = []
    for backend in ("serial", "pdl", "dag", "cmp"):
        made = tool.json(f"{simulate} --backend {backend} -o {backend}.sim.trace")
        require(made["units"] == 132 and made["critical_path"]["sum_ns"] == made["span_ns"], made["critical_path"])
        require(made["timed_ns"] > made["span_ns"] > made["least_ns"], made)
        idle = sum(reason["ns"] for reason in made["idle"])
        require(idle + made["busy_ns"] == 132 * made["span_ns"], "idle and busy time do not add up")
        times.append(made["timed_ns"])
    require(times == sorted(times, reverse=True), f"serial, pdl, dag, cmp: {times}")
    serial = tool.json("show serial.sim.trace")["traces"][0]["critical_path"]
    require(serial["wait_ns"] == 0 and serial["launch_ns"] > 0, "full edges are launches, not waits")
    cmp = tool.json("show cmp.sim.trace")["traces"][0]["critical_path"]
    require(cmp["wait_ns"] > 0, "programmatic edges are waits")
    require(tool.json(f"{simulate} --backend mega")["timed_ns"] > 0, "mega")
    require(tool.json(f"{simulate} --backend cmp --level full")["timed_ns"] > times[3], "full edges are no slower")
    require(tool.json(f"{simulate} --backend cmp --only B0")["timed_ns"] < times[3], "one op takes as long as all")

    same = tool.json(f"{simulate} --backend cmp --against cmp.sim.trace --max-error 0.01")["against"]
    require(same["error"] == 0 and same["timed"], same)
    tool.run(f"{simulate} --backend cmp --edge A0->B0.gemm=full --against cmp.sim.trace --max-error 0.01", expect=1)
    tool.run(f"{simulate} --backend cmp --m 4 --against cmp.sim.trace", expect=2)
    tool.run(f"{simulate} --backend cmp --against static.trace", expect=2)
    for wrong in ("--backend cmp --workers 3", "--backend cmp --packer round-robin", "--only A0", "--backend mega --finalizer fused",
                  "--backend cmp --target cpu", "--backend cmp --only Z9", "--backend dyn", "--max-error 3"):
        tool.run(f"{simulate} {wrong}", expect=2)


def main():
    part, program, cache = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="megartp-trace-") as folder:
        tool = Tool(os.path.abspath(program), os.path.abspath(cache), folder)
        {"formats": check_formats, "perfetto": check_perfetto, "commands": check_commands}[part](tool)


if __name__ == "__main__":
    main()

#include "cli/run_output.h"

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/hash.h"
#include "io/safetensors.h"
#include "models/glm52/outputs.h"

namespace megartp::cli {
namespace {

struct OpRow {
  std::string name;
  uint32_t tasks = 0;
  double busy_ns = 0;
  uint64_t bytes = 0;
  double worst_diff = 0;
  bool compared = false;
};

std::vector<OpRow> op_rows(const glm52::LayerRun& run, const RunReport& report) {
  std::vector<OpRow> rows;
  const auto bytes = glm52::op_bytes(run);
  for (const OpInfo& op : run.graph.ops()) {
    OpRow row;
    row.name = op.name;
    row.bytes = bytes.at(op.name);
    for (size_t i = 0; i < report.stats.stages.size(); ++i) {
      const StageStats& s = report.stats.stages[i];
      const std::string& owner = report.plan != nullptr ? report.plan->operand_rows[i].op : s.name;
      if (owner != op.name) continue;
      row.tasks += s.num_tasks;
      row.busy_ns += s.busy_ns;
    }
    for (const glm52::TensorDiff& d : report.op_diffs) {
      if (d.op != op.name) continue;
      row.compared = true;
      if (!(d.calc_diff <= row.worst_diff)) row.worst_diff = d.calc_diff;  // a NaN shows too
    }
    rows.push_back(row);
  }
  return rows;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

}  // namespace

bool RunReport::passed() const {
  return std::all_of(op_diffs.begin(), op_diffs.end(),
                     [](const glm52::TensorDiff& d) { return d.calc_diff <= kMaxOpDiff; }) &&
         std::all_of(diffs.begin(), diffs.end(),
                     [](const glm52::TensorDiff& d) { return !d.is_output || d.calc_diff <= kMaxOutputDiff; });
}

Json report_json(const glm52::LayerRun& run, const RunReport& report) {
  Json j;
  j["graph"] = run.graph.name();
  j["backend"] = report.backend;
  j["layer"] = run.layer;
  for (const auto& [name, value] : run.inputs.shapes.symbols) j["shapes"][name] = value;
  if (report.plan != nullptr) {
    j["plan"] = {{"tasks", report.plan->num_tasks},     {"events", report.plan->events.size()},
                 {"workers", report.plan->num_workers}, {"packer", report.plan->packer},
                 {"finalizer", report.plan->finalizer}, {"queue_depth", report.plan->queue_depth}};
  }
  j["wall_ns"] = report.samples_ns;
  j["median_ns"] = median(report.samples_ns);
  j["ops"] = Json::array();
  for (const OpRow& row : op_rows(run, report)) {
    Json o{{"name", row.name}, {"tasks", row.tasks}, {"busy_ns", row.busy_ns}, {"bytes", row.bytes}};
    if (row.compared) o["calc_diff"] = row.worst_diff;
    j["ops"].push_back(std::move(o));
  }
  if (report.checked) {
    j["check"]["passed"] = report.passed();
    j["check"]["op_limit"] = kMaxOpDiff;
    j["check"]["output_limit"] = kMaxOutputDiff;
    j["check"]["reference_ns"] = report.reference_ns;
    const auto list = [](const std::vector<glm52::TensorDiff>& diffs) {
      Json array = Json::array();
      for (const glm52::TensorDiff& d : diffs) {
        Json o{{"op", d.op}, {"tensor", d.tensor}, {"is_output", d.is_output}};
        o["calc_diff"] = std::isfinite(d.calc_diff) ? Json(d.calc_diff) : Json(nullptr);
        array.push_back(std::move(o));
      }
      return array;
    };
    j["check"]["ops"] = list(report.op_diffs);
    j["check"]["tensors"] = list(report.diffs);
  }
  return j;
}

void print_report(const glm52::LayerRun& run, const RunReport& report, const CommonOptions& common) {
  const bool color = use_color(common, STDOUT_FILENO);
  if (!common.quiet) {
    const auto& symbols = run.inputs.shapes.symbols;
    std::cout << fmt::format("{}: layer {}, M = {}, KV = {}, {} request{}\n", run.graph.name(), run.layer,
                             symbols.at("M"), symbols.at("KV"), run.inputs.shapes.requests.size(),
                             run.inputs.shapes.requests.size() == 1 ? "" : "s");
    if (report.plan != nullptr)
      std::cout << fmt::format("{}: {} tile tasks, {} events, {} worker{}, packer {}, finalizer {}\n", report.backend,
                               report.plan->num_tasks, report.plan->events.size(), report.plan->num_workers,
                               report.plan->num_workers == 1 ? "" : "s", report.plan->packer, report.plan->finalizer);
    std::cout << "\n";
    std::vector<std::string> header{"op", "tasks", "busy ms", "MB", "GB/s"};
    if (report.checked) header.emplace_back("error");
    Table table(header);
    uint64_t bytes = 0;
    uint32_t tasks = 0;
    double busy = 0;
    const auto line = [&](const std::string& name, uint32_t n, double ns, uint64_t b, const std::string& error) {
      std::vector<std::string> row{name, std::to_string(n), fmt::format("{:.2f}", ns / 1e6),
                                   fmt::format("{:.2f}", static_cast<double>(b) / 1e6),
                                   ns > 0 ? fmt::format("{:.2f}", static_cast<double>(b) / ns) : "-"};
      if (report.checked) row.push_back(error);
      table.add_row(std::move(row));
    };
    for (const OpRow& r : op_rows(run, report)) {
      line(r.name, r.tasks, r.busy_ns, r.bytes, r.compared ? fmt::format("{:.1e}", r.worst_diff) : "-");
      bytes += r.bytes;
      tasks += r.tasks;
      busy += r.busy_ns;
    }
    line("all", tasks, busy, bytes, "");
    std::cout << table.to_string() << "\n";
    const double ns = median(report.samples_ns);
    const double gb_per_s = static_cast<double>(bytes) / ns;
    std::cout << (busy > 0 || report.plan != nullptr
                      ? fmt::format("wall time {:.1f} ms, {:.2f} GB/s (busy ms are summed over workers)\n", ns / 1e6,
                                    gb_per_s)
                      : fmt::format("wall time {:.3f} ms by the host's clock; `megartp bench` measures\n", ns / 1e6));
  }
  if (!report.checked) return;
  std::cout << fmt::format("cpu-reference (double precision) {:.1f} ms, {:.1f} times slower\n",
                           report.reference_ns / 1e6, report.reference_ns / median(report.samples_ns));
  for (const glm52::TensorDiff& d : report.diffs)
    if (d.is_output)
      std::cout << fmt::format(
          "  {:<14} calc_diff {:.2e}  {}\n", d.tensor, d.calc_diff,
          d.calc_diff <= kMaxOutputDiff ? paint("ok", "32", color) : paint("MISMATCH", "31", color));
  for (const glm52::TensorDiff& d : report.op_diffs)
    if (!(d.calc_diff <= kMaxOpDiff))
      std::cout << fmt::format("  {} {}: calc_diff {:.2e}  {}\n", d.op, d.tensor, d.calc_diff,
                               paint("MISMATCH", "31", color));
  std::cout << (report.passed() ? paint("PASS", "32", color) : paint("FAIL", "31", color))
            << fmt::format(
                   ": each op within {:.0e} of its reference on the same inputs, each output within {:.0e} of the "
                   "whole reference{}\n",
                   kMaxOpDiff, kMaxOutputDiff, report.passed() ? "" : ", was expected");
}

Status save_run_output(const glm52::LayerRun& run, const glm52::TensorMap& tensors, bool keep_intermediates,
                       const std::string& path) {
  glm52::TensorMap out;
  const auto take = [&](const char* from, const char* to) {
    if (const auto it = tensors.find(from); it != tensors.end()) out.emplace(to, it->second);
  };
  take("residual_out", "residual");
  for (const char* name : {"q_out", "logits", "index_k_cache", "mla_kv_cache"}) take(name, name);
  if (keep_intermediates) {
    const glm52::Config& c = run.config;
    const glm52::Buffer& kv = tensors.find("kv")->second;
    const int64_t m = kv.dims[0];
    const int64_t columns = kv.dims[1];
    out.emplace("kv_latent", glm52::bf16_columns(kv.as<bf16>(), m, columns, 0, c.kv_lora_rank));
    out.emplace("k_pe", glm52::bf16_columns(kv.as<bf16>(), m, columns, c.kv_lora_rank, columns));
    take("gate", "gate");
    const auto q = tensors.find("index_q");
    if (q != tensors.end()) {
      out.emplace("index_q",
                  glm52::dequantize_index_q(q->second.as<e4m3>(), tensors.find("index_q_scale")->second.as<float>(), m,
                                            c.index_n_heads, c.index_head_dim));
      const glm52::Buffer& cache = tensors.find("index_k_cache")->second;
      const glm52::Buffer& slots = run.inputs.tensors.find("slot_mapping")->second;
      out.emplace("index_k",
                  MEGARTP_TRY(glm52::dequantize_index_k(
                      std::span(cache.bytes.get(), cache.num_bytes),
                      std::span(slots.as<int32_t>(), static_cast<size_t>(slots.num_elems())), c.index_head_dim)));
    }
  }
  std::vector<TensorToWrite> list;
  for (const auto& [name, buffer] : out) {
    TensorToWrite t;
    t.name = name;
    t.dtype = buffer.dtype;
    t.dims = buffer.dims;
    t.data = buffer.bytes.get();
    list.push_back(std::move(t));
  }
  return write_safetensors(path, list, {{"format", "megartp"}, {"layer", std::to_string(run.layer)}});
}

std::string config_fingerprint(const glm52::Config& config) {
  return hash128(glm52::config_to_json(config)).hex().substr(0, 12);
}

}  // namespace megartp::cli

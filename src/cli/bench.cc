// megartp bench: times of the GPU backends, and the experiments on them.
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "bench/cuda_timer.h"
#include "bench/edge_tuning.h"
#include "cli/cli.h"
#include "cli/launch_options.h"
#include "cli/layer_weights.h"
#include "cli/run_launch.h"
#include "cli/run_mega.h"

namespace megartp::cli {
namespace {

struct BenchArgs {
  CommonOptions common;
  ModelOptions model;
  LaunchArgs launch;
  MegaArgs mega;
  std::vector<std::string> backends{"serial", "pdl", "dag", "cmp"};
  std::vector<int64_t> m{16}, kv{8192};
  int64_t requests = 0;
  std::string weights, format = "table", output, span = "kernels";
  std::string packer = "insertion", events = "exact";
  uint32_t workers = 0;
  uint32_t copies = 8;
  size_t repeat = 200;
  bool no_same = false, no_read = false;
  bool ablation = false, growing = false, tune_edges = false;
  std::vector<int> pdl_cases;
  bool m_given = false;
};

std::vector<bench::Batch> batches(const BenchArgs& a) {
  std::vector<bench::Batch> list;
  for (const int64_t m : a.m)
    for (const int64_t kv : a.kv) {
      const BatchOptions sizes{m, kv, a.requests};
      list.push_back({m, kv, sizes.num_requests()});
    }
  return list;
}

std::vector<LaunchMode> modes(const BenchArgs& a) {
  std::vector<LaunchMode> list;
  for (const std::string& name : a.backends)
    if (name != "mega") list.push_back(value_or_exit(parse_launch_mode(name), a.common, "bench"));
  return list;
}

std::optional<MegaPlanOptions> mega_plan(const BenchArgs& a) {
  if (std::ranges::find(a.backends, "mega") == a.backends.end()) return std::nullopt;
  MegaPlanOptions options;
  options.num_workers = a.workers;
  options.packer = value_or_exit(parse_packer(a.packer), a.common, "bench");
  options.events = value_or_exit(parse_event_mode(a.events), a.common, "bench");
  return options;
}

// Without an experiment: the backends.
std::vector<bench::BenchCase> cases(const BenchArgs& a, const bench::CudaTimer& timer) {
  const LaunchOptions base = value_or_exit(to_launch_options(a.launch), a.common, "bench");
  std::vector<bench::BenchCase> list;
  const auto append = [&](std::vector<bench::BenchCase> more) {
    list.insert(list.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  const std::vector<bench::Batch> sizes = batches(a);
  if (a.ablation)
    for (const bench::Batch& b : sizes) append(bench::ablation_cases(b, base));
  if (a.growing) {
    for (const LaunchMode mode : modes(a)) append(bench::growing_cases(timer.graph(), mode, sizes.front(), base));
    if (const auto mega = mega_plan(a)) append(bench::mega_growing_cases(timer.graph(), *mega, sizes.front(), base));
  }
  const std::vector<int64_t> rows = a.m_given ? a.m : std::vector<int64_t>{16, 32, 64, 128, 256};
  for (const int which : a.pdl_cases) {
    bench::BenchCase whole;
    whole.batch = sizes.front();
    const LaunchPlan plan = value_or_exit(timer.plan(whole), a.common, "bench");
    append(bench::pdl_cases(which, value_or_exit(bench::find_pdl_edge(timer.graph(), plan, which), a.common, "bench"),
                            rows, sizes.front()));
  }
  if (list.empty() && !a.tune_edges) append(bench::backend_cases(modes(a), sizes, base, mega_plan(a)));
  return list;
}

Result<std::unique_ptr<bench::CudaTimer>> make_timer(const BenchArgs& a) {
  // First, so that a machine without a GPU costs no checkpoint.
  MEGARTP_TRY(check_gpu());
  const Model model = MEGARTP_TRY(load_model(a.model));
  bench::CudaTimerOptions options;
  options.num_copies = a.copies;
  options.num_samples = a.repeat;
  options.with_same = !a.no_same;
  options.with_read = !a.no_read;
  options.is_cooperative = !a.mega.is_ordinary;
  glm52::Weights weights = MEGARTP_TRY(load_layer_weights(model.config, a.model.layer, a.weights, a.common));
  return bench::CudaTimer::create(model.config, model.options, a.model.layer, std::move(weights), options);
}

struct Tuned {
  bench::TuningResult result;
  std::vector<bench::BenchRow> rows;
};

Result<Tuned> tune(const BenchArgs& a, bench::CudaTimer& timer) {
  bench::BenchCase c;
  c.group = "tuning";
  c.name = "as planned";
  c.batch = batches(a).front();
  c.launch = MEGARTP_TRY(to_launch_options(a.launch));
  c.launch.mode = LaunchMode::kCmp;
  const LaunchPlan plan = MEGARTP_TRY(timer.plan(c));
  ProgressBar bar("tuning", a.common);
  uint64_t done = 0;
  const auto measure = [&](const bench::EdgeLevels& levels) {
    bench::BenchCase trial = c;
    trial.launch.levels = levels;
    bar.update(++done, 6 * plan.edges.size() + 1);
    return timer.quick_us(trial);
  };
  Tuned tuned;
  tuned.result = MEGARTP_TRY(bench::tune_edges(plan, measure));
  tuned.rows.push_back(MEGARTP_TRY(timer.time(c)));
  c.name = "tuned";
  c.launch.levels = tuned.result.levels;
  tuned.rows.push_back(MEGARTP_TRY(timer.time(c)));
  return tuned;
}

std::string tuning_text(const bench::TuningResult& r) {
  Table table({"edge", "level", "us", ""});
  for (const bench::TuningTrial& t : r.trials)
    table.add_row({t.edge, std::string(to_string(t.level)), t.is_refused ? "-" : fmt::format("{:.2f}", t.us),
                   t.is_refused ? "refused by the prover"
                   : t.is_kept  ? "kept"
                                : ""});
  std::string out = fmt::format("\ntrials, from {:.2f} us to {:.2f} us\n{}\n", r.start_us, r.us, table.to_string());
  for (const auto& [edge, level] : r.levels) out += fmt::format("--edge '{}={}'\n", edge, to_string(level));
  return out;
}

Json tuning_json(const bench::TuningResult& r) {
  Json j{{"start_us", r.start_us}, {"us", r.us}};
  for (const auto& [edge, level] : r.levels) j["levels"][edge] = to_string(level);
  j["trials"] = Json::array();
  for (const bench::TuningTrial& t : r.trials)
    j["trials"].push_back({{"edge", t.edge},
                           {"level", to_string(t.level)},
                           {"us", t.us},
                           {"refused", t.is_refused},
                           {"kept", t.is_kept}});
  return j;
}

// Sizes that the device code cannot do are left out with a warning; other errors end the command.
Result<std::vector<bench::BenchRow>> time_all(const BenchArgs& a, bench::CudaTimer& timer,
                                              std::vector<bench::BenchCase>& list) {
  std::vector<bench::BenchRow> rows;
  std::vector<bench::BenchCase> timed;
  ProgressBar bar("bench", a.common);
  for (size_t i = 0; i < list.size(); ++i) {
    auto row = timer.time(list[i]);
    bar.update(i + 1, list.size());
    if (row) {
      rows.push_back(std::move(*row));
      timed.push_back(list[i]);
      continue;
    }
    if (row.error().code != ErrorCode::kUnsupported || list.size() == 1) return tl::unexpected(row.error());
    std::cerr << "megartp: warning: left out: " << row.error().to_string() << "\n";
  }
  if (rows.empty() && !list.empty())
    return make_error(ErrorCode::kUnsupported, "bench: none of the cases can run here");
  list = std::move(timed);
  bench::add_differences(list, rows);
  return rows;
}

// A machine without CUPTI has its other figures.
void add_spans(const BenchArgs& a, bench::CudaTimer& timer, const std::vector<bench::BenchCase>& cases,
               bench::BenchReport& report) {
  if (a.span == "none" || cases.empty()) return;
  const auto source = a.span == "graphs" ? cuda::ActivitySource::kGraphs : cuda::ActivitySource::kKernels;
  const Status added = timer.add_spans(cases, source, report.rows);
  if (!added) report.span_note = added.error().to_string();
}

int run_bench(const BenchArgs& a) {
  const auto timer = value_or_exit(make_timer(a), a.common, "bench");
  std::vector<bench::BenchCase> list = cases(a, *timer);
  bench::BenchReport report;
  report.rows = value_or_exit(time_all(a, *timer, list), a.common, "bench");
  std::optional<bench::TuningResult> tuning;
  if (a.tune_edges) {
    Tuned tuned = value_or_exit(tune(a, *timer), a.common, "bench");
    report.rows.insert(report.rows.end(), tuned.rows.begin(), tuned.rows.end());
    tuning = std::move(tuned.result);
  }
  value_or_exit(timer->fill_head(report), a.common, "bench");
  add_spans(a, *timer, list, report);
  const std::string format = a.common.json ? "json" : a.format;
  if (format == "json") {
    Json j = Json::parse(to_json(report));
    if (tuning) j["tuning"] = tuning_json(*tuning);
    if (a.output.empty() || a.output == "-") return print_json("bench", std::move(j));
    value_or_exit(write_output(a.output, j.dump(1) + "\n"), a.common, "bench");
    return 0;
  }
  std::string text = format == "csv" ? to_csv(report) : to_table(report);
  if (tuning && format == "table") text += tuning_text(*tuning);
  value_or_exit(write_output(a.output, text), a.common, "bench");
  return 0;
}

void add_experiments(CLI::App& app, BenchArgs& a) {
  app.add_flag("--ablation", a.ablation, "{linear, DAG} x {full, PDL} of the same kernels");
  app.add_flag("--growing", a.growing, "Ops one after the other (cumulative, added) and each alone, for each backend");
  app.add_option(
         "--pdl-case", a.pdl_cases,
         "One edge alone, PDL off and on, for M = 16 ... 256 or --m. 1: A0 to B0, which prefetches weights; 2: an edge "
         "whose consumer has nothing to prefetch")
      ->check(CLI::IsMember({1, 2}));
  app.add_flag("--tune-edges", a.tune_edges, "Try levels of cmp edge by edge and keep what measures best");
}

}  // namespace

Command add_bench_command(CLI::App& root) {
  auto args = std::make_shared<BenchArgs>();
  BenchArgs& a = *args;
  CLI::App* app = root.add_subcommand("bench", "Time the GPU backends on this machine's GPU");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  app->add_option("--backends", a.backends, "Which")
      ->delimiter(',')
      ->check(CLI::IsMember({"serial", "pdl", "dag", "cmp", "mega"}))
      ->capture_default_str();
  app->add_option("--m", a.m, "Rows; several make a sweep")->delimiter(',')->capture_default_str();
  app->add_option("--kv", a.kv, "Visible length of each request's last row; several make a sweep")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--requests", a.requests, "Requests (default: 2, or 1 for a single row)")->check(CLI::PositiveNumber);
  app->add_option("--weights", a.weights, "Checkpoint (safetensors, HF names); default: a seeded one");
  add_launch_options(*app, a.launch);
  app->add_option("--workers", a.workers, "mega: CTAs (default: two an SM)")->check(CLI::Range(1U, 65536U));
  app->add_option("--packer", a.packer, "mega: how tasks are put into queues")
      ->check(CLI::IsMember(packer_names()))
      ->capture_default_str();
  app->add_option("--events", a.events, "mega: how finely tasks wait")
      ->check(CLI::IsMember({"exact", "auto", "gcd", "whole"}))
      ->capture_default_str();
  add_mega_options(*app, a.mega);
  app->add_option("--repeat", a.repeat, "Samples of each figure")->check(CLI::Range(1, 1000000))->capture_default_str();
  app->add_option("--copies", a.copies, "Copies of weights and caches that cold runs rotate over")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  app->add_flag("--no-same", a.no_same, "Cold times only");
  app->add_option("--span", a.span,
                  "GPU span by CUPTI: from the first kernel's start to the last one's end (kernels), as graph launches "
                  "are recorded (graphs), or none")
      ->check(CLI::IsMember({"kernels", "graphs", "none"}))
      ->capture_default_str();
  app->add_flag("--no-read", a.no_read, "Do not time a kernel that only reads as many bytes");
  add_experiments(*app, a);
  app->add_option("--format", a.format, "Text form")
      ->check(CLI::IsMember({"table", "csv", "json"}))
      ->capture_default_str();
  app->add_option("-o,--output", a.output, "File, - for stdout");
  app->footer(
      "Examples:\n"
      "  megartp bench glm52-attention-pre --backends serial,cmp --m 1,16,64 --kv 8192\n"
      "  megartp bench glm52-attention-pre --backends serial,cmp,mega --workers 132\n"
      "  megartp bench glm52-attention-pre --ablation --growing --pdl-case 1 --format csv -o figures.csv");
  return {app, [args, app] {
            args->m_given = app->count("--m") > 0;
            return run_bench(*args);
          }};
}

}  // namespace megartp::cli

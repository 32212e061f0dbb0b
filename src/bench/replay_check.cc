#include "bench/replay_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "base/rng.h"
#include "bench/weight_copies.h"
#include "codegen/compile_kernels.h"
#include "codegen/mega_source.h"

namespace megartp::bench {
namespace {

using cuda_graph::CudaGraphExecutable;
using cuda_graph::LoadedCode;

// The parameter struct of bench_compare in device/bench_kernels.cuh.
struct CompareParams {
  cuda::DevicePtr a, b, result;
  uint32_t num_words;
};

class Comparer {
 public:
  static Result<Comparer> create(const cuda::DriverApi& api) {
    Comparer c(api);
    const auto compiled = MEGARTP_TRY(codegen::compile_kernels(std::array{compare_kernel()}));
    c.module_ = MEGARTP_TRY(cuda::load_module(api, *compiled.kernels[0].cubin));
    c.function_ = MEGARTP_TRY(cuda::get_function(api, c.module_, compiled.kernels[0].symbol));
    c.result_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api, 2 * sizeof(uint32_t)));
    return c;
  }

  struct Difference {
    uint32_t num_words = 0, first_word = 0;
  };
  Result<Difference> compare(cuda::DevicePtr a, cuda::DevicePtr b, size_t num_bytes, cuda::StreamHandle stream) {
    Difference d{0, std::numeric_limits<uint32_t>::max()};
    MEGARTP_CUDA_TRY(*api_, memcpy_htod(result_.get(), &d, sizeof(d)));
    CompareParams params{a, b, result_.get(), static_cast<uint32_t>(num_bytes / 4)};
    void* list[] = {&params};
    cuda::LaunchConfig config;
    config.grid[0] = 264;
    config.block[0] = 256;
    config.stream = stream;
    MEGARTP_CUDA_TRY(*api_, launch_kernel(&config, function_, list, nullptr));
    MEGARTP_CUDA_TRY(*api_, stream_synchronize(stream));
    MEGARTP_CUDA_TRY(*api_, memcpy_dtoh(&d, result_.get(), sizeof(d)));
    return d;
  }

 private:
  explicit Comparer(const cuda::DriverApi& api) : api_(&api) {}
  const cuda::DriverApi* api_;
  cuda::Module module_;
  cuda::FunctionHandle function_ = nullptr;
  cuda::DeviceBuffer result_;
};

struct Contestant {
  std::string name;
  std::unique_ptr<cuda::DeviceExecutable> executable;
  cuda::Stream stream;
};

// Lives while the context is current.
class Replays {
 public:
  Replays(const glm52::LayerRun& run, const ReplayOptions& options, std::shared_ptr<const cuda::Context> context)
      : run_(run), options_(options), context_(std::move(context)), copies_(context_, run.weights, 1) {}

  Status add(LaunchMode mode) {
    LaunchOptions launch = options_.launch;
    launch.mode = mode;
    launch.target.num_sms = static_cast<uint32_t>(context_->info().num_sms);
    launch.target.smem_per_cta = context_->info().smem_per_cta;
    auto plan =
        std::make_shared<const LaunchPlan>(MEGARTP_TRY(build_launch_plan(run_.graph, run_.inputs.shapes, launch)));
    const auto code = MEGARTP_TRY(LoadedCode::load(context_, *plan, compile_options()));
    return add(std::string(to_string(mode)), MEGARTP_TRY(CudaGraphExecutable::create(plan, code)));
  }

  Status add_mega() {
    const auto code =
        MEGARTP_TRY(cuda_mega::MegaCode::load(context_, codegen::mega_opcodes(*options_.mega_plan), compile_options()));
    return add("mega", MEGARTP_TRY(cuda_mega::MegaExecutable::create(options_.mega_plan, code, options_.mega_run)));
  }

  Result<ReplayReport> check() {
    ReplayReport report;
    for (const Contestant& c : contestants_) report.backends.push_back(c.name);
    for (const TensorInfo& t : run_.graph.tensors())
      if (t.storage == Storage::kOutput || t.storage == Storage::kState) report.tensors.push_back(t.name);
    Comparer comparer = MEGARTP_TRY(Comparer::create(context_->api()));
    for (uint64_t i = 0; i < options_.num_replays && report.mismatches.size() < kMaxMismatches; ++i) {
      MEGARTP_TRY(change_inputs(i));
      for (const Contestant& c : contestants_) MEGARTP_TRY(c.executable->poison());
      for (const Contestant& c : contestants_) MEGARTP_TRY(c.executable->run(c.stream.get()));
      for (const Contestant& c : contestants_) MEGARTP_CUDA_TRY(context_->api(), stream_synchronize(c.stream.get()));
      for (const Contestant& c : contestants_)
        if (Status ok = c.executable->finish(); !ok)
          return tl::unexpected(std::move(ok).error().with("replay", std::to_string(i)));
      MEGARTP_TRY(compare(i, comparer, report));
      ++report.num_replays;
      if (options_.progress) options_.progress(report.num_replays, options_.num_replays);
    }
    return report;
  }

 private:
  codegen::CompileOptions compile_options() const {
    codegen::CompileOptions compile = options_.compile;
    if (options_.with_fuzz) compile.more_options.emplace_back("-DMEGARTP_FUZZ=1");
    return compile;
  }

  Status add(std::string name, std::unique_ptr<cuda::DeviceExecutable> executable) {
    Contestant c;
    c.name = std::move(name);
    c.executable = std::move(executable);
    MEGARTP_TRY(copies_.make_ready(*c.executable, 0, run_.inputs));
    c.stream = MEGARTP_TRY(cuda::make_stream(context_->api()));
    contestants_.push_back(std::move(c));
    return {};
  }

  Status change_inputs(uint64_t replay) {
    for (const char* name : {"x", "residual"}) {
      const glm52::Buffer changed = run_.inputs.tensors.at(name).clone();
      flip_signs({changed.as<uint16_t>(), changed.num_bytes / 2},
                 options_.seed + 2 * replay + (name[0] == 'x' ? 0 : 1));
      for (const Contestant& c : contestants_)
        MEGARTP_TRY(c.executable->upload(name, std::span<const std::byte>(changed.bytes.get(), changed.num_bytes)));
    }
    return {};
  }

  Status compare(uint64_t replay, Comparer& comparer, ReplayReport& report) {
    for (const std::string& name : report.tensors) {
      const cuda::DeviceTensor* first = contestants_[0].executable->tensors().find(name);
      if (first == nullptr || !first->is_used()) continue;
      for (size_t c = 1; c < contestants_.size(); ++c) {
        const auto d = MEGARTP_TRY(comparer.compare(first->address, contestants_[c].executable->address(name),
                                                    first->num_bytes, contestants_[0].stream.get()));
        if (d.num_words != 0 && report.mismatches.size() < kMaxMismatches)
          report.mismatches.push_back({replay, contestants_[c].name, name, d.num_words, d.first_word});
      }
    }
    return {};
  }

  const glm52::LayerRun& run_;
  const ReplayOptions& options_;
  std::shared_ptr<const cuda::Context> context_;
  WeightCopies copies_;
  std::vector<Contestant> contestants_;
};

}  // namespace

void flip_signs(std::span<uint16_t> values, uint64_t seed) {
  RngSequence rng(seed);
  uint64_t bits = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 64 == 0) bits = rng();
    values[i] = static_cast<uint16_t>(values[i] ^ ((bits >> (i % 64) & 1) << 15));
  }
}

codegen::KernelRequest compare_kernel() {
  codegen::KernelRequest request;
  request.name = "bench_compare";
  request.header = "device/bench_kernels.cuh";
  request.entry = "megartp::device::bench_compare<0>";
  request.param_bytes = sizeof(CompareParams);
  request.param_alignment = alignof(CompareParams);
  return request;
}

Result<ReplayReport> check_replays(const glm52::LayerRun& run, std::span<const LaunchMode> modes,
                                   const ReplayOptions& options, std::shared_ptr<const cuda::Context> context) {
  if (!context) context = MEGARTP_TRY(cuda::Context::open(*MEGARTP_TRY(cuda::driver())));
  const cuda::Context::Scope scope(*context);
  Replays replays(run, options, context);
  for (const LaunchMode mode : modes) MEGARTP_TRY(replays.add(mode));
  if (options.mega_plan) MEGARTP_TRY(replays.add_mega());
  return replays.check();
}

}  // namespace megartp::bench

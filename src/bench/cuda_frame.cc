#include "bench/cuda_frame.h"

#include <algorithm>

namespace megartp::bench {
namespace {

using cuda::DriverApi;

// Larger: each sample takes longer. Smaller: a slow submission is timed. Submitting a graph takes 1 to 4 us, at
// times 20.
constexpr uint32_t kDelayNs = 40000;
// Four to twelve stages stream alike on an H200.
constexpr uint32_t kReadStages = 8;
constexpr uint32_t kReadStageBytes = 16384;  // as in device/bench_kernels.cuh

// The parameter structs of device/bench_kernels.cuh.
struct WordParam {
  uint32_t value;
};
struct ReadParams {
  cuda::DevicePtr data;
  uint32_t num_bytes;
};

struct OneKernelGraph {
  cuda::Graph graph;
  cuda::GraphExec exec;
};

Result<OneKernelGraph> one_kernel_graph(const DriverApi& api, cuda::FunctionHandle function, uint32_t grid,
                                        uint32_t block, uint32_t smem_bytes, void* params) {
  OneKernelGraph g;
  g.graph = MEGARTP_TRY(cuda::make_graph(api));
  void* list[] = {params};
  cuda::KernelNodeParams node;
  node.function = function;
  node.grid[0] = grid;
  node.block[0] = block;
  node.dynamic_smem_bytes = smem_bytes;
  node.params = list;
  cuda::NodeHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, graph_add_kernel_node(&handle, g.graph.get(), nullptr, 0, &node));
  g.exec = MEGARTP_TRY(cuda::instantiate(api, g.graph.get()));
  return g;
}

}  // namespace

std::vector<codegen::KernelRequest> frame_kernels() {
  const auto request = [](const char* name, const std::string& arguments, uint32_t bytes, uint32_t alignment) {
    codegen::KernelRequest r;
    r.name = name;
    r.header = "device/bench_kernels.cuh";
    r.entry = std::string("megartp::device::") + name + "<" + arguments + ">";
    r.param_bytes = bytes;
    r.param_alignment = alignment;
    return r;
  };
  return {
      request("bench_empty", "0", sizeof(WordParam), alignof(WordParam)),
      request("bench_delay", "0", sizeof(WordParam), alignof(WordParam)),
      request("bench_read", std::to_string(kReadStages) + ", false", sizeof(ReadParams), alignof(ReadParams)),
      request("bench_read", std::to_string(kReadStages) + ", true", sizeof(ReadParams), alignof(ReadParams)),
  };
}

struct CudaFrame::State {
  std::shared_ptr<const cuda::Context> context;
  cuda::Stream stream;
  cuda::Event begin, end;
  std::vector<cuda::Module> modules;
  cuda::FunctionHandle empty = nullptr, delay = nullptr, read = nullptr, flush = nullptr;
  cuda::DeviceBuffer read_buffer, flush_buffer;

  const DriverApi& api() const { return context->api(); }

  ~State() {
    const cuda::Context::Scope scope(*context);
    read_buffer = {};
    flush_buffer = {};
    modules.clear();
    begin = {};
    end = {};
    stream = {};
  }

  Status load_kernels() {
    const std::vector<codegen::KernelRequest> requests = frame_kernels();
    const codegen::CompiledKernels compiled = MEGARTP_TRY(codegen::compile_kernels(requests));
    cuda::FunctionHandle* const functions[] = {&empty, &delay, &read, &flush};
    for (size_t i = 0; i < requests.size(); ++i) {
      const codegen::CompiledKernel& k = compiled.kernels[compiled.index_of_request[i]];
      modules.push_back(MEGARTP_TRY(cuda::load_module(api(), *k.cubin)));
      *functions[i] = MEGARTP_TRY(cuda::get_function(api(), modules.back(), k.symbol));
    }
    for (const cuda::FunctionHandle f : {read, flush})
      MEGARTP_CUDA_TRY(
          api(), func_set_attribute(f, cuda::kFuncMaxDynamicSmem, static_cast<int>(kReadStages * kReadStageBytes)));
    return {};
  }

  Status launch_delay() {
    WordParam param{kDelayNs};
    void* list[] = {&param};
    cuda::LaunchConfig config;
    config.block[0] = 1;
    config.stream = stream.get();
    MEGARTP_CUDA_TRY(api(), launch_kernel(&config, delay, list, nullptr));
    return {};
  }

  Status launch_flush() {
    const uint64_t num_bytes = 2 * context->info().l2_bytes;
    if (flush_buffer.size() == 0) flush_buffer = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api(), num_bytes));
    ReadParams params{flush_buffer.get(), static_cast<uint32_t>(num_bytes)};
    void* list[] = {&params};
    cuda::LaunchConfig config;
    config.grid[0] = static_cast<unsigned>(context->info().num_sms);
    config.block[0] = 32;
    config.dynamic_smem_bytes = kReadStages * kReadStageBytes;
    config.stream = stream.get();
    MEGARTP_CUDA_TRY(api(), launch_kernel(&config, flush, list, nullptr));
    return {};
  }

  Result<double> sample(size_t i, const Submit& submit, bool flush_l2) {
    if (flush_l2) MEGARTP_TRY(launch_flush());
    MEGARTP_TRY(launch_delay());
    MEGARTP_CUDA_TRY(api(), event_record(begin.get(), stream.get(), 0));
    MEGARTP_TRY(submit(i, stream.get()));
    MEGARTP_CUDA_TRY(api(), event_record(end.get(), stream.get(), 0));
    MEGARTP_CUDA_TRY(api(), event_synchronize(end.get()));
    float ms = 0;
    MEGARTP_CUDA_TRY(api(), event_elapsed_time(&ms, begin.get(), end.get()));
    return static_cast<double>(ms) * 1e3;
  }
};

CudaFrame::CudaFrame(std::unique_ptr<State> state) : state_(std::move(state)) {}
CudaFrame::~CudaFrame() = default;

Result<std::unique_ptr<CudaFrame>> CudaFrame::create(std::shared_ptr<const cuda::Context> context) {
  const cuda::Context::Scope scope(*context);
  auto state = std::make_unique<State>();
  state->context = std::move(context);
  const DriverApi& api = state->api();
  state->stream = MEGARTP_TRY(cuda::make_stream(api));
  state->begin = MEGARTP_TRY(cuda::make_event(api, true));
  state->end = MEGARTP_TRY(cuda::make_event(api, true));
  MEGARTP_TRY(state->load_kernels());
  return std::unique_ptr<CudaFrame>(new CudaFrame(std::move(state)));
}

const cuda::Context& CudaFrame::context() const { return *state_->context; }
cuda::StreamHandle CudaFrame::stream() const { return state_->stream.get(); }

Result<std::vector<double>> CudaFrame::time(size_t count, size_t warm_up, const Submit& submit, bool flush_l2) {
  const cuda::Context::Scope scope(*state_->context);
  std::vector<double> us;
  us.reserve(count);
  for (size_t i = 0; i < warm_up + count; ++i) {
    const double sample = MEGARTP_TRY(state_->sample(i, submit, flush_l2));
    if (i >= warm_up) us.push_back(sample);
  }
  return us;
}

Result<Summary> CudaFrame::offset(size_t count) {
  return summarize(MEGARTP_TRY(time(count, 5, [](size_t, cuda::StreamHandle) { return Status{}; })));
}

Result<Summary> CudaFrame::empty(size_t count) {
  const cuda::Context::Scope scope(*state_->context);
  const DriverApi& api = state_->api();
  WordParam param{0};
  const OneKernelGraph g = MEGARTP_TRY(one_kernel_graph(api, state_->empty, 1, 32, 0, &param));
  return summarize(MEGARTP_TRY(time(count, 5, [&](size_t, cuda::StreamHandle stream) -> Status {
    MEGARTP_CUDA_TRY(api, graph_launch(g.exec.get(), stream));
    return {};
  })));
}

Result<Summary> CudaFrame::read(uint64_t num_bytes, uint64_t cold_bytes, size_t count) {
  const cuda::Context::Scope scope(*state_->context);
  const DriverApi& api = state_->api();
  // Small reads lie far apart: a few hundred graphs are enough.
  constexpr uint64_t kMaxPlaces = 256;
  const uint64_t rounded = (num_bytes + 255) / 256 * 256;
  if (num_bytes == 0 || rounded >= (uint64_t{1} << 32))
    return make_error(ErrorCode::kInvalidArgument, "the read benchmark takes 1 byte to 4 GiB");
  const uint64_t stride = std::max(rounded, cold_bytes / kMaxPlaces / 256 * 256);
  const uint64_t num_places = std::max<uint64_t>(cold_bytes / stride, 2);
  if (state_->read_buffer.size() < stride * num_places) {
    state_->read_buffer = {};
    state_->read_buffer = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api, stride * num_places));
  }
  // Together they may fit into L2; then other data goes through it in between.
  const bool flush_l2 = rounded * num_places < 2 * state_->context->info().l2_bytes;
  std::vector<OneKernelGraph> graphs;
  for (uint64_t i = 0; i < num_places; ++i) {
    ReadParams params{state_->read_buffer.get() + i * stride, static_cast<uint32_t>((num_bytes + 15) / 16 * 16)};
    graphs.push_back(
        MEGARTP_TRY(one_kernel_graph(api, state_->read, static_cast<uint32_t>(state_->context->info().num_sms), 32,
                                     kReadStages * kReadStageBytes, &params)));
  }
  return summarize(MEGARTP_TRY(time(
      count, 5,
      [&](size_t i, cuda::StreamHandle stream) -> Status {
        MEGARTP_CUDA_TRY(api, graph_launch(graphs[i % num_places].exec.get(), stream));
        return {};
      },
      flush_l2)));
}

}  // namespace megartp::bench

// The whole small layer in the persistent kernel on a real GPU. Skipped where there is no driver, no device, no
// compiler, or no device op for some opcode.
#include <chrono>
#include <cstring>
#include <optional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda_graph/cuda_graph_executable.h"
#include "base/math.h"
#include "models/glm52/inputs.h"
#include "models/glm52/weights.h"
#include "support/mega_plans.h"

namespace megartp::cuda_mega {
namespace {

using testing::HasSubstr;

struct Shape {
  int64_t m, kv, requests;
};

#define ASSERT_OK(call)                                                                                          \
  do {                                                                                                           \
    const Status status_of_call = (call);                                                                        \
    ASSERT_TRUE(status_of_call) << status_of_call.error().to_string() << "\n" << status_of_call.error().details; \
  } while (false)

class MegaOnDevice : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto api = cuda::driver();
    if (!api) return;
    if (auto context = cuda::Context::open(**api)) context_ = std::move(*context);
    ASSERT_NO_FATAL_FAILURE(make_model(kHeads));
  }
  static void make_model(int64_t heads) {
    heads_ = heads;
    const std::string path = testing::TempDir() + "/mega_on_device.safetensors";
    ASSERT_TRUE(glm52::synth_weights(config(), {6}, 7, path));
    weights_ = std::make_unique<glm52::Weights>(glm52::load_weights(config(), 6, path).value());
    graph_ = std::make_unique<OpGraph>(glm52::attention_pre_graph(config(), {}, 6));
  }
  static void TearDownTestSuite() {
    code_ = nullptr;
    context_ = nullptr;
    weights_ = nullptr;
    graph_ = nullptr;
  }
  void SetUp() override {
    if (!context_) GTEST_SKIP() << "no GPU";
    if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
    if (heads_ != kHeads) ASSERT_NO_FATAL_FAILURE(make_model(kHeads));
  }

  // Sizes that have the fast kernels in both backends.
  static glm52::Config config() {
    glm52::Config c = test::fast_config();
    c.hidden_size = 1024;
    c.q_lora_rank = 512;
    c.index_n_heads = heads_;
    return c;
  }

  std::shared_ptr<const KernelPlan> plan_of(const Shape& s, uint32_t workers = 0,
                                            Packer packer = Packer::kCriticalPath) {
    MegaPlanOptions options;
    options.num_sms = static_cast<uint32_t>(context_->info().num_sms);
    options.num_workers = workers;
    options.packer = packer;
    auto plan = build_mega_plan(*graph_, glm52::decode_shapes(s.m, s.kv, s.requests).value(), options);
    EXPECT_TRUE(plan) << plan.error().to_string();
    return std::make_shared<const KernelPlan>(std::move(*plan));
  }
  std::unique_ptr<MegaExecutable> make_mega(std::shared_ptr<const KernelPlan> plan,
                                            const MegaRunOptions& options = {}) {
    if (!code_) {
      auto code = MegaCode::load(context_, codegen::mega_opcodes(*plan));
      EXPECT_TRUE(code) << code.error().to_string() << "\n" << code.error().details;
      if (!code) return nullptr;
      code_ = std::move(*code);
      ++num_loaded_;
    }
    auto exec = MegaExecutable::create(std::move(plan), code_, options);
    EXPECT_TRUE(exec) << exec.error().to_string();
    return exec ? std::move(*exec) : nullptr;
  }
  std::unique_ptr<cuda::DeviceExecutable> make_graph(const Shape& s, LaunchMode mode) {
    LaunchOptions options;
    options.mode = mode;
    options.target = {static_cast<uint32_t>(context_->info().num_sms), context_->info().smem_per_cta};
    auto plan = std::make_shared<const LaunchPlan>(
        build_launch_plan(*graph_, glm52::decode_shapes(s.m, s.kv, s.requests).value(), options).value());
    auto code = cuda_graph::LoadedCode::load(context_, *plan);
    EXPECT_TRUE(code) << code.error().to_string();
    return cuda_graph::CudaGraphExecutable::create(plan, std::move(*code)).value();
  }
  // `is_ragged`: rows see anything from nothing to the whole context instead of all that is there, and each request
  // lacks a page in its middle and has one that the cache does not have.
  Status fill(cuda::DeviceExecutable& exec, const Shape& s, uint64_t seed, bool is_ragged = false) {
    auto inputs =
        MEGARTP_TRY(glm52::synth_inputs(config(), {}, glm52::decode_shapes(s.m, s.kv, s.requests).value(), seed));
    if (is_ragged) {
      auto* lengths = reinterpret_cast<int32_t*>(inputs.tensors.at("context_lens").bytes.get());
      for (int64_t i = 0; i < s.m; ++i) lengths[i] = static_cast<int32_t>(lengths[i] * (i % 5) / 4);
      auto& table = inputs.tensors.at("block_table");
      for (int64_t r = 0; r < s.requests; ++r) {
        auto* pages = reinterpret_cast<int32_t*>(table.bytes.get()) + r * table.dims[1];
        const int64_t middle = ceil_div(s.kv, int64_t{64}) / 2;
        pages[middle] = -1;
        if (middle > 0) pages[middle - 1] = static_cast<int32_t>(MEGARTP_TRY(inputs.shapes.eval("PAGES")));
      }
    }
    for (const cuda::TensorUse& use : exec.tensors().uses()) {
      const cuda::DeviceTensor* t = exec.tensors().find(use.tensor.name);
      if (!t->is_external || !t->is_used()) continue;
      if (const auto* w = weights_->find(use.tensor.name); w != nullptr) {
        MEGARTP_TRY(exec.upload(use.tensor.name, {w->data, w->num_bytes}));
      } else if (const auto it = inputs.tensors.find(use.tensor.name); it != inputs.tensors.end()) {
        MEGARTP_TRY(exec.upload(use.tensor.name, {it->second.bytes.get(), it->second.num_bytes}));
      }
    }
    MEGARTP_TRY(exec.allocate_unbound());
    return exec.poison();
  }
  Status run(cuda::DeviceExecutable& exec) {
    const cuda::Context::Scope current(*context_);
    MEGARTP_TRY(exec.run(nullptr));
    MEGARTP_CUDA_TRY(context_->api(), ctx_synchronize());
    return exec.finish();
  }
  void expect_same_bits(const cuda::DeviceExecutable& a, const cuda::DeviceExecutable& b) {
    for (const TensorInfo& t : graph_->tensors()) {
      if (t.storage != Storage::kOutput && t.storage != Storage::kState) continue;
      const cuda::DeviceTensor* d = a.tensors().find(t.name);
      std::vector<std::byte> x(d->num_bytes), y(d->num_bytes);
      ASSERT_OK(a.download(t.name, x));
      ASSERT_OK(b.download(t.name, y));
      EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size()), 0) << t.name;
    }
  }

  void expect_bits_of_cmp(const Shape& s, uint64_t seed, bool is_ragged = false) {
    const auto mega = make_mega(plan_of(s));
    ASSERT_NE(mega, nullptr);
    const auto cmp = make_graph(s, LaunchMode::kCmp);
    ASSERT_OK(fill(*mega, s, seed, is_ragged));
    ASSERT_OK(fill(*cmp, s, seed, is_ragged));
    ASSERT_OK(run(*mega));
    ASSERT_OK(run(*cmp));
    expect_same_bits(*mega, *cmp);
  }

  static inline std::shared_ptr<const cuda::Context> context_;
  static inline std::shared_ptr<const MegaCode> code_;
  static inline int num_loaded_ = 0;
  static inline std::unique_ptr<glm52::Weights> weights_;
  static inline std::unique_ptr<OpGraph> graph_;
  static constexpr int64_t kHeads = 8;
  static inline int64_t heads_ = kHeads;  // of the indexer
};

TEST_F(MegaOnDevice, TwentyShapesHaveOneCubinAndTheBitsOfCmp) {
  const Shape shapes[] = {{1, 64, 1},    {1, 8192, 1},  {2, 300, 2},   {3, 700, 1},    {5, 65, 2},
                          {8, 1024, 2},  {13, 2049, 3}, {16, 8192, 2}, {16, 100, 16},  {17, 4096, 2},
                          {20, 333, 4},  {31, 640, 1},  {32, 2048, 2}, {33, 2049, 3},  {48, 512, 4},
                          {64, 1024, 2}, {65, 777, 5},  {96, 512, 3},  {100, 256, 10}, {128, 1024, 4}};
  code_ = nullptr;
  num_loaded_ = 0;
  for (const Shape& s : shapes) {
    SCOPED_TRACE(testing::Message() << "M=" << s.m << " KV=" << s.kv << " R=" << s.requests);
    expect_bits_of_cmp(s, 3);
  }
  EXPECT_EQ(num_loaded_, 1) << "one kernel runs all plans";
  EXPECT_LE(code_->stats().num_compiled, 1U);
}

TEST_F(MegaOnDevice, RaggedLengthsHaveTheBitsOfCmp) {
  for (const Shape& s : {Shape{1, 300, 1}, Shape{5, 65, 2}, Shape{16, 8192, 2}, Shape{33, 2049, 3}}) {
    SCOPED_TRACE(testing::Message() << "M=" << s.m << " KV=" << s.kv << " R=" << s.requests);
    expect_bits_of_cmp(s, 4, true);
  }
}

// So many keys that a tile of the score has 512 of them, five pages of the ring.
TEST_F(MegaOnDevice, LongTilesOfTheScoreWithAnyHeadsHaveTheBitsOfCmp) {
  for (const int64_t heads : {8, 32, 64}) {
    const Shape s{128, heads == 8 ? 32768 : 8192, 2};
    SCOPED_TRACE(heads);
    ASSERT_NO_FATAL_FAILURE(make_model(heads));
    for (const bool is_ragged : {false, true}) expect_bits_of_cmp(s, 9, is_ragged);
  }
}

TEST_F(MegaOnDevice, AnyNumberOfWorkersAndReplays) {
  const Shape s{16, 1024, 2};
  const auto cmp = make_graph(s, LaunchMode::kCmp);
  ASSERT_OK(fill(*cmp, s, 5));
  ASSERT_OK(run(*cmp));
  for (const uint32_t workers : {1U, 2U, 3U, 17U, 64U, 0U})
    for (const Packer packer : {Packer::kCriticalPath, Packer::kRoundRobin, Packer::kLongestTail, Packer::kInsertion}) {
      SCOPED_TRACE(workers);
      const auto mega = make_mega(plan_of(s, workers, packer));
      ASSERT_NE(mega, nullptr);
      ASSERT_OK(fill(*mega, s, 5));
      for (int i = 0; i < 20; ++i) ASSERT_OK(run(*mega));
      expect_same_bits(*mega, *cmp);
    }
}

// Few workers, long queues: more than eight rings of pages without weights lie between two pages with weights.
TEST_F(MegaOnDevice, ManyPagesWithoutWeightsBetweenWeights) {
  const Shape s{16, 8192, 2};
  const auto cmp = make_graph(s, LaunchMode::kCmp);
  ASSERT_OK(fill(*cmp, s, 6));
  ASSERT_OK(run(*cmp));
  for (const uint32_t workers : {1U, 3U}) {
    SCOPED_TRACE(workers);
    const auto mega = make_mega(plan_of(s, workers));
    ASSERT_NE(mega, nullptr);
    ASSERT_OK(fill(*mega, s, 6));
    for (int i = 0; i < 3; ++i) ASSERT_OK(run(*mega));
    expect_same_bits(*mega, *cmp);
  }
}

TEST_F(MegaOnDevice, TwoAtATimeAndInACallersGraph) {
  const Shape s{4, 512, 2};
  const auto a = make_mega(plan_of(s));
  const auto b = make_mega(plan_of(s));
  ASSERT_NE(b, nullptr);
  ASSERT_OK(fill(*a, s, 8));
  ASSERT_OK(fill(*b, s, 8));
  const cuda::Context::Scope current(*context_);
  const cuda::DriverApi& api = context_->api();
  ASSERT_OK(a->prepare());
  ASSERT_OK(b->prepare());
  const cuda::Stream one = cuda::make_stream(api).value();
  const cuda::Stream two = cuda::make_stream(api).value();
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK(a->run(one.get()));
    ASSERT_OK(b->run(two.get()));
  }
  ASSERT_OK(cuda::check(api, api.ctx_synchronize(), "ctx_synchronize("));
  ASSERT_OK(a->finish());
  ASSERT_OK(b->finish());
  expect_same_bits(*a, *b);
  ASSERT_OK(a->poison());
  ASSERT_OK(cuda::check(api, api.stream_begin_capture(one.get(), cuda::kCaptureThreadLocal), "stream_begin_capture("));
  ASSERT_OK(a->launch_on_stream(one.get()));
  cuda::GraphHandle handle = nullptr;
  ASSERT_OK(cuda::check(api, api.stream_end_capture(one.get(), &handle), "stream_end_capture("));
  const cuda::Graph captured(api, handle);
  const cuda::GraphExec instance = cuda::instantiate(api, handle).value();
  ASSERT_OK(cuda::check(api, api.graph_launch(instance.get(), one.get()), "graph_launch("));
  ASSERT_OK(cuda::check(api, api.ctx_synchronize(), "ctx_synchronize("));
  ASSERT_OK(a->finish());
  expect_same_bits(*a, *b);
}

TEST_F(MegaOnDevice, ALostSignalIsANamedErrorAndTheNextRunWorks) {
  const Shape s{16, 1024, 2};
  const auto plan = plan_of(s);
  const auto good = make_mega(plan);
  ASSERT_NE(good, nullptr);
  ASSERT_OK(fill(*good, s, 2));
  ASSERT_OK(run(*good));
  for (const uint32_t lost : {0U, 20U, plan->num_tasks / 2}) {
    SCOPED_TRACE(lost);
    MegaRunOptions options;
    options.lose_signals_of = lost;
    const auto bad = make_mega(plan, options);
    ASSERT_NE(bad, nullptr);
    ASSERT_OK(fill(*bad, s, 2));
    const auto begin = std::chrono::steady_clock::now();
    const Status status = run(*bad);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    const abi::Instruction& victim = *std::ranges::find(plan->instructions, lost, &abi::Instruction::task_id);
    if (abi::num_signals(victim) == 0) {
      EXPECT_TRUE(status);
      continue;
    }
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kDeadlock) << status.error().to_string();
    EXPECT_THAT(status.error().message, HasSubstr("the signal"));
    ASSERT_NE(bad->fault(), nullptr);
    // The context is whole, and so are other executables.
    ASSERT_OK(good->poison());
    ASSERT_OK(run(*good));
    // The same executable goes on too: it fails again, by name, since its signals stay lost.
    EXPECT_EQ(run(*bad).error().code, ErrorCode::kDeadlock);
  }
}

// A role that waits for another one of its own worker, not for an event: the record names the task and who gave up.
TEST_F(MegaOnDevice, ResultsThatNeverComeAreANamedTimeoutAndTheNextRunWorks) {
  const Shape s{16, 1024, 2};
  const auto plan = plan_of(s);
  const auto good = make_mega(plan);
  ASSERT_NE(good, nullptr);
  ASSERT_OK(fill(*good, s, 2));
  // The last one of its queue, for which nobody waits.
  std::optional<uint32_t> last;
  for (uint32_t worker = 0; worker < plan->num_workers && !last; ++worker) {
    const auto queue = std::span(plan->instructions).subspan(size_t{worker} * plan->queue_depth, plan->queue_depth);
    const auto end = std::ranges::find(queue, abi::kOpcodeNoOp, &abi::Instruction::opcode);
    if (end != queue.begin() && abi::num_signals(end[-1]) == 0) last = end[-1].task_id;
  }
  ASSERT_TRUE(last);
  for (const uint32_t lost : {*last, 0U}) {
    SCOPED_TRACE(lost);
    MegaRunOptions options;
    options.lose_results_of = lost;
    options.deadline = std::chrono::milliseconds(300);
    const auto bad = make_mega(plan, options);
    ASSERT_NE(bad, nullptr);
    ASSERT_OK(fill(*bad, s, 2));
    const auto begin = std::chrono::steady_clock::now();
    const Status status = run(*bad);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr((lost == 0 ? "" : "task ") + testing::PrintToString(lost)));
    // Nobody waits for the last task; others see first that task 0 does not signal.
    EXPECT_EQ(status.error().code, lost == 0 ? ErrorCode::kDeadlock : ErrorCode::kTimeout)
        << status.error().to_string();
    ASSERT_NE(bad->fault(), nullptr);
    ASSERT_OK(good->poison());
    ASSERT_OK(run(*good));
  }
}

}  // namespace
}  // namespace megartp::cuda_mega

// Sources, headers and compiled code of small kernels. What needs NVRTC is skipped where there is none; no GPU is used.
#include "codegen/compile_kernels.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "codegen/embedded_headers.h"

namespace megartp::codegen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kDemo = R"text(#pragma once
#include "demo/params.cuh"
namespace demo {
template <int kWait, int kBlock>
__global__ void __launch_bounds__(kBlock) scale(const __grid_constant__ Params p) {
  if constexpr (kWait == 0) asm volatile("griddepcontrol.wait;" ::: "memory");
  const uint32_t i = blockIdx.x * kBlock + threadIdx.x;
  if (i < p.rows) p.y[i] = p.x[i] * p.factor + static_cast<float>(kWait);
}
struct alignas(64) Map { uint64_t opaque[16]; };
struct MapParams { Map map; uint32_t* out; };
__global__ void first_word(const __grid_constant__ MapParams p) { *p.out = static_cast<uint32_t>(p.map.opaque[0]); }
// An array that is indexed at run time does not fit in registers.
template <int kSize>
__global__ void stack(const __grid_constant__ Params p) {
  float values[kSize];
  for (int i = 0; i < kSize; ++i) values[i] = p.x[i];
  for (int i = 0; i < kSize; ++i) p.y[i] = values[static_cast<int>(p.x[i]) % kSize];
}
}
)text";
constexpr std::string_view kParams = R"text(#pragma once
#include <cstddef>
# include <cstdint>
#include <type_traits>
namespace demo {
struct Params { const float* x; float* y; uint32_t rows; float factor; };
static_assert(std::is_trivially_copyable_v<Params> && sizeof(std::size_t) == 8 && sizeof(uint64_t) == 8);
}
)text";

DeviceKernel demo_kernel(std::string name, std::string entry) {
  DeviceKernel kernel;
  kernel.name = std::move(name);
  kernel.header = "demo/demo.cuh";
  kernel.entry = std::move(entry);
  kernel.params = {DeviceParam::pointer("x", 0), DeviceParam::pointer("y", 1), DeviceParam::u32("rows", 5),
                   DeviceParam::f32("factor", 2)};
  return kernel;
}

TEST(KernelSource, WaitIsReplacedEverywhere) {
  const KernelRequest request =
      kernel_request(demo_kernel("A0", "demo::scale<$WAIT, 128 + $WAIT>"), DeviceWait::kPrefetch);
  EXPECT_EQ(request.entry, "demo::scale<2, 128 + 2>");
  EXPECT_EQ(request.param_bytes, 24U);
  EXPECT_EQ(request.param_alignment, 8U);
}

TEST(KernelSource, HeadersAreFollowed) {
  const std::vector<SourceHeader> more{{"demo/params.cuh", kParams}, {"demo/demo.cuh", kDemo}, {"demo/unused.cuh", ""}};
  std::vector<std::string_view> names;
  for (const SourceHeader& h : reached_headers("#include \"demo/demo.cuh\"\n#include <nowhere>\n", more))
    names.push_back(h.name);
  EXPECT_THAT(names, ElementsAre("cstddef", "cstdint", "demo/demo.cuh", "demo/params.cuh", "type_traits"));
}

TEST(EmbeddedHeaders, AreTheFilesOfTheTree) {
  bool has_abi = false;
  for (const SourceHeader& h : embedded_headers()) {
    EXPECT_EQ(h.text, read_file(std::string(MEGARTP_SOURCE_DIR "/src/") + std::string(h.name)).value()) << h.name;
    has_abi |= h.name == "abi/instruction.h";
  }
  EXPECT_TRUE(has_abi);
}

class CompileKernels : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto nvrtc = Nvrtc::find(); !nvrtc) GTEST_SKIP() << nvrtc.error().to_string();
    options_.headers = headers_;
    options_.cache_folder = folder_;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = testing::TempDir() + "/compile_kernels_test_" + std::to_string(::getpid());
  std::vector<SourceHeader> headers_{{"demo/params.cuh", kParams}, {"demo/demo.cuh", kDemo}};
  CompileOptions options_;
  const DeviceKernel scale_ = demo_kernel("A0", "demo::scale<$WAIT, 128>");
};

TEST_F(CompileKernels, DistinctOnesOnceAndFromTheCacheNextTime) {
  const std::vector<KernelRequest> requests{kernel_request(scale_, DeviceWait::kEntry),
                                            kernel_request(scale_, DeviceWait::kPrologue),
                                            kernel_request(scale_, DeviceWait::kEntry)};
  const auto first = compile_kernels(requests, options_);
  ASSERT_TRUE(first) << first.error().to_string() << first.error().details;
  EXPECT_THAT(first->index_of_request, ElementsAre(0, 1, 0));
  EXPECT_EQ(first->stats.num_compiled, 2U);
  EXPECT_EQ(first->stats.cache_problem, "");
  ASSERT_EQ(first->kernels.size(), 2U);
  EXPECT_NE(first->kernels[0].symbol, first->kernels[1].symbol);
  EXPECT_THAT(first->kernels[0].symbol, HasSubstr("scale"));
  EXPECT_GT(first->kernels[0].num_registers, 0U);
  EXPECT_EQ(first->kernels[0].local_bytes, 0U);
  EXPECT_THAT(first->kernels[0].log, HasSubstr("registers"));

  const auto second = compile_kernels(requests, options_);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->stats.num_compiled, 0U);
  EXPECT_EQ(second->stats.num_cached, 2U);
  EXPECT_EQ(*second->kernels[1].cubin, *first->kernels[1].cubin);
  EXPECT_EQ(second->kernels[1].symbol, first->kernels[1].symbol);

  // Without a compiler: what any compiler has left.
  options_.without_compiler = true;
  const auto carried = compile_kernels(requests, options_);
  ASSERT_TRUE(carried) << carried.error().to_string();
  EXPECT_EQ(*carried->kernels[1].cubin, *first->kernels[1].cubin);

  // Damaged files are made anew.
  options_.without_compiler = false;
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::string bytes = read_file(file.path().string()).value();
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(write_file_atomic(file.path().string(), bytes));
  }
  const auto third = compile_kernels(requests, options_);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->stats.num_corrupt, 2U);
  EXPECT_EQ(third->stats.num_compiled, 2U);
  EXPECT_EQ(*third->kernels[0].cubin, *first->kernels[0].cubin);

  options_.use_cache = false;
  EXPECT_EQ(compile_kernels(std::span(requests).first(1), options_).value().stats.num_compiled, 1U);
}

TEST_F(CompileKernels, WithoutCompilerOrCache) {
  options_.without_compiler = true;
  const std::vector<KernelRequest> requests{kernel_request(scale_, DeviceWait::kEntry)};
  const auto result = compile_kernels(requests, options_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(result.error().to_string(), HasSubstr("kernel=A0"));
}

TEST_F(CompileKernels, AChangedHeaderIsAnotherKernel) {
  const std::vector<KernelRequest> requests{kernel_request(scale_, DeviceWait::kEntry)};
  ASSERT_TRUE(compile_kernels(requests, options_));
  const std::string changed = std::string(kParams) + "// changed\n";
  headers_[0].text = changed;
  EXPECT_EQ(compile_kernels(requests, options_).value().stats.num_compiled, 1U);
  options_.more_options = {"-DMEGARTP_DEMO=1"};
  EXPECT_EQ(compile_kernels(requests, options_).value().stats.num_compiled, 1U);
  EXPECT_EQ(compile_kernels(requests, options_).value().stats.num_cached, 1U);
}

TEST_F(CompileKernels, ParametersOfAnotherSize) {
  DeviceKernel kernel = scale_;
  kernel.params.push_back(DeviceParam::u32("more", 1));
  const std::vector<KernelRequest> requests{kernel_request(kernel, DeviceWait::kEntry)};
  const auto result = compile_kernels(requests, options_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(result.error().details, HasSubstr("the host packs 32 bytes of parameters"));
  EXPECT_THAT(result.error().to_string(), HasSubstr("kernel=A0"));
}

TEST_F(CompileKernels, TensorMapsAreAligned) {
  DeviceKernel kernel = demo_kernel("E0", "demo::first_word");
  kernel.params = {DeviceParam::tensor_map("map", 0, {}), DeviceParam::pointer("out", 1)};
  const std::vector<KernelRequest> requests{kernel_request(kernel, DeviceWait::kEntry)};
  EXPECT_EQ(requests[0].param_bytes, 192U);
  const auto result = compile_kernels(requests, options_);
  ASSERT_TRUE(result) << result.error().to_string() << result.error().details;
  EXPECT_EQ((result->kernels[0].param_offset + 0x210) % 64, 0U) << "the block begins at 0x210 of its constant bank";
}

TEST_F(CompileKernels, LocalMemoryIsRefused) {
  const std::vector<KernelRequest> requests{
      kernel_request(scale_, DeviceWait::kEntry),
      kernel_request(demo_kernel("B0.stack", "demo::stack<40>"), DeviceWait::kEntry)};
  const auto refused = compile_kernels(requests, options_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfResources);
  EXPECT_THAT(refused.error().to_string(), HasSubstr("kernel=B0.stack"));
  options_.allow_local_memory = true;
  EXPECT_GE(compile_kernels(requests, options_).value().kernels[1].local_bytes, 160U);
}

TEST_F(CompileKernels, SourceErrorsCarryTheLog) {
  const std::vector<KernelRequest> requests{
      kernel_request(demo_kernel("C0", "demo::nothing<$WAIT>"), DeviceWait::kEntry)};
  const auto result = compile_kernels(requests, options_);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().details, HasSubstr("nothing"));
  EXPECT_THAT(result.error().to_string(), HasSubstr("entry=demo::nothing<0>"));
}

TEST_F(CompileKernels, ForBlackwell) {
  options_.arch = "sm_100a";
  const std::vector<KernelRequest> requests{kernel_request(scale_, DeviceWait::kEntry)};
  const auto result = compile_kernels(requests, options_);
  ASSERT_TRUE(result) << result.error().to_string() << result.error().details;
  EXPECT_THAT(*result->kernels[0].cubin, testing::StartsWith("\x7f"
                                                             "ELF"));
}

TEST_F(CompileKernels, NvrtcTellsItsVersion) {
  EXPECT_GE(Nvrtc::find().value()->version().value().first, 12);
  EXPECT_THAT(Nvrtc::find().value()->identity(), HasSubstr("nvrtc"));
}

}  // namespace
}  // namespace megartp::codegen

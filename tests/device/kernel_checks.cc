#include "device/kernel_checks.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/math.h"
#include "support/regex.h"

namespace megartp::test {
namespace {

using Kind = DeviceParam::Kind;

constexpr uint32_t kMaxThreads = 1024;
constexpr uint32_t kMaxCluster = 8;
constexpr uint64_t kMaxBox = 256;

bool is_address(const DeviceParam& p) { return p.kind == Kind::kPointer || p.kind == Kind::kTensorMap; }

uint64_t bytes_of(const ConcreteTensor& t) {
  uint64_t bytes = size_in_bytes(t.dtype);
  for (const int64_t d : t.dims) bytes *= static_cast<uint64_t>(d);
  return bytes;
}

// As cuTensorMapEncodeTiled demands, and inside the tensor.
std::vector<std::string> check_map(const TensorMapSpec& map, const ConcreteTensor& t) {
  std::vector<std::string> bad;
  const uint64_t elem = size_in_bytes(map.element);
  if (map.rank < 2 || map.rank > 5) return {"rank"};
  if (map.box[0] * elem > map.swizzle_bytes || map.box[0] * elem % 16 != 0) bad.emplace_back("inner box");
  uint64_t end = map.dims[0] * elem;
  for (uint32_t d = 0; d < map.rank; ++d) {
    if (map.box[d] == 0 || map.box[d] > kMaxBox) bad.push_back(fmt::format("box {}", d));
    if (map.dims[d] == 0 || map.dims[d] > uint64_t{1} << 32) bad.push_back(fmt::format("dim {}", d));
    if (d == 0) continue;
    if (map.strides[d - 1] % 16 != 0 || map.strides[d - 1] >= uint64_t{1} << 40)
      bad.push_back(fmt::format("stride {}", d));
    end += (map.dims[d] - 1) * map.strides[d - 1];
  }
  if (end > bytes_of(t)) bad.push_back(fmt::format("{} bytes of a tensor of {}", end, bytes_of(t)));
  return bad;
}

// May stand in the struct without being touched: the weights' other layout, and the token blocks that are parameters.
bool may_be_unused(std::string_view name) {
  static const std::set<std::string_view> names{"w_map",    "q_map",     "kv_map", "pieces",
                                                "q_pieces", "kv_pieces", "blocks"};
  return names.contains(name);
}

struct Extent {
  uint32_t bytes, alignment;
};
Extent extent_of(Kind kind) {
  if (kind == Kind::kTensorMap) return {128, 64};
  return kind == Kind::kPointer ? Extent{8, 8} : Extent{4, 4};
}

// Offsets of the parameters, then size and alignment of the struct.
std::vector<uint32_t> layout_of(const std::vector<DeviceParam>& params) {
  std::vector<uint32_t> layout;
  uint32_t at = 0;
  uint32_t alignment = 4;
  for (const DeviceParam& p : params) {
    const Extent e = extent_of(p.kind);
    at = round_up(at, e.alignment);
    layout.push_back(at);
    at += e.bytes;
    alignment = std::max(alignment, e.alignment);
  }
  layout.push_back(round_up(at, alignment));
  layout.push_back(alignment);
  return layout;
}

std::string type_check(const DeviceParam& p, std::string_view member) {
  switch (p.kind) {
    case Kind::kTensorMap: return fmt::format("std::is_same_v<{}, megartp::device::TensorMap>", member);
    case Kind::kPointer: return fmt::format("std::is_pointer_v<{}>", member);
    case Kind::kU32: return fmt::format("std::is_same_v<{}, uint32_t>", member);
    case Kind::kF32: return fmt::format("std::is_same_v<{}, float>", member);
  }
  return "false";
}

std::string shape_checks(const DeviceKernel& k) {
  const auto shape = shape_args(k);
  if (!shape) return "";
  const uint32_t splits = k.cluster > 1                                     ? k.cluster
                          : k.entry.find("qkv_a_gemm") != std::string::npos ? word(k, "splits")
                                                                            : 1;
  const uint32_t blocks = ceil_div(word(k, "k_blocks"), splits);
  std::string smem = fmt::format("{}::smem_bytes({})", shape->text, blocks);
  if (k.header.starts_with("ops/indexer_"))
    smem = fmt::format("megartp::device::SplitRows<{}, {}>::smem_bytes({})", shape->text, splits, blocks);
  if (k.header == "ops/main_q/device/main_q.cuh")
    smem = fmt::format("megartp::device::MainQSmem<{}>::smem_bytes({}, {})", shape->text, blocks, word(k, "rope"));
  return fmt::format("static_assert({}::kThreads == {});\nstatic_assert({} == {});\n", shape->text, k.block, smem,
                     k.smem_bytes);
}

}  // namespace

std::optional<ShapeArgs> shape_args(const DeviceKernel& kernel) {
  static const std::regex pattern(
      R"((megartp::device::GemmShape<(\d+), (\d+), (\d+), (\d+), (\d+), (true|false), (?:true|false)>))");
  std::smatch m;
  if (!std::regex_search(kernel.entry, m, pattern)) return std::nullopt;
  const auto number = [&](size_t i) { return static_cast<uint32_t>(std::stoul(m[i].str())); };
  return ShapeArgs{m[1].str(), number(2), number(3), number(4), number(5), number(6), m[7].str() == "true"};
}

uint32_t word(const DeviceKernel& kernel, std::string_view name) {
  for (const DeviceParam& p : kernel.params)
    if (p.name == name && !is_address(p)) return p.value;
  ADD_FAILURE() << kernel.name << " has no word " << name;
  return 0;
}

std::vector<std::string> check_kernel(const TestDeviceContext& context, const DeviceKernel& k) {
  std::vector<std::string> bad;
  const auto want = [&](bool ok, std::string what) {
    if (!ok) bad.push_back(fmt::format("{}: {}", k.name, what));
  };
  want(k.block > 0 && k.block <= kMaxThreads && k.block % 32 == 0, fmt::format("block of {}", k.block));
  want(k.grid[0] > 0 && k.grid[1] > 0 && k.grid[1] <= 65535 && k.grid[2] == 1, "grid");
  want(k.cluster >= 1 && k.cluster <= kMaxCluster && k.grid[0] % k.cluster == 0, "cluster");
  want(k.smem_bytes <= context.target().smem_per_cta, fmt::format("{} bytes of shared memory", k.smem_bytes));
  want(k.entry.find("$WAIT") != std::string::npos && k.entry.find("$WAIT") == k.entry.rfind("$WAIT"),
       "entry " + k.entry);
  want(read_file(std::string(MEGARTP_SOURCE_DIR) + "/src/" + k.header).has_value(), "no file " + k.header);
  want(k.waits, "does not wait");
  std::set<std::string> names;
  std::set<uint32_t> touched;
  for (const DeviceAccess& a : k.accesses) {
    touched.insert(a.param);
    want(a.param < k.params.size() && is_address(k.params[a.param]), fmt::format("access to parameter {}", a.param));
    if (a.param >= k.params.size()) continue;
    const DeviceParam& p = k.params[a.param];
    const ConcreteTensor& t = context.tensor(p.tensor);
    want(!a.before_wait || !a.is_write, p.name + " is written before the wait");
    want(a.is_write || p.kind != Kind::kTensorMap || a.means == DeviceAccess::Means::kTma,
         p.name + " is a map, but not read by TMA");
    want(!a.is_write || (t.storage != Storage::kWeight && t.storage != Storage::kRuntimeArg),
         p.name + " writes " + t.name);
  }
  for (uint32_t i = 0; i < k.params.size(); ++i) {
    const DeviceParam& p = k.params[i];
    want(names.insert(p.name).second, "two parameters " + p.name);
    if (!is_address(p)) continue;
    want(p.tensor < context.num_tensors(), p.name + " has no tensor");
    if (p.tensor >= context.num_tensors()) continue;
    const ConcreteTensor& t = context.tensor(p.tensor);
    want(touched.contains(i) || may_be_unused(p.name), p.name + " is not touched");
    if (p.kind == Kind::kTensorMap)
      for (const std::string& what : check_map(p.map, t)) want(false, fmt::format("map {}: {}", p.name, what));
    want(p.layout == WeightLayout::kCheckpoint ||
             (t.storage == Storage::kWeight && t.dtype == DType::kF8E4M3 && t.dims.size() == 2),
         p.name + " wants a tensor tiled that is no FP8 weight");
  }
  return bad;
}

std::vector<std::string> check_op_kernels(const TestDeviceContext& context, const std::vector<DeviceKernel>& kernels) {
  std::vector<std::string> bad;
  const OpInfo& op = context.op();
  std::set<TensorId> written;
  std::set<TensorId> read;
  std::set<std::string> names;
  for (const DeviceKernel& k : kernels) {
    if (!names.insert(k.name).second || !k.name.starts_with(op.name)) bad.push_back("kernel name " + k.name);
    for (const DeviceAccess& a : k.accesses) (a.is_write ? written : read).insert(k.params[a.param].tensor);
    for (const DeviceAccess& a : k.accesses) {
      const TensorId id = k.params[a.param].tensor;
      const bool is_workspace =
          context.tensor(id).name.starts_with(op.name + ".") && std::ranges::find(op.outputs, id) == op.outputs.end();
      if (!a.is_write && is_workspace && context.tensor(id).dtype == DType::kF32 && !written.contains(id))
        bad.push_back(k.name + " reads what no kernel before it wrote: " + context.tensor(id).name);
    }
  }
  for (const TensorId id : op.inputs)
    if (!read.contains(id) && std::ranges::find(op.updates, id) == op.updates.end())
      bad.push_back("no kernel reads " + context.tensor(id).name);
  for (const auto* list : {&op.outputs, &op.updates})
    for (const TensorId id : *list)
      if (!written.contains(id)) bad.push_back("no kernel writes " + context.tensor(id).name);
  for (const TensorId id : written) {
    const bool is_own =
        std::ranges::find(op.outputs, id) != op.outputs.end() || std::ranges::find(op.updates, id) != op.updates.end();
    if (!is_own && std::ranges::find(op.inputs, id) != op.inputs.end())
      bad.push_back("writes its input " + context.tensor(id).name);
  }
  return bad;
}

std::string entry_of(const DeviceKernel& kernel, DeviceWait wait) {
  std::string entry = kernel.entry;
  const size_t at = entry.find("$WAIT");
  return at == std::string::npos ? entry : entry.replace(at, 5, std::to_string(static_cast<int>(wait)));
}

std::string compile_source(const std::vector<DeviceKernel>& kernels) {
  std::string text = fmt::format("#include <type_traits>\n#include \"{}\"\n", kernels.front().header);
  text +=
      "template <class F> struct ParamsOf;\n"
      "template <class P> struct ParamsOf<void(P)> { using type = P; };\n";
  std::string references;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const DeviceKernel& k = kernels[i];
    const std::string entry = entry_of(k, DeviceWait::kPrefetch);
    const std::vector<uint32_t> layout = layout_of(k.params);
    text += fmt::format("namespace check{} {{\nusing P = ParamsOf<decltype({})>::type;\n", i, entry);
    text += fmt::format("static_assert(sizeof(P) == {});\nstatic_assert(alignof(P) == {});\n", layout[k.params.size()],
                        layout[k.params.size() + 1]);
    for (size_t p = 0; p < k.params.size(); ++p) {
      const std::string& name = k.params[p].name;
      text += fmt::format("static_assert(__builtin_offsetof(P, {}) == {}, \"{}\");\n", name, layout[p], name);
      text += fmt::format(
          "static_assert({}, \"{}\");\n",
          type_check(k.params[p], fmt::format("std::remove_cvref_t<decltype(static_cast<P*>(nullptr)->{})>", name)),
          name);
    }
    text += shape_checks(k);
    if (k.header == "ops/indexer_score/device/indexer_score.cuh")
      text += fmt::format(
          "static_assert(megartp::device::kScoreSmemBytes == {} && megartp::device::kScoreThreads == {});\n"
          "static_assert(sizeof(P::inline_blocks) == 4 * 16);\n",
          k.smem_bytes, k.block);
    text += "}\n";
    references += fmt::format("  (const void*)&{},\n", entry);
  }
  return text + "const void* instances[] = {\n" + references + "};\n";
}

}  // namespace megartp::test

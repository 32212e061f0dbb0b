// What the launch prover works on: kernels with declared contracts, and what orders them: edges of a graph, or a
// program of launches on streams that lowers to edges as stream capture would make them.
//
// The contract of a kernel says which bytes it touches before and after its grid dependency wait, who waits, and where
// the trigger stands. docs/launch-graphs.md explains the words. Nodes stand in the reference order: the order in which
// a program that never overlaps anything would run them. Invariant of a checked graph: edges go forward in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"

namespace megartp::launch {

enum class NodeKind : uint8_t { kKernel, kMemset, kMemcpy, kHost, kEmpty, kConditional, kChild };
enum class Waits : uint8_t { kNone, kSome, kAll };                // CTAs that wait, on every path
enum class Trigger : uint8_t { kNone, kAfterWait, kBeforeWait };  // kNone: the CTA's exit counts
enum class Phase : uint8_t { kPre, kPost };                       // kPre: not ordered after the CTA's wait
enum class Means : uint8_t { kGeneric, kReadOnly, kTma };         // kReadOnly: ld.global.nc, const __restrict__
enum class OrderedBy : uint8_t { kWait, kBarrier };               // kBarrier: another thread waited
enum class Fence : uint8_t { kNone, kCta, kGpu, kSystem };        // release fence of all writers before the trigger
enum class Prologue : uint8_t { kUnknown, kTrivial, kUseful };    // work before the wait besides memory
enum class BufferKind : uint8_t { kData, kWorkspace, kCounter };
// In the terms of cudaGraphEdgeData (from_port, type): (0, 0), (1, 1), (2, 1), (2, 0).
enum class EdgeKind : uint8_t { kFull, kProgrammatic, kBlockStart, kLaunchCompletion };

// The names in files and messages, in the order of the enumerators.
std::span<const std::string_view> enum_names(NodeKind);
std::span<const std::string_view> enum_names(Waits);
std::span<const std::string_view> enum_names(Trigger);
std::span<const std::string_view> enum_names(Phase);
std::span<const std::string_view> enum_names(Means);
std::span<const std::string_view> enum_names(OrderedBy);
std::span<const std::string_view> enum_names(Fence);
std::span<const std::string_view> enum_names(Prologue);
std::span<const std::string_view> enum_names(BufferKind);
std::span<const std::string_view> enum_names(EdgeKind);

template <class E>
std::string_view to_string(E value) {
  return enum_names(value)[static_cast<size_t>(value)];
}

struct Buffer {
  std::string name;
  uint64_t num_bytes = 0;
  BufferKind kind = BufferKind::kData;
  bool advances = false;  // of a counter: every replay counts from where the last one ended
};

struct Access {
  uint32_t buffer = 0;
  uint64_t begin = 0, end = 0;  // bytes
  bool is_write = false;
  Phase phase = Phase::kPre;
  Means means = Means::kGeneric;
  OrderedBy ordered_by = OrderedBy::kWait;
  bool before_trigger = false;  // done before this CTA's trigger, by program order or a CTA barrier
  bool proxy_fenced = false;    // TMA reads: the consumer has a proxy fence of its own before the load
  bool resets = false;          // writes of counters: sets the start value
};

struct Node {
  std::string name;
  NodeKind kind = NodeKind::kKernel;
  std::vector<Access> accesses;
  Waits waits = Waits::kNone;
  Trigger trigger = Trigger::kNone;
  Fence fence = Fence::kNone;
  bool proxy_fence = false;         // generic writes are fenced for the async proxy before the trigger
  bool bulk_drained = false;        // TMA stores are waited for (not `.read`) before the fence
  bool is_inspected = true;         // false: nobody has looked into the code (vendor libraries)
  std::optional<Waits> code_waits;  // what the loaded binary does, where it was read
  uint32_t grid = 1;                // CTAs
  uint32_t resident_ctas = 0;       // CTAs of this kernel that the empty device holds at once; 0 = work it out
  uint32_t threads = 0, registers = 0, smem_bytes = 0;  // of a CTA, of a thread, of a CTA; 0 threads = unknown
  bool is_cooperative = false;                          // cooperative launch, grid barrier or persistent handshake
  std::vector<uint32_t> spins_on;                       // nodes whose values it polls for
  int32_t priority = 0;
  uint32_t sync_domain = 0;
  Prologue prologue = Prologue::kUnknown;
};

struct Edge {
  uint32_t from = 0, to = 0;
  EdgeKind kind = EdgeKind::kFull;
};

struct Device {
  std::string name = "h200";
  uint32_t num_sms = 132;
  // Of one SM:
  uint32_t registers = 65536, threads = 2048, ctas = 32, smem_bytes = 233472;
};

struct Graph {
  Device device;
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<Edge> edges;
  uint32_t replay_streams = 1;  // streams on which instances of this graph are replayed at the same time
};

// Edges forward and unique, names unique, ranges inside their buffers, contracts that make sense. Whether the launch is
// safe is not its business.
Status check_graph(const Graph& graph);

// What messages show unescaped: 1 to 256 printable ASCII characters, no quotes and backslashes.
bool is_plain_name(std::string_view name);
std::optional<uint32_t> find_node(const Graph& graph, std::string_view name);
// "t[0,64)"
std::string range_text(const Graph& graph, uint32_t buffer, uint64_t begin, uint64_t end);

// --- what a contract amounts to

// Edges whose producers the consumer's wait covers.
inline bool is_waited_for(EdgeKind kind) { return kind == EdgeKind::kProgrammatic || kind == EdgeKind::kBlockStart; }
inline bool waits_always(const Node& node) { return node.waits == Waits::kAll; }
// Every trigger of the kernel, explicit or by exit, follows a wait.
inline bool triggers_after_wait(const Node& node) { return waits_always(node) && node.trigger != Trigger::kBeforeWait; }

enum class Early : uint8_t { kNotEarly, kDeclared, kNeverWaits, kLifted, kMerged };
// Whether the access may happen before the wait, and why: it says so; the kernel has no wait; the compiler may lift a
// read-only load above a wait that another thread executes, or merge it with an earlier load of the line.
Early early_reason(const Node& node, const Access& access);
inline bool is_early(const Node& node, const Access& access) { return early_reason(node, access) != Early::kNotEarly; }

// The access is over when the kernel's last CTA has triggered or exited.
inline bool is_done_at_trigger(const Node& node, const Access& access) {
  return access.before_trigger || node.trigger == Trigger::kNone;
}
// The fence before the trigger reaches consumer `reader`.
bool has_release(const Node& writer, const Node& reader);
// What `write` stores can be seen by `access` of `reader` from the trigger on, without the grid being complete.
bool is_published(const Node& writer, const Access& write, const Node& reader, const Access& access);

constexpr uint64_t kLineBytes = 128;

}  // namespace megartp::launch

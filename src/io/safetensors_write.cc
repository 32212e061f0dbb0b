// The writer: tensors are produced chunk by chunk, so that a checkpoint never has to fit in memory.
#include <algorithm>
#include <bit>
#include <exception>
#include <numeric>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megartp/dim.h"

#include "base/file.h"
#include "base/math.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

namespace megartp {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kChunkBytes = uint64_t{4} << 20;

struct Placed {
  const TensorToWrite* tensor;
  uint64_t num_bytes;
};

Status check_tensors(std::span<const TensorToWrite> tensors, std::vector<Placed>& placed) {
  std::set<std::string_view> names;
  for (const TensorToWrite& t : tensors) {
    const std::string name = detail::quoted_name(t.name);
    const auto fail = [&](std::string_view problem) {
      return make_error(ErrorCode::kInvalidArgument, fmt::format("tensor {} {}", name, problem));
    };
    if (t.name == "__metadata__") return fail("has a reserved name");
    if (!names.insert(t.name).second) return fail("is given twice");
    uint64_t bytes = 0;
    if (!detail::tensor_bytes(t.dtype, t.dims, bytes)) return fail("has an impossible shape " + to_string(t.dims));
    if (bytes != 0 && (t.data != nullptr) == static_cast<bool>(t.fill)) return fail("needs either data or a generator");
    placed.push_back({&t, bytes});
  }
  return {};
}

// A tensor whose size is a multiple of 2^a keeps everything behind it aligned to 2^a. So the order "largest such power
// first" aligns every tensor to the power of its own size: to 64 for nearly all, and always to its element.
void order_for_alignment(std::vector<Placed>& placed) {
  const auto power = [](const Placed& p) { return std::min(6, p.num_bytes == 0 ? 6 : std::countr_zero(p.num_bytes)); };
  std::stable_sort(placed.begin(), placed.end(), [&](const Placed& a, const Placed& b) { return power(a) > power(b); });
}

Result<std::string> header_text(std::span<const Placed> placed, const std::map<std::string, std::string>& metadata) {
  try {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    uint64_t at = 0;
    for (const Placed& p : placed) {
      header[p.tensor->name] = {
          {"dtype", to_string(p.tensor->dtype)}, {"shape", p.tensor->dims}, {"data_offsets", {at, at + p.num_bytes}}};
      at += p.num_bytes;
    }
    std::string text = header.dump();
    text.resize(round_up(text.size() + 8, size_t{kAlignment}) - 8, ' ');
    return text;
  } catch (const std::exception&) {
    return make_error(ErrorCode::kInvalidArgument, "a tensor name or a metadata entry is not valid UTF-8");
  }
}

Status write_tensor(AtomicFileWriter& out, const Placed& p, std::vector<std::byte>& chunk,
                    const std::function<void(uint64_t)>& advance) {
  for (uint64_t at = 0; at < p.num_bytes;) {
    const uint64_t n = std::min(kChunkBytes, p.num_bytes - at);
    std::span<const std::byte> bytes;
    if (p.tensor->fill) {
      if (chunk.size() < n) chunk.resize(n);
      const std::span<std::byte> buffer(chunk.data(), n);
      Status status = p.tensor->fill(at, buffer);
      if (!status) return tl::unexpected(std::move(status).error().with("tensor", p.tensor->name));
      bytes = buffer;
    } else {
      bytes = {static_cast<const std::byte*>(p.tensor->data) + at, n};
    }
    MEGARTP_TRY(out.append(bytes));
    at += n;
    advance(n);
  }
  return {};
}

}  // namespace

Status write_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata,
                         const std::function<void(uint64_t, uint64_t)>& progress) {
  std::vector<Placed> placed;
  MEGARTP_TRY(check_tensors(tensors, placed));
  order_for_alignment(placed);
  const std::string text = MEGARTP_TRY(header_text(placed, metadata));
  std::string prefix(8, '\0');
  for (size_t i = 0; i < 8; ++i) prefix[i] = static_cast<char>(text.size() >> (8 * i) & 0xffU);

  uint64_t total = prefix.size() + text.size();
  for (const Placed& p : placed) total += p.num_bytes;
  uint64_t done = 0;
  const auto advance = [&](uint64_t n) {
    done += n;
    if (progress) progress(done, total);
  };
  AtomicFileWriter out = MEGARTP_TRY(AtomicFileWriter::create(path));
  MEGARTP_TRY(out.append(prefix));
  MEGARTP_TRY(out.append(text));
  advance(prefix.size() + text.size());
  std::vector<std::byte> chunk;
  for (const Placed& p : placed) MEGARTP_TRY(write_tensor(out, p, chunk, advance));
  return out.commit();
}

}  // namespace megartp

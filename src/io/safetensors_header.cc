#include "io/safetensors_header.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "megartp/dim.h"

namespace megartp::detail {
namespace {

using json = nlohmann::json;

constexpr size_t kMaxDims = 32;  // far beyond any model; keeps error messages to one readable line

// Names that the format defines beyond those of DType.
constexpr std::array<std::string_view, 16> kOtherDtypes{
    "BOOL",    "I8", "I16",     "U16",     "U32", "U64",  "F16",         "F8_E5M2",
    "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "C64", "C128", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};

// Reads the header event by event: a DOM would drop duplicate names silently.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  Header header;
  Error error{ErrorCode::kParse, "", {}};

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override {
    if (in_list()) return fail(where() + " holds " + text.substr(0, 40) + ", not a whole number of at most 63 bits");
    return unexpected("a number");
  }
  bool number_integer(number_integer_t value) override {
    if (in_list()) return fail(fmt::format("{} holds the negative number {}", where(), value));
    return unexpected("a number");
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (!in_list()) return unexpected("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return fail(fmt::format("{} holds {}, not a whole number of at most 63 bits", where(), value));
    if (state_ == State::kOffsets && num_offsets_ == 2) return fail(where() + " holds more than two numbers");
    if (state_ == State::kShape && tensor_.dims.size() == kMaxDims)
      return fail(fmt::format("{} holds more than {} dimensions", where(), kMaxDims));
    if (state_ == State::kShape) {
      tensor_.dims.push_back(static_cast<int64_t>(value));
    } else {
      (num_offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
    }
    return true;
  }
  bool string(string_t& value) override {
    if (state_ == State::kMetadata) {
      header.metadata.emplace(key_, std::move(value));
      return true;
    }
    if (state_ != State::kTensor || key_ != "dtype") return unexpected("a string");
    const auto dtype = parse_dtype(value);
    if (!dtype) {
      const bool known = std::find(kOtherDtypes.begin(), kOtherDtypes.end(), value) != kOtherDtypes.end();
      error.code = known ? ErrorCode::kUnsupported : ErrorCode::kParse;
      return fail(fmt::format("tensor {} has {} dtype {}", quoted_name(tensor_.name), known ? "unsupported" : "unknown",
                              quoted_name(value)));
    }
    tensor_.dtype = *dtype;
    return true;
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool start_object(std::size_t) override {
    if (state_ == State::kStart) {
      state_ = State::kTop;
    } else if (state_ == State::kTop && key_ == "__metadata__") {
      state_ = State::kMetadata;
    } else if (state_ == State::kTop) {
      state_ = State::kTensor;
      tensor_ = HeaderTensor{};
      tensor_.name = key_;
      fields_ = 0;
      num_offsets_ = 0;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool end_object() override {
    if (state_ == State::kTensor) {
      for (size_t f = 0; f < kFields.size(); ++f)
        if ((fields_ >> f & 1U) == 0)
          return fail(fmt::format("tensor {} has no \"{}\"", quoted_name(tensor_.name), kFields[f]));
      header.tensors.push_back(std::move(tensor_));
    }
    state_ = state_ == State::kTop ? State::kEnd : State::kTop;
    return true;
  }
  bool start_array(std::size_t) override {
    if (state_ != State::kTensor || key_ == "dtype") return unexpected("an array");
    state_ = key_ == "shape" ? State::kShape : State::kOffsets;
    return true;
  }
  bool end_array() override {
    if (state_ == State::kOffsets && num_offsets_ != 2) return fail(where() + " holds fewer than two numbers");
    state_ = State::kTensor;
    return true;
  }
  bool key(string_t& value) override {
    if (state_ == State::kTop) {
      if (!names_.insert(value).second) return fail(fmt::format("the name {} appears twice", quoted_name(value)));
    } else if (state_ == State::kMetadata) {
      if (header.metadata.contains(value))
        return fail(fmt::format("__metadata__ has the key {} twice", quoted_name(value)));
    } else {
      const auto f = static_cast<size_t>(std::find(kFields.begin(), kFields.end(), value) - kFields.begin());
      if (f == kFields.size())
        return fail(fmt::format("tensor {} has an unknown field {}", quoted_name(tensor_.name), quoted_name(value)));
      if ((fields_ >> f & 1U) != 0)
        return fail(fmt::format("tensor {} has \"{}\" twice", quoted_name(tensor_.name), value));
      fields_ |= 1U << f;
    }
    key_ = std::move(value);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("the header is not valid JSON at byte {}", position));
  }

 private:
  enum class State : uint8_t { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };
  static constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};

  bool in_list() const { return state_ == State::kShape || state_ == State::kOffsets; }
  std::string where() const {
    switch (state_) {
      case State::kMetadata: return "__metadata__ key " + quoted_name(key_);
      case State::kTensor: return fmt::format("tensor {}: \"{}\"", quoted_name(tensor_.name), key_);
      case State::kShape: return fmt::format("tensor {}: \"shape\"", quoted_name(tensor_.name));
      case State::kOffsets: return fmt::format("tensor {}: \"data_offsets\"", quoted_name(tensor_.name));
      default: return key_.empty() ? "the header" : "entry " + quoted_name(key_);
    }
  }
  const char* wanted() const {
    switch (state_) {
      case State::kMetadata: return "a string";
      case State::kTensor: return key_ == "dtype" ? "a string" : "an array";
      case State::kShape:
      case State::kOffsets: return "a whole number";
      default: return "an object";
    }
  }
  bool unexpected(const char* what) { return fail(fmt::format("{} is {}, expected {}", where(), what, wanted())); }
  bool fail(std::string message) {
    if (error.message.empty()) error.message = std::move(message);
    return false;
  }

  State state_ = State::kStart;
  std::string key_;
  HeaderTensor tensor_;
  uint32_t fields_ = 0;
  uint32_t num_offsets_ = 0;
  std::set<std::string> names_;
};

// Shapes against offsets, offsets against each other and against the data section.
Status check_layout(std::vector<HeaderTensor>& tensors, uint64_t data_bytes) {
  const auto fail = [](std::string message) { return make_error(ErrorCode::kParse, std::move(message)); };
  for (const HeaderTensor& t : tensors) {
    const std::string name = quoted_name(t.name);
    uint64_t bytes = 0;
    if (!tensor_bytes(t.dtype, t.dims, bytes))
      return fail(fmt::format("tensor {} has shape {}, whose size overflows", name, to_string(t.dims)));
    if (t.begin > t.end) return fail(fmt::format("tensor {} has reversed data_offsets [{}, {}]", name, t.begin, t.end));
    if (t.end > data_bytes)
      return fail(
          fmt::format("tensor {} ends at byte {} of the data, but the file holds only {}", name, t.end, data_bytes));
    if (t.end - t.begin != bytes)
      return fail(fmt::format("tensor {} ({} {}) takes {} bytes, but its data_offsets [{}, {}] span {}", name,
                              to_string(t.dtype), to_string(t.dims), bytes, t.begin, t.end, t.end - t.begin));
  }
  std::sort(tensors.begin(), tensors.end(), [](const HeaderTensor& a, const HeaderTensor& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end != b.end ? a.end < b.end : a.name < b.name;
  });
  uint64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const HeaderTensor& t = tensors[i];
    if (t.begin < at)
      return fail(fmt::format("tensors {} and {} overlap", quoted_name(tensors[i - 1].name), quoted_name(t.name)));
    if (t.begin > at)
      return fail(fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor", at, t.begin,
                              quoted_name(t.name)));
    at = t.end;
  }
  if (at != data_bytes) return fail(fmt::format("{} bytes after the last tensor belong to no tensor", data_bytes - at));
  return {};
}

}  // namespace

bool tensor_bytes(DType dtype, const std::vector<int64_t>& dims, uint64_t& bytes) {
  int64_t n = static_cast<int64_t>(size_in_bytes(dtype));
  for (const int64_t d : dims)
    if (d < 0 || __builtin_mul_overflow(n, d, &n)) return false;
  bytes = static_cast<uint64_t>(n);
  return true;
}

std::string quoted_name(std::string_view name) {
  constexpr size_t kMaxShown = 120;
  std::string s = "'";
  for (const char c : name.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      s += fmt::format("\\x{:02x}", byte);
    } else {
      s += c;
    }
  }
  return s + (name.size() > kMaxShown ? "...'" : "'");
}

Result<Header> parse_safetensors_header(std::string_view text, uint64_t data_bytes) {
  if (text.empty() || text.front() != '{') return make_error(ErrorCode::kParse, "the header does not start with '{'");
  HeaderReader reader;
  try {
    if (!json::sax_parse(text.begin(), text.end(), &reader)) return tl::unexpected(std::move(reader.error));
    MEGARTP_TRY(check_layout(reader.header.tensors, data_bytes));
    return std::move(reader.header);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, "not enough memory for the header");
  } catch (const std::exception&) {
    return make_error(ErrorCode::kParse, "the header is not valid JSON");
  }
}

}  // namespace megartp::detail

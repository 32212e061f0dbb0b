// config.json in and out, and what makes a config one that the ops can run.
#include <cmath>
#include <exception>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "models/glm52/glm52.h"

namespace megartp::glm52 {
namespace {

using json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
// Far above any model; products of two sizes stay far below what 32-bit tile coordinates hold.
constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxIndexDim = 4096;  // one finalizer's row
constexpr int64_t kMaxColumns = int64_t{1} << 28;

struct IntField {
  const char* name;
  int64_t Config::* member;
};
constexpr IntField kRequiredInts[] = {
    {"hidden_size", &Config::hidden_size},
    {"num_hidden_layers", &Config::num_hidden_layers},
    {"num_attention_heads", &Config::num_attention_heads},
    {"q_lora_rank", &Config::q_lora_rank},
    {"kv_lora_rank", &Config::kv_lora_rank},
    {"qk_nope_head_dim", &Config::qk_nope_head_dim},
    {"qk_rope_head_dim", &Config::qk_rope_head_dim},
    {"v_head_dim", &Config::v_head_dim},
    {"index_n_heads", &Config::index_n_heads},
    {"index_head_dim", &Config::index_head_dim},
};

// One object of the file, and its name in messages ("" at the top).
class Reader {
 public:
  Reader(const json& object, std::string path) : object_(object), path_(std::move(path)) {}

  // The field, or nullptr when it is absent or null (HF writes null for "not set").
  const json* find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  std::string label(const char* name) const { return "config field '" + path_ + name + "'"; }
  tl::unexpected<Error> missing(const char* name) const {
    return make_error(ErrorCode::kParse, label(name) + " is missing");
  }
  tl::unexpected<Error> wrong(const char* name, const char* expected) const {
    std::string text = find(name)->dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return make_error(ErrorCode::kParse, fmt::format("{} is {}, expected {}", label(name), text, expected));
  }

  Status read(const char* name, int64_t& out, bool required) const {
    const json* v = find(name);
    if (v == nullptr) return required ? Status(missing(name)) : Status();
    if (!v->is_number_integer()) return wrong(name, "a whole number");
    if (v->is_number_unsigned() && v->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return wrong(name, "a smaller number");
    out = v->get<int64_t>();
    return {};
  }
  Status read(const char* name, double& out, bool required) const {
    const json* v = find(name);
    if (v == nullptr) return required ? Status(missing(name)) : Status();
    if (!v->is_number()) return wrong(name, "a number");
    out = v->get<double>();
    return {};
  }
  Status read(const char* name, bool& out) const {
    const json* v = find(name);
    if (v == nullptr) return {};
    if (!v->is_boolean()) return wrong(name, "true or false");
    out = v->get<bool>();
    return {};
  }
  Status read(const char* name, std::string& out) const {
    const json* v = find(name);
    if (v == nullptr) return {};
    if (!v->is_string()) return wrong(name, "a string");
    out = v->get<std::string>();
    return {};
  }

 private:
  const json& object_;
  std::string path_;
};

// rope_theta stands at the top level (older files) or in rope_parameters; YaRN in rope_parameters or rope_scaling.
Status read_rope(const Reader& top, Config& config) {
  bool has_theta = top.find("rope_theta") != nullptr;
  MEGARTP_TRY(top.read("rope_theta", config.rope_theta, false));
  for (const char* section : {"rope_scaling", "rope_parameters"}) {
    const json* object = top.find(section);
    if (object == nullptr) continue;
    if (!object->is_object()) return top.wrong(section, "an object");
    const Reader rope(*object, std::string(section) + ".");
    has_theta = has_theta || rope.find("rope_theta") != nullptr;
    MEGARTP_TRY(rope.read("rope_theta", config.rope_theta, false));
    std::string type = "default";
    MEGARTP_TRY(rope.read("type", type));
    MEGARTP_TRY(rope.read("rope_type", type));
    if (type == "default") continue;
    if (type != "yarn")
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("{} is '{}'; supported: default, yarn", rope.label("rope_type"), type));
    MEGARTP_TRY(rope.read("factor", config.yarn_factor, true));
    if (rope.find("original_max_position_embeddings") != nullptr) {
      MEGARTP_TRY(rope.read("original_max_position_embeddings", config.yarn_original_max_position, true));
    } else {
      MEGARTP_TRY(top.read("max_position_embeddings", config.yarn_original_max_position, true));
    }
    MEGARTP_TRY(rope.read("beta_fast", config.yarn_beta_fast, false));
    MEGARTP_TRY(rope.read("beta_slow", config.yarn_beta_slow, false));
    // HF scales by m(1) unless both are given.
    config.yarn_mscale = 1;
    config.yarn_mscale_all_dim = 0;
    if (rope.find("mscale") != nullptr && rope.find("mscale_all_dim") != nullptr) {
      MEGARTP_TRY(rope.read("mscale", config.yarn_mscale, true));
      MEGARTP_TRY(rope.read("mscale_all_dim", config.yarn_mscale_all_dim, true));
    }
    for (const char* other : {"attention_factor", "truncate"})
      if (rope.find(other) != nullptr)
        return make_error(ErrorCode::kUnsupported, rope.label(other) + " is not supported");
  }
  return has_theta ? Status() : Status(top.missing("rope_theta"));
}

// Per-layer lists come before the pattern, the pattern before frequency and offset.
Status read_indexer_layers(const Reader& top, Config& config) {
  MEGARTP_TRY(top.read("index_topk_freq", config.index_topk_freq, false));
  MEGARTP_TRY(top.read("index_skip_topk_offset", config.index_skip_topk_offset, false));
  MEGARTP_TRY(top.read("index_topk_pattern", config.indexer_pattern));
  const json* types = top.find("indexer_types");
  if (types == nullptr) return {};
  if (!types->is_array()) return top.wrong("indexer_types", "an array of \"full\" and \"shared\"");
  config.indexer_pattern.clear();
  for (const json& type : *types) {
    if (type != "full" && type != "shared") return top.wrong("indexer_types", "an array of \"full\" and \"shared\"");
    config.indexer_pattern += type == "full" ? 'F' : 'S';
  }
  return {};
}

Status check_quantization(const Reader& top) {
  const json* object = top.find("quantization_config");
  if (object == nullptr) return {};
  if (!object->is_object()) return top.wrong("quantization_config", "an object");
  const Reader quantization(*object, "quantization_config.");
  const auto expect = [&](const char* name, const char* wanted) -> Status {
    std::string value = wanted;
    MEGARTP_TRY(quantization.read(name, value));
    if (value == wanted) return {};
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("{} is '{}'; supported: {}", quantization.label(name), value, wanted));
  };
  MEGARTP_TRY(expect("quant_method", "fp8"));
  MEGARTP_TRY(expect("fmt", "e4m3"));
  MEGARTP_TRY(expect("activation_scheme", "dynamic"));
  const json* block = quantization.find("weight_block_size");
  if (block != nullptr && *block != json::array({128, 128})) {
    auto error = quantization.wrong("weight_block_size", "[128, 128]");
    error.value().code = ErrorCode::kUnsupported;
    return error;
  }
  return {};
}

Result<Config> parse(std::string_view text) {
  const json file = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (file.is_discarded()) return make_error(ErrorCode::kParse, "the config is not valid JSON");
  if (!file.is_object()) return make_error(ErrorCode::kParse, "the config is not a JSON object");
  const Reader top(file, "");
  Config config;
  if (top.find("model_type") == nullptr) return top.missing("model_type");
  MEGARTP_TRY(top.read("model_type", config.model_type));
  if (config.model_type == "deepseek_v32") {
    config.rms_norm_eps = 1e-6;
    config.indexer_rope_interleave = false;
  } else if (config.model_type != "glm_moe_dsa") {
    return make_error(ErrorCode::kUnsupported, fmt::format("{} is '{}'; supported: glm_moe_dsa, deepseek_v32",
                                                           top.label("model_type"), config.model_type.substr(0, 60)));
  }
  for (const IntField& field : kRequiredInts) MEGARTP_TRY(top.read(field.name, config.*field.member, true));
  MEGARTP_TRY(top.read("rms_norm_eps", config.rms_norm_eps, false));
  MEGARTP_TRY(top.read("rope_interleave", config.rope_interleave));
  MEGARTP_TRY(top.read("indexer_rope_interleave", config.indexer_rope_interleave));
  config.index_topk_freq = 1;  // HF's default: IndexShare is off unless the file asks for it
  config.index_skip_topk_offset = 2;
  MEGARTP_TRY(read_indexer_layers(top, config));
  MEGARTP_TRY(read_rope(top, config));
  MEGARTP_TRY(check_quantization(top));
  if (Status status = check_config(config); !status) {
    Error error = std::move(status).error();
    if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kParse;  // here the values come from a file
    return tl::unexpected(std::move(error));
  }
  return config;
}

}  // namespace

Config glm_5_2_config() { return {}; }

Config deepseek_v3_2_config() {
  Config c;
  c.model_type = "deepseek_v32";
  c.hidden_size = 7168;
  c.num_hidden_layers = 61;
  c.num_attention_heads = 128;
  c.q_lora_rank = 1536;
  c.kv_lora_rank = 512;
  c.qk_nope_head_dim = 128;
  c.qk_rope_head_dim = 64;
  c.v_head_dim = 128;
  c.index_n_heads = 64;
  c.index_head_dim = 128;
  c.rms_norm_eps = 1e-6;
  c.rope_theta = 1e4;
  c.indexer_rope_interleave = false;
  c.index_topk_freq = 1;
  c.index_skip_topk_offset = 2;
  c.yarn_factor = 40;
  return c;
}

Result<Config> parse_config(std::string_view json_text) {
  try {
    return parse(json_text);
  } catch (const std::exception&) {
    return make_error(ErrorCode::kParse, "the config cannot be read");
  }
}

Result<Config> load_config(const std::string& path) {
  const std::string text = MEGARTP_TRY(read_file(path, kMaxConfigBytes));
  Result<Config> config = parse_config(text);
  if (!config) return tl::unexpected(std::move(config).error().with("path", path));
  return config;
}

std::string config_to_json(const Config& config) {
  nlohmann::ordered_json out;
  out["model_type"] = config.model_type;
  for (const IntField& field : kRequiredInts) out[field.name] = config.*field.member;
  out["rms_norm_eps"] = config.rms_norm_eps;
  out["rope_interleave"] = config.rope_interleave;
  out["indexer_rope_interleave"] = config.indexer_rope_interleave;
  out["index_topk_freq"] = config.index_topk_freq;
  out["index_skip_topk_offset"] = config.index_skip_topk_offset;
  if (!config.indexer_pattern.empty()) out["index_topk_pattern"] = config.indexer_pattern;
  nlohmann::ordered_json& rope = out["rope_parameters"];
  rope["rope_theta"] = config.rope_theta;
  rope["rope_type"] = config.yarn_factor == 1.0 ? "default" : "yarn";
  if (config.yarn_factor != 1.0) {
    rope["factor"] = config.yarn_factor;
    rope["original_max_position_embeddings"] = config.yarn_original_max_position;
    rope["beta_fast"] = config.yarn_beta_fast;
    rope["beta_slow"] = config.yarn_beta_slow;
    rope["mscale"] = config.yarn_mscale;
    rope["mscale_all_dim"] = config.yarn_mscale_all_dim;
  }
  out["quantization_config"] = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}};
  return out.dump(2) + "\n";
}

Status check_config(const Config& c) {
  const auto fail = [](std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); };
  for (const IntField& field : kRequiredInts) {
    const int64_t v = c.*field.member;
    if (v < 1 || v > kMaxSize)
      return fail(fmt::format("config field '{}' is {}, expected 1 to {}", field.name, v, kMaxSize));
  }
  const auto positive = [&](const char* name, double v) -> Status {
    if (std::isfinite(v) && v > 0) return {};
    return fail(fmt::format("config field '{}' is {}, expected a positive number", name, v));
  };
  MEGARTP_TRY(positive("rms_norm_eps", c.rms_norm_eps));
  MEGARTP_TRY(positive("rope_theta", c.rope_theta));
  MEGARTP_TRY(positive("original_max_position_embeddings", c.yarn_original_max_position));
  MEGARTP_TRY(positive("beta_fast", c.yarn_beta_fast));
  MEGARTP_TRY(positive("beta_slow", c.yarn_beta_slow));
  if (!std::isfinite(c.yarn_factor) || c.yarn_factor < 1)
    return fail(fmt::format("config field 'factor' is {}, expected at least 1", c.yarn_factor));
  for (const double m : {c.yarn_mscale, c.yarn_mscale_all_dim})
    if (!std::isfinite(m) || m < 0) return fail(fmt::format("config field 'mscale' is {}, expected at least 0", m));
  if (!c.rope_interleave)
    return make_error(ErrorCode::kUnsupported,
                      "config field 'rope_interleave' is false; MLA heads rotate interleaved pairs only");
  if (c.rope_theta <= 1)
    return fail(fmt::format("config field 'rope_theta' is {}, expected more than 1", c.rope_theta));
  if (c.qk_rope_head_dim % 2 != 0)
    return fail(fmt::format("config field 'qk_rope_head_dim' is {}, expected an even number", c.qk_rope_head_dim));
  if (c.qk_nope_head_dim % 2 != 0)
    return fail(fmt::format("config field 'qk_nope_head_dim' is {}, expected an even number", c.qk_nope_head_dim));
  if (c.index_head_dim < c.qk_rope_head_dim)
    return fail(fmt::format("config field 'index_head_dim' is {}, smaller than qk_rope_head_dim = {}", c.index_head_dim,
                            c.qk_rope_head_dim));
  if (c.index_head_dim > kMaxIndexDim)
    return fail(fmt::format("config field 'index_head_dim' is {}, at most {} fit", c.index_head_dim, kMaxIndexDim));
  const struct {
    const char* what;
    int64_t value;
  } kProducts[] = {{"num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
                    c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim)},
                   {"num_attention_heads * (qk_nope_head_dim + v_head_dim)",
                    c.num_attention_heads * (c.qk_nope_head_dim + c.v_head_dim)},
                   {"num_attention_heads * (kv_lora_rank + qk_rope_head_dim)",
                    c.num_attention_heads * (c.kv_lora_rank + c.qk_rope_head_dim)},
                   {"index_n_heads * index_head_dim", c.index_n_heads * c.index_head_dim}};
  for (const auto& p : kProducts)
    if (p.value > kMaxColumns)
      return fail(fmt::format("config: {} is {}, at most {} fit", p.what, p.value, kMaxColumns));
  if (c.index_topk_freq < 1)
    return fail(fmt::format("config field 'index_topk_freq' is {}, expected at least 1", c.index_topk_freq));
  if (c.index_skip_topk_offset < 0 || c.index_skip_topk_offset > kMaxSize)
    return fail(fmt::format("config field 'index_skip_topk_offset' is {}, expected 0 to {}", c.index_skip_topk_offset,
                            kMaxSize));
  if (!c.indexer_pattern.empty()) {
    if (c.indexer_pattern.find_first_not_of("FS") != std::string::npos ||
        c.indexer_pattern.size() != static_cast<size_t>(c.num_hidden_layers))
      return fail(fmt::format("config: the indexer pattern needs one F (full) or S (shared) for each of {} layers",
                              c.num_hidden_layers));
    if (c.indexer_pattern[0] != 'F') return fail("config: the indexer pattern starts with a shared layer");
  }
  return {};
}

Status check_options(const Config& config, const Options& options) {
  const int64_t d = config.index_head_dim;
  if (options.hadamard && (d & (d - 1)) != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a Hadamard rotation needs an index_head_dim that is a power of two, not {}", d));
  return {};
}

Status check_layer(const Config& config, int64_t layer) {
  if (layer >= 0 && layer <= config.num_hidden_layers) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("layer {} does not exist: layers are 0 to {}, and {} is the MTP layer", layer,
                                config.num_hidden_layers - 1, config.num_hidden_layers));
}

bool layer_has_indexer(const Config& config, int64_t layer) {
  if (layer >= config.num_hidden_layers) return true;  // MTP
  if (!config.indexer_pattern.empty()) return config.indexer_pattern[static_cast<size_t>(layer)] == 'F';
  return std::max<int64_t>(layer - config.index_skip_topk_offset + 1, 0) % config.index_topk_freq == 0;
}

}  // namespace megartp::glm52

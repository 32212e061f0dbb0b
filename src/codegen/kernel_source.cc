#include "codegen/kernel_source.h"

#include <map>

#include <fmt/format.h>

#include "codegen/embedded_headers.h"
#include "codegen/param_layout.h"

namespace megartp::codegen {
namespace {

// The name in an #include line, or nothing.
std::string_view included_name(std::string_view line) {
  const auto skip_blanks = [&] {
    const size_t at = line.find_first_not_of(" \t");
    line.remove_prefix(at == std::string_view::npos ? line.size() : at);
  };
  skip_blanks();
  if (!line.starts_with('#')) return {};
  line.remove_prefix(1);
  skip_blanks();
  constexpr std::string_view kInclude = "include";
  if (!line.starts_with(kInclude)) return {};
  line.remove_prefix(kInclude.size());
  skip_blanks();
  if (line.empty() || (line.front() != '"' && line.front() != '<')) return {};
  const char close = line.front() == '"' ? '"' : '>';
  line.remove_prefix(1);
  const size_t end = line.find(close);
  return end == std::string_view::npos ? std::string_view{} : line.substr(0, end);
}

const SourceHeader* find_header(std::string_view name, std::span<const SourceHeader> more) {
  for (const std::span<const SourceHeader> set : {more, embedded_headers(), standard_headers()})
    for (const SourceHeader& h : set)
      if (h.name == name) return &h;
  return nullptr;
}

void reach(std::string_view text, std::span<const SourceHeader> more, std::map<std::string_view, SourceHeader>& found) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view name = included_name(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (name.empty() || found.contains(name)) continue;
    const SourceHeader* header = find_header(name, more);
    if (header == nullptr) continue;
    found.emplace(header->name, *header);
    reach(header->text, more, found);
  }
}

}  // namespace

KernelRequest kernel_request(const DeviceKernel& kernel, DeviceWait wait) {
  KernelRequest request{kernel.name, kernel.header, kernel.entry, 0, 1};
  constexpr std::string_view kWait = "$WAIT";
  const std::string value = std::to_string(static_cast<int>(wait));
  for (size_t at = 0; (at = request.entry.find(kWait, at)) != std::string::npos; at += value.size())
    request.entry.replace(at, kWait.size(), value);
  const ParamLayout layout = param_layout(kernel.params);
  request.param_bytes = layout.num_bytes;
  request.param_alignment = layout.alignment;
  return request;
}

std::string kernel_source(const KernelRequest& request) {
  std::string text;
  for (const std::string& header : request.more_headers) text += fmt::format("#include \"{}\"\n", header);
  return text + fmt::format(
                    "#include \"{}\"\n"
                    "namespace megartp_generated {{\n"
                    "template <class F> struct ParamsOf;\n"
                    "template <class P> struct ParamsOf<void(P)> {{ using type = P; }};\n"
                    "using Params = ParamsOf<decltype({})>::type;\n"
                    "static_assert(sizeof(Params) == {}, \"the host packs {} bytes of parameters\");\n"
                    "static_assert(alignof(Params) == {}, \"the host aligns the parameters to {} bytes\");\n"
                    "}}\n",
                    request.header, request.entry, request.param_bytes, request.param_bytes, request.param_alignment,
                    request.param_alignment);
}

std::vector<SourceHeader> reached_headers(std::string_view source, std::span<const SourceHeader> more) {
  std::map<std::string_view, SourceHeader> found;
  reach(source, more, found);
  std::vector<SourceHeader> headers;
  for (const auto& [name, header] : found) headers.push_back(header);
  return headers;
}

}  // namespace megartp::codegen

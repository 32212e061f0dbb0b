// Compiles the kernels of the shape table with nvcc: the parameter structs, shared memory and threads of every
// description agree with the device code, and nothing spills. Prints registers and shared memory.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <cxxabi.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "device/kernel_checks.h"
#include "device/shape_table.h"
#include "support/regex.h"

namespace megartp::test {
namespace {

struct Output {
  int status = -1;
  std::string text;
};
Output run(const std::string& command) {
  Output out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> buffer;
  while (const size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.text.append(buffer.data(), n);
  out.status = pclose(pipe);
  return out;
}

// Of one instance, as ptxas -v tells it.
struct Usage {
  uint32_t registers = 0, spills = 0, static_smem = 0;
};

// By entry without its return type and parameters: "megartp::device::main_q<...>".
std::map<std::string, Usage> parse_usage(const std::string& log) {
  std::map<std::string, Usage> all;
  static const std::regex start("Compiling entry function '([^']+)'");
  static const std::regex spills("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores");
  static const std::regex used("Used ([0-9]+) registers.*");
  static const std::regex smem("([0-9]+) bytes smem");
  std::string name;
  size_t begin = 0;
  while (begin < log.size()) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const std::string line = log.substr(begin, end - begin);
    begin = end + 1;
    std::smatch m;
    if (std::regex_search(line, m, start)) {
      int status = 0;
      char* text = ::abi::__cxa_demangle(m[1].str().c_str(), nullptr, nullptr, &status);
      name = text == nullptr ? m[1].str() : text;
      std::free(text);
      name = name.substr(0, name.rfind('('));
      name = name.substr(name.find("megartp::"));
    }
    if (std::regex_search(line, m, spills)) all[name].spills = static_cast<uint32_t>(std::stoul(m[1].str()));
    if (std::regex_search(line, m, used)) all[name].registers = static_cast<uint32_t>(std::stoul(m[1].str()));
    if (std::regex_search(line, m, smem)) all[name].static_smem = static_cast<uint32_t>(std::stoul(m[1].str()));
  }
  return all;
}

#ifdef MEGARTP_NVCC

// Distinct instances by header; of equal entries the one with the most shared memory is kept for the table, but all are
// compared.
std::map<std::string, std::vector<DeviceKernel>> distinct_kernels() {
  std::map<std::string, std::vector<DeviceKernel>> by_header;
  std::map<std::string, size_t> seen;
  for (const std::vector<DeviceCase>& cases : {layer_cases(), ragged_cases()}) {
    for (const DeviceCase& c : cases) {
      for (const OpInfo& op : c.graph.ops()) {
        std::vector<DeviceKernel> kernels = kernels_of(c, op.name).value();
        for (DeviceKernel& k : kernels) {
          auto& list = by_header[k.header];
          const std::string key = fmt::format("{} {}", k.entry, k.smem_bytes);
          if (seen.emplace(key, list.size()).second) list.push_back(std::move(k));
        }
      }
    }
  }
  return by_header;
}

// CTAs of an SM that registers and shared memory leave room for.
uint32_t ctas_per_sm(const DeviceKernel& k, const Usage& u) {
  const uint32_t registers = (u.registers + 7) / 8 * 8 * k.block;
  const uint32_t smem = k.smem_bytes + u.static_smem + 1024;
  return std::min({65536 / registers, 2048 / k.block, 233472 / smem, 32U});
}

void print_line(const DeviceKernel& k, std::string entry, const Usage& u) {
  constexpr std::string_view kNamespace = "megartp::device::";
  for (size_t at = 0; (at = entry.find(kNamespace)) != std::string::npos;) entry.erase(at, kNamespace.size());
  fmt::print("{:<62} {:>4} threads {:>3} registers {:>6} bytes of shared memory {:>2} CTAs an SM\n", entry, k.block,
             u.registers, k.smem_bytes + u.static_smem, ctas_per_sm(k, u));
}

void compile_header(const std::filesystem::path& folder, const std::string& header,
                    const std::vector<DeviceKernel>& kernels) {
  const std::string stem = std::filesystem::path(header).stem().string();
  const std::filesystem::path source = folder / (stem + ".cu");
  std::ofstream(source) << compile_source(kernels);
  const Output out =
      run(fmt::format("'{}' -std=c++20 -gencode=arch=compute_90a,code=sm_90a -I'{}/src' -cubin -Xptxas -v -o '{}' '{}'",
                      MEGARTP_NVCC, MEGARTP_SOURCE_DIR, (folder / (stem + ".cubin")).string(), source.string()));
  ASSERT_EQ(out.status, 0) << header << "\n" << out.text;
  EXPECT_EQ(out.text.find("warning"), std::string::npos) << out.text;
  const std::map<std::string, Usage> usage = parse_usage(out.text);
  for (size_t i = 0; i < kernels.size(); ++i) {
    const DeviceKernel& k = kernels[i];
    const std::string entry = entry_of(k, DeviceWait::kPrefetch);
    const auto u = usage.find(entry);
    ASSERT_NE(u, usage.end()) << entry << "\n" << out.text;
    EXPECT_EQ(u->second.spills, 0U) << entry;
    EXPECT_GE(ctas_per_sm(k, u->second), 1U) << entry;
    EXPECT_LE(k.smem_bytes + u->second.static_smem, DeviceTarget{}.smem_per_cta) << entry;
    // One line an instance, at its largest.
    const bool is_largest = std::ranges::none_of(
        kernels, [&](const DeviceKernel& other) { return other.entry == k.entry && other.smem_bytes > k.smem_bytes; });
    if (is_largest) print_line(k, entry, u->second);
  }
}

TEST(DeviceCompile, EveryKernelOfTheShapeTable) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "megartp_device_compile";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [header, kernels] : distinct_kernels()) {
    SCOPED_TRACE(header);
    compile_header(folder, header, kernels);
  }
  std::filesystem::remove_all(folder);
}

#endif

TEST(DeviceCompile, ReadsWhatPtxasSays) {
  const auto usage = parse_usage(
      "ptxas info    : Compiling entry function '_ZN7megartp6device8q_absorbILi3ELi2EEEvNS0_13QAbsorbParamsE' for "
      "'sm_90a'\n"
      "    40 bytes stack frame, 40 bytes spill stores, 40 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 1 barriers, 40 bytes cumulative stack size, 34816 bytes smem\n");
  ASSERT_EQ(usage.size(), 1U);
  const Usage& u = usage.at("megartp::device::q_absorb<3, 2>");
  EXPECT_EQ(u.registers, 168U);
  EXPECT_EQ(u.spills, 40U);
  EXPECT_EQ(u.static_smem, 34816U);
}

}  // namespace
}  // namespace megartp::test

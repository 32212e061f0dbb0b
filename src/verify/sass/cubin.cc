#include "verify/sass/cubin.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include <fmt/format.h>

#include "base/file.h"
#include "graph/text.h"
#include "verify/sass/cubin_info.h"
#include "verify/sass/elf_bytes.h"

namespace megartp::sass {
namespace {

constexpr uint64_t kMaxCubinBytes = uint64_t{1} << 28;
constexpr uint16_t kMachineCuda = 190;
constexpr uint32_t kSupportedSm = 90;
constexpr uint32_t kSectionSymbols = 2;
constexpr uint32_t kSectionNoBits = 8;
constexpr uint64_t kFlagExecutable = 4;
constexpr uint64_t kHeaderBytes = 64;
constexpr uint64_t kSectionHeaderBytes = 64;
constexpr uint64_t kSymbolBytes = 24;
constexpr uint8_t kSymbolFunction = 2;
constexpr uint8_t kOtherEntry = 0x10;  // st_other of a kernel

struct Section {
  std::string name;
  uint32_t type = 0;
  uint64_t flags = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint32_t link = 0;
};

struct Symbol {
  std::string name;
  uint8_t type = 0;
  uint8_t other = 0;
  uint16_t section = 0;
  uint64_t value = 0;
};

// What the first bytes say when they are not those of an ELF file.
std::optional<std::string> other_format(std::string_view bytes) {
  const auto starts = [&](std::string_view magic) { return bytes.starts_with(magic); };
  if (starts("\x50\xed\x55\xba"))
    return "a fat binary, not a cubin: extract the sm_90 cubin first (cuobjdump -xelf all)";
  if (starts("\xed\x43\x62\x46")) return "a fat binary wrapper, not a cubin: extract the sm_90 cubin first";
  if (starts("//") || starts(".version")) return "PTX text, not a cubin: compile it (ptxas -arch=sm_90a)";
  if (starts("!<arch>")) return "a static library, not a cubin: extract the sm_90 cubin first (cuobjdump -xelf all)";
  return std::nullopt;
}

tl::unexpected<Error> unsupported(std::string message) {
  return make_error(ErrorCode::kUnsupported, std::move(message));
}

// The number in the flags moved with version 8 of the ABI (CUDA 13).
uint32_t sm_of(uint32_t flags, uint8_t abi_version) { return abi_version >= 8 ? (flags >> 8) & 0xffU : flags & 0xffU; }

class CubinReader {
 public:
  explicit CubinReader(std::string_view bytes) : file_(bytes, "the file") {}

  Result<Cubin> read() {
    MEGARTP_TRY(read_header());
    MEGARTP_TRY(read_sections());
    MEGARTP_TRY(read_symbols());
    Cubin cubin;
    cubin.sm = sm_;
    for (const Symbol& symbol : symbols_)
      if (symbol.type == kSymbolFunction && (symbol.other & kOtherEntry) != 0 && symbol.section != 0)
        cubin.kernels.push_back(MEGARTP_TRY(read_kernel(symbol)));
    MEGARTP_TRY(read_info(cubin));
    std::sort(cubin.kernels.begin(), cubin.kernels.end(),
              [](const CubinKernel& a, const CubinKernel& b) { return a.name < b.name; });
    for (size_t i = 1; i < cubin.kernels.size(); ++i)
      if (cubin.kernels[i - 1].name == cubin.kernels[i].name)
        return make_error(ErrorCode::kParse,
                          fmt::format("the symbol table has kernel {} twice", quote_name(cubin.kernels[i].name)));
    return cubin;
  }

 private:
  Status read_header() {
    const std::string_view bytes = file_.bytes();
    if (const auto other = other_format(bytes)) return unsupported("this is " + *other);
    if (!bytes.starts_with("\x7f"
                           "ELF"))
      return make_error(ErrorCode::kParse, "not a cubin: the file does not start as an ELF file");
    if (bytes.size() < kHeaderBytes)
      return make_error(ErrorCode::kParse, fmt::format("the ELF header is cut off: {} bytes of 64", bytes.size()));
    if (bytes[4] != 2 || bytes[5] != 1) return unsupported("not a cubin: an ELF file, but not 64-bit little-endian");
    const auto machine = file_.at<uint16_t>(18);
    if (machine != kMachineCuda)
      return unsupported(
          fmt::format("not a cubin: an ELF file for machine {}{}, not CUDA (190); a program or object holds its cubins "
                      "in a fat binary",
                      machine,
                      machine == 62    ? " (x86-64)"
                      : machine == 183 ? " (AArch64)"
                                       : ""));
    sm_ = sm_of(file_.at<uint32_t>(48), static_cast<uint8_t>(bytes[8]));
    if (sm_ != kSupportedSm)
      return unsupported(fmt::format("this cubin is for sm_{}; only sm_{} is read", sm_, kSupportedSm));
    if (const auto type = file_.at<uint16_t>(16); type != 2)
      return unsupported(
          fmt::format("this cubin is {} (ELF type {}); link it first (nvcc -cubin without -dc, or nvlink)",
                      type == 1 ? "a relocatable object" : "not executable", type));
    return {};
  }

  Status read_sections() {
    const auto offset = file_.at<uint64_t>(40);
    const auto entry_bytes = file_.at<uint16_t>(58);
    const auto count = file_.at<uint16_t>(60);
    const auto names = file_.at<uint16_t>(62);
    if (entry_bytes != kSectionHeaderBytes)
      return make_error(ErrorCode::kParse, fmt::format("section headers of {} bytes, expected 64", entry_bytes));
    const ElfBytes headers = MEGARTP_TRY(file_.part(offset, count * kSectionHeaderBytes, "the section headers"));
    if (names >= count)
      return make_error(ErrorCode::kParse,
                        fmt::format("section {} is to hold the names, but there are {}", names, count));
    const uint64_t strings_at = names * kSectionHeaderBytes;
    const ElfBytes strings = MEGARTP_TRY(
        file_.part(headers.at<uint64_t>(strings_at + 24), headers.at<uint64_t>(strings_at + 32), "the section names"));
    for (uint64_t at = 0; at < count * kSectionHeaderBytes; at += kSectionHeaderBytes) {
      Section s;
      s.name = MEGARTP_TRY(strings.text(headers.at<uint32_t>(at)));
      s.type = headers.at<uint32_t>(at + 4);
      s.flags = headers.at<uint64_t>(at + 8);
      s.offset = headers.at<uint64_t>(at + 24);
      s.size = headers.at<uint64_t>(at + 32);
      s.link = headers.at<uint32_t>(at + 40);
      sections_.push_back(std::move(s));
    }
    return {};
  }

  Result<ElfBytes> contents(const Section& s) const {
    if (s.type == kSectionNoBits)
      return make_error(ErrorCode::kParse, fmt::format("section {} has no bytes in the file", quote_name(s.name)));
    return file_.part(s.offset, s.size, "section " + quote_name(s.name));
  }

  Status read_symbols() {
    for (const Section& s : sections_) {
      if (s.type != kSectionSymbols) continue;
      const ElfBytes table = MEGARTP_TRY(contents(s));
      if (s.link >= sections_.size())
        return make_error(ErrorCode::kParse, fmt::format("section {} takes names from section {} of {}",
                                                         quote_name(s.name), s.link, sections_.size()));
      const ElfBytes strings = MEGARTP_TRY(contents(sections_[s.link]));
      for (uint64_t at = 0; at + kSymbolBytes <= table.size(); at += kSymbolBytes) {
        Symbol symbol;
        symbol.name = MEGARTP_TRY(strings.text(table.at<uint32_t>(at)));
        symbol.type = table.at<uint8_t>(at + 4) & 0xfU;
        symbol.other = table.at<uint8_t>(at + 5);
        symbol.section = table.at<uint16_t>(at + 6);
        symbol.value = table.at<uint64_t>(at + 8);
        symbols_.push_back(std::move(symbol));
      }
      return {};  // there is one
    }
    return make_error(ErrorCode::kParse, "the cubin has no symbol table");
  }

  Result<CubinKernel> read_kernel(const Symbol& symbol) {
    const auto fail = [&](std::string what) {
      return make_error(ErrorCode::kParse, fmt::format("kernel {}: {}", quote_name(symbol.name), what));
    };
    if (symbol.section >= sections_.size()) return fail(fmt::format("its section {} does not exist", symbol.section));
    const Section& section = sections_[symbol.section];
    if ((section.flags & kFlagExecutable) == 0)
      return fail(fmt::format("section {} holds no code", quote_name(section.name)));
    const ElfBytes code = MEGARTP_TRY(contents(section));
    code_bytes_ += code.size();
    if (code_bytes_ > kMaxCubinBytes) return fail("several kernels share one large section");
    if (code.size() == 0 || code.size() % kInstructionBytes != 0)
      return fail(fmt::format("section {} has {} bytes, not a multiple of 16", quote_name(section.name), code.size()));
    if (symbol.value % kInstructionBytes != 0 || symbol.value >= code.size())
      return fail(fmt::format("starts at {:#x} of section {}, which has {:#x} bytes", symbol.value,
                              quote_name(section.name), code.size()));
    CubinKernel kernel;
    kernel.name = symbol.name;
    kernel.section = section.name;
    kernel.entry = static_cast<uint32_t>(symbol.value);
    kernel.code.resize(code.size() / kInstructionBytes);
    for (size_t i = 0; i < kernel.code.size(); ++i)
      kernel.code[i] = {code.at<uint64_t>(i * kInstructionBytes), code.at<uint64_t>(i * kInstructionBytes + 8)};
    for (const Symbol& s : symbols_)
      if (s.section == symbol.section && s.type == kSymbolFunction && s.value % kInstructionBytes == 0 &&
          s.value < code.size())
        kernel.functions.push_back({s.name, static_cast<uint32_t>(s.value)});
    std::sort(kernel.functions.begin(), kernel.functions.end(), [](const CodeSymbol& a, const CodeSymbol& b) {
      return a.offset != b.offset ? a.offset < b.offset : a.name < b.name;
    });
    return kernel;
  }

  Status read_info(Cubin& cubin) const {
    std::map<std::string, CubinKernel*, std::less<>> by_name;
    for (CubinKernel& k : cubin.kernels) by_name[k.name] = &k;
    const auto kernel_of_symbol = [&](uint32_t index) -> CubinKernel* {
      const auto it = index < symbols_.size() ? by_name.find(symbols_[index].name) : by_name.end();
      return it == by_name.end() ? nullptr : it->second;
    };
    constexpr std::string_view kInfo = ".nv.info";
    constexpr std::string_view kShared = ".nv.shared.";
    for (const Section& s : sections_) {
      if (s.name.starts_with(kShared)) {
        if (const auto it = by_name.find(s.name.substr(kShared.size())); it != by_name.end())
          it->second->static_smem_bytes = static_cast<uint32_t>(std::min<uint64_t>(s.size, UINT32_MAX));
        continue;
      }
      if (!s.name.starts_with(kInfo) || s.type == kSectionNoBits) continue;
      CubinKernel* owner = nullptr;
      if (s.name.size() > kInfo.size() + 1) {
        const auto it = by_name.find(s.name.substr(kInfo.size() + 1));
        if (it == by_name.end()) continue;
        owner = it->second;
      }
      MEGARTP_TRY(read_info_section(MEGARTP_TRY(contents(s)), owner, kernel_of_symbol));
    }
    for (CubinKernel& k : cubin.kernels)
      std::sort(k.params.begin(), k.params.end(),
                [](const KernelParam& a, const KernelParam& b) { return a.offset < b.offset; });
    return {};
  }

  ElfBytes file_;
  uint32_t sm_ = 0;
  uint64_t code_bytes_ = 0;
  std::vector<Section> sections_;
  std::vector<Symbol> symbols_;
};

}  // namespace

Result<Cubin> parse_cubin(std::string_view bytes) {
  if (bytes.size() > kMaxCubinBytes)
    return make_error(ErrorCode::kParse,
                      fmt::format("{} bytes, more than the limit of {}", bytes.size(), kMaxCubinBytes));
  try {
    return CubinReader(bytes).read();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, fmt::format("no memory to read a cubin of {} bytes", bytes.size()));
  }
}

Result<Cubin> load_cubin(const std::string& path) {
  const std::string bytes = MEGARTP_TRY(read_file(path, kMaxCubinBytes));
  auto cubin = parse_cubin(bytes);
  if (!cubin) return tl::unexpected(std::move(cubin).error().with("path", path));
  return cubin;
}

}  // namespace megartp::sass

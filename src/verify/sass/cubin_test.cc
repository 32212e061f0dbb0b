// The cubin reader on real cubins, and on the same bytes with one thing wrong.
#include "verify/sass/cubin.h"

#include <cstring>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace megartp::sass {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  return read_file(fmt::format("{}/tests/faults/cubin/{}.cubin", MEGARTP_SOURCE_DIR, name)).value();
}

template <class T>
void put(std::string& bytes, size_t offset, T value) {
  ASSERT_LE(offset + sizeof(T), bytes.size());
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
}
template <class T>
T get(const std::string& bytes, size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

// Offset of the header of the first section whose name begins so.
size_t header_of(const std::string& bytes, std::string_view name) {
  const auto at = get<uint64_t>(bytes, 40);
  const auto count = get<uint16_t>(bytes, 60);
  const auto names = get<uint64_t>(bytes, at + get<uint16_t>(bytes, 62) * 64U + 24);
  for (size_t i = 0; i < count; ++i)
    if (std::string_view(bytes.data() + names + get<uint32_t>(bytes, at + i * 64)).starts_with(name))
      return at + i * 64;
  ADD_FAILURE() << "no section " << name;
  return 0;
}

Error error_of(const std::string& bytes) {
  const auto cubin = parse_cubin(bytes);
  EXPECT_FALSE(cubin);
  return cubin ? Error{} : cubin.error();
}

// Above 4 KiB of parameters the toolkit (13.0) writes another attribute, with the size in a word of its own.
TEST(Cubin, ReadsParamsOfKernelsThatHaveMany) {
  std::string bytes = fixture("register_spill");
  const std::vector<KernelParam> before = parse_cubin(bytes).value().kernels[0].params;
  const std::string small("\x04\x17\x0c\x00", 4);
  size_t changed = 0;
  for (size_t at = bytes.find(small); at != std::string::npos; at = bytes.find(small, at + 4), ++changed) {
    put<uint8_t>(bytes, at + 1, 0x45);
    put<uint32_t>(bytes, at + 12, (get<uint32_t>(bytes, at + 12) >> 18) + 20000);
  }
  EXPECT_EQ(changed, before.size());
  const std::vector<KernelParam> after = parse_cubin(bytes).value().kernels[0].params;
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].offset, before[i].offset);
    EXPECT_EQ(after[i].num_bytes, before[i].num_bytes + 20000);
  }
}

TEST(Cubin, ReadsKernelParamsAndResources) {
  const Cubin cubin = parse_cubin(fixture("register_spill")).value();
  EXPECT_EQ(cubin.sm, 90U);
  ASSERT_EQ(cubin.kernels.size(), 1U);
  const CubinKernel& k = cubin.kernels[0];
  EXPECT_EQ(k.name, "mix");
  EXPECT_EQ(k.section, ".text.mix");
  EXPECT_EQ(k.entry, 0U);
  EXPECT_EQ(k.num_registers, 32U);  // __launch_bounds__(1024, 2) leaves 32
  EXPECT_EQ(k.max_threads, 1024U);
  EXPECT_GT(k.frame_bytes, 0U);
  EXPECT_EQ(k.param_base, 0x210U);
  EXPECT_EQ(k.param_bytes, 16U);
  ASSERT_EQ(k.params.size(), 2U);
  EXPECT_EQ(k.params[1].ordinal, 1U);
  EXPECT_EQ(k.params[1].offset, 8U);
  EXPECT_EQ(k.params[1].num_bytes, 8U);
  EXPECT_EQ(k.exit_offsets.size(), 1U);
}

TEST(Cubin, ReadsStructAndSharedMemory) {
  const Cubin gemv = parse_cubin(fixture("prefetch_mutable")).value();
  ASSERT_EQ(gemv.kernels[0].params.size(), 1U);
  EXPECT_EQ(gemv.kernels[0].params[0].num_bytes, 32U);
  const Cubin loader = parse_cubin(fixture("split_loader")).value();
  EXPECT_GE(loader.kernels[0].static_smem_bytes, 2U * 1024U + 16U);
  ASSERT_EQ(loader.kernels[0].params.size(), 3U);
  EXPECT_EQ(loader.kernels[0].params[0].num_bytes, 128U);  // a tensor descriptor
}

TEST(Cubin, EveryTruncationIsAnError) {
  const std::string bytes = fixture("early_exit");
  // The program headers at the end are not read; all before them is.
  const auto end = get<uint64_t>(bytes, 32);
  for (size_t n = 0; n < end; n += 7) {
    const Error e = error_of(bytes.substr(0, n));
    EXPECT_EQ(e.code, ErrorCode::kParse) << n;
    EXPECT_THAT(e.to_string(), testing::Not(HasSubstr("\n")));
  }
}

TEST(Cubin, SaysWhatElseAFileIs) {
  std::string other = fixture("early_exit");
  put<uint32_t>(other, 48, 0x06006402);
  EXPECT_THAT(error_of(other).message, HasSubstr("for sm_100; only sm_90"));
  put<uint32_t>(other, 48, 0x00500550);  // as toolkits before 13 wrote it
  put<uint8_t>(other, 8, 7);
  EXPECT_THAT(error_of(other).message, HasSubstr("for sm_80; only sm_90"));
  std::string program = fixture("early_exit");
  put<uint16_t>(program, 18, 62);
  EXPECT_THAT(error_of(program).message, AllOf(HasSubstr("machine 62 (x86-64)"), HasSubstr("fat binary")));
  EXPECT_THAT(error_of("\x50\xed\x55\xba rest").message, HasSubstr("a fat binary"));
  EXPECT_THAT(error_of("//\n.version 8.0\n").message, HasSubstr("PTX"));
  EXPECT_THAT(error_of("hello").message, HasSubstr("does not start as an ELF file"));
  std::string object = fixture("early_exit");
  put<uint16_t>(object, 16, 1);
  EXPECT_THAT(error_of(object).message, HasSubstr("relocatable object"));
  for (const std::string& bytes : {other, program, object}) EXPECT_EQ(error_of(bytes).code, ErrorCode::kUnsupported);
}

TEST(Cubin, BrokenPartsAreNamed) {
  const std::string good = fixture("early_exit");
  std::string bytes = good;
  put<uint64_t>(bytes, 40, bytes.size() - 10);
  EXPECT_THAT(error_of(bytes).message, HasSubstr("the section headers"));
  bytes = good;
  put<uint64_t>(bytes, header_of(bytes, ".text.scale_some") + 32, UINT64_MAX - 3);
  EXPECT_THAT(error_of(bytes).message, AllOf(HasSubstr("'.text.scale_some'"), HasSubstr("beyond the end")));
  bytes = good;
  put<uint64_t>(bytes, header_of(bytes, ".text.scale_some") + 32, 24);
  EXPECT_THAT(error_of(bytes).message, AllOf(HasSubstr("'scale_some'"), HasSubstr("not a multiple of 16")));
  bytes = good;
  const auto info = get<uint64_t>(bytes, header_of(bytes, ".nv.info.scale_some") + 24);
  put<uint8_t>(bytes, info, 9);
  EXPECT_THAT(error_of(bytes).message, AllOf(HasSubstr("'.nv.info.scale_some', offset 0x0"), HasSubstr("format 9")));
  bytes = good;
  put<uint16_t>(bytes, info + 2, 0xfff0);
  EXPECT_THAT(error_of(bytes).message, HasSubstr("beyond the end of section '.nv.info.scale_some'"));
  bytes = good;
  put<uint32_t>(bytes, header_of(bytes, ".symtab") + 40, 1000);
  EXPECT_THAT(error_of(bytes).message, HasSubstr("takes names from section 1000"));
}

}  // namespace
}  // namespace megartp::sass

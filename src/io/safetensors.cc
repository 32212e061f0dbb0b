#include "io/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include <fmt/format.h>

#include "io/safetensors_header.h"
#include "megartp/dim.h"

namespace megartp {
namespace {

constexpr uint64_t kPrefixBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

}  // namespace

namespace detail {

// A read-only mapping of a whole file. Not in an anonymous namespace: g++ warns of members from there when this file is
// compiled in a lump.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, num_bytes_);
  }
  Status open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
      return make_error(errno == ENOENT || errno == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                        fmt::format("cannot open the file: {}", std::strerror(errno)));
    const Status status = map(fd);
    ::close(fd);
    return status;
  }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), num_bytes_}; }

 private:
  Status map(int fd) {
    struct stat info{};
    if (fstat(fd, &info) != 0)
      return make_error(ErrorCode::kIo, fmt::format("cannot read the file's size: {}", std::strerror(errno)));
    if (!S_ISREG(info.st_mode)) return make_error(ErrorCode::kIo, "not a regular file");
    if (info.st_size == 0) return {};
    const auto num_bytes = static_cast<size_t>(info.st_size);
    void* address = mmap(nullptr, num_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (address == MAP_FAILED)
      return make_error(ErrorCode::kIo, fmt::format("cannot map the file: {}", std::strerror(errno)));
    address_ = address;
    num_bytes_ = num_bytes;
    return {};
  }
  void* address_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace detail

struct SafetensorsFile::Impl {
  detail::Mapping mapping;
  std::vector<TensorView> tensors;
  std::unordered_map<std::string_view, size_t> by_name;  // keys view tensors[].name
  std::map<std::string, std::string> metadata;

  Status read(std::span<const std::byte> bytes);
};

Status SafetensorsFile::Impl::read(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefixBytes)
    return make_error(ErrorCode::kParse, fmt::format("the file has {} bytes; a safetensors file has at least {}",
                                                     bytes.size(), kPrefixBytes));
  uint64_t header_bytes = 0;
  for (uint64_t i = 0; i < kPrefixBytes; ++i) header_bytes |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (header_bytes > kMaxHeaderBytes)
    return make_error(ErrorCode::kParse,
                      fmt::format("the header's length is given as {} bytes, more than the limit of {}", header_bytes,
                                  kMaxHeaderBytes));
  if (header_bytes > bytes.size() - kPrefixBytes)
    return make_error(ErrorCode::kParse, fmt::format("the header's length is given as {} bytes, but only {} follow",
                                                     header_bytes, bytes.size() - kPrefixBytes));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, header_bytes);
  const auto data = bytes.subspan(kPrefixBytes + header_bytes);
  detail::Header header = MEGARTP_TRY(detail::parse_safetensors_header(text, data.size()));
  metadata = std::move(header.metadata);
  tensors.reserve(header.tensors.size());
  for (detail::HeaderTensor& t : header.tensors)
    tensors.push_back({std::move(t.name), t.dtype, std::move(t.dims), data.data() + t.begin, t.end - t.begin});
  for (size_t i = 0; i < tensors.size(); ++i) by_name.emplace(tensors[i].name, i);
  return {};
}

SafetensorsFile::SafetensorsFile() : impl_(std::make_unique<Impl>()) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  SafetensorsFile file;
  Status status = file.impl_->mapping.open(path);
  if (status) status = file.impl_->read(file.impl_->mapping.bytes());
  if (!status) return tl::unexpected(std::move(status).error().with("path", path));
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes) {
  SafetensorsFile file;
  MEGARTP_TRY(file.impl_->read(bytes));
  return file;
}

const std::vector<TensorView>& SafetensorsFile::tensors() const { return impl_->tensors; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->metadata; }

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = impl_->by_name.find(name);
  return it == impl_->by_name.end() ? nullptr : &impl_->tensors[it->second];
}

Result<const TensorView*> SafetensorsFile::get(std::string_view name, DType dtype,
                                               std::span<const int64_t> dims) const {
  const TensorView* t = find(name);
  if (t == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("the file has no tensor '{}'", name));
  if (t->dtype != dtype)
    return make_error(ErrorCode::kParse, fmt::format("tensor '{}' has dtype {}, expected {}", name, to_string(t->dtype),
                                                     to_string(dtype)));
  if (!std::equal(t->dims.begin(), t->dims.end(), dims.begin(), dims.end()))
    return make_error(ErrorCode::kParse, fmt::format("tensor '{}' has shape {}, expected {}", name, to_string(t->dims),
                                                     to_string(std::vector<int64_t>(dims.begin(), dims.end()))));
  return t;
}

}  // namespace megartp

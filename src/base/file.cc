#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

namespace megartp {
namespace {

Error file_error(std::string_view action, const std::string& path, int error) {
  // generic_category().message() is thread-safe, which strerror need not be.
  return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
               "cannot " + std::string(action) + " '" + path + "': " + std::generic_category().message(error),
               {}};
}

// Closes a descriptor that was only read.
struct FdCloser {
  int fd;
  ~FdCloser() { ::close(fd); }
};

ssize_t read_some(int fd, char* out, size_t count) {
  ssize_t n = 0;
  do n = ::read(fd, out, count);
  while (n < 0 && errno == EINTR);
  return n;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Names of temporary files in the making, where a signal handler can read them: fixed memory, a slot is valid while
// `used`.
class UnfinishedFiles {
 public:
  void add(const std::string& path) {
    for (Slot& slot : slots_) {
      bool expected = false;
      if (path.size() >= sizeof(slot.path) || !slot.taken.compare_exchange_strong(expected, true)) continue;
      std::memcpy(slot.path, path.c_str(), path.size() + 1);
      slot.valid.store(true, std::memory_order_release);  // pairs with the load in unlink_all
      return;
    }
  }
  void remove(const std::string& path) {
    for (Slot& slot : slots_) {
      if (!slot.valid.load(std::memory_order_acquire) || path != slot.path) continue;
      slot.valid.store(false);
      slot.taken.store(false);
      return;
    }
  }
  // Async-signal-safe.
  void unlink_all() {
    for (Slot& slot : slots_)
      if (slot.valid.load(std::memory_order_acquire)) ::unlink(slot.path);
  }

 private:
  struct Slot {
    std::atomic<bool> taken{false};
    std::atomic<bool> valid{false};
    char path[1024] = {};
  };
  Slot slots_[8];
};

UnfinishedFiles& unfinished_files() {
  static UnfinishedFiles files;
  return files;
}

}  // namespace

Result<std::string> read_file(const std::string& path, uint64_t max_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tl::unexpected(file_error("open", path, errno));
  const FdCloser closer{fd};
  struct stat info{};
  if (::fstat(fd, &info) != 0) return tl::unexpected(file_error("read", path, errno));
  const auto too_large = [&] {
    return make_error(ErrorCode::kParse,
                      "file '" + path + "' is larger than the limit of " + std::to_string(max_bytes) + " bytes");
  };
  const bool is_regular = S_ISREG(info.st_mode);
  if (is_regular && static_cast<uint64_t>(info.st_size) > max_bytes) return too_large();
  // A file may grow while it is read, and pipes have no size: read until the end, never past the limit.
  std::string data;
  size_t have = 0;
  size_t room = is_regular ? static_cast<size_t>(info.st_size) + 1 : size_t{1} << 16;
  while (true) {
    data.resize(have + room);
    const ssize_t n = read_some(fd, data.data() + have, room);
    if (n < 0) return tl::unexpected(file_error("read", path, errno));
    have += static_cast<size_t>(n);
    if (n == 0) break;
    if (have > max_bytes) return too_large();
    room = std::max<size_t>(data.size() - have, size_t{1} << 16);
  }
  data.resize(have);
  return data;
}

Result<AtomicFileWriter> AtomicFileWriter::create(const std::string& name) {
  std::string path = name;
  struct stat info{};
  if (::stat(name.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return tl::unexpected(file_error("write", name, EISDIR));
    if (!S_ISREG(info.st_mode)) {
      // A device or pipe has no content to protect, and renaming over it would destroy it.
      const int fd = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
      if (fd < 0) return tl::unexpected(file_error("write", name, errno));
      return AtomicFileWriter(name, "", fd);
    }
    // A link stays a link: what it points to is replaced.
    if (char* resolved = ::realpath(name.c_str(), nullptr)) {
      path = resolved;
      std::free(resolved);
    }
  }
  static std::atomic<uint32_t> counter{0};
  // Names left by a killed process with the same number are skipped.
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string temporary = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter.fetch_add(1));
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
      unfinished_files().add(temporary);
      return AtomicFileWriter(path, std::move(temporary), fd);
    }
    if (errno != EEXIST) return tl::unexpected(file_error("write", path, errno));
  }
  return tl::unexpected(file_error("write", path, EEXIST));
}

AtomicFileWriter::AtomicFileWriter(AtomicFileWriter&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFileWriter& AtomicFileWriter::operator=(AtomicFileWriter&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

AtomicFileWriter::~AtomicFileWriter() { discard(); }

void AtomicFileWriter::discard() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    unfinished_files().remove(temporary_);
  }
  fd_ = -1;
}

Status AtomicFileWriter::fail(std::string_view action) {
  Error error = file_error(action, path_, errno);
  discard();
  return tl::unexpected(std::move(error));
}

Status AtomicFileWriter::append(std::span<const std::byte> data) {
  if (fd_ < 0) return make_error(ErrorCode::kIo, "cannot write '" + path_ + "': the writer is done");
  while (!data.empty()) {
    const ssize_t n = ::write(fd_, data.data(), data.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return fail("write");
    }
    data = data.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFileWriter::commit() {
  if (fd_ < 0) return make_error(ErrorCode::kIo, "cannot write '" + path_ + "': the writer is done");
  if (temporary_.empty()) {  // a device or pipe
    if (::close(std::exchange(fd_, -1)) != 0) return tl::unexpected(file_error("write", path_, errno));
    return {};
  }
  if (::fsync(fd_) != 0) return fail("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return fail("replace");
  unfinished_files().remove(temporary_);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) return tl::unexpected(file_error("write", path_, errno));
  // The new name itself must reach the disk. Some file systems do not support this on folders; the data are safe there
  // already.
  const std::string folder = folder_of(path_);
  const int folder_fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder_fd >= 0) {
    const FdCloser closer{folder_fd};
    if (::fsync(folder_fd) != 0 && errno != EINVAL && errno != ENOTSUP)
      return tl::unexpected(file_error("write", folder, errno));
  }
  return {};
}

void unlink_unfinished_files() { unfinished_files().unlink_all(); }

Status write_file_atomic(const std::string& path, std::string_view data) {
  AtomicFileWriter writer = MEGARTP_TRY(AtomicFileWriter::create(path));
  MEGARTP_TRY(writer.append(data));
  return writer.commit();
}

}  // namespace megartp

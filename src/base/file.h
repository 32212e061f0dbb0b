// Whole files in and out. Errors carry the path and the system's reason.
//
// Writing is atomic: data go to a temporary file in the same folder, reach the disk (fsync), and only then take the
// name (rename). A reader sees the old file or the new one, and a failed or interrupted write leaves no file under the
// name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "megartp/error.h"

namespace megartp {

inline constexpr uint64_t kDefaultMaxFileBytes = uint64_t{1} << 30;

// The bytes of a file (or pipe). Errors: kNotFound when it does not exist, kParse when it holds more than max_bytes,
// else kIo.
Result<std::string> read_file(const std::string& path, uint64_t max_bytes = kDefaultMaxFileBytes);

// For a signal handler that ends the process: removes the temporary files of writers that have not committed.
void unlink_unfinished_files();

// Replaces `path` by `data`. The folder must exist. A link stays a link; devices and pipes are written to directly.
Status write_file_atomic(const std::string& path, std::string_view data);

// The same for data that come in pieces. Without a commit() the destructor removes the temporary file. Not thread-safe.
class AtomicFileWriter {
 public:
  static Result<AtomicFileWriter> create(const std::string& path);
  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  Status append(std::span<const std::byte> data);
  Status append(std::string_view data) { return append(std::as_bytes(std::span(data.data(), data.size()))); }
  // After an error, and after a success, the writer is done.
  Status commit();
  // Where the data are until commit().
  const std::string& temporary_path() const { return temporary_; }

 private:
  AtomicFileWriter(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  void discard();
  Status fail(std::string_view action);  // reads errno

  std::string path_;
  std::string temporary_;
  int fd_ = -1;
};

}  // namespace megartp

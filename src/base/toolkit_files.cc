#include "base/toolkit_files.h"

#include <cstdlib>
#include <string>
#include <system_error>

namespace megartp {
namespace {

namespace fs = std::filesystem;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view(value);
}

class Finder {
 public:
  explicit Finder(std::span<const std::string_view> names) : names_(names) {}

  void add_if_there(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) found_.push_back(path);
  }
  void look_in(const fs::path& folder) {
    for (const std::string_view name : names_) add_if_there(folder / name);
  }
  void look_in_toolkit(const fs::path& toolkit) {
    look_in(toolkit / "lib64");
    look_in(toolkit / "extras/CUPTI/lib64");
  }
  // site-packages/nvidia/cu13/lib, site-packages/nvidia/cuda_nvrtc/lib, ...
  void look_in_python(const fs::path& prefix) {
    std::error_code error;
    for (const auto& python : fs::directory_iterator(prefix / "lib", error)) {
      if (!python.path().filename().string().starts_with("python3")) continue;
      for (const std::string_view packages : {"site-packages", "dist-packages"}) {
        std::error_code inner;
        for (const auto& package : fs::directory_iterator(python.path() / packages / "nvidia", inner))
          look_in(package.path() / "lib");
      }
    }
  }
  void look_in_library_path() {
    std::string_view rest = variable("LD_LIBRARY_PATH");
    while (!rest.empty()) {
      const size_t end = rest.find(':');
      if (end != 0) look_in(fs::path(rest.substr(0, end)));
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    }
    for (const std::string_view folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"})
      look_in(folder);
  }
  std::vector<fs::path> take() { return std::move(found_); }

 private:
  std::span<const std::string_view> names_;
  std::vector<fs::path> found_;
};

// The folder above the bin that holds python3, following links and shims no further than the file system does.
std::vector<fs::path> python_prefixes() {
  std::vector<fs::path> prefixes;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (!variable(name).empty()) prefixes.emplace_back(variable(name));
  std::string_view rest = variable("PATH");
  while (!rest.empty()) {
    const size_t end = rest.find(':');
    const fs::path program = fs::path(rest.substr(0, end)) / "python3";
    std::error_code error;
    if (fs::exists(program, error)) {
      prefixes.push_back(program.parent_path().parent_path());
      const fs::path real = fs::canonical(program, error);
      if (!error) prefixes.push_back(real.parent_path().parent_path());
    }
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  prefixes.emplace_back("/usr/local");
  return prefixes;
}

}  // namespace

std::vector<fs::path> find_toolkit_files(std::span<const std::string_view> names) {
  Finder finder(names);
  finder.look_in_library_path();
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (!variable(name).empty()) finder.look_in_toolkit(variable(name));
  finder.look_in_toolkit("/usr/local/cuda");
  for (const fs::path& prefix : python_prefixes()) finder.look_in_python(prefix);
  return finder.take();
}

std::vector<fs::path> toolkit_files_at(const fs::path& place, std::span<const std::string_view> names) {
  Finder finder(names);
  finder.add_if_there(place);
  finder.look_in(place);
  return finder.take();
}

}  // namespace megartp

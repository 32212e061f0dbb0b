// Where libraries of a CUDA toolkit lie that are no part of the driver (NVRTC, CUPTI): in a toolkit, or in the nvidia
// packages of a Python environment.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace megartp {

// All files of these names in, one after the other: the system's library path, CUDA_HOME and CUDA_PATH,
// /usr/local/cuda (lib64 and extras/CUPTI/lib64), and the nvidia packages of a Python environment (VIRTUAL_ENV,
// CONDA_PREFIX, and python3 on PATH). In each folder in the order of the names.
std::vector<std::filesystem::path> find_toolkit_files(std::span<const std::string_view> names);
// `place` itself when it is a file, and the files of these names in it when it is a folder.
std::vector<std::filesystem::path> toolkit_files_at(const std::filesystem::path& place,
                                                    std::span<const std::string_view> names);

}  // namespace megartp

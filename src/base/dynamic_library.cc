#include "base/dynamic_library.h"

#include <climits>
#include <cstdlib>

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

namespace megartp {

Result<DynamicLibrary> DynamicLibrary::open(std::string_view what, std::span<const std::string> names) {
  std::string reason = "no name to look for";
  for (const std::string& name : names) {
    void* handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* text = ::dlerror();
      reason = text != nullptr ? text : name;
      continue;
    }
    std::string path = name;
    link_map* map = nullptr;
    if (::dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name != nullptr &&
        *map->l_name != '\0')
      path = map->l_name;
    return DynamicLibrary(handle, std::string(what), std::move(path));
  }
  return make_error(ErrorCode::kUnsupported, fmt::format("{} cannot be loaded: {}", what, reason));
}

Result<void*> DynamicLibrary::symbol(const char* name) const {
  ::dlerror();
  void* address = ::dlsym(handle_, name);
  if (address == nullptr)
    return make_error(ErrorCode::kUnsupported, fmt::format("{} ({}) has no {}: it is too old", what_, path_, name));
  return address;
}

}  // namespace megartp

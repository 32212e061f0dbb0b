#include "lowering/need_lists.h"

#include <algorithm>

namespace megartp::lowering {

ListId NeedLists::intern(uint32_t consumer_stage, std::span<const Need> needs) {
  if (needs.empty()) return kEmptyList;
  uint64_t hash = consumer_stage;
  for (const Need& n : needs)
    hash = hash_combine(hash, (uint64_t{n.stage} << 40) ^ (uint64_t{n.publication} << 32) ^ n.set);
  const ListId found = table_.find(hash, [&](uint32_t id) {
    return lists_[id].stage == consumer_stage && std::ranges::equal(this->needs(id), needs);
  });
  if (found != IndexTable::kNone) return found;
  const auto id = static_cast<ListId>(lists_.size());
  lists_.push_back({static_cast<uint32_t>(needs_.size()), static_cast<uint32_t>(needs.size()), consumer_stage});
  needs_.insert(needs_.end(), needs.begin(), needs.end());
  table_.insert(hash, id);
  return id;
}

}  // namespace megartp::lowering

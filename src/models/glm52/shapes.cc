// The symbols' values of a batch.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/math.h"
#include "models/glm52/glm52.h"
#include "ops/common/paged_cache.h"

namespace megartp::glm52 {
namespace {

// A few pages more than the tables name, so that pages and requests do not match one to one.
constexpr int64_t kSparePages = 3;
constexpr int64_t kMaxRows = 1 << 20;
constexpr int64_t kMaxRequests = 1 << 16;
constexpr int64_t kMaxKv = 1 << 22;  // four times the longest context of the models here

}  // namespace

Result<ShapeEnv> batch_shapes(std::span<const RequestShape> requests) {
  const auto fail = [](std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); };
  if (requests.empty()) return fail("the batch has no requests");
  if (requests.size() > kMaxRequests)
    return fail(fmt::format("the batch has {} requests, at most {} fit", requests.size(), kMaxRequests));
  ShapeEnv shapes;
  int64_t m = 0;
  int64_t kv = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const RequestShape& q = requests[r];
    if (q.num_rows < 1) return fail(fmt::format("request {} has no new tokens (rows)", r));
    if (q.kv_len < q.num_rows)
      return fail(
          fmt::format("request {} has {} new tokens but a length of {} tokens; the length counts the new ones too", r,
                      q.num_rows, q.kv_len));
    if (q.kv_len > kMaxKv) return fail(fmt::format("request {} has {} tokens, at most {} fit", r, q.kv_len, kMaxKv));
    m += q.num_rows;
    kv = std::max<int64_t>(kv, q.kv_len);
    shapes.requests.push_back(q);
  }
  if (m > kMaxRows) return fail(fmt::format("the batch has {} rows, at most {} fit", m, kMaxRows));
  const auto num_requests = static_cast<int64_t>(requests.size());
  const int64_t table = ceil_div(kv, ops::kPageTokens);
  const int64_t pages = num_requests * table + kSparePages;
  if (pages > std::numeric_limits<int32_t>::max() / ops::kPageTokens)
    return fail(fmt::format("{} requests of {} tokens need {} cache pages, more than 32-bit slots can name",
                            num_requests, kv, pages));
  shapes.set("M", m);
  shapes.set("KV", kv);
  shapes.set("R", num_requests);
  shapes.set("TABLE", table);
  shapes.set("PAGES", pages);
  shapes.set("POS", kv);
  return shapes;
}

Result<ShapeEnv> decode_shapes(int64_t m, int64_t kv, int64_t requests) {
  const auto fail = [](std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); };
  if (m < 1) return fail(fmt::format("M = {}: a batch needs at least one row", m));
  if (m > kMaxRows) return fail(fmt::format("M = {}: at most {} rows fit", m, kMaxRows));
  if (kv < 1) return fail(fmt::format("KV = {}: a request needs at least one token", kv));
  if (kv > kMaxKv) return fail(fmt::format("KV = {}: at most {} tokens fit", kv, kMaxKv));
  if (requests < 1) return fail(fmt::format("requests = {}: a batch needs at least one request", requests));
  if (m < requests)
    return fail(fmt::format("M = {} rows are too few for {} requests; each has at least one", m, requests));
  std::vector<RequestShape> batch(static_cast<size_t>(requests));
  for (int64_t r = 0; r < requests; ++r)
    batch[static_cast<size_t>(r)] = {static_cast<int32_t>(m / requests + (r < m % requests ? 1 : 0)),
                                     static_cast<int32_t>(kv)};
  return batch_shapes(batch);
}

}  // namespace megartp::glm52

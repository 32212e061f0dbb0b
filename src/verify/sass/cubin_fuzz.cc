// libFuzzer entry of the cubin reader and of the scan: whatever the bytes are, reading ends with a one-line error or a
// cubin whose kernels can be listed and scanned.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "verify/sass/cubin.h"
#include "verify/sass/kernel_contract.h"
#include "verify/sass/sass_listing.h"
#include "verify/sass/sass_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megartp::sass;
  const auto cubin = parse_cubin({reinterpret_cast<const char*>(data), size});
  if (!cubin) {
    const std::string text = cubin.error().to_string();
    if (text.empty() || text.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  // Large code only takes time.
  size_t instructions = 0;
  for (const CubinKernel& kernel : cubin->kernels) instructions += kernel.code.size();
  if (instructions > 4096) return 0;
  if (!cubin->kernels.empty() && listing(*cubin).empty()) std::abort();
  const auto scans = scan_cubin(*cubin);
  if (scans.size() != cubin->kernels.size()) std::abort();
  // The strictest contract: it may object to anything, in whole sentences.
  for (const KernelScan& scan : scans) {
    KernelContract contract;
    contract.kernel = scan.kernel;
    for (const CubinFinding& finding : compare_kernel(scan, contract))
      if (finding.rule.empty() || finding.message.empty() || finding.message.find('\n') != std::string::npos)
        std::abort();
  }
  return 0;
}

// DeviceExecutable: a plan with code and addresses on a GPU, whatever kind of plan it is.
//
//   MEGARTP_TRY(exec->upload("x", host_bytes));           // or bind("x", device_address, num_bytes)
//   MEGARTP_TRY(exec->allocate_unbound());                // outputs and states that nobody bound
//   MEGARTP_TRY(exec->prepare());
//   MEGARTP_TRY(exec->run(stream));                       // one cuGraphLaunch
//   ... synchronise ...
//   MEGARTP_TRY(exec->finish());                          // did the run end as it should?
//
// run() allocates nothing and synchronises nothing, and may be captured into a graph of the caller's. Not thread-safe:
// one thread at a time per executable; several executables, each with a workspace of its own, may be in flight at once,
// one executable on one stream at a time.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "backends/cuda_common/device_tensors.h"
#include "plan/fault_dump.h"

namespace megartp::cuda {

class DeviceExecutable {
 public:
  virtual ~DeviceExecutable();
  DeviceExecutable(const DeviceExecutable&) = delete;
  DeviceExecutable& operator=(const DeviceExecutable&) = delete;

  // --- tensors; see DeviceTensors. New addresses take effect with the next run(), without planning or building anew.
  Status bind(std::string_view tensor, DevicePtr address, size_t num_bytes);
  Status bind_packed(std::string_view tensor, DevicePtr address, size_t num_bytes);
  Status upload(std::string_view tensor, std::span<const std::byte> data);
  Status download(std::string_view tensor, std::span<std::byte> data) const;
  Status allocate_unbound();
  Status poison();
  // 0 when there is no such tensor or it has no address.
  DevicePtr address(std::string_view tensor) const;
  DevicePtr packed_address(std::string_view tensor) const;
  const DeviceTensors& tensors() const { return tensors_; }

  // --- running
  // Everything that costs host time: builds what is not built yet, writes changed addresses. kInvalidArgument while a
  // tensor that is used has no address.
  virtual Status prepare() = 0;
  // Enqueues one run. Prepares first when something changed since the last one.
  virtual Status run(StreamHandle stream) = 0;
  // After all runs so far are complete: an error when one of them gave up. The next run works then.
  virtual Status finish() { return {}; }
  // Where everybody stood when finish() said kDeadlock or kTimeout; nullptr otherwise.
  virtual const FaultDump* fault() const { return nullptr; }

  const Context& context() const { return *context_; }
  const DriverApi& api() const { return context_->api(); }

 protected:
  DeviceExecutable(std::shared_ptr<const Context> context, DeviceTensors tensors)
      : context_(std::move(context)), tensors_(std::move(tensors)) {}

  std::shared_ptr<const Context> context_;
  DeviceTensors tensors_;
  bool needs_refresh_ = true;  // addresses may have changed since prepare()
};

}  // namespace megartp::cuda

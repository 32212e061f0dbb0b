#include "backends/cuda_mega/mega_image.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/math.h"
#include "codegen/mega_source.h"
#include "ops/mega_op.h"

namespace megartp::cuda_mega {
namespace {

Status check_limits(const KernelPlan& plan) {
  const auto fits = [](std::string_view what, size_t has, size_t most) -> Status {
    if (has <= most) return {};
    return make_error(ErrorCode::kOutOfResources,
                      fmt::format("mega: the plan has {} {}, the kernel's parameters hold {}", has, what, most));
  };
  MEGARTP_TRY(fits("operand rows", plan.operand_rows.size(), abi::kMegaMaxRows));
  MEGARTP_TRY(fits("specs", plan.specs.size(), abi::kMegaMaxSpecs));
  for (const PlanSpec& spec : plan.specs)
    MEGARTP_TRY(
        fits(fmt::format("words in a spec of '{}'", opcode_name(spec.opcode)), spec.words.size(), abi::kMegaSpecWords));
  return {};
}

class ImageBuilder {
 public:
  explicit ImageBuilder(const KernelPlan& plan) : plan_(plan) {}

  Result<MegaImage> build() {
    MEGARTP_TRY(check_limits(plan_));
    image_.opcodes = codegen::mega_opcodes(plan_);
    MEGARTP_TRY(codegen::mega_kernel_request(image_.opcodes));
    for (const PlanSpec& spec : plan_.specs) {
      image_.specs.emplace_back();
      std::ranges::copy(spec.words, image_.specs.back().begin());
    }
    for (const PlanTensor& t : plan_.tensors) {
      cuda::TensorUse use;
      use.tensor = {t.name, t.dtype, t.dims, t.storage, false};
      use.arena_offset = t.arena_offset == kExternal ? cuda::kAnyOffset : t.arena_offset;
      image_.tensors.push_back(std::move(use));
    }
    for (uint32_t row = 0; row < plan_.operand_rows.size(); ++row) MEGARTP_TRY(add_row(row));
    MEGARTP_TRY(add_records());
    return std::move(image_);
  }

 private:
  Status add_row(uint32_t row) {
    const PlanOperandRow& r = plan_.operand_rows[row];
    types_.emplace_back();
    image_.row_maps.emplace_back();
    image_.row_maps.back().fill(abi::kMegaNoMap);
    const MegaOpInfo* op = find_mega_op(r.opcode);
    if (op == nullptr) return {};  // a row that no instruction uses
    for (uint32_t slot = 0; slot < abi::kOperandSlots; ++slot) {
      const uint32_t id = r.tensors[slot];
      if (id == kInvalidId) continue;
      const PlanTensor& t = plan_.tensors[id];
      types_.back()[slot] = {true, t.dtype, t.dims};
      const bool is_packed = std::ranges::find(op->packed_slots, slot) != op->packed_slots.end();
      if (is_packed) MEGARTP_TRY(check_packable(row, id));
      (is_packed ? image_.tensors[id].is_packed : image_.tensors[id].is_used_plain) = true;
      image_.operands.push_back({row, slot, id, is_packed ? WeightLayout::kTiles64x128 : WeightLayout::kCheckpoint});
    }
    return {};
  }

  Status check_packable(uint32_t row, uint32_t id) {
    Status ok = cuda::check_packable(image_.tensors[id].tensor, plan_.operand_rows[row].name);
    if (ok) return ok;
    return make_error(ErrorCode::kUnsupported, "mega: " + ok.error().message);
  }

  // Of a row, when its first instruction has told the spec.
  Status add_maps(uint32_t row, const MegaOpInfo& op, std::span<const uint32_t> spec) {
    if (op.maps == nullptr) return {};
    for (const MegaOpMap& m : op.maps(spec, types_[row])) {
      const uint32_t tensor = plan_.operand_rows[row].tensors[m.slot];
      const auto same = std::ranges::find_if(
          image_.maps, [&](const MegaTensorMap& known) { return known.tensor == tensor && known.spec == m.spec; });
      const auto index = static_cast<size_t>(same - image_.maps.begin());
      if (m.which >= abi::kMegaRowMaps || index >= abi::kMegaMaxMaps)
        return make_error(ErrorCode::kOutOfResources,
                          fmt::format("mega: row '{}' needs more tensor maps than the kernel's parameters hold ({} of "
                                      "{} for a row)",
                                      plan_.operand_rows[row].name, abi::kMegaMaxMaps, abi::kMegaRowMaps));
      if (same == image_.maps.end()) image_.maps.push_back({tensor, m.spec});
      image_.row_maps[row][m.which] = static_cast<uint8_t>(index);
    }
    return {};
  }

  Status add_records() {
    std::vector<bool> is_known(plan_.operand_rows.size(), false);
    for (const abi::Instruction& i : plan_.instructions) {
      abi::MegaRecord record{};
      record.instruction = i;
      if (i.opcode != abi::kOpcodeNoOp) {
        const PlanOperandRow& row = plan_.operand_rows[i.operand_row];
        const MegaOpInfo& op = *find_mega_op(i.opcode);
        const std::span<const uint32_t> spec =
            i.opcode == abi::kOpcodeRelay ? std::span<const uint32_t>{} : plan_.specs[i.spec_id].words;
        const InstructionCheck check{i, spec, types_[i.operand_row]};
        if (op.check != nullptr) {
          if (const Status ok = op.check(check); !ok)
            return make_error(ok.error().code, fmt::format("mega: '{}' ({}), task {}: {}", row.name,
                                                           opcode_name(i.opcode), i.task_id, ok.error().message));
        }
        if (!is_known[i.operand_row]) MEGARTP_TRY(add_maps(i.operand_row, op, spec));
        is_known[i.operand_row] = true;
        for (uint32_t w = 0; w < abi::num_waits(i); ++w) record.wait_total[w] = plan_.events[i.waits[w].event].total;
        if (op.num_pages != nullptr) record.num_pages = op.num_pages(check);
        if (op.shared_slots != nullptr) record.slots = op.shared_slots(check);
      }
      image_.records.push_back(record);
    }
    return check_pages();
  }

  Status check_pages() {
    for (uint32_t worker = 0; worker < plan_.num_workers; ++worker) {
      const abi::MegaRecord* queue = image_.records.data() + size_t{worker} * plan_.queue_depth;
      uint32_t pages = 0;
      for (uint32_t i = 0; i < plan_.queue_depth; ++i) {
        pages += queue[i].num_pages;
        if (i >= abi::kMegaSlots) pages -= queue[i - abi::kMegaSlots].num_pages;
        if (pages > abi::kMegaPagesInSlots)
          return make_error(ErrorCode::kOutOfResources,
                            fmt::format("mega: worker {}, slots {} to {}: {} pages together, {} at most", worker,
                                        i + 1 - std::min(i + 1, abi::kMegaSlots), i, pages, abi::kMegaPagesInSlots));
      }
      uint32_t all = 0;
      for (uint32_t i = 0; i < plan_.queue_depth; ++i) all += queue[i].num_pages;
      image_.page_uses = std::max(image_.page_uses, std::min(ceil_div(all, abi::kMegaPages), abi::kMegaPageUses));
    }
    return {};
  }

  const KernelPlan& plan_;
  MegaImage image_;
  std::vector<std::array<OperandType, abi::kOperandSlots>> types_;  // of rows
};

}  // namespace

Result<MegaImage> make_mega_image(const KernelPlan& plan) { return ImageBuilder(plan).build(); }

}  // namespace megartp::cuda_mega

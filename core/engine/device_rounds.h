// Rounds of speculation that run on the device from its own tokens and positions, two of them in flight.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "engine/packer.h"
#include "model/decoder.h"
#include "sched/scheduler.h"
#include "tessera/sdk/backend.h"
#include "tessera/sdk/rounds.h"

namespace tessera {

/// What every round of a runner looks like.
struct RoundShape {
  std::int32_t rows;           // of one sequence: candidates and one more
  std::int32_t draft_loops;    // that draft each of them
  std::int32_t loops;          // of the model: the verification runs the others
  std::int32_t capture_depth;  // of sparse rows; 0 = all are dense

  std::int32_t passes() const { return rows * draft_loops + loops - draft_loops; }
};

/// What is read of a round beside its answers. Whoever wants any of it waits for the round.
struct RoundReport {
  bool wants_logits = false, wants_masses = false;
  std::vector<float> logits{};  // of the verification, [sequence][row][vocab]
  std::vector<float> masses{};  // PassAnswer::masses of the pass that captured last; empty when all rows are dense
};

/// Used by the engine thread. A round is submitted whole and its answers are collected later; the host reads nothing of
/// the device in between. Rounds run, and are collected, in the order of their submission.
class DeviceRounds {
 public:
  static constexpr std::int32_t kBanks = 2;  // rounds in flight at most

  /// `context` without groups; it and what it refers to outlive the object. Claims its memory.
  static Result<std::unique_ptr<DeviceRounds>> open(const RoundShape& shape, const sdk::StepLimits& limits,
                                                    Decoder& decoder, sdk::Backend& backend,
                                                    const PassContext& context);

  const RoundShape& shape() const { return shape_; }
  std::int32_t in_flight() const { return static_cast<std::int32_t>(flights_.size()); }
  /// Rounds that were not enqueued because their launches were not known.
  std::int64_t declined() const { return declined_; }
  /// Rounds that were replayed from a graph.
  std::int64_t replayed() const { return replayed_; }
  /// Enqueues the round. False, and nothing has happened, when its launches depend on positions that only the device
  /// knows: its sequences are decoded step by step then. After an error `discard` what is in flight.
  Result<bool> submit(const RoundPlan& plan, RoundReport& report);
  /// Waits for the oldest round, which is number `number`: one answer for each of its sequences.
  Status collect(std::uint64_t number, std::vector<sdk::RoundAnswer>& answers);
  /// Waits for all rounds in flight and drops their answers unread.
  void discard();

 private:
  struct Pass {
    StepPacker packer;
    StepPlan plan;
    sdk::PackedRows host{}, device{};
    std::vector<sdk::RowSource> rows, slices;
  };
  struct Flight {
    std::uint64_t number;
    std::int32_t bank, count;
  };

  DeviceRounds(const RoundShape& shape, Decoder& decoder, sdk::Backend& backend, const PassContext& context)
      : shape_(shape), decoder_(decoder), backend_(backend), board_(*backend.rounds()), context_(context) {}
  void pack(const RoundPlan& plan);
  /// Of the pass at `depth` for the rows from `offset` on.
  void pack_pass(Pass& pass, const RoundPlan& plan, std::int32_t offset, std::int32_t rows, std::int32_t depth);
  PlanSlice slice_of(const RoundPlan::Item& item, std::int32_t offset, std::int32_t rows, std::int32_t depth) const;
  PassContext context_of(const Pass& pass) const;
  /// Of all passes; empty when a launch is not known.
  Result<GraphKey> key();
  Status stage(const RoundPlan& plan, std::int32_t bank);
  Status launch(std::int32_t count);
  Status enqueue(const GraphKey& round, std::int32_t count);
  Status read_logits(std::vector<float>& logits) const;
  Status read_masses(std::vector<float>& masses) const;
  bool drafts(std::int32_t pass) const { return pass < shape_.rows * shape_.draft_loops; }
  bool on_host() const { return backend_.context().device == sdk::Device::cpu; }

  RoundShape shape_;
  Decoder& decoder_;
  sdk::Backend& backend_;
  sdk::Rounds& board_;
  PassContext context_;
  std::vector<Pass> passes_;
  std::deque<Flight> flights_;  // oldest first
  std::int64_t declined_ = 0, replayed_ = 0;
};

}  // namespace tessera

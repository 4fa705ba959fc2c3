// Rounds of speculation that the host does not wait for: which tokens they begin with, and at which positions, is the
// device's to know.
#pragma once
#include <cstdint>

#include "tessera/sdk/batch.h"
#include "tessera/sdk/status.h"
#include "tessera/sdk/tensor.h"

namespace tessera::sdk {

inline constexpr std::int32_t kMostRoundRows = 16;

struct RoundLimits {
  StepLimits step;         // of one pass
  std::int32_t rows;       // of one sequence in a round: its candidates and one more; at most kMostRoundRows
  std::int32_t passes;     // of a round
  std::int32_t banks;      // rounds in flight
  std::int32_t frontiers;  // slots
};

/// One sequence of a round. Its frontier, the last token and that token's position, stays in its slot on the device
/// from one round to the next; the first round sets it.
struct RoundSequence {
  std::int32_t slot;
  std::int32_t first;  // 1: the frontier becomes `token` at `position`
  std::int32_t token;
  std::int32_t position;
};

/// A row of a pass: `offset` rows after the frontier of sequence number `sequence` of the round.
struct RowSource {
  std::int32_t sequence;
  std::int32_t offset;
};

/// What a round made of one sequence: tokens[0 .. confirmed] are its next tokens, the confirmed candidates and the one
/// after them. A token of -1 could not be drawn: its logits had a NaN, or nothing above -inf. The others are undefined.
struct RoundAnswer {
  std::int32_t confirmed;
  std::int32_t position;  // of the frontier afterwards
  std::int32_t tokens[kMostRoundRows];
};

/// Optional part of a backend. A bank is lent from `begin` to `receive`; all calls come from the engine thread, and all
/// but `receive` only enqueue, in stream order with the backend's operations:
///
///   bind -> (begin -> stage x passes -> (place -> a pass -> draw) x passes -> accept -> send ... receive)*
///
/// `place`, `draw` and `accept` may be recorded with the passes between them (Backend::capture_begin): for equal counts
/// they launch the same kernels with the same arguments, whatever the bank.
class Rounds {
 public:
  /// [control] Once: claims everything.
  virtual Status bind(const RoundLimits& limits) noexcept = 0;

  /// [step] `sequences` is read during the call.
  virtual Status begin(std::int32_t bank, const RoundSequence* sequences, std::int32_t count) noexcept = 0;
  /// [step] Metadata of one pass, as Backend::begin_step, but tokens, positions and the slices' first positions are
  /// place()'s to say: host.tokens is ignored, positions are bounds. `rows` [host.num_rows] and `slices`
  /// [host.num_slices] say where each comes from. Everything is read during the call.
  virtual Status stage(std::int32_t bank, std::int32_t pass, const PackedRows& host, const RowSource* rows,
                       const RowSource* slices, PackedRows* device) noexcept = 0;
  /// [step] Tokens, positions and first positions of the pass, from the frontiers and the candidates so far.
  virtual Status place(std::int32_t pass, const PackedRows& device) noexcept = 0;
  /// [step] The best token of each row of logits [device.num_logit_rows][vocab], the lowest of equals: the candidate
  /// after the row, or (verified) the token that follows it.
  virtual Status draw(std::int32_t pass, const PackedRows& device, const Matrix& logits, bool verified) noexcept = 0;
  /// [step] Compares the candidates of all sequences with what was drawn and moves the frontiers.
  virtual Status accept(std::int32_t count) noexcept = 0;
  /// [step] Enqueues the answers' way to the bank.
  virtual Status send(std::int32_t bank, std::int32_t count) noexcept = 0;
  /// [step] Waits for the bank's round alone. `answers` [count] may be null: then they are dropped unread.
  virtual Status receive(std::int32_t bank, RoundAnswer* answers, std::int32_t count) noexcept = 0;

 protected:
  ~Rounds() = default;
};

}  // namespace tessera::sdk

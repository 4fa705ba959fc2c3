#include "rounds.h"

#include <algorithm>
#include <cmath>

#include "tessera/sdk/host.h"

namespace tessera_cpu {

namespace sdk = tessera::sdk;
using sdk::Status;

namespace {

/// The first of the best, or -1 where none may be drawn.
std::int32_t best_of(const float* logits, std::int32_t count) {
  std::int32_t best = -1;
  float most = -INFINITY;
  for (std::int32_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > most) most = logits[i], best = i;
  }
  return best;
}

}  // namespace

Status CpuRounds::bind(const sdk::RoundLimits& limits) noexcept {
  return sdk::guarded([&]() -> Status {
    limits_ = limits;
    const auto sequences = static_cast<std::size_t>(limits.step.max_slices);
    passes_.resize(static_cast<std::size_t>(limits.passes));
    frontiers_.resize(static_cast<std::size_t>(limits.frontiers));
    candidates_.resize(sequences * sdk::kMostRoundRows);
    targets_.resize(sequences * sdk::kMostRoundRows);
    answers_.resize(sequences);
    banks_.resize(static_cast<std::size_t>(limits.banks));
    return {};
  });
}

Status CpuRounds::begin(std::int32_t, const sdk::RoundSequence* sequences, std::int32_t count) noexcept {
  return sdk::guarded([&]() -> Status {
    sequences_.assign(sequences, sequences + count);
    for (std::int32_t i = 0; i < count; ++i) {
      Frontier& frontier = frontiers_[static_cast<std::size_t>(sequences[i].slot)];
      if (sequences[i].first != 0) frontier = {sequences[i].token, sequences[i].position};
      candidate({i, 0}) = frontier.token;
    }
    return {};
  });
}

Status CpuRounds::stage(std::int32_t, std::int32_t index, const sdk::PackedRows& host, const sdk::RowSource* rows,
                        const sdk::RowSource* slices, sdk::PackedRows* device) noexcept {
  return sdk::guarded([&]() -> Status {
    Pass& pass = passes_[static_cast<std::size_t>(index)];
    *device = host;
    const auto keep = [](const auto*& field, auto& kept, std::int32_t count) {
      kept.assign(field, field + count);
      field = kept.data();
    };
    pass.tokens.assign(static_cast<std::size_t>(host.num_rows), 0);
    device->tokens = pass.tokens.data();
    keep(device->positions, pass.positions, host.num_rows);
    keep(device->row_slice, pass.row_slice, host.num_rows);
    keep(device->slices, pass.slices, host.num_slices);
    keep(device->pages, pass.pages, host.num_pages);
    keep(device->logit_rows, pass.logit_rows, host.num_logit_rows);
    if (host.states != nullptr) keep(device->states, pass.states, host.num_rows);
    if (host.references != nullptr) {
      keep(device->references, pass.references, host.num_rows);
      keep(device->list_first, pass.list_first, host.num_rows);
      keep(device->list_pages, pass.list_pages, host.num_list_pages);
    }
    pass.row_sources.assign(rows, rows + host.num_rows);
    pass.slice_sources.assign(slices, slices + host.num_slices);
    return {};
  });
}

Status CpuRounds::place(std::int32_t index, const sdk::PackedRows&) noexcept {
  Pass& pass = passes_[static_cast<std::size_t>(index)];
  const auto position_of = [&](const sdk::RowSource& source) {
    const sdk::RoundSequence& sequence = sequences_[static_cast<std::size_t>(source.sequence)];
    return frontiers_[static_cast<std::size_t>(sequence.slot)].position + source.offset;
  };
  for (std::size_t row = 0; row < pass.tokens.size(); ++row) {
    pass.tokens[row] = candidate(pass.row_sources[row]);
    pass.positions[row] = position_of(pass.row_sources[row]);
  }
  for (std::size_t slice = 0; slice < pass.slices.size(); ++slice)
    pass.slices[slice].first_position = position_of(pass.slice_sources[slice]);
  return {};
}

Status CpuRounds::draw(std::int32_t index, const sdk::PackedRows& device, const sdk::Matrix& logits,
                       bool verified) noexcept {
  Pass& pass = passes_[static_cast<std::size_t>(index)];
  for (std::int32_t i = 0; i < device.num_logit_rows; ++i) {
    sdk::RowSource source = pass.row_sources[static_cast<std::size_t>(device.logit_rows[i])];
    const std::int32_t token = best_of(logits.f32(i), logits.cols);
    if (verified) {
      target(source) = token;
    } else {
      ++source.offset;
      candidate(source) = std::max(token, 0);  // the verification judges
    }
  }
  return {};
}

Status CpuRounds::accept(std::int32_t count) noexcept {
  for (std::int32_t i = 0; i < count; ++i) {
    std::int32_t confirmed = 0;
    while (confirmed + 1 < limits_.rows && candidate({i, confirmed + 1}) == target({i, confirmed})) ++confirmed;
    Frontier& frontier = frontiers_[static_cast<std::size_t>(sequences_[static_cast<std::size_t>(i)].slot)];
    frontier = {std::max(target({i, confirmed}), 0), frontier.position + confirmed + 1};
    sdk::RoundAnswer& answer = answers_[static_cast<std::size_t>(i)];
    answer.confirmed = confirmed;
    answer.position = frontier.position;
    for (std::int32_t row = 0; row <= confirmed; ++row) answer.tokens[row] = target({i, row});
  }
  return {};
}

Status CpuRounds::send(std::int32_t bank, std::int32_t count) noexcept {
  return sdk::guarded([&]() -> Status {
    banks_[static_cast<std::size_t>(bank)].assign(answers_.begin(), answers_.begin() + count);
    return {};
  });
}

Status CpuRounds::receive(std::int32_t bank, sdk::RoundAnswer* answers, std::int32_t count) noexcept {
  const auto& kept = banks_[static_cast<std::size_t>(bank)];
  if (answers != nullptr) std::copy_n(kept.begin(), count, answers);
  return {};
}

}  // namespace tessera_cpu

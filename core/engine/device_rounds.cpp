#include "engine/device_rounds.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

Result<std::unique_ptr<DeviceRounds>> DeviceRounds::open(const RoundShape& shape, const sdk::StepLimits& limits,
                                                         Decoder& decoder, sdk::Backend& backend,
                                                         const PassContext& context) {
  std::unique_ptr<DeviceRounds> rounds(new DeviceRounds(shape, decoder, backend, context));
  sdk::StepLimits pass = limits;
  pass.max_rows = pass.max_logit_rows = limits.max_slices * shape.rows;
  TESSERA_TRY(backend.rounds()->bind({.step = pass,
                                      .rows = shape.rows,
                                      .passes = shape.passes(),
                                      .banks = kBanks,
                                      .frontiers = Decoder::num_states(decoder.spec(), limits)}));
  for (std::int32_t i = 0; i < shape.passes(); ++i)
    rounds->passes_.push_back({StepPacker(shape.loops, pass, context.sparse), {}, {}, {}, {}, {}});
  return rounds;
}

PlanSlice DeviceRounds::slice_of(const RoundPlan::Item& item, std::int32_t offset, std::int32_t rows,
                                 std::int32_t depth) const {
  const bool draft = depth < shape_.draft_loops;
  PlanSlice slice{.id = item.id,
                  .first_position = item.position + offset,
                  .tokens = {},
                  .pages = {},
                  .wants_logits = !draft || offset + 1 < shape_.rows};
  slice.tokens.resize(static_cast<std::size_t>(rows));
  slice.pages = item.pages;
  slice.role = draft ? SliceRole::draft : SliceRole::verify;
  slice.depth = depth;
  slice.loops = slice.planes = draft ? shape_.draft_loops : shape_.loops;
  slice.states.assign(item.states.begin() + offset, item.states.begin() + offset + rows);
  if (!item.references.empty() && depth >= shape_.capture_depth) {
    slice.mode = depth == shape_.capture_depth ? sdk::RowMode::capture : sdk::RowMode::consume;
    slice.references.assign(item.references.begin() + offset, item.references.begin() + offset + rows);
  }
  return slice;
}

void DeviceRounds::pack_pass(Pass& pass, const RoundPlan& plan, std::int32_t offset, std::int32_t rows,
                             std::int32_t depth) {
  pass.plan.slices.clear(), pass.rows.clear(), pass.slices.clear();
  for (const RoundPlan::Item& item : plan.items) pass.plan.slices.push_back(slice_of(item, offset, rows, depth));
  pass.host = pass.packer.pack(pass.plan, false);
  for (const std::size_t sequence : pass.packer.order()) {
    pass.slices.push_back({static_cast<std::int32_t>(sequence), offset});
    for (std::int32_t row = 0; row < rows; ++row)
      pass.rows.push_back({static_cast<std::int32_t>(sequence), offset + row});
  }
}

void DeviceRounds::pack(const RoundPlan& plan) {
  auto pass = passes_.begin();
  for (std::int32_t row = 0; row < shape_.rows; ++row)
    for (std::int32_t depth = 0; depth < shape_.draft_loops; ++depth) pack_pass(*pass++, plan, row, 1, depth);
  for (std::int32_t depth = shape_.draft_loops; depth < shape_.loops; ++depth)
    pack_pass(*pass++, plan, 0, shape_.rows, depth);
}

PassContext DeviceRounds::context_of(const Pass& pass) const {
  PassContext context = context_;
  context.groups = pass.packer.groups();
  return context;
}

Result<GraphKey> DeviceRounds::key() {
  constexpr std::uint64_t kRound = ~std::uint64_t{0};  // no pass alone has such a key
  GraphKey all;
  for (const Pass& pass : passes_) {
    auto own = decoder_.plan_pass(context_of(pass), pass.host, pass.host);
    if (!own.ok()) return own.status();
    if (own->empty()) return GraphKey{};
    all.insert(all.end(), own->begin(), own->end());
  }
  all.push_back(kRound);
  return all;
}

Status DeviceRounds::stage(const RoundPlan& plan, std::int32_t bank) {
  std::vector<sdk::RoundSequence> sequences;
  for (const RoundPlan::Item& item : plan.items)
    sequences.push_back({item.states[0], item.first ? 1 : 0, item.token, item.position});
  TESSERA_TRY(board_.begin(bank, sequences.data(), static_cast<std::int32_t>(sequences.size())));
  std::int32_t index = 0;
  for (Pass& pass : passes_)
    TESSERA_TRY(board_.stage(bank, index++, pass.host, pass.rows.data(), pass.slices.data(), &pass.device));
  return {};
}

/// What the host has planned are bounds; on the CPU it may look at the true positions, and plans with them.
Status DeviceRounds::launch(std::int32_t count) {
  std::int32_t index = 0;
  for (const Pass& pass : passes_) {
    TESSERA_TRY(board_.place(index, pass.device));
    const auto planned = decoder_.plan_pass(context_of(pass), on_host() ? pass.device : pass.host, pass.device);
    if (!planned.ok()) return planned.status();
    TESSERA_TRY(decoder_.enqueue(context_of(pass)));
    if (pass.device.num_logit_rows > 0)
      TESSERA_TRY(board_.draw(index, pass.device, decoder_.logits(pass.device.num_logit_rows), !drafts(index)));
    ++index;
  }
  return board_.accept(count);
}

Result<bool> DeviceRounds::submit(const RoundPlan& plan, RoundReport& report) {
  check(in_flight() < kBanks, "a round is submitted while {} are in flight", in_flight());
  const auto count = static_cast<std::int32_t>(plan.items.size());
  pack(plan);
  GraphKey round;
  if (!on_host()) {
    auto known = key();
    if (!known.ok()) return known.status();
    if (known->empty()) {
      ++declined_;
      return false;
    }
    round = *std::move(known);
  }
  const auto bank = static_cast<std::int32_t>(plan.number % kBanks);
  TESSERA_TRY(stage(plan, bank));
  TESSERA_TRY(enqueue(round, count));
  TESSERA_TRY(board_.send(bank, count));
  flights_.push_back({plan.number, bank, count});
  if (report.wants_logits) TESSERA_TRY(read_logits(report.logits));
  if (report.wants_masses) TESSERA_TRY(read_masses(report.masses));
  return true;
}

Status DeviceRounds::enqueue(const GraphKey& round, std::int32_t count) {
  const auto launch_all = [&] { return launch(count); };
  if (round.empty()) return context_.graphs.run_eager(launch_all);
  const std::int64_t before = context_.graphs.stats().replayed;
  TESSERA_TRY(context_.graphs.run(round, launch_all));
  replayed_ += context_.graphs.stats().replayed - before;
  return {};
}

Status DeviceRounds::read_logits(std::vector<float>& logits) const {
  const std::vector<std::size_t>& order = passes_.back().packer.order();
  const auto each = static_cast<std::size_t>(shape_.rows) * static_cast<std::size_t>(decoder_.spec().vocab);
  std::vector<float> packed;
  TESSERA_TRY(decoder_.read_logits(static_cast<std::int32_t>(order.size()) * shape_.rows, packed));
  logits.resize(packed.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    std::copy_n(packed.begin() + static_cast<std::ptrdiff_t>(i * each), each,
                logits.begin() + static_cast<std::ptrdiff_t>(order[i] * each));
  return {};
}

Status DeviceRounds::read_masses(std::vector<float>& masses) const {
  for (auto pass = passes_.rbegin(); pass != passes_.rend(); ++pass) {
    TESSERA_TRY(decoder_.read_masses(context_of(*pass), masses));
    if (!masses.empty()) break;
  }
  return {};
}

Status DeviceRounds::collect(std::uint64_t number, std::vector<sdk::RoundAnswer>& answers) {
  check(!flights_.empty() && flights_.front().number == number, "round {} is collected out of turn", number);
  const Flight flight = flights_.front();
  flights_.pop_front();
  answers.resize(static_cast<std::size_t>(flight.count));
  return board_.receive(flight.bank, answers.data(), flight.count);
}

void DeviceRounds::discard() {
  for (const Flight& flight : flights_) (void)board_.receive(flight.bank, nullptr, flight.count);
  flights_.clear();
}

}  // namespace tessera

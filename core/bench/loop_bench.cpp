#include "bench/loop_bench.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/progress.h"
#include "bench/noise.h"
#include "bench/sparse_config.h"
#include "engine/runner.h"
#include "sample/sampler.h"

namespace tessera {
namespace {

Status fill_kv(Runner& runner) {
  const sdk::KvView& kv = runner.kv();
  const auto total = static_cast<std::size_t>(kv.offset(kv.num_pages, 0, 0, 0));
  const std::vector<float> block = noise(2);
  Progress progress("filling the KV pool", static_cast<std::int64_t>(total));
  for (std::size_t begin = 0; begin < total; begin += kNoiseBlock) {
    const std::size_t count = std::min(kNoiseBlock, total - begin);
    for (void* side : {kv.k, kv.v})
      TESSERA_TRY(runner.backend().upload(static_cast<float*>(side) + begin, block.data(), count * sizeof(float)));
    progress.advance(static_cast<std::int64_t>(count));
  }
  return {};
}

/// Slot number `slot`, with list pages of its own for any position up to `last`.
RowReference reference_at(const Runner& runner, std::int32_t slot, std::int32_t last) {
  const auto& lists = runner.list_pages();
  const std::int32_t count = lists ? (*lists)[static_cast<std::size_t>(last)] : 0;
  RowReference reference{slot, std::vector<std::int32_t>(static_cast<std::size_t>(count))};
  std::iota(reference.pages.begin(), reference.pages.end(), slot * count);
  return reference;
}

/// The passes of one token, or of one round, of all sequences of a shape.
class Passes {
 public:
  Passes(const Runner& runner, const LoopShape& shape, const LoopBenchOptions& options, bool sparse, bool speculative)
      : runner_(runner),
        spec_(runner.spec()),
        shape_(shape),
        sparse_(sparse),
        rows_(speculative ? options.draft_tokens + 1 : 1) {
    greedy_.temperature = 0;
    const std::int32_t draft_loops = speculative ? options.draft_loops : 0;
    for (std::int32_t row = 0; row < rows_ && speculative; ++row)
      for (std::int32_t depth = 0; depth < draft_loops; ++depth) add(SliceRole::draft, row, 1, depth, draft_loops);
    for (std::int32_t depth = draft_loops; depth < spec_.loops; ++depth)
      add(speculative ? SliceRole::verify : SliceRole::plain, 0, rows_, depth, spec_.loops);
  }

  Status run(Runner& runner) {
    for (const StepPlan& plan : plans_) {
      TESSERA_TRY(runner.step(plan, result_));
      const auto vocab = static_cast<std::size_t>(spec_.vocab);
      for (std::size_t row = 0; row * vocab < result_.logits.size(); ++row) {
        const auto token =
            sample(std::span(result_.logits).subspan(row * vocab, vocab), greedy_, 0, 0, {}, {}, -1, scratch_);
        if (!token.ok()) return token.status();
      }
    }
    return {};
  }

 private:
  void add(SliceRole role, std::int32_t first, std::int32_t rows, std::int32_t depth, std::int32_t loops) {
    StepPlan plan;
    const std::int32_t blocks = (shape_.context + rows_ - 1 + sdk::kPageSize - 1) / sdk::kPageSize;
    for (std::int32_t sequence = 0; sequence < shape_.sequences; ++sequence) {
      PlanSlice slice{static_cast<SequenceId>(sequence) + 1, shape_.context - 1 + first, {}, {}, true};
      slice.tokens.assign(static_cast<std::size_t>(rows), 17 + sequence);
      slice.pages.resize(static_cast<std::size_t>(blocks) * static_cast<std::size_t>(spec_.loops));
      std::iota(slice.pages.begin(), slice.pages.end(), sequence * blocks * spec_.loops);
      slice.role = role, slice.depth = depth, slice.loops = slice.planes = loops;
      if (role == SliceRole::draft) slice.wants_logits = first + 1 < rows_;
      if (sparse_ && depth > 0) slice.mode = depth == 1 ? sdk::RowMode::capture : sdk::RowMode::consume;
      for (std::int32_t row = 0; row < rows; ++row) {
        slice.states.push_back(sequence * rows_ + first + row);
        if (slice.mode != sdk::RowMode::dense)
          slice.references.push_back(reference_at(runner_, slice.states.back(), shape_.context + rows_ - 2));
      }
      plan.slices.push_back(std::move(slice));
      plan.num_rows += rows;
    }
    plans_.push_back(std::move(plan));
  }

  const Runner& runner_;
  const DecoderSpec& spec_;
  LoopShape shape_;
  bool sparse_;
  std::int32_t rows_;
  std::vector<StepPlan> plans_;
  StepResult result_;
  SamplingParams greedy_{};
  SampleScratch scratch_;
};

/// The same rounds on the device alone, two in flight. Their frontiers move on by what random weights confirm.
class Flights {
 public:
  Flights(const DecoderSpec& spec, const LoopShape& shape, const LoopBenchOptions& options, bool sparse)
      : rows_(options.draft_tokens + 1), last_(most_context(shape.context, options) - 1), sparse_(sparse) {
    const std::int32_t blocks = blocks_of(shape, options);
    for (std::int32_t sequence = 0; sequence < shape.sequences; ++sequence) {
      RoundPlan::Item item{.id = static_cast<SequenceId>(sequence) + 1,
                           .first = true,
                           .token = 17 + sequence,
                           .position = shape.context - 1,
                           .pages = {},
                           .states = {},
                           .references = {},
                           .grant = {}};
      item.pages.resize(static_cast<std::size_t>(blocks) * static_cast<std::size_t>(spec.loops));
      std::iota(item.pages.begin(), item.pages.end(), sequence * blocks * spec.loops);
      item.states.resize(static_cast<std::size_t>(rows_));
      std::iota(item.states.begin(), item.states.end(), sequence * rows_);
      known_.push_back(item.position);
      items_.push_back(std::move(item));
    }
  }

  /// Pages of a sequence, by blocks, for all rounds that are timed.
  static std::int32_t blocks_of(const LoopShape& shape, const LoopBenchOptions& options) {
    return (most_context(shape.context, options) + sdk::kPageSize - 1) / sdk::kPageSize;
  }
  static std::int32_t most_context(std::int32_t context, const LoopBenchOptions& options) {
    return context + (options.draft_tokens + 1) * (options.rounds + kWarm + DeviceRounds::kBanks);
  }

  /// Milliseconds between the ends of two rounds; empty where the rounds cannot be launched.
  Result<std::vector<double>> run(Runner& runner, std::int32_t rounds) {
    DeviceRounds& device = *runner.rounds();
    std::vector<double> milliseconds;
    auto last = std::chrono::steady_clock::now();
    for (std::int32_t round = -kWarm; round < rounds || device.in_flight() > 0; ++round) {
      if (device.in_flight() == DeviceRounds::kBanks || round >= rounds) TESSERA_TRY(collect(device));
      const auto now = std::chrono::steady_clock::now();
      if (round > 0 && round < rounds)
        milliseconds.push_back(std::chrono::duration<double, std::milli>(now - last).count());
      last = now;
      if (round >= rounds) continue;
      RoundReport nothing;
      const auto submitted = device.submit(next(runner, device.in_flight()), nothing);
      if (!submitted.ok()) return submitted.status();
      if (!*submitted) return std::vector<double>{};
    }
    return milliseconds;
  }

 private:
  static constexpr std::int32_t kWarm = 6;  // rounds until launches have their size and are recorded

  RoundPlan next(const Runner& runner, std::int32_t in_flight) {
    RoundPlan plan{launched_, items_};
    for (std::size_t i = 0; i < plan.items.size(); ++i) {
      RoundPlan::Item& item = plan.items[i];
      item.first = launched_ == 0;
      item.position = known_[i] + in_flight * rows_;
      const auto count = static_cast<std::int32_t>(plan.items.size());
      for (const std::int32_t state : item.states)
        if (sparse_)
          item.references.push_back(reference_at(
              runner, state + static_cast<std::int32_t>(launched_ % DeviceRounds::kBanks) * count * rows_, last_));
    }
    ++launched_;
    return plan;
  }

  Status collect(DeviceRounds& device) {
    TESSERA_TRY(device.collect(collected_++, answers_));
    for (std::size_t i = 0; i < answers_.size(); ++i) known_[i] = answers_[i].position;
    return {};
  }

  std::int32_t rows_;
  std::int32_t last_;  // position of any row at most
  bool sparse_;
  std::vector<RoundPlan::Item> items_;
  std::vector<std::int32_t> known_;  // of each sequence: its frontier after the last collected round
  std::vector<sdk::RoundAnswer> answers_;
  std::uint64_t launched_ = 0, collected_ = 0;
};

Result<Spread> time_passes(Passes& passes, Runner& runner, std::int32_t rounds) {
  std::vector<double> milliseconds;
  for (std::int32_t round = -2; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    TESSERA_TRY(passes.run(runner));
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (round >= 0) milliseconds.push_back(time.count());  // the first ones warm up and are recorded
  }
  return spread_of(milliseconds);
}

/// Weights once a pass, heads once an answer, K and V once for the rows of a slice; of consumed ones a share a row.
double least_bytes(const Runner& runner, const LoopShape& shape, const LoopBenchOptions& options, double retention,
                   bool sparse, bool speculative) {
  const DecoderSpec& spec = runner.spec();
  const double head = 2.0 * spec.vocab * spec.hidden;
  const double layers = static_cast<double>(runner.weight_bytes()) - head;
  const double plane = 2.0 * sizeof(float) * spec.kv_width() * spec.layers * shape.context * shape.sequences;
  const int rows = speculative ? options.draft_tokens + 1 : 1, drafts = speculative ? options.draft_loops : 0;
  double bytes = rows * head;
  const auto pass = [&](int depth, int pass_rows) {
    bytes += layers + plane * (sparse && depth > 1 ? std::min(1.0, retention * pass_rows) : 1.0);
  };
  for (int row = 0; row < rows; ++row)
    for (int depth = 0; depth < drafts; ++depth) pass(depth, 1);
  for (int depth = drafts; depth < spec.loops; ++depth) pass(depth, rows);
  return bytes;
}

Config config_for(const Config& config, const LoopBenchOptions& options) {
  Config wide = with_strategy(config, "bench loops");
  wide.model.max_context = 0;
  wide.speculation = {.kind = "self",
                      .draft_tokens = options.draft_tokens,
                      .draft_loops = options.draft_loops,
                      .rounds_in_flight = DeviceRounds::kBanks,
                      .acceptance = "exact",
                      .where = {}};
  wide.cache.pages = 0;
  wide.cache.memory_fraction = 0.95;
  wide.scheduler.max_batch = 1;
  for (const LoopShape& shape : options.shapes) {
    const std::int64_t blocks = Flights::blocks_of(shape, options);
    wide.scheduler.max_batch = std::max(wide.scheduler.max_batch, shape.sequences);
    wide.cache.pages = std::max(wide.cache.pages, blocks * shape.sequences * 4);
  }
  wide.scheduler.step_tokens = wide.scheduler.max_batch * (options.draft_tokens + 1);
  return wide;
}

}  // namespace

Result<LoopBench> bench_loops(const Config& config, Registry& registry, const LoopBenchOptions& options) {
  const Config wide = config_for(config, options);
  std::int32_t longest = 0;
  for (const LoopShape& shape : options.shapes) longest = std::max(longest, shape.context);
  const DecoderSpec spec = loop_bench_spec(options.geometry, Flights::most_context(longest, options));
  RepeatedWeights weights;
  auto runner = Runner::open(wide, registry, {.all_logits = false, .weights = &weights, .spec = &spec});
  if (!runner.ok()) return runner.status();
  TESSERA_TRY(fill_kv(**runner));
  LoopBench bench{wide.sparse_decode.plugin.name,
                  config.backend.name,
                  retention_of(wide),
                  options.tokens_per_round,
                  measure_roof((*runner)->backend()),
                  {}};
  const std::int32_t capacity = (*runner)->graphs().capacity();
  std::vector<std::int32_t> launches{0};
  if (capacity > 0) launches.push_back(capacity);
  Progress progress("decoding", static_cast<std::int64_t>(6 * options.shapes.size() * launches.size()));
  for (const LoopShape& shape : options.shapes)
    for (const std::int32_t graphs : launches)
      for (const bool sparse : {false, true}) {
        TESSERA_TRY((*runner)->graphs().set_capacity(graphs));
        const auto add = [&](bool speculative, bool in_flight, const Spread& milliseconds) {
          LoopBenchRow row{shape, sparse, speculative, graphs > 0, in_flight, milliseconds, 0, 0};
          row.tokens_per_second =
              shape.sequences * (speculative ? options.tokens_per_round : 1) / row.milliseconds.median * 1e3;
          row.bytes = least_bytes(**runner, shape, options, bench.retention, sparse, speculative);
          bench.rows.push_back(row);
          progress.advance(1);
        };
        for (const bool speculative : {false, true}) {
          Passes passes(**runner, shape, options, sparse, speculative);
          const auto milliseconds = time_passes(passes, **runner, options.rounds);
          if (!milliseconds.ok()) return milliseconds.status();
          add(speculative, false, *milliseconds);
        }
        const auto milliseconds = Flights(spec, shape, options, sparse).run(**runner, options.rounds);
        if (!milliseconds.ok()) return milliseconds.status();
        if (!milliseconds->empty()) add(true, true, spread_of(*milliseconds));
      }
  return bench;
}

}  // namespace tessera

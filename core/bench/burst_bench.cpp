#include "bench/burst_bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/progress.h"
#include "bench/roof.h"
#include "bench/sparse_config.h"
#include "cache/kv_pool.h"
#include "engine/engine.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int32_t kStepTokens = 4096, kChunk = 256;  // of the published probe, as are its spare pages
constexpr std::int32_t kSparePages = 64;
constexpr std::int32_t kRoundsInFlight[] = {0, 1, 2};  // none, in steps, on the device
constexpr std::int64_t kKernelCode = 64 * kMiB;
constexpr std::int64_t kHostAnswers = 16 * kMiB;

/// Pages of 4 KiB that the process has in memory: the second number.
Result<std::int64_t> resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long long size = 0, resident = -1;
  if (file != nullptr) {
    if (std::fscanf(file, "%lld %lld", &size, &resident) != 2) resident = -1;
    std::fclose(file);
  }
  if (resident < 0) return fail(Code::internal, "/proc/self/statm cannot be read, so the memory held is unknown");
  return std::int64_t{resident} * sysconf(_SC_PAGESIZE);
}

Result<std::int64_t> memory_held(sdk::Backend& backend) {
  if (backend.context().device == sdk::Device::cpu) return resident_bytes();
  std::size_t total = 0, free = 0;
  TESSERA_TRY(backend.memory(&total, &free));
  return static_cast<std::int64_t>(total - free);
}

/// One request's events.
class Receiver final : public sdk::EventSink {
 public:
  void on_event(const sdk::EventView& event) noexcept override {
    if (!event.tokens.empty() && tokens.empty()) first = Clock::now();
    for (const sdk::TokenView& token : event.tokens) tokens.push_back(token.chosen.token);
    if (event.kind == sdk::EventKind::finished) finished = true;
    if (event.status != nullptr) reason = event.status->message;
  }
  std::vector<std::int32_t> tokens;
  Clock::time_point submitted, first;
  bool finished = false;
  std::string reason;
};

struct Burst {
  std::vector<Receiver> receivers;
  double seconds = 0;
  std::int64_t most_held = 0;
};

/// Answers have no text here, so no token needs bytes.
Result<Tokenizer> no_text() {
  return Tokenizer::parse(
      R"({"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": {"type": "ByteLevel",)"
      R"( "add_prefix_space": false, "use_regex": true}, "decoder": {"type": "ByteLevel"}})",
      "bench loops");
}

Config config_for(const Config& config, const BurstOptions& options, const BurstRow& row) {
  Config changed = row.retention.empty() ? config : with_retention(config, row.retention, "bench loops");
  if (row.retention.empty()) changed.sparse_decode = {};
  changed.model.max_context = 0;
  changed.speculation = {.kind = row.rounds_in_flight > 0 ? "self" : "none",
                         .draft_tokens = options.draft_tokens,
                         .draft_loops = options.draft_loops,
                         .rounds_in_flight = std::max(row.rounds_in_flight, 1),
                         .where = {"bench loops", 0, 0}};
  const std::int64_t requests = row.shape.requests;
  const std::int64_t blocks =
      (row.shape.prompt + options.answer + options.draft_tokens + 1 + sdk::kPageSize - 1) / sdk::kPageSize;
  changed.cache.pages = requests * blocks * 4 + kSparePages;
  changed.cache.memory_fraction = 0.95;
  changed.cache.prefix_cache = false;  // every prompt is computed
  changed.scheduler.max_batch = changed.scheduler.max_queue = row.shape.requests;
  changed.scheduler.step_tokens = std::max(kStepTokens, row.shape.requests * (options.draft_tokens + 1));
  changed.scheduler.chunk_cap = kChunk;
  return changed;
}

/// A loaded model that serves one row, and what it held when.
class Stage {
 public:
  static Result<std::unique_ptr<Stage>> open(const Config& config, Registry& registry, const DecoderSpec& spec) {
    std::unique_ptr<Stage> stage(new Stage());
    auto tokenizer = no_text();
    if (!tokenizer.ok()) return tokenizer.status();
    stage->tokenizer_.emplace(std::move(*tokenizer));
    RepeatedWeights weights;
    auto runner = Runner::open(config, registry, {.weights = &weights, .spec = &spec});
    if (!runner.ok()) return runner.status();
    stage->runner_ = runner->get();
    const SchedulerLimits limits = scheduler_limits(config, **runner);
    stage->engine_.emplace(std::move(*runner), limits, acceptance_of(config), *stage->tokenizer_, stage->metrics_);
    return stage;
  }

  Runner& runner() { return *runner_; }
  Engine& engine() { return *engine_; }

  /// Requests number `first` and on, all there before the first step.
  Result<Burst> run(const BurstShape& shape, std::int32_t first, std::int32_t answer) {
    Burst burst;
    burst.receivers.resize(static_cast<std::size_t>(shape.requests));
    const auto start = Clock::now();
    for (std::int32_t i = 0; i < shape.requests; ++i) {
      Receiver& receiver = burst.receivers[static_cast<std::size_t>(i)];
      receiver.submitted = Clock::now();
      TESSERA_TRY(engine_->submit(static_cast<std::uint64_t>(first + i) + 1, request(first + i, shape.prompt, answer),
                                  receiver));
    }
    while (engine_->step()) {
      auto held = memory_held(runner_->backend());
      if (!held.ok()) return held.status();
      burst.most_held = std::max(burst.most_held, *held);
    }
    burst.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return burst;
  }

 private:
  Stage() = default;

  Request request(std::int32_t index, std::int32_t prompt, std::int32_t answer) const {
    Request request;
    request.prompt = burst_prompt(index, prompt, runner_->spec().vocab);
    request.sampling.temperature = 0;
    request.max_tokens = answer;
    request.ignore_eos = true;
    request.loops = {.max = runner_->spec().loops, .sparse_from = runner_->sparse_from()};
    return request;
  }

  std::optional<Tokenizer> tokenizer_;
  Metrics metrics_;
  Runner* runner_ = nullptr;  // the engine's
  std::optional<Engine> engine_;
};

/// Adds what one round gave.
void take_answers(const Burst& burst, std::int32_t answer, BurstRow& row, std::vector<double>& waits) {
  for (const Receiver& receiver : burst.receivers) {
    row.tokens += std::ssize(receiver.tokens);
    if (!receiver.tokens.empty())
      waits.push_back(std::chrono::duration<double, std::milli>(receiver.first - receiver.submitted).count());
    if (receiver.finished && std::ssize(receiver.tokens) == answer) continue;
    ++row.unfinished;
    row.reason = receiver.reason;
  }
  row.seconds += burst.seconds;
  ++row.rounds;
}

void take_counts(Stage& stage, BurstRow& row) {
  const PagePool& pages = stage.engine().pages();
  const ReferenceStore& references = stage.engine().references();
  row.pages = pages.size(), row.pages_left = pages.in_use();
  row.reference_slots = references.size(), row.reference_high_water = references.high_water();
  row.references_left = references.outstanding();
  row.list_pages = references.list_pages(), row.list_pages_high_water = references.pages_high_water();
  row.list_pages_left = references.outstanding_pages();
  row.preemptions = stage.engine().stats().preemptions, row.device_rounds = stage.engine().stats().device_rounds;
}

/// Of a CPU, the copies of logits that the device, the answer and the result have; then what the host keeps of answers.
void allow(Runner& runner, BurstMemory& memory) {
  const bool cpu = runner.backend().context().device == sdk::Device::cpu;
  const std::int64_t logits = std::int64_t{runner.limits().max_logit_rows} * runner.spec().vocab * 4;
  memory.warm_up_allowed = kKernelCode + (cpu ? 3 * logits : 0);
  memory.grown_allowed = cpu ? kHostAnswers : runner.graph_bytes();
}

using Answers = std::vector<std::vector<std::int32_t>>;

/// Fills in the row. `before` is what was held when nothing was loaded.
Result<Answers> run_row(const Config& config, Registry& registry, const BurstOptions& options, std::int64_t before,
                        BurstRow& row) {
  const DecoderSpec spec =
      loop_bench_spec(options.geometry, row.shape.prompt + options.answer + options.draft_tokens + 1);
  auto stage = Stage::open(config_for(config, options, row), registry, spec);
  if (!stage.ok()) return stage.status();
  Runner& runner = (*stage)->runner();
  const auto loaded = memory_held(runner.backend());
  if (!loaded.ok()) return loaded.status();
  const std::int32_t few = 1 + 2 * (options.draft_tokens + 1);  // two rounds
  const auto warm = (*stage)->run(row.shape, 0, std::min(few, options.answer));
  if (!warm.ok()) return warm.status();
  Answers answers;
  std::vector<double> waits;
  std::int64_t most_held = 0;
  for (std::int32_t round = 1; round <= options.rounds; ++round) {
    const auto burst = (*stage)->run(row.shape, round * row.shape.requests, options.answer);
    if (!burst.ok()) return burst.status();
    take_answers(*burst, options.answer, row, waits);
    most_held = std::max(most_held, burst->most_held);
    for (const Receiver& receiver : burst->receivers) answers.push_back(receiver.tokens);
  }
  if (!waits.empty()) row.first_token = {percentile(waits, 0.5), percentile(waits, 0.95), percentile(waits, 1)};
  take_counts(**stage, row);
  row.memory = {.weights = static_cast<std::int64_t>(runner.weight_bytes()),
                .kv = runner.num_pages() * page_bytes({spec.layers, spec.kv_heads, spec.head_dim, sdk::DType::f32}),
                .loaded = *loaded - before,
                .warm_up = std::max<std::int64_t>(warm->most_held - *loaded, 0),
                .grown = std::max<std::int64_t>(most_held - std::max(*loaded, warm->most_held), 0)};
  allow(runner, row.memory);
  return answers;
}

std::vector<BurstRow> rows_of(const BurstOptions& options, const BurstShape& shape) {
  std::vector<BurstRow> rows;
  std::vector<std::string> retentions{""};
  retentions.insert(retentions.end(), options.retentions.begin(), options.retentions.end());
  for (const std::string& retention : retentions)
    for (const std::int32_t rounds : kRoundsInFlight)
      rows.push_back({.shape = shape, .retention = retention, .rounds_in_flight = rounds, .reason = {}});
  return rows;
}

std::string suffix_of(const BurstRow& row) {
  return row.rounds_in_flight == 0 ? "" : row.rounds_in_flight == 1 ? ", speculative" : ", in flight";
}

std::string mib(std::int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB); }

}  // namespace

std::string BurstRow::mode() const { return (retention.empty() ? "dense" : "sparse") + suffix_of(*this); }

std::vector<std::int32_t> burst_prompt(std::int32_t index, std::int32_t length, std::int32_t vocab) {
  const std::int64_t ids = std::min(49000, vocab - 1);
  std::vector<std::int32_t> prompt;
  for (std::int64_t j = 0; j < length; ++j)
    prompt.push_back(1 + static_cast<std::int32_t>((137 * j + std::int64_t{53} * index) % ids));
  return prompt;
}

double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

Status judge(const BurstRow& row) {
  const std::string where = fmt::format("burst of {} requests of {} tokens, {}{}", row.shape.requests, row.shape.prompt,
                                        row.retention.empty() ? "dense" : "retention " + row.retention, suffix_of(row));
  if (row.unfinished > 0)
    return fail(Code::internal, "{}: {} requests did not get their answer{}{}", where, row.unfinished,
                row.reason.empty() ? "" : ": ", row.reason);
  const BurstMemory& memory = row.memory;
  if (memory.warm_up > memory.warm_up_allowed)
    return fail(Code::internal, "{}: its first steps took {} more than was claimed at load, where {} are allowed",
                where, mib(memory.warm_up), mib(memory.warm_up_allowed));
  if (memory.grown > memory.grown_allowed)
    return fail(Code::internal, "{}: memory grew by {} after load and warm-up, where {} are allowed", where,
                mib(memory.grown), mib(memory.grown_allowed));
  if (row.rounds_in_flight > 1 && row.device_rounds == 0)
    return fail(Code::internal, "{}: no round ran on the device", where);
  if (row.pages_left > 0) return fail(Code::internal, "{}: {} pages are still in use", where, row.pages_left);
  if (row.references_left > 0)
    return fail(Code::internal, "{}: {} reference slots are still taken", where, row.references_left);
  if (row.list_pages_left > 0)
    return fail(Code::internal, "{}: {} pages of index lists are still taken", where, row.list_pages_left);
  if (row.other_answers > 0)
    return fail(Code::internal, "{}: {} answers are not those of the same arithmetic without", where,
                row.other_answers);
  return {};
}

Result<BurstBench> bench_bursts(const Config& config, Registry& registry, const BurstOptions& options) {
  auto backend = open_backend(config, registry);  // kept, so that the driver's own memory is held before and after
  if (!backend.ok()) return backend.status();
  const Config named = with_strategy(config, "bench loops");
  BurstBench bench{named.sparse_decode.plugin.name, config.backend.name, {}};
  Progress progress("bursts", static_cast<std::int64_t>(options.shapes.size() * std::size(kRoundsInFlight) *
                                                        (1 + options.retentions.size())));
  for (const BurstShape& shape : options.shapes) {
    std::map<std::string, Answers> plain;  // by retention; those of "" are dense
    for (BurstRow& row : rows_of(options, shape)) {
      const auto before = memory_held(*backend->get());
      if (!before.ok()) return before.status();
      const auto answers = run_row(config, registry, options, *before, row);
      if (!answers.ok()) return answers.status();
      const bool whole = row.retention.empty() || std::stod(row.retention) >= 1;
      const Answers& wanted = plain.try_emplace(whole ? "" : row.retention, *answers).first->second;
      for (std::size_t i = 0; i < wanted.size(); ++i) row.other_answers += wanted[i] != (*answers)[i] ? 1 : 0;
      bench.rows.push_back(row);
      progress.advance(1);
    }
  }
  return bench;
}

}  // namespace tessera

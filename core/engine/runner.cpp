#include "engine/runner.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "cache/kv_pool.h"
#include "engine/drafts.h"
#include "engine/limits.h"
#include "engine/probe.h"
#include "model/manifest.h"

namespace tessera {
namespace {

KvShape kv_shape(const DecoderSpec& spec) { return {spec.layers, spec.kv_heads, spec.head_dim, sdk::DType::f32}; }

sdk::AttentionShape attention_shape(const DecoderSpec& spec) {
  return {spec.layers, spec.q_heads, spec.kv_heads, spec.head_dim, spec.attention_scale(), sdk::DType::f32};
}

/// Hazards count from the first loop, but a row may leave only from its rule's first loop on (docs/numerics.md,
/// "Loops").
ExitOutcome exit_after(const PlanSlice& slice, float hazard) {
  const float remaining = slice.exit->remaining * (1.0f - hazard);
  const bool enough = slice.depth + 1 >= slice.exit->min_loops && 1.0f - remaining >= slice.exit->threshold;
  return {slice.id, enough || slice.last_pass(), remaining};
}

/// The weights, and every small file that shapes what the model makes of a request.
Digest model_digest(const std::filesystem::path& folder, const Digest& weights) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(weights)));
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    std::ifstream in(folder / name, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    hash.add(fmt::format("\n{} {}\n", name, bytes.size())).add(bytes);
  }
  return hash.finish();
}

std::size_t list_bytes(const DecoderSpec& spec, std::int32_t pages) {
  return static_cast<std::size_t>(pages) * sdk::list_page_bytes(attention_shape(spec));
}

double mib(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

Result<std::unique_ptr<Runner>> Runner::open(const Config& config, Registry& registry, const RunnerOptions& options) {
  std::unique_ptr<Runner> runner(new Runner());
  auto backend = registry.create<sdk::Backend>(config.backend, sdk::Device::any);
  if (!backend.ok()) return backend.status();
  runner->backend_ = std::move(*backend);
  const sdk::Device device = runner->backend_->context().device;
  auto attention = registry.create<sdk::Attention>(config.attention, device);
  if (!attention.ok()) return attention.status();
  runner->attention_ = std::move(*attention);
  runner->masses_ = options.masses;
  if (Status status = runner->open_sparse(config, registry); !status.ok()) return status;
  if (Status status = runner->load_model(config, options); !status.ok()) return status;
  runner->open_graphs(config);
  runner->packer_ = std::make_unique<StepPacker>(runner->spec_.loops, runner->limits_,
                                                 runner->sparse_active_ ? runner->sparse_.get() : nullptr);
  TESSERA_TRY(runner->open_rounds(config));
  TESSERA_TRY(runner->size_pool(config));
  if (Status status =
          probe_attention(*runner->backend_.get(), *runner->attention_.get(), runner->attention_.descriptor().name,
                          attention_shape(runner->spec_), runner->limits_, runner->kv_, runner->workspace_);
      !status.ok())
    return status;

  Sha256 hash;
  hash.add("tessera 1\n").add(to_hex(runner->model_digest_)).add(config.model.profile);
  for (const sdk::Descriptor* plugin : {&runner->backend_.descriptor(), &runner->attention_.descriptor()})
    hash.add("\n").add(plugin->name).add(" ").add(plugin->version);
  if (runner->sparse_active_) {
    hash.add("\n").add(runner->sparse_.descriptor().name).add(" ").add(runner->sparse_.descriptor().version);
    hash.add(fmt::format("\ncrossover={}", runner->crossover_));
    for (const PluginOption& option : config.sparse_decode.plugin.options)
      hash.add("\n").add(option.key).add("=").add(option.value);
  }
  for (const PluginOption& option : config.attention.options) hash.add("\n").add(option.key).add("=").add(option.value);
  if (acceptance_of(config) == Acceptance::rejection)
    hash.add(fmt::format("\nrejection {} draft_tokens={} draft_loops={}", config.speculation.kind,
                         config.speculation.draft_tokens,
                         config.speculation.kind == "self" ? config.speculation.draft_loops : 0));
  runner->fingerprint_ = to_hex(hash.finish());
  return runner;
}

Status Runner::load_model(const Config& config, const RunnerOptions& options) {
  if (options.spec != nullptr) {
    spec_ = *options.spec;
  } else {
    auto spec = read_spec(config.model.path);
    if (!spec.ok()) return spec.status();
    spec_ = *spec;
  }
  auto limits = step_limits(config, spec_, options.all_logits);
  if (!limits.ok()) return limits.status();
  limits_ = *limits;
  plan_lists();
  sdk::StepLimits packed = limits_;
  if (sparse_tables()) {  // selecting rows come twice (pack_kept)
    packed.max_rows += limits_.max_slices;
    packed.max_slices += limits_.max_slices;
    packed.max_pages += limits_.max_pages;
  }
  TESSERA_TRY(backend_->bind(packed));

  const auto prepare = [&](WeightSource& weights) -> Status {
    auto decoder = Decoder::load(spec_, weights, *backend_.get(), limits_, sparse_active_ && !sparse_tables_);
    if (!decoder.ok()) return decoder.status();
    decoder_ = std::move(*decoder);
    return {};
  };
  if (options.weights != nullptr) {
    TESSERA_TRY(prepare(*options.weights));
  } else {
    auto checkpoint = Checkpoint::open(config.model.path);
    if (!checkpoint.ok()) return checkpoint.status();
    Progress progress("loading " + config.model.path.string(), 2 * checkpoint->total_bytes());
    CheckpointWeights weights(spec_, *checkpoint, progress);
    TESSERA_TRY(prepare(weights));
    TESSERA_TRY(checkpoint->all_taken());
    const auto digests = checkpoint->digests(progress);
    TESSERA_TRY(check_manifest(config.model.path, digests));
    model_digest_ = model_digest(config.model.path, Checkpoint::folded(digests));
  }
  const sdk::AttentionShape shape = attention_shape(spec_);
  std::size_t workspace_bytes = 0;
  TESSERA_TRY(attention_->bind(shape, limits_, backend_->context(), workspace_bytes));
  if (workspace_bytes > 0) TESSERA_TRY(backend_->allocate(workspace_bytes, &workspace_));
  return bind_sparse(config);
}

Status Runner::open_sparse(const Config& config, Registry& registry) {
  const PluginConfig& wanted = config.sparse_decode.plugin;
  if (wanted.name.empty()) return {};
  auto sparse = registry.create<sdk::SparseDecode>(wanted, backend_->context().device);
  if (!sparse.ok()) return sparse.status();
  sparse_ = std::move(*sparse);
  crossover_ = config.sparse_decode.crossover;
  sparse_active_ = sparse_->active();
  sparse_tables_ = sparse_->style() == sdk::SparseStyle::tables;
  return {};
}

Status Runner::bind_sparse(const Config& config) {
  if (!sparse_active_) return {};
  const char* name = sparse_.descriptor().name;
  if (sparse_tables_ && spec_.loops > 1)
    return fail(Code::invalid_argument,
                "{}: sparse_decode {} serves models with one loop, but this one has {}; use loop_reference",
                config.sparse_decode.plugin.where.text(), name, spec_.loops);
  if (!sparse_tables_) TESSERA_TRY(check_references(config));
  if (list_pages_) TESSERA_TRY(size_lists(config));
  const sdk::ReferenceRoom room{limits_.max_decode_rows * rounds_in_flight(config), num_list_pages_};
  std::size_t bytes = 0;
  TESSERA_TRY(sparse_->bind(attention_shape(spec_), limits_, room, backend_->context(), bytes));
  if (!sparse_tables_) {
    const std::size_t lists = list_bytes(spec_, num_list_pages_);
    log(LogLevel::info, "sparse decoding: {} references, {:.1f} MiB, and {} pages of index lists, {:.1f} MiB",
        room.num_slots, mib(sparse_->reference_bytes() - lists), room.num_list_pages, mib(lists));
  }
  return bytes == 0 ? Status{} : backend_->allocate(bytes, &sparse_workspace_);
}

void Runner::plan_lists() {
  if (capture_depth() == 0) return;
  std::vector<std::int32_t> pages;
  for (std::int32_t position = 0; position < limits_.max_context; ++position)
    pages.push_back(sparse_->list_pages(position));
  limits_.max_list_pages = limits_.max_decode_rows * pages.back();
  list_pages_ = std::make_shared<const std::vector<std::int32_t>>(std::move(pages));
}

/// Before the KV pool is there: it gets what is left. So its pages are a bound here.
Status Runner::size_lists(const Config& config) {
  constexpr std::int64_t kShare = 64;  // of the KV pool's memory: lists that take less are for the worst case
  const auto affordable = affordable_pages(config, 0);
  if (!affordable.ok()) return affordable.status();
  const std::int64_t pages = std::min(wanted_pages(config), *affordable);
  const auto page = static_cast<std::int64_t>(list_bytes(spec_, 1));
  const std::int64_t size =
      list_pool_size({.pages = *list_pages_,
                      .sequences = limits_.max_slices,
                      .rows = limits_.max_decode_rows / limits_.max_slices * rounds_in_flight(config),
                      .positions = pages / spec_.loops * sdk::kPageSize,
                      .cheap = pages * page_bytes(kv_shape(spec_)) / kShare / page});
  std::size_t total = 0, free = 0;
  TESSERA_TRY(backend_->memory(&total, &free));
  if (size > static_cast<std::int64_t>(free) / page)
    return fail(Code::resource_exhausted,
                "{}: index lists of decoded rows take {} MiB but {} MiB are free; lower scheduler.max_batch, "
                "model.max_context or what sparse_decode keeps",
                config.sparse_decode.plugin.where.text(), (size * page) >> 20, free >> 20);
  num_list_pages_ = static_cast<std::int32_t>(size);
  return {};
}

Status Runner::check_references(const Config& config) {
  const char* name = sparse_.descriptor().name;
  if (spec_.loops <= sparse_->capture_depth() + 1)
    return fail(Code::invalid_argument,
                "{}: sparse_decode {} reads in later loops what loop {} selected, but the model has {}; remove the "
                "section, or serve a looped model",
                config.sparse_decode.plugin.where.text(), name, sparse_->capture_depth() + 1,
                spec_.loops == 1 ? "one loop" : fmt::format("{} loops", spec_.loops));
  if ((attention_.descriptor().traits.capabilities & sdk::kEmitsScores) == 0)
    return fail(Code::invalid_argument,
                "{}: sparse_decode {} needs the scores of attention, which {} does not emit; use attention.name: "
                "attention_exact",
                config.sparse_decode.plugin.where.text(), name, attention_.descriptor().name);
  return {};
}

void Runner::open_graphs(const Config& config) {
  const auto records = [](const sdk::Descriptor& plugin) {
    return (plugin.traits.capabilities & sdk::kGraphCapturable) != 0;
  };
  const bool all = records(backend_.descriptor()) && records(attention_.descriptor()) &&
                   (!sparse_active_ || records(sparse_.descriptor()));
  graphs_ = std::make_unique<GraphCache>(*backend_.get(), all ? config.scheduler.graphs : 0);
}

Status Runner::open_rounds(const Config& config) {
  if (rounds_in_flight(config) == 1) return {};
  if (backend_->rounds() == nullptr)
    return fail(Code::invalid_argument,
                "{}: speculation.rounds_in_flight is {}, but backend {} cannot draw tokens on its device; use 1",
                config.speculation.where.text(), config.speculation.rounds_in_flight, backend_.descriptor().name);
  auto opened =
      DeviceRounds::open(round_shape(config, spec_, capture_depth()), limits_, *decoder_, *backend_.get(), context());
  if (!opened.ok()) return opened.status();
  rounds_ = std::move(*opened);
  return {};
}

std::int64_t Runner::graph_bytes() const {
  constexpr std::int64_t kLayerBytes = 16 << 10;  // some 17 launches; measured with `bench loops --burst`
  const std::int64_t passes = rounds_ ? rounds_->shape().passes() : 1;
  return std::int64_t{graphs_->capacity()} * spec_.layers * kLayerBytes * passes;
}

PassContext Runner::context() {
  return {*attention_.get(),
          sparse_active_ ? sparse_.get() : nullptr,
          workspace_,
          sparse_workspace_,
          kv_,
          packer_ ? packer_->groups() : std::span<const RowGroup>{},
          *graphs_};
}

std::int64_t Runner::wanted_pages(const Config& config) const {
  return config.cache.pages > 0 ? config.cache.pages : std::int64_t{limits_.max_pages} * spec_.loops;
}

Result<std::int64_t> Runner::affordable_pages(const Config& config, std::int64_t reserved) const {
  std::size_t total = 0, free = 0;
  TESSERA_TRY(backend_->memory(&total, &free));
  const std::int64_t left = std::max<std::int64_t>(static_cast<std::int64_t>(free) - reserved, 0);
  return static_cast<std::int64_t>(static_cast<double>(left) * config.cache.memory_fraction) /
         page_bytes(kv_shape(spec_));
}

Status Runner::size_pool(const Config& config) {
  const KvShape shape = kv_shape(spec_);
  const auto fitting = affordable_pages(config, graph_bytes());
  if (!fitting.ok()) return fitting.status();
  const std::int64_t affordable = *fitting, wanted = wanted_pages(config);
  if (config.cache.pages > affordable)
    return fail(Code::invalid_argument,
                "{}: cache.pages is {} ({} MiB) but only {} pages fit in {} of the free memory; "
                "lower it or raise cache.memory_fraction",
                config.cache.where.text(), wanted, (wanted * page_bytes(shape)) >> 20, affordable,
                config.cache.memory_fraction);
  const auto pages = static_cast<std::int32_t>(std::min(wanted, affordable));
  if (pages < 1) return fail(Code::resource_exhausted, "no memory is left for even one KV page");
  auto kv = allocate_kv(*backend_.get(), shape, pages);
  if (!kv.ok()) return kv.status();
  kv_ = *kv;
  if (sparse_tables()) TESSERA_TRY(sparse_->attach(kv_));
  log(LogLevel::info, "KV pool: {} pages of {} positions, {} MiB", pages, sdk::kPageSize,
      (pages * page_bytes(shape)) >> 20);
  return {};
}

bool Runner::wants_masses() {
  const bool captures = std::any_of(packer_->groups().begin(), packer_->groups().end(),
                                    [](const RowGroup& g) { return g.mode == sdk::RowMode::capture; });
  return captures && (capturing_steps_++ % kMassSteps == 0 || masses_);
}

Status Runner::step(const StepPlan& plan, StepResult& result) {
  const sdk::PackedRows rows = packer_->pack(plan, false);
  TESSERA_TRY(decoder_->forward(context(), rows, wants_masses(), answer_));
  judge(plan, result);
  result.masses = answer_.masses;
  result.heads = spec_.q_heads;
  return copy_left(plan, result);
}

void Runner::judge(const StepPlan& plan, StepResult& result) {
  result.answered.clear(), result.exits.clear(), result.logits.clear();
  const auto vocab = static_cast<std::ptrdiff_t>(spec_.vocab);
  std::ptrdiff_t row = 0;
  for (const std::size_t index : packer_->order()) {
    const PlanSlice& slice = plan.slices[index];
    bool left = slice.last_pass();
    if (!slice.exit && !(left && slice.wants_logits)) continue;
    if (slice.exit) {
      result.exits.push_back(exit_after(slice, answer_.exits[static_cast<std::size_t>(row)]));
      left = result.exits.back().left;
    }
    const auto logits = answer_.logits.begin() + row * vocab;
    const std::ptrdiff_t rows = slice.exit ? 1 : slice.num_answers();
    row += rows;
    if (!left || !slice.wants_logits) continue;
    result.answered.push_back(index);
    result.logits.insert(result.logits.end(), logits, logits + rows * vocab);
  }
}

Status Runner::copy_left(const StepPlan& plan, const StepResult& result) {
  if (spec_.loops == 1) return {};
  copies_.clear();
  auto exit = result.exits.begin();
  for (const std::size_t index : packer_->order()) {
    const PlanSlice& slice = plan.slices[index];
    const bool left = slice.exit ? (exit++)->left : slice.last_pass();
    if (!left) continue;
    const std::size_t blocks = slice.pages.size() / static_cast<std::size_t>(spec_.loops);
    for (std::size_t i = 0; i < slice.tokens.size(); ++i) {
      const std::int32_t position = slice.first_position + static_cast<std::int32_t>(i);
      const auto page = [&](std::int32_t depth) {
        return slice
            .pages[static_cast<std::size_t>(depth) * blocks + static_cast<std::size_t>(position / sdk::kPageSize)];
      };
      for (std::int32_t depth = slice.depth + 1; depth < slice.planes; ++depth)
        copies_.push_back({page(slice.depth), page(depth), position % sdk::kPageSize});
    }
  }
  return copies_.empty() ? Status{} : backend_->copy_kv(kv_, copies_.data(), static_cast<std::int32_t>(copies_.size()));
}

Status Runner::run(const StepPlan& plan, std::vector<float>& logits, bool every_row, std::int32_t loops,
                   LoopStates* states) {
  StepPlan pass = plan;
  const std::int32_t last = loops == 0 ? spec_.loops : loops;
  check(states == nullptr || spec_.loops > 1, "only a looped model keeps states");
  if (states != nullptr) states->resize(static_cast<std::size_t>(last));
  for (std::int32_t depth = 0; depth < last; ++depth) {
    std::int32_t state = 0;
    for (PlanSlice& slice : pass.slices) {
      slice.depth = depth;
      slice.loops = slice.planes = last;
      slice.states.clear();
      if (last > 1 || states != nullptr)
        for (std::size_t i = 0; i < slice.tokens.size(); ++i) slice.states.push_back(state++);
    }
    const sdk::PackedRows rows = packer_->pack(pass, every_row && depth + 1 == last);
    TESSERA_TRY(decoder_->forward(context(), rows, false, answer_));
    if (states != nullptr) TESSERA_TRY(decoder_->read_states(state, (*states)[static_cast<std::size_t>(depth)]));
  }
  logits.swap(answer_.logits);
  return {};
}

}  // namespace tessera

#include "engine/runner.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "base/log.h"
#include "cache/kv_pool.h"
#include "engine/probe.h"

namespace tessera {
namespace {

std::int32_t pages_for(std::int32_t positions) { return (positions + sdk::kPageSize - 1) / sdk::kPageSize; }

KvShape kv_shape(const DecoderSpec& spec) { return {spec.layers, spec.kv_heads, spec.head_dim, sdk::DType::f32}; }

sdk::AttentionShape attention_shape(const DecoderSpec& spec) {
  return {spec.layers, spec.q_heads, spec.kv_heads, spec.head_dim, spec.attention_scale(), sdk::DType::f32};
}

Result<sdk::StepLimits> step_limits(const Config& config, const DecoderSpec& spec, bool all_logits) {
  const std::int32_t context = config.model.max_context == 0 ? spec.max_context : config.model.max_context;
  if (context > spec.max_context)
    return fail(Code::invalid_argument,
                "{}: model.max_context is {} but the model was made for {} positions; lower it or leave it out",
                config.model.where.text(), context, spec.max_context);
  const std::int32_t batch = config.scheduler.max_batch;
  return sdk::StepLimits{.max_rows = config.scheduler.step_tokens,
                         .max_slices = batch,
                         .max_logit_rows = all_logits ? config.scheduler.step_tokens : batch,
                         .max_context = context,
                         .max_pages = batch * pages_for(context)};
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
  if (Status status = runner->load_model(config, options); !status.ok()) return status;
  if (Status status = runner->size_pool(config); !status.ok()) return status;
  if (Status status =
          probe_attention(*runner->backend_.get(), *runner->attention_.get(), runner->attention_.descriptor().name,
                          attention_shape(runner->spec_), runner->limits_, runner->kv_, runner->workspace_);
      !status.ok())
    return status;

  Sha256 hash;
  hash.add("tessera 1\n").add(to_hex(runner->model_digest_)).add(config.model.profile);
  for (const sdk::Descriptor* plugin : {&runner->backend_.descriptor(), &runner->attention_.descriptor()})
    hash.add("\n").add(plugin->name).add(" ").add(plugin->version);
  for (const PluginOption& option : config.attention.options) hash.add("\n").add(option.key).add("=").add(option.value);
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
  TESSERA_TRY(backend_->bind(limits_));

  const auto prepare = [&](WeightSource& weights) -> Status {
    auto decoder = Decoder::load(spec_, weights, *backend_.get(), limits_);
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
    auto digest = checkpoint->digest(progress);
    if (!digest.ok()) return digest.status();
    model_digest_ = model_digest(config.model.path, *digest);
  }
  const sdk::AttentionShape shape = attention_shape(spec_);
  std::size_t workspace_bytes = 0;
  TESSERA_TRY(attention_->bind(shape, limits_, backend_->context(), workspace_bytes));
  return workspace_bytes == 0 ? Status{} : backend_->allocate(workspace_bytes, &workspace_);
}

Status Runner::size_pool(const Config& config) {
  std::size_t total = 0, free = 0;
  TESSERA_TRY(backend_->memory(&total, &free));
  const KvShape shape = kv_shape(spec_);
  const auto affordable =
      static_cast<std::int64_t>(static_cast<double>(free) * config.cache.memory_fraction) / page_bytes(shape);
  const std::int64_t wanted = config.cache.pages > 0 ? config.cache.pages : limits_.max_pages;
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
  log(LogLevel::info, "KV pool: {} pages of {} positions, {} MiB", pages, sdk::kPageSize,
      (pages * page_bytes(shape)) >> 20);
  return {};
}

Status Runner::run(const StepPlan& plan, std::vector<float>& logits, bool every_row) {
  tokens_.clear(), positions_.clear(), row_slice_.clear(), pages_.clear(), logit_rows_.clear(), slices_.clear();
  for (const PlanSlice& slice : plan.slices) {
    const auto index = static_cast<std::int32_t>(slices_.size());
    const auto rows = static_cast<std::int32_t>(slice.tokens.size());
    slices_.push_back({static_cast<std::int32_t>(tokens_.size()), rows, slice.first_position, 0,
                       static_cast<std::int32_t>(pages_.size()), static_cast<std::int32_t>(slice.pages.size())});
    pages_.insert(pages_.end(), slice.pages.begin(), slice.pages.end());
    for (std::int32_t i = 0; i < rows; ++i) {
      if (every_row || (slice.wants_logits && i + 1 == rows))
        logit_rows_.push_back(static_cast<std::int32_t>(tokens_.size()));
      tokens_.push_back(slice.tokens[static_cast<std::size_t>(i)]);
      positions_.push_back(slice.first_position + i);
      row_slice_.push_back(index);
    }
  }
  const sdk::PackedRows rows{static_cast<std::int32_t>(tokens_.size()),
                             static_cast<std::int32_t>(slices_.size()),
                             tokens_.data(),
                             positions_.data(),
                             row_slice_.data(),
                             slices_.data(),
                             pages_.data(),
                             static_cast<std::int32_t>(pages_.size()),
                             logit_rows_.data(),
                             static_cast<std::int32_t>(logit_rows_.size())};
  check(rows.num_rows <= limits_.max_rows && rows.num_logit_rows <= limits_.max_logit_rows &&
            rows.num_pages <= limits_.max_pages,
        "step of {} rows, {} logit rows, {} pages exceeds the limits {}, {}, {}", rows.num_rows, rows.num_logit_rows,
        rows.num_pages, limits_.max_rows, limits_.max_logit_rows, limits_.max_pages);
  return decoder_->forward(*attention_.get(), workspace_, kv_, rows, logits);
}

SchedulerLimits scheduler_limits(const Config& config, const Runner& runner) {
  return {.max_batch = config.scheduler.max_batch,
          .step_tokens = config.scheduler.step_tokens,
          .chunk_cap = config.scheduler.chunk_cap,
          .max_queue = config.scheduler.max_queue,
          .max_context = runner.max_context(),
          .depths = 1,
          .prefix_cache = config.cache.prefix_cache};
}

}  // namespace tessera

#include "bench/diagnose.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "base/progress.h"
#include "base/random.h"
#include "engine/runner.h"
#include "sample/sampler.h"

namespace tessera {
namespace {

/// One step of one sequence, alone on the first pages of the pool.
StepPlan step_of(std::int32_t first_position, std::vector<std::int32_t> tokens, std::int32_t loops) {
  const auto end = static_cast<std::size_t>(first_position) + tokens.size();
  PlanSlice slice{1, first_position, std::move(tokens), {}, true};
  slice.pages.resize((end + sdk::kPageSize - 1) / sdk::kPageSize * static_cast<std::size_t>(loops));
  std::iota(slice.pages.begin(), slice.pages.end(), 0);
  StepPlan plan;
  plan.slices.push_back(std::move(slice));
  return plan;
}

bool before(std::span<const float> logits, std::size_t a, std::size_t b) {
  return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
}

std::int32_t rank_of(std::span<const float> logits, std::int32_t token) {
  std::int32_t rank = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) rank += before(logits, i, static_cast<std::size_t>(token)) ? 1 : 0;
  return rank;
}

/// Sorted ids of the `count` best.
std::vector<std::size_t> best(std::span<const float> logits, std::size_t count) {
  std::vector<std::size_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  count = std::min(count, ids.size());
  std::nth_element(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count) - 1, ids.end(),
                   [&](std::size_t a, std::size_t b) { return before(logits, a, b); });
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

class Pair {
 public:
  Pair(Runner& reference, Runner& variant, const DiagnoseOptions& options, Diagnosis& result)
      : reference_(reference), variant_(variant), options_(options), result_(result) {}

  Status generate(std::int32_t generation) {
    Random random(options_.seed, static_cast<std::uint64_t>(generation));
    SamplingParams params;
    params.temperature = options_.temperature;
    params.top_k = options_.top_k;
    params.seed = random.bits_64();
    std::vector<std::int32_t> prompt, generated;
    for (std::int32_t i = 0; i < options_.prompt; ++i)
      prompt.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(reference_.spec().vocab))));
    bool differed = false;
    std::vector<std::int32_t> next = prompt;
    for (std::int32_t step = 0, first = 0; step < options_.max_tokens; ++step) {
      const StepPlan plan = step_of(first, next, reference_.spec().loops);
      TESSERA_TRY(reference_.run(plan, wanted_));
      TESSERA_TRY(variant_.run(plan, found_));
      first += static_cast<std::int32_t>(next.size());
      const auto position = static_cast<std::uint32_t>(first);
      const auto own = sample(wanted_, params, 0, position, prompt, generated, -1, scratch_);
      if (!own.ok()) return own.status();
      const auto other = sample(found_, params, 0, position, prompt, generated, -1, scratch_);
      if (!other.ok()) return other.status();
      const bool differs = count_step();
      if (own->token != other->token) {
        const double drawn = uniform(params.seed, 0, position, DrawPurpose::token);
        result_.divergences.push_back(
            describe({generation, step, drawn, seen(own->token), seen(other->token), 0, 0, differs, differed}));
        return {};
      }
      differed = differed || differs;
      generated.push_back(own->token);
      next = {own->token};
    }
    return {};
  }

 private:
  bool count_step() {
    const bool differs = std::memcmp(wanted_.data(), found_.data(), wanted_.size() * sizeof(float)) != 0;
    ++result_.steps;
    result_.steps_with_other_logits += differs ? 1 : 0;
    result_.largest_logit_difference = std::max(result_.largest_logit_difference, largest_difference(wanted_, found_));
    return differs;
  }

  DrawnToken seen(std::int32_t token) const {
    const auto index = static_cast<std::size_t>(token);
    return {token, rank_of(wanted_, token), rank_of(found_, token), wanted_[index], found_[index]};
  }

  Divergence describe(Divergence divergence) const {
    divergence.largest_logit_difference = largest_difference(wanted_, found_);
    const auto count = options_.top_k > 0 ? static_cast<std::size_t>(options_.top_k) : wanted_.size();
    const auto ours = best(wanted_, count), theirs = best(found_, count);
    std::vector<std::size_t> shared;
    std::set_intersection(ours.begin(), ours.end(), theirs.begin(), theirs.end(), std::back_inserter(shared));
    divergence.only_in_one = static_cast<std::int32_t>(ours.size() - shared.size());
    return divergence;
  }

  Runner& reference_;
  Runner& variant_;
  const DiagnoseOptions& options_;
  Diagnosis& result_;
  std::vector<float> wanted_, found_;
  SampleScratch scratch_;
};

}  // namespace

std::string Divergence::verdict() const {
  if (!logits_differ) return "not attention: the logits are equal in every bit, and the tokens are not";
  if (only_in_one != 0)
    return fmt::format("attention drift, and {} tokens in or out of the candidates: more than their order has changed",
                       only_in_one);
  return "attention drift explains it: the history is the same, the logits differ by rounding, the candidates are one "
         "set, and the same uniform falls to the other side of a boundary";
}

Result<Diagnosis> diagnose(const Config& config, Registry& registry, const DiagnoseOptions& options) {
  Config plain = config;
  plain.attention = {.name = "attention_reference", .path = {}, .options = {}, .where = {"check", 0, 0}};
  auto reference = Runner::open(plain, registry, {});
  if (!reference.ok()) return reference.status();
  auto variant = Runner::open(config, registry, {});
  if (!variant.ok()) return variant.status();
  const std::int32_t context = std::min((*variant)->max_context(), (*variant)->num_pages() * sdk::kPageSize);
  if (options.prompt + options.max_tokens > context || options.prompt > (*variant)->limits().max_rows)
    return fail(Code::invalid_argument, "generations of {} + {} tokens do not fit in {} positions and steps of {} rows",
                options.prompt, options.max_tokens, context, (*variant)->limits().max_rows);
  Diagnosis result;
  result.plugin = config.attention.name;
  for (const PluginOption& option : config.attention.options) result.plugin += " " + option.key + "=" + option.value;
  Pair pair(**reference, **variant, options, result);
  Progress progress("diagnosing", options.generations);
  for (; result.generations < options.generations; ++result.generations) {
    TESSERA_TRY(pair.generate(result.generations));
    progress.advance(1);
  }
  return result;
}

}  // namespace tessera

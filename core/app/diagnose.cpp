#include "app/diagnose.h"

#include <fmt/format.h>

#include "bench/diagnose.h"

namespace tessera::app {
namespace {

void print_token(const char* who, const DrawnToken& token) {
  fmt::print("  {} drew token {}: rank {} at {:.9f} under the reference, rank {} at {:.9f} under the variant\n", who,
             token.token, token.reference_rank, token.reference_logit, token.variant_rank, token.variant_logit);
}

void print_divergence(const Divergence& d) {
  fmt::print("generation {}, token {}: the uniform is {:.16f}\n", d.generation, d.step, d.uniform);
  print_token("the reference", d.reference);
  print_token("the variant  ", d.variant);
  fmt::print("  logits differ by {:.6g} at most here; {} before this step; candidates in one set only: {}\n",
             d.largest_logit_difference, d.differed_before ? "they differed" : "they were equal", d.only_in_one);
  fmt::print("  {}\n", d.verdict());
}

}  // namespace

int diagnose_packed(const Config& config, Registry& registry, std::int32_t generations, std::uint64_t seed) {
  const DiagnoseOptions options{.generations = generations, .seed = seed};
  auto result = diagnose(config, registry, options);
  if (!result.ok()) return report(result.status());
  bool explained = true;
  for (const Divergence& divergence : result->divergences) {
    print_divergence(divergence);
    explained = explained && divergence.logits_differ;
  }
  if (result->divergences.empty())
    fmt::print("no generation diverges{}\n", result->largest_logit_difference == 0
                                                 ? ", and no logit differs"
                                                 : ", though logits differ: rounding, too small for these draws");
  fmt::print("seed {}: {} against attention_reference, {} generations of {} tokens at temperature {}, top_k {}: "
             "{} diverge; {} of {} steps have other logits, by {:.6g} at most\n", seed, result->plugin,
             result->generations, options.max_tokens, options.temperature, options.top_k, result->divergences.size(),
             result->steps_with_other_logits, result->steps, result->largest_logit_difference);
  return explained ? 0 : 1;
}

}  // namespace tessera::app

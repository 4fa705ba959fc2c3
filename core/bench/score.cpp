#include "bench/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {

Status score(Runner& runner, std::span<const std::int32_t> tokens,
             const std::function<void(std::int32_t, std::span<const float>)>& visit, std::int32_t loops,
             std::vector<float>* exits, LoopStates* states) {
  if (loops > runner.spec().loops)
    return fail(Code::invalid_argument, "max_loops is {}; the model has {}", loops, runner.spec().loops);
  if (states != nullptr && runner.spec().loops == 1)
    return fail(Code::invalid_argument,
                "hidden states of loops were asked for; this model has one loop and keeps none");
  const auto total = static_cast<std::int32_t>(tokens.size());
  const std::int32_t blocks = (total + sdk::kPageSize - 1) / sdk::kPageSize * runner.spec().loops;
  if (total > runner.max_context() || blocks > runner.num_pages())
    return fail(Code::invalid_argument, "the text has {} tokens; the context holds {} and the pool {} pages", total,
                runner.max_context(), runner.num_pages());
  std::vector<PageId> pages(static_cast<std::size_t>(blocks));
  std::iota(pages.begin(), pages.end(), 0);
  const auto vocab = static_cast<std::size_t>(runner.spec().vocab);
  std::vector<float> logits;
  for (std::int32_t begin = 0; begin < total; begin += runner.limits().max_rows) {
    const std::int32_t rows = std::min(runner.limits().max_rows, total - begin);
    const auto part = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    StepPlan plan;
    plan.slices.push_back({1, begin, {part.begin(), part.end()}, pages, true});
    plan.num_rows = rows;
    TESSERA_TRY(runner.run(plan, logits, true, loops, states));
    if (exits != nullptr) exits->insert(exits->end(), runner.exits().begin(), runner.exits().end());
    for (std::int32_t i = 0; i < rows; ++i)
      visit(begin + i, std::span(logits).subspan(vocab * static_cast<std::size_t>(i), vocab));
  }
  return {};
}

double negative_log_likelihood(std::span<const float> logits, std::int32_t token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

}  // namespace tessera

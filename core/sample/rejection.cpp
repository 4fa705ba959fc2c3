#include "sample/rejection.h"

#include <algorithm>

namespace tessera {
namespace {

/// Shares are whole multiples of 2^-52, at most 2, and there are at most 2^21 of them: products of a share and a sum
/// are below 2^127. In whole numbers p and q both sum to one exactly, so where q exceeds p somewhere, p exceeds q
/// elsewhere. Quotients rounded to f64 would not promise that.
__extension__ using Exact = unsigned __int128;
constexpr std::size_t kMostTokens = std::size_t{1} << 21;

std::uint64_t units_of_share(const Distribution& distribution, std::size_t index) {
  return static_cast<std::uint64_t>(distribution.share(index) * 0x1p52);
}

Exact units_of_sum(const Distribution& distribution) { return static_cast<Exact>(distribution.sums.back() * 0x1p52); }

std::uint64_t units_of_token(const Distribution& distribution, std::int32_t token) {
  const std::vector<std::int32_t>& tokens = distribution.tokens;
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  return found == tokens.end() ? 0 : units_of_share(distribution, static_cast<std::size_t>(found - tokens.begin()));
}

/// scratch.residual becomes the running sums of max(p - q, 0) over the tokens of `target`, in their order.
void subtract(const Distribution& target, const Distribution& draft, SampleScratch& scratch) {
  const std::int32_t most = std::max(*std::max_element(target.tokens.begin(), target.tokens.end()),
                                     *std::max_element(draft.tokens.begin(), draft.tokens.end()));
  std::vector<std::uint64_t>& units = scratch.units;
  if (units.size() <= static_cast<std::size_t>(most)) units.resize(static_cast<std::size_t>(most) + 1, 0);
  for (std::size_t i = 0; i < draft.tokens.size(); ++i)
    units[static_cast<std::size_t>(draft.tokens[i])] = units_of_share(draft, i);
  const Exact target_sum = units_of_sum(target), draft_sum = units_of_sum(draft);
  scratch.residual.resize(target.tokens.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < target.tokens.size(); ++i) {
    const Exact p = units_of_share(target, i) * draft_sum;
    const Exact q = units[static_cast<std::size_t>(target.tokens[i])] * target_sum;
    if (p > q) sum += static_cast<double>(p - q);
    scratch.residual[i] = sum;
  }
  for (const std::int32_t token : draft.tokens) units[static_cast<std::size_t>(token)] = 0;
}

}  // namespace

Status sample_draft(std::span<const float> logits, const SamplePoint& point, SampleScratch& scratch, Draft& draft) {
  TESSERA_TRY(distribute(logits, point, scratch, draft.distribution));
  draft.token = draw(draft.distribution, uniform(point.params.seed, point.choice, point.position, DrawPurpose::token));
  return {};
}

Draft point_mass(std::int32_t token) { return {token, {{token}, {1.0}}}; }

Result<std::int32_t> accept_or_redraw(const Distribution& target, const Draft& draft, double acceptance,
                                      double residual, SampleScratch& scratch) {
  const Distribution& from = draft.distribution;
  if (std::max(target.tokens.size(), from.tokens.size()) > kMostTokens)
    return fail(Code::unsupported, "rejection sampling compares at most {} tokens; set top_k", kMostTokens);
  // p and q over one denominator. u < 1 makes u * q less than q after rounding too: a refusal means p < q.
  const auto p = static_cast<double>(units_of_token(target, draft.token) * units_of_sum(from));
  const auto q = static_cast<double>(units_of_token(from, draft.token) * units_of_sum(target));
  if (acceptance * q < p) return draft.token;
  subtract(target, from, scratch);
  const std::vector<double>& sums = scratch.residual;
  if (sums.back() <= 0.0)
    return fail(
        Code::internal,
        "candidate {} was refused, but the target's distribution is nowhere above the draft's, so no other token "
        "can be drawn",
        draft.token);
  const auto found = std::upper_bound(sums.begin(), sums.end() - 1, residual * sums.back());
  return target.tokens[static_cast<std::size_t>(found - sums.begin())];
}

Result<Sampled> sample_with_draft(std::span<const float> logits, const SamplePoint& point, const Draft& draft,
                                  std::int32_t top_logprobs, SampleScratch& scratch) {
  TESSERA_TRY(distribute(logits, point, scratch, scratch.distribution));
  const auto at = [&](DrawPurpose purpose) {
    return uniform(point.params.seed, point.choice, point.position, purpose);
  };
  const auto token =
      accept_or_redraw(scratch.distribution, draft, at(DrawPurpose::acceptance), at(DrawPurpose::residual), scratch);
  if (!token.ok()) return token.status();
  return with_logprobs(*token, logits, top_logprobs, scratch);
}

}  // namespace tessera

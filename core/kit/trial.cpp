#include "kit/trial.h"

#include <algorithm>

#include "bench/attention_corpus.h"

namespace tessera {
namespace {

const sdk::Traits* traits_of(const Subject& subject) {
  auto opened = Registry::open(subject.file);
  return opened.ok() ? &(*opened)->traits : nullptr;
}

}  // namespace

Finding Trial::finding(std::initializer_list<Tally VariantReport::*> kinds) const {
  std::int64_t done = 0;
  for (const std::string& failure : report.failures) return failed("{}", failure);
  for (const VariantReport& variant : report.variants) {
    if (!variant.first_failure.empty()) return failed("variant {}: {}", variant.name, variant.first_failure);
    for (const auto kind : kinds) done += (variant.*kind).done;
  }
  if (done == 0) return {Verdict::skipped, "there was nothing to compare"};
  const auto exact =
      std::count_if(report.variants.begin(), report.variants.end(), [](const auto& v) { return v.exact; });
  return passed("{} comparisons; {} of {} variants owe the reference's bits", done, exact, report.variants.size());
}

Result<AttentionGeometry> served_geometry(const Subject& subject) {
  const sdk::Traits* traits = traits_of(subject);
  for (const std::int32_t dim : {64, 32, 128, 96, 192, 256, 512}) {
    const auto size = static_cast<std::uint32_t>(dim);
    if (traits == nullptr || (traits->head_dim_multiple != 0 && size % traits->head_dim_multiple != 0)) continue;
    if (traits->head_dim_max == 0 || size <= traits->head_dim_max) return AttentionGeometry{8, 2, dim, 2, 1};
  }
  return fail(Code::unsupported, "its traits serve no head size that the reference serves too");
}

std::uint64_t claims(const Subject& subject) {
  const sdk::Traits* traits = traits_of(subject);
  return traits == nullptr ? 0 : traits->capabilities;
}

std::vector<AttentionCase> fitted(std::vector<AttentionCase> cases, const AttentionGeometry& geometry) {
  for (AttentionCase& one : cases) one.geometry = geometry;
  return cases;
}

Finding with_trial(const Subject& subject, const std::vector<AttentionCase>& cases,
                   const std::function<Finding(Trial&)>& body) {
  Trial trial;
  trial.registry = Registry(Registry::search_path(subject.config));
  subject.doing("looking for the backend");
  if (auto backend = trial.registry.create<sdk::Backend>(subject.config.backend, sdk::Device::any); !backend.ok())
    return {Verdict::skipped, backend.status().message};
  subject.doing("being created and bound");
  if (const Status status = list_variants(subject.config, trial.registry, {}, trial.report); !status.ok())
    return failed(status);
  auto session = open_session(subject.config, trial.registry, cases.front().geometry, limits_for(cases), trial.report);
  if (!session.ok()) return failed(session.status());
  trial.session = std::move(*session);
  for (const VariantReport& variant : trial.report.variants)
    if (!variant.first_failure.empty()) return failed("variant {}: {}", variant.name, variant.first_failure);
  if (trial.session.reference.get() == nullptr && !trial.session.candidates.empty())
    return {Verdict::skipped, "attention_reference does not serve this shape"};
  subject.doing("running attention");
  return body(trial);
}

}  // namespace tessera

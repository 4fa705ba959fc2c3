// An attention plugin, all its variants and the reference on one backend, for one case of the kit.
#pragma once
#include <functional>
#include <vector>

#include "bench/attention_session.h"
#include "kit/case.h"

namespace tessera {

/// Not to be copied or moved: the session points into the report.
struct Trial {
  Registry registry{{}};
  AttentionReport report;
  Session session;

  /// The first problem of any variant, or what was done: tallies of `kinds`, summed.
  Finding finding(std::initializer_list<Tally VariantReport::*> kinds) const;
};

/// Head counts and a head size that the plugin's traits say it serves.
Result<AttentionGeometry> served_geometry(const Subject& subject);

/// The claims of the plugin's descriptor. The library is known to load.
std::uint64_t claims(const Subject& subject);

/// `cases` with a geometry that the plugin serves.
std::vector<AttentionCase> fitted(std::vector<AttentionCase> cases, const AttentionGeometry& geometry);

/// Opens a trial for cases of one geometry and hands it to `body`. Skipped when the backend cannot be had here; failed
/// when a variant refuses the geometry.
Finding with_trial(const Subject& subject, const std::vector<AttentionCase>& cases,
                   const std::function<Finding(Trial&)>& body);

}  // namespace tessera

// The promise, checked: logit bits of a request alone against the same request in every other circumstance.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

struct CheckRow {
  std::string suite;
  std::string name;
  std::int64_t compared = 0;  // logit rows compared bit for bit
  std::int64_t differing_rows = 0;
  std::int64_t differing_bits = 0;  // of logits
  std::int64_t differing_tokens = 0;
  std::string note;     // what the case exercised: preemptions, hits
  std::string failure;  // the case did not exercise what it is for
  bool ok() const { return differing_rows == 0 && differing_tokens == 0 && failure.empty(); }
};

struct CheckOptions {
  std::vector<std::string> suites;  // of check_suites()
  std::uint64_t seed = 20260908;
};

/// batch, prefill, packed, paged, sampling, loops, sparse (both of looped models), speculative, graphs, kernels
const std::vector<std::string>& check_suites();

Result<std::vector<CheckRow>> run_checks(const Config& config, Registry& registry, const CheckOptions& options);

}  // namespace tessera

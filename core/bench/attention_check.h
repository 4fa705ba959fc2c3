// Every variant of an attention plugin against the reference on the same device.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "config/config.h"
#include "registry/registry.h"

namespace tessera {

struct AttentionCheckOptions {
  std::uint64_t seed = 20260908;
  std::int32_t fuzz = 16;
  std::vector<std::string> variants;  // of variants(); empty = all of them
  std::int64_t most_pairs = 0;        // leave out cases of more (row, key) pairs, for slow tools; 0 = none
};

/// One kind of comparison of one variant.
struct Tally {
  std::int64_t done = 0;
  std::int64_t failed = 0;
};

struct VariantReport {
  std::string name;
  bool exact = false;           // owes the reference's bits; else its values within the tolerance
  bool batch_invariant = true;  // what the plugin claims; an invariance it does not claim may fail
  bool chunk_invariant = true;
  Tally tensors;                            // cases against the reference
  Tally poison;                             // outputs that NaN where no row looks must not move
  Tally composition, order, pages, chunks;  // the same rows alone, reordered, on other pages, in two calls
  Tally refusals;                           // geometries its traits say it does not serve
  std::int64_t floats = 0;                  // compared with the reference
  std::int64_t differing_floats = 0;
  std::int64_t differing_bits = 0;
  double largest_error = 0;
  std::string worst_case;  // where that was
  std::int64_t stray_writes = 0;
  std::int64_t unwritten = 0;
  std::string first_failure;

  std::int64_t invariance_checks() const { return composition.done + order.done + pages.done + chunks.done; }
  bool ok() const;
};

struct AttentionReport {
  std::string plugin, device, default_variant;
  std::uint64_t seed = 0;
  std::int32_t fuzz = 0;
  std::int64_t cases = 0;
  std::vector<VariantReport> variants;
  Tally oracle;  // reference rows against f64
  double oracle_largest = 0;
  std::int64_t control_bits = 0;              // what exchanging two keys changed: must not be 0
  std::vector<std::string> failures;          // of the reference and of the check itself
  std::map<std::string, std::string> hashes;  // case -> first 16 hex digits of the SHA-256 of the reference's output

  bool ok() const;
  std::int64_t total(Tally VariantReport::*kind) const;
};

/// The plugin is `config.attention`, the reference `attention_reference`, both on `config.backend`.
Result<AttentionReport> check_attention(const Config& config, Registry& registry, const AttentionCheckOptions& options);

/// Names of all variants of `config.attention`, the default first.
Result<std::vector<std::string>> attention_variants(const Config& config, Registry& registry);

/// `config.attention` with this variant; the default needs no option, so that a plugin with one variant has none.
PluginConfig with_variant(const PluginConfig& attention, const std::string& variant,
                          const std::string& default_variant);

}  // namespace tessera

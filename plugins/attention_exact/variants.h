// The names of attention.variant, and what they mean.
#pragma once
#include <string>
#include <vector>

namespace tessera_exact {

enum class Family {
  automatic,  // our own kernels
  exact,      // the published tiled family, in the reference order
  online,     // the published online-softmax family: a diagnosis, not exact
};

struct Variant {
  Family family = Family::automatic;
  int query_rows = 4;   // rows of one request that share a staged tile: 1, 2, 4
  int tile_keys = 64;   // key positions of a staged tile: 16, 32, 64
  bool hybrid = false;  // the step's own rows are read from packed scratch instead of through the page table
  bool cache = false;   // the page table is copied to fast memory first
};

/// "auto", "exact-q4-k64", "exact-q4-k64-hybrid-cache", "q2-k32-cache", ...; `exact` is exact-q4-k64. Suffixes come in
/// any order. False, and nothing written, for a name that is none or has a suffix twice.
bool parse_variant(const std::string& name, Variant* out);
inline constexpr const char* kVariantGrammar =
    "auto, exact, or q{1,2,4}-k{16,32,64} with exact- before it or not and -hybrid and -cache after it, once each "
    "(of the inexact ones only q2-k32 has them); `tessera plugins info` lists all";

/// 1 + 36 exact + 12 online: the canonical spellings.
const std::vector<std::string>& variant_names();

/// The same, separated by spaces.
const char* variant_list();

}  // namespace tessera_exact

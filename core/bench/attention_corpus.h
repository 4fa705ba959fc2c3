// The cases every attention variant is held to.
#pragma once
#include <cstdint>
#include <vector>

#include "bench/attention_data.h"
#include "bench/attention_fixture.h"

namespace tessera {

/// 53 of the default geometry, contexts to 1024: starts about every boundary of pages, warps, tiles and segments; short
/// slices far into a history; single prompts; packed prompts; ragged steps of each profile.
std::vector<AttentionCase> fixed_cases(std::uint64_t seed);

/// 1 to 16 ragged slices of at most 257 rows, starts to 767; a function of (seed, index). The mean case is about as
/// much work as four prompts of 128.
AttentionCase fuzz_case(std::uint64_t seed, std::int32_t index);

/// Head sizes 32 to 256, one that is no multiple of 32, and 1 to 16 query heads on one KV head.
std::vector<AttentionCase> geometry_cases(std::uint64_t seed);

/// A few rows at the end of histories to 32,768.
std::vector<AttentionCase> long_cases(std::uint64_t seed);

/// Small steps whose slices are run alone, reordered, on other pages and in pieces.
std::vector<AttentionCase> invariance_cases(std::uint64_t seed);

/// What a fixture needs for all of these cases.
FixtureLimits limits_for(const std::vector<AttentionCase>& cases);

}  // namespace tessera

// Which pages hold the KV of which token prefix.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"
#include "cache/page_pool.h"

namespace tessera {

/// Maps the digest of a block (16 tokens and everything before them) to the `depths` pages with its KV.
/// Host only, not thread-safe. It holds no references: the owner forgets a page before the page gets other content.
class PrefixIndex {
 public:
  /// `salt` names everything besides the tokens that shapes the KV; different salts never match.
  PrefixIndex(std::int32_t depths, std::string_view salt);

  /// Appends to `chain` the digests of the full blocks of `tokens` that it does not cover yet. `modes` says of each
  /// token what else shaped its KV (the loops it ran, sparse or dense); empty where nothing does.
  void extend(std::vector<Digest>& chain, std::span<const std::int32_t> tokens,
              std::span<const std::uint16_t> modes = {}) const;

  /// Pages of the longest known run of leading blocks, [block * depths + depth].
  std::vector<PageId> match(std::span<const Digest> chain) const;

  /// False when the digest is known already: the first pages stay. A page belongs to at most one entry.
  bool insert(const Digest& digest, std::span<const PageId> pages);

  /// Removes the entry that `page` belongs to and returns all pages of it; empty when there is none.
  std::vector<PageId> forget(PageId page);

  std::int32_t size() const { return static_cast<std::int32_t>(entries_.size()); }  // blocks

 private:
  std::int32_t depths_;
  Digest root_;
  std::map<Digest, std::vector<PageId>> entries_;
  std::unordered_map<PageId, Digest> owner_;
};

}  // namespace tessera

#include "cache/prefix_index.h"

#include "base/check.h"

namespace tessera {

PrefixIndex::PrefixIndex(std::int32_t depths, std::string_view salt)
    : depths_(depths), root_(Sha256().add(salt).finish()) {
  check(depths >= 1, "a prefix index of {} depths", depths);
}

void PrefixIndex::extend(std::vector<Digest>& chain, std::span<const std::int32_t> tokens,
                         std::span<const std::uint16_t> modes) const {
  const std::size_t blocks = tokens.size() / kPageTokens;
  // Parent and block have fixed sizes, and the salt is inside the root: no two inputs share one byte string.
  while (chain.size() < blocks) {
    const Digest& parent = chain.empty() ? root_ : chain.back();
    const std::size_t first = chain.size() * kPageTokens;
    Sha256 hash;
    hash.add(std::as_bytes(std::span(parent))).add(std::as_bytes(tokens.subspan(first, kPageTokens)));
    if (!modes.empty()) hash.add(std::as_bytes(modes.subspan(first, kPageTokens)));
    chain.push_back(hash.finish());
  }
}

std::vector<PageId> PrefixIndex::match(std::span<const Digest> chain) const {
  std::vector<PageId> pages;
  for (const Digest& digest : chain) {
    const auto entry = entries_.find(digest);
    if (entry == entries_.end()) break;
    pages.insert(pages.end(), entry->second.begin(), entry->second.end());
  }
  return pages;
}

bool PrefixIndex::insert(const Digest& digest, std::span<const PageId> pages) {
  check(pages.size() == static_cast<std::size_t>(depths_), "a block of {} pages in an index of {} depths", pages.size(),
        depths_);
  if (entries_.contains(digest)) return false;
  for (const PageId page : pages) {
    check(owner_.emplace(page, digest).second, "page {} already holds another indexed block", page);
  }
  entries_.emplace(digest, std::vector<PageId>(pages.begin(), pages.end()));
  return true;
}

std::vector<PageId> PrefixIndex::forget(PageId page) {
  const auto owner = owner_.find(page);
  if (owner == owner_.end()) return {};
  const auto entry = entries_.find(owner->second);
  std::vector<PageId> pages = std::move(entry->second);
  entries_.erase(entry);
  for (const PageId other : pages) owner_.erase(other);
  return pages;
}

}  // namespace tessera

// Physical pages: ids, reference counts, and the order in which free ones are taken.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

using PageId = std::int32_t;
inline constexpr PageId kNoPage = -1;
inline constexpr std::int32_t kPageTokens = 16;  // positions of one page

/// Counts references to page ids 0..size-1; it knows nothing of their bytes.
///
/// A page without references is available. Available pages form one order: those without cached content first, then
/// those with cached content, least recently released first. share() resurrects an available page with its content;
/// take() hands it out for new content. Not thread-safe. Misuse (bad id, release of an available page) aborts.
class PagePool {
 public:
  /// All pages are available. With a seed their initial order is a permutation drawn from it, so that checks can show
  /// that results do not depend on which physical pages were used; without one it is ascending.
  explicit PagePool(std::int32_t size, std::optional<std::uint64_t> shuffle_seed = std::nullopt);

  std::int32_t size() const { return static_cast<std::int32_t>(pages_.size()); }
  std::int32_t available() const { return available_; }
  std::int32_t in_use() const { return size() - available_; }  // pages with at least one reference
  std::int32_t references(PageId id) const { return at(id).references; }
  bool cached(PageId id) const { return at(id).cached; }

  /// Walks the available pages in the order in which they should be taken; kNoPage ends the walk. Changes nothing.
  PageId first_available() const;
  PageId next_available(PageId id) const;

  /// First reference to an available page, for new content; the caller has already forgotten its cached content.
  void take(PageId id);
  /// One more reference; the content stays.
  void share(PageId id);
  /// One reference less; the last one makes the page available, at the end of its part of the order.
  void release(PageId id);
  /// Whether the page's content is worth keeping while nobody refers to it.
  void set_cached(PageId id, bool cached);

 private:
  struct Page {
    std::int32_t references = 0;
    bool cached = false;
    PageId previous = kNoPage;  // among the available pages of the same part
    PageId next = kNoPage;
  };
  struct Part {
    PageId first = kNoPage;
    PageId last = kNoPage;
  };

  const Page& at(PageId id) const;
  Page& at(PageId id);
  Part& part_of(const Page& page) { return page.cached ? cached_ : plain_; }
  void append(PageId id);
  void unlink(PageId id);

  std::vector<Page> pages_;
  Part plain_;
  Part cached_;
  std::int32_t available_ = 0;
};

}  // namespace tessera

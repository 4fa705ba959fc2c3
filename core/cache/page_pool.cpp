#include "cache/page_pool.h"

#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tessera {

PagePool::PagePool(std::int32_t size, std::optional<std::uint64_t> shuffle_seed) {
  check(size >= 0, "a page pool of {} pages", size);
  pages_.resize(static_cast<std::size_t>(size));
  std::vector<PageId> order(pages_.size());
  std::iota(order.begin(), order.end(), 0);
  if (shuffle_seed) {
    Random random(*shuffle_seed);
    for (std::size_t left = order.size(); left > 1; --left) {
      std::swap(order[left - 1], order[random.below(static_cast<std::uint32_t>(left))]);
    }
  }
  for (const PageId id : order) append(id);
}

const PagePool::Page& PagePool::at(PageId id) const {
  check(id >= 0 && id < size(), "page {} of a pool of {}", id, size());
  return pages_[static_cast<std::size_t>(id)];
}

PagePool::Page& PagePool::at(PageId id) { return const_cast<Page&>(std::as_const(*this).at(id)); }

PageId PagePool::first_available() const { return plain_.first != kNoPage ? plain_.first : cached_.first; }

PageId PagePool::next_available(PageId id) const {
  const Page& page = at(id);
  check(page.references == 0, "page {} has {} references, so it is not in the available order", id, page.references);
  if (page.next != kNoPage || page.cached) return page.next;
  return cached_.first;
}

void PagePool::take(PageId id) {
  Page& page = at(id);
  check(page.references == 0, "page {} was taken with {} references", id, page.references);
  check(!page.cached, "page {} was taken before its cached content was forgotten", id);
  unlink(id);
  page.references = 1;
}

void PagePool::share(PageId id) {
  Page& page = at(id);
  if (page.references == 0) unlink(id);
  ++page.references;
}

void PagePool::release(PageId id) {
  Page& page = at(id);
  check(page.references > 0, "page {} was released without references", id);
  if (--page.references == 0) append(id);
}

void PagePool::set_cached(PageId id, bool cached) {
  Page& page = at(id);
  if (page.cached == cached) return;
  if (page.references == 0) unlink(id);
  page.cached = cached;
  if (page.references == 0) append(id);
}

void PagePool::append(PageId id) {
  Page& page = at(id);
  Part& part = part_of(page);
  page.previous = part.last;
  page.next = kNoPage;
  if (part.last == kNoPage) {
    part.first = id;
  } else {
    at(part.last).next = id;
  }
  part.last = id;
  ++available_;
}

void PagePool::unlink(PageId id) {
  Page& page = at(id);
  Part& part = part_of(page);
  if (page.previous == kNoPage) {
    part.first = page.next;
  } else {
    at(page.previous).next = page.next;
  }
  if (page.next == kNoPage) {
    part.last = page.previous;
  } else {
    at(page.next).previous = page.previous;
  }
  page.previous = page.next = kNoPage;
  --available_;
}

}  // namespace tessera

// KV pages: one pool a cache group, and the two ways to own a page.
#pragma once

#include "fence.h"

#include <utility>
#include <vector>

namespace tsscheduler {

class Pool;

// Who keeps cached pages: told when a page is only cached, and when it is in use again.
class PageListener {
  public:
    virtual void idle(std::int32_t group, PageId page) = 0;
    virtual void busy(std::int32_t group, PageId page) = 0;

    // Frees the least recently used idle page; requires that there is one.
    virtual void evict(std::int32_t group) = 0;

  protected:
    ~PageListener() = default;
};

// Shared and read only: its content is complete and never changes. Made by publishing.
class SealedPage {
  public:
    SealedPage(SealedPage&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

    SealedPage& operator=(SealedPage&& other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(id_, other.id_);
        return *this;
    }

    SealedPage(const SealedPage&) = delete;
    SealedPage& operator=(const SealedPage&) = delete;
    inline ~SealedPage();

    [[nodiscard]] PageId id() const { return id_; }

    // One more owner of the same page.
    [[nodiscard]] inline SealedPage share() const;

  private:
    friend class Pool;
    friend class OpenPage;
    friend class Table;

    SealedPage(Pool& pool, PageId id) : pool_(&pool), id_(id) {}

    // Hands the reference to a table or a tree, which store four bytes.
    PageId forget() && {
        pool_ = nullptr;
        return id_;
    }

    Pool* pool_;
    PageId id_;
};

// Unique and writable. Publishing consumes it.
class OpenPage {
  public:
    OpenPage(OpenPage&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

    OpenPage& operator=(OpenPage&& other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(id_, other.id_);
        return *this;
    }

    OpenPage(const OpenPage&) = delete;
    OpenPage& operator=(const OpenPage&) = delete;
    inline ~OpenPage();

    [[nodiscard]] PageId id() const { return id_; }

    // The place of one token's key and value: only a writable page has one.
    [[nodiscard]] std::int32_t write_slot(std::int32_t offset, std::int32_t page_size) const {
        return id_ * page_size + offset;
    }

    [[nodiscard]] SealedPage publish() && {
        return SealedPage(*std::exchange(pool_, nullptr), id_);
    }

  private:
    friend class Pool;
    friend class Table;

    OpenPage(Pool& pool, PageId id) : pool_(&pool), id_(id) {}

    PageId forget() && {
        pool_ = nullptr;
        return id_;
    }

    Pool* pool_;
    PageId id_;
};

// The pages of one cache group. References count owners: tables, the tree, tickets, the fence. The
// fence holds references, so that a page which is free or only cached is in no step in flight.
class Pool {
  public:
    // `pages` counts the null page.
    Pool(std::int32_t pages, const Clock& clock)
        : clock_(&clock), refs_(static_cast<std::size_t>(pages), 0),
          cached_(static_cast<std::size_t>(pages), 0) {
        free_.reserve(refs_.size());
        for (PageId id = pages - 1; id > kNullPage; --id)
            free_.push_back(id);
    }

    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    void listen(PageListener& listener, std::int32_t group) {
        listener_ = &listener;
        group_ = group;
    }

    // Pages that can be handed out at all.
    [[nodiscard]] std::int32_t total() const { return to_i32(refs_.size()) - 1; }

    [[nodiscard]] std::int32_t free() const { return to_i32(free_.size()); }

    // Pages that only the cache refers to: it gives them up when nothing is free.
    [[nodiscard]] std::int32_t idle() const { return idle_; }

    // Pages that allocate() can give now.
    [[nodiscard]] std::int32_t obtainable() const { return free() + idle_; }

    // References behind the fence.
    [[nodiscard]] std::int32_t fenced() const { return fence_.size(); }

    [[nodiscard]] std::int32_t references(PageId id) const { return refs_[id]; }

    [[nodiscard]] const Fence<PageId>& fence() const { return fence_; }

    // Requires obtainable() > 0; evicts when nothing is free.
    OpenPage allocate() {
        ++clock_->work;
        if (free_.empty()) listener_->evict(group_);
        assert(!free_.empty());
        const PageId id = free_.back();
        free_.pop_back();
        refs_[id] = 1;
        return OpenPage(*this, id);
    }

    // The cache takes over this reference.
    PageId cache(SealedPage&& page) {
        const PageId id = std::move(page).forget();
        assert(refs_[id] > 1 && cached_[id] == 0);
        cached_[id] = 1;
        return id;
    }

    // One more owner of a cached page.
    SealedPage share_cached(PageId id) {
        assert(cached_[id] != 0);
        retain(id);
        return SealedPage(*this, id);
    }

    // The cache gives up an idle page.
    void uncache(PageId id) {
        assert(refs_[id] == 1 && cached_[id] != 0);
        cached_[id] = 0;
        refs_[id] = 0;
        --idle_;
        free_.push_back(id);
    }

    void pass(Step step) {
        fence_.pass(step, [this](PageId id) { release(id); });
    }

  private:
    friend class SealedPage;
    friend class OpenPage;
    friend class Table;

    void retain(PageId id) {
        ++clock_->work;
        if (refs_[id]++ == 1 && cached_[id] != 0) {
            --idle_;
            listener_->busy(group_, id);
        }
    }

    // Drops one reference once step `last` has committed.
    void drop(PageId id, Step last) {
        if (clock_->has_committed(last))
            release(id);
        else
            fence_.hold(id, last);
    }

    void release(PageId id) {
        ++clock_->work;
        const std::int32_t left = --refs_[id];
        if (left == 0) {
            free_.push_back(id);
        } else if (left == 1 && cached_[id] != 0) {
            ++idle_;
            listener_->idle(group_, id);
        }
    }

    const Clock* clock_;
    PageListener* listener_ = nullptr;
    std::int32_t group_ = 0;
    std::int32_t idle_ = 0;
    std::vector<std::int32_t> refs_;
    std::vector<std::uint8_t> cached_;
    std::vector<PageId> free_;
    Fence<PageId> fence_;
};

// A page dropped outside a table may have been named by any planned step.
inline SealedPage::~SealedPage() {
    if (pool_ != nullptr) pool_->drop(id_, pool_->clock_->planned);
}

inline OpenPage::~OpenPage() {
    if (pool_ != nullptr) pool_->drop(id_, pool_->clock_->planned);
}

inline SealedPage SealedPage::share() const {
    pool_->retain(id_);
    return SealedPage(*pool_, id_);
}

} // namespace tsscheduler

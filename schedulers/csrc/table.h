// A request's page table in one cache group: sealed pages, then open ones, four bytes each.
#pragma once

#include "pages.h"

#include <array>
#include <vector>

namespace tsscheduler {

// Owns its pages; destroyed, it puts them behind the fence of the last step that names them. Pages
// that slid out of the window stand as the null page.
class Table {
  public:
    Table() = default;

    explicit Table(Pool& pool) : pool_(&pool) {}

    Table(Table&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), pages_(std::move(other.pages_)),
          last_(other.last_), sealed_(other.sealed_), gone_(other.gone_),
          announced_(other.announced_) {}

    Table& operator=(Table&& other) noexcept {
        if (this != &other) {
            clear();
            pool_ = std::exchange(other.pool_, nullptr);
            pages_ = std::move(other.pages_);
            last_ = other.last_;
            sealed_ = other.sealed_;
            gone_ = other.gone_;
            announced_ = other.announced_;
        }
        return *this;
    }

    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    ~Table() { clear(); }

    [[nodiscard]] std::int32_t size() const { return to_i32(pages_.size()); }

    [[nodiscard]] std::int32_t sealed() const { return sealed_; }

    [[nodiscard]] PageId page(std::int32_t index) const { return pages_[index]; }

    void reserve(std::int32_t pages) { pages_.reserve(static_cast<std::size_t>(pages)); }

    void append(OpenPage&& page) { pages_.push_back(std::move(page).forget()); }

    // Sealed pages come before all open ones.
    void append(SealedPage&& page) {
        assert(sealed_ == size());
        pages_.push_back(std::move(page).forget());
        ++sealed_;
    }

    // A page that the window has already passed.
    void append_gone() {
        assert(gone_ == size());
        pages_.push_back(kNullPage);
        ++sealed_;
        ++gone_;
    }

    // Moves all of the other table's pages behind these.
    void append(Table&& tail) {
        assert(sealed_ == size());
        if (gone_ == size()) gone_ += tail.gone_;
        sealed_ += tail.sealed_;
        pages_.insert(pages_.end(), tail.pages_.begin(), tail.pages_.end());
        tail.pages_.clear();
    }

    // One more owner of a sealed page that the window has not passed.
    [[nodiscard]] SealedPage share(std::int32_t index) const {
        assert(index < sealed_ && pages_[index] != kNullPage);
        pool_->retain(pages_[index]);
        return SealedPage(*pool_, pages_[index]);
    }

    // The last step that names this table: its pages outlive it.
    void touch(Step step) { last_ = step; }

    // The slot of a position within the page is this + the position; the page must be open.
    [[nodiscard]] std::int32_t base(std::int32_t index, std::int32_t page_size) const {
        assert(index >= sealed_ && pages_[index] != kNullPage);
        return (pages_[index] - index) * page_size;
    }

    // Asks for the memory of an entry.
    void prefetch(std::int32_t index) const { __builtin_prefetch(pages_.data() + index, 1); }

    // Publishes the first open page: its owner becomes one of several readers.
    void seal_next() {
        assert(sealed_ < size());
        if (pages_[sealed_] != kNullPage) {
            OpenPage open(*pool_, pages_[sealed_]);
            pages_[sealed_] = std::move(open).publish().forget();
        }
        ++sealed_;
    }

    // Gives up the pages below `index`, which the window has passed and step `last` may still read.
    void slide_to(std::int32_t index, Step last) {
        for (; gone_ < index && gone_ < size(); ++gone_)
            if (pages_[gone_] != kNullPage)
                pool_->drop(std::exchange(pages_[gone_], kNullPage), last);
    }

    // Calls visit(index, page) for entries that the device has not been told of yet.
    template <class Visit> void announce(Visit&& visit) {
        for (; announced_ < size(); ++announced_)
            visit(announced_, pages_[announced_]);
    }

    template <class Visit> void for_each_page(Visit&& visit) const {
        for (PageId id : pages_)
            if (id != kNullPage) visit(id);
    }

  private:
    // Back to front, so that a cached prefix outlives what follows it.
    void clear() noexcept {
        if (pool_ == nullptr) return;
        while (!pages_.empty()) {
            if (pages_.back() != kNullPage) pool_->drop(pages_.back(), last_);
            pages_.pop_back();
        }
        pool_ = nullptr;
    }

    Pool* pool_ = nullptr;
    std::vector<PageId> pages_;
    Step last_ = 0;
    std::int32_t sealed_ = 0;
    std::int32_t gone_ = 0;
    std::int32_t announced_ = 0;
};

// Cache groups are few: full attention, a window or two, a latent.
inline constexpr std::int32_t kMaxGroups = 4;

// One table a cache group.
class Tables {
  public:
    Tables() = default;

    [[nodiscard]] std::int32_t count() const { return to_i32(tables_.size()); }

    Table& add(Pool& pool) {
        assert(count() < kMaxGroups);
        return tables_.emplace_back(pool);
    }

    Table& operator[](std::int32_t group) { return tables_[group]; }

    const Table& operator[](std::int32_t group) const { return tables_[group]; }

    // Whether there is any page that no window has passed.
    [[nodiscard]] bool hold_pages() const {
        bool any = false;
        for (const Table& table : tables_)
            table.for_each_page([&any](PageId) { any = true; });
        return any;
    }

    void touch(Step step) {
        for (Table& table : tables_)
            table.touch(step);
    }

    // Asks for the memory of the entries that come next.
    void prefetch_ends() const {
        for (const Table& table : tables_)
            table.prefetch(table.size());
    }

    // Asks for the memory of the tables, not of their entries.
    void prefetch() const {
        for (const Table& table : tables_)
            __builtin_prefetch(&table, 1);
    }

  private:
    std::vector<Table> tables_;
};

} // namespace tsscheduler

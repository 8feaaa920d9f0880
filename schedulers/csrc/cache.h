// All pages: the pools of every cache group, the prefix tree over them, and the host tier.
#pragma once

#include "config.h"
#include "request.h"

#include <memory>

namespace tsscheduler {

// What of a request's prefix is cached, in pages, and on which nodes.
struct Hit {
    std::int32_t device = 0; // pages on the device
    std::int32_t host = 0;   // pages once those of the host are loaded behind them
    std::vector<NodeId> device_path{};
    std::vector<NodeId> host_path{};
    // Of the device's pages, how many could have been evicted to make room.
    std::array<std::int32_t, kMaxGroups> listed{};

    [[nodiscard]] std::int32_t pages() const { return std::max(device, host); }
};

class Cache {
  public:
    Cache(const Config& config, const Clock& clock);

    [[nodiscard]] std::int32_t groups() const { return to_i32(pools_.size()); }

    [[nodiscard]] const Pool& pool(std::int32_t group) const { return *pools_[group]; }

    // Null without host pages.
    [[nodiscard]] const Pool* host_pool(std::int32_t group) const {
        return host_tree_ ? host_pools_[group].get() : nullptr;
    }

    void pass(Step step);

    // The longest cached prefix that leaves at least one token to compute.
    [[nodiscard]] Hit find(const Request& request) const;

    // Pages that the request needs now, beyond the hit, to compute all of its tokens.
    [[nodiscard]] std::int32_t need(const Request& request, const Hit& hit,
                                    std::int32_t group) const;

    // Pages of a group that are free, or could be evicted without touching the hit.
    [[nodiscard]] std::int32_t obtainable(const Hit& hit, std::int32_t group) const {
        return pools_[group]->obtainable() - hit.listed[group];
    }

    // Gives the request the hit's pages on the device.
    void take(Residence& home, const Request& request, const Hit& hit);

    // Gives it what `parent` has of the same tokens beyond that: sealed pages, and a copy of the
    // open one. Returns whether there is a page to copy; source and copy then stand at the same
    // index, the table's last.
    bool fork(Residence& home, const Request& request, const Residence& parent);

    // New pages up to `end` positions; those that a table lacks must be obtainable.
    void grow(Table& table, std::int32_t group, std::int32_t end);
    [[nodiscard]] std::int32_t missing(const Table& table, std::int32_t end) const;

    [[nodiscard]] bool covers(const Tables& tables, std::int32_t end) const {
        for (std::int32_t g = 0; g < tables.count(); ++g)
            if (end > tables[g].size() * config_.page_size) return false;
        return true;
    }

    // Publishes what was committed and gives up what left the window. Needed once `committed` has
    // come to `settle_at`.
    void settle(Residence& home, const Request& request);

    // Asks for the memory that settling touches.
    void prefetch(const Residence& home, const Request& request) const;

    // Where the next decode writes, if its page is there and the device knows it.
    void remember_page(Residence& home) const;

    // host_tier.cpp: a ticket that loads the hit's pages of the host, with all other pages that the
    // request needs.
    [[nodiscard]] Ticket load(const Request& request, const Hit& hit);

    // A ticket that stores what the request has committed and the host has not; empty if there is
    // nothing to store or no room for it.
    [[nodiscard]] std::optional<Ticket> store(const Residence& home, const Request& request);

    // The host has the pages of the ticket.
    void stored(Ticket& ticket);

    // Whether some group has a window.
    [[nodiscard]] bool windowed() const { return windowed_; }

    // Pages ever published. Without windows a hit grows by no more than this does.
    [[nodiscard]] std::int64_t published() const { return tree_ ? tree_->adopted() : 0; }

    [[nodiscard]] std::string
    broken_invariant(const std::vector<std::vector<std::int32_t>>& owners,
                     const std::vector<std::vector<std::int32_t>>& host_owners) const;

  private:
    [[nodiscard]] std::span<const TokenId> page_tokens(const Request& request,
                                                       std::int32_t index) const;
    [[nodiscard]] std::int32_t longest(const Tree& tree, const std::vector<NodeId>& path,
                                       std::int32_t begin) const;
    void find_on_device(const Request& request, std::int32_t most, Hit& hit) const;
    void find_on_host(const Request& request, std::int32_t most, Hit& hit) const;
    bool keep_stored(Ticket& ticket, const Residence& home, const Request& request);
    bool add_stored(Ticket& ticket, const Residence& home, const Request& request);
    void append_hit(Table& table, Tree& tree, const std::vector<NodeId>& path, std::int32_t group,
                    std::int32_t end);

    const Config& config_;
    const Clock& clock_;
    bool windowed_ = false;
    Clock host_clock_{}; // no step names a page of the host
    std::vector<std::unique_ptr<Pool>> pools_;
    std::vector<std::unique_ptr<Pool>> host_pools_;
    std::unique_ptr<Tree> tree_;      // null without a prefix cache
    std::unique_ptr<Tree> host_tree_; // null without host pages
};

} // namespace tsscheduler

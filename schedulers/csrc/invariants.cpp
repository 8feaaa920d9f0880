// What must hold between any two calls. Recounts everything from scratch.
#include "scheduler.h"

namespace tsscheduler {

namespace {

using Owners = std::vector<std::vector<std::int32_t>>; // [groups, pages]

void count(Owners& owners, const Tables& tables) {
    for (std::int32_t g = 0; g < tables.count(); ++g)
        tables[g].for_each_page([&](PageId id) { ++owners[g][id]; });
}

// Every page is free, or fenced, or cached, or owned; and counts its owners.
std::string broken_pool(const Pool& pool, std::vector<std::int32_t> expected,
                        const std::vector<std::int32_t>& cached, const std::string& name) {
    pool.fence().for_each([&](PageId id) { ++expected[id]; });
    std::int32_t free = 0;
    std::int32_t idle = 0;
    for (PageId id = 1; id <= pool.total(); ++id) {
        if (expected[id] == 0 && cached[id] == 0) ++free;
        if (expected[id] == 0 && cached[id] > 0) ++idle;
        const std::int32_t counted = expected[id] + cached[id];
        if (pool.references(id) != counted)
            return "references: page " + std::to_string(id) + " of group '" + name + "' counts " +
                   std::to_string(pool.references(id)) + " but has " + std::to_string(counted);
    }
    if (free != pool.free() || idle != pool.idle())
        return "page conservation: group '" + name + "' has " + std::to_string(free) +
               " free and " + std::to_string(idle) + " cached pages, but counts " +
               std::to_string(pool.free()) + " and " + std::to_string(pool.idle());
    return {};
}

std::string broken_pools(const std::vector<std::unique_ptr<Pool>>& pools, const Tree* tree,
                         const Owners& owners, const Config& config) {
    Owners cached;
    for (const auto& pool : pools)
        cached.emplace_back(static_cast<std::size_t>(pool->total()) + 1, 0);
    if (tree != nullptr) {
        if (auto text = tree->broken_invariant(); !text.empty()) return text;
        tree->for_each_page([&](std::int32_t g, PageId id) { ++cached[g][id]; });
    }
    for (std::size_t g = 0; g < pools.size(); ++g)
        if (auto text = broken_pool(*pools[g], owners[g], cached[g], config.groups[g].name);
            !text.empty())
            return text;
    return {};
}

std::string broken_request(Request& request, std::int32_t page_size) {
    const std::string name = "request " + std::to_string(request.handle.index);
    if (request.pending < 0 || request.steps_in_flight < 0 || request.remaining() < 0)
        return "counters: " + name;
    const Residence* home = request.home();
    if (home == nullptr) return {};
    if (home->committed > home->planned || home->planned > request.known() + request.pending)
        return "cursors: " + name;
    for (std::int32_t g = 0; g < home->tables.count(); ++g) {
        const Table& table = home->tables[g];
        if (table.size() * page_size < home->planned)
            return "a table covers what is planned: " + name;
        if (table.sealed() * page_size > home->committed)
            return "what is sealed is committed: " + name;
    }
    return {};
}

} // namespace

std::string Cache::broken_invariant(const Owners& owners, const Owners& host_owners) const {
    if (auto text = broken_pools(pools_, tree_.get(), owners, config_); !text.empty()) return text;
    auto text = broken_pools(host_pools_, host_tree_.get(), host_owners, config_);
    return text.empty() ? text : "host " + text;
}

std::string Scheduler::broken_invariant() {
    Owners owners;
    Owners host_owners;
    for (std::int32_t g = 0; g < cache_.groups(); ++g) {
        owners.emplace_back(static_cast<std::size_t>(cache_.pool(g).total()) + 1, 0);
        host_owners.emplace_back(static_cast<std::size_t>(config_.host_pages) + 1, 0);
    }
    std::string broken;
    std::int32_t loading = 0;
    requests_.for_each([&](Request& request) {
        if (broken.empty()) broken = broken_request(request, config_.page_size);
        if (const Residence* home = request.home()) count(owners, home->tables);
        if (const auto* state = std::get_if<Loading>(&request.state)) {
            count(owners, state->home.tables);
            ++loading;
        }
    });
    transfers_.for_each([&](const Ticket& ticket) {
        count(owners, ticket.device);
        count(host_owners, ticket.host);
    });
    if (broken.empty()) broken = cache_.broken_invariant(owners, host_owners);
    if (!broken.empty()) return broken;
    const std::int32_t placed = running_.size() + loading_;
    if (loading != loading_) return "loading: is counted";
    if (placed + to_i32(waiting_.size()) != requests_.live()) return "every request has its queue";
    if (slots_.free() + slots_.fenced() + placed != slots_.total()) return "slot conservation";
    for (std::int32_t i = 0; i < running_.size(); ++i) {
        if (running_[i].home() == nullptr) return "who runs has a place";
        if (i > 0 && !(running_[i - 1].order < running_[i].order)) return "who runs is in order";
    }
    return {};
}

} // namespace tsscheduler

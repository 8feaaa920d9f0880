// What must hold between any two calls. Recounts everything from scratch.
#include "scheduler.h"

namespace tsscheduler {

namespace {

std::string broken_pool(const Pool& pool, const std::vector<std::int32_t>& owners,
                        const std::string& name) {
    std::vector<std::int32_t> expected = owners;
    pool.fence().for_each([&](PageId id) { ++expected[id]; });
    std::int32_t free = 0;
    for (PageId id = 1; id <= pool.total(); ++id) {
        if (pool.references(id) != expected[id])
            return "references: page " + std::to_string(id) + " of group '" + name + "' counts " +
                   std::to_string(pool.references(id)) + " but has " + std::to_string(expected[id]);
        if (expected[id] == 0) ++free;
    }
    if (free != pool.free())
        return "page conservation: group '" + name + "' has " + std::to_string(free) +
               " unreferenced pages but " + std::to_string(pool.free()) + " free ones";
    return {};
}

std::string broken_request(const Request& request, const Residence* home, std::int32_t page_size) {
    const std::string name = "request " + std::to_string(request.handle.index);
    if (request.pending < 0 || request.steps_in_flight < 0 || request.remaining() < 0)
        return "counters: " + name;
    if (home == nullptr) return {};
    if (home->committed > home->planned || home->planned > request.known() + request.pending)
        return "cursors: " + name;
    for (std::int32_t g = 0; g < home->tables.count(); ++g) {
        const Table& table = home->tables[g];
        if (table.size() * page_size < home->planned) return "table covers planned: " + name;
        if (table.sealed() > home->committed / page_size) return "sealed is committed: " + name;
    }
    return {};
}

} // namespace

std::string Scheduler::broken_invariant() {
    std::vector<std::vector<std::int32_t>> owners;
    for (const auto& pool : pools_)
        owners.emplace_back(static_cast<std::size_t>(pool->total()) + 1, 0);
    std::string broken;
    std::int32_t placed = 0;
    requests_.for_each([&](Request& request) {
        const Residence* home = request.home();
        if (broken.empty()) broken = broken_request(request, home, config_.page_size);
        if (home == nullptr) return;
        ++placed;
        for (std::int32_t g = 0; g < home->tables.count(); ++g)
            home->tables[g].for_each_page([&](PageId id) { ++owners[g][id]; });
    });
    for (std::size_t g = 0; g < pools_.size() && broken.empty(); ++g)
        broken = broken_pool(*pools_[g], owners[g], config_.groups[g].name);
    if (!broken.empty()) return broken;
    if (placed != running_.size()) return "running: every placed request runs";
    if (placed + to_i32(waiting_.size()) != requests_.live()) return "waiting: every other waits";
    if (slots_.free() + slots_.fenced() + placed != slots_.total()) return "slot conservation";
    for (std::int32_t i = 1; i < running_.size(); ++i)
        if (!(running_[i - 1].order < running_[i].order)) return "running is in order";
    return {};
}

} // namespace tsscheduler

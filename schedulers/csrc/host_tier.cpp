// The host tier: what a retracted request had committed waits in host memory.
#include "cache.h"

#include <algorithm>

namespace tsscheduler {

// Continues the device's hit with pages that only the host holds.
void Cache::find_on_host(const Request& request, std::int32_t most, Hit& hit) const {
    NodeId node = host_tree_->find_root(request.salt);
    while (node != kNoNode && to_i32(hit.host_path.size()) < most) {
        node = host_tree_->child(node, page_tokens(request, to_i32(hit.host_path.size())));
        if (node != kNoNode) hit.host_path.push_back(node);
    }
    hit.host = longest(*host_tree_, hit.host_path, hit.device);
}

Ticket Cache::load(const Request& request, const Hit& hit) {
    Ticket ticket{
        .kind = Ticket::Kind::load, .handle = request.handle, .begin = hit.device, .end = hit.host};
    for (std::int32_t g = 0; g < groups(); ++g) {
        const std::int32_t first =
            std::max(hit.device, config_.first_page(g, hit.host * config_.page_size));
        Table& from = ticket.host.add(*host_pools_[g]);
        Table& to = ticket.device.add(*pools_[g]);
        for (std::int32_t i = 0; i < hit.host; ++i) {
            if (i < first) {
                from.append_gone();
                if (i >= hit.device) to.append_gone();
            } else {
                from.append(host_tree_->share(hit.host_path[i], g));
                to.append(pools_[g]->allocate());
            }
        }
        if (!config_.groups[g].window)
            for (std::int32_t n = missing(to, request.known() - hit.device * config_.page_size);
                 n > 0; --n)
                to.append(pools_[g]->allocate());
    }
    return ticket;
}

std::optional<Ticket> Cache::store(const Residence& home, const Request& request) {
    if (!host_tree_) return std::nullopt;
    Ticket ticket{.kind = Ticket::Kind::store, .handle = request.handle};
    for (std::int32_t g = 0; g < groups(); ++g) {
        ticket.host.add(*host_pools_[g]);
        ticket.device.add(*pools_[g]).touch(home.last);
    }
    const std::int32_t complete = home.committed / config_.page_size;
    ticket.node = Anchor(*host_tree_, host_tree_->root(request.salt));
    while (ticket.begin < complete && keep_stored(ticket, home, request))
        ++ticket.begin;
    ticket.end = ticket.begin;
    while (ticket.end < complete && add_stored(ticket, home, request))
        ++ticket.end;
    if (!ticket.device.hold_pages()) return std::nullopt; // or nobody would acknowledge it
    return ticket;
}

// Pins the next page if the host has it.
bool Cache::keep_stored(Ticket& ticket, const Residence& home, const Request& request) {
    const std::int32_t index = ticket.begin;
    const NodeId node = host_tree_->child(ticket.node.node(), page_tokens(request, index));
    if (node == kNoNode) return false;
    for (std::int32_t g = 0; g < groups(); ++g)
        if (home.tables[g].page(index) != kNullPage && !host_tree_->holds(node, g)) return false;
    for (std::int32_t g = 0; g < groups(); ++g) {
        if (home.tables[g].page(index) == kNullPage)
            ticket.host[g].append_gone();
        else
            ticket.host[g].append(host_tree_->share(node, g));
    }
    ticket.node = Anchor(*host_tree_, node);
    return true;
}

// Adds the next page to the transfer if the host has room.
bool Cache::add_stored(Ticket& ticket, const Residence& home, const Request& request) {
    const std::int32_t index = ticket.end;
    for (std::int32_t g = 0; g < groups(); ++g)
        if (home.tables[g].page(index) != kNullPage && host_pools_[g]->obtainable() == 0)
            return false;
    for (std::int32_t g = 0; g < groups(); ++g) {
        if (home.tables[g].page(index) == kNullPage) {
            ticket.host[g].append_gone();
            ticket.device[g].append_gone();
        } else {
            ticket.host[g].append(host_pools_[g]->allocate());
            ticket.device[g].append(home.tables[g].share(index));
        }
    }
    const NodeId node = host_tree_->extend(ticket.node.node(), page_tokens(request, index));
    ticket.node = Anchor(*host_tree_, node);
    return true;
}

void Cache::stored(Ticket& ticket) {
    for (std::int32_t g = 0; g < groups(); ++g)
        while (ticket.host[g].sealed() < ticket.end)
            ticket.host[g].seal_next();
    NodeId node = ticket.node.node();
    for (std::int32_t index = ticket.end - 1; index >= ticket.begin; --index) {
        for (std::int32_t g = 0; g < groups(); ++g) {
            const bool offers = ticket.host[g].page(index) != kNullPage;
            if (offers && !host_tree_->holds(node, g))
                host_tree_->adopt(node, g, ticket.host[g].share(index));
        }
        node = host_tree_->parent(node);
    }
}

} // namespace tsscheduler
